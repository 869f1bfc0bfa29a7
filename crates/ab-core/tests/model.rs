//! The model on memory, plain and under every view.

use ab_core::options::RemoveOptions;
use ab_core::{Backend, MemoryDriver, ScopeOptions};
use ab_testkit::model::{InitialFileLayer, WorkspaceLayout};
use ab_testkit::{TestBackend, model_tests};

fn empty() -> Backend {
    Backend::new(MemoryDriver::new())
}

/// Something of every kind where sequences look for it.
async fn planted() -> Backend {
    let backend = empty();
    for (path, text) in [("a/a", "ab\n"), ("a/b/a", "b"), ("a.b/b", ""), ("b", "aab")] {
        backend.write(path, text).await.unwrap();
    }
    backend
}

async fn plain() -> TestBackend {
    TestBackend::new(empty())
}

async fn scoped() -> TestBackend {
    let whole = empty();
    whole.write("beside", "not in the scope").await.unwrap();
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, whole)
}

async fn inside_a_mount() -> TestBackend {
    let whole = empty().mount("mnt/data", &empty()).unwrap();
    TestBackend::keeping_alive(whole.scope("mnt/data", ScopeOptions::default()).unwrap(), whole)
}

async fn with_a_mount() -> TestBackend {
    TestBackend::new(empty().mount("b", &empty()).unwrap())
}

/// One mount in another, and one at the end of a directory that only it makes.
async fn with_mounts() -> TestBackend {
    let whole = planted().await.mount("a.b/a", &empty()).unwrap();
    let whole = whole.mount("ab", &planted().await).unwrap();
    TestBackend::new(whole.mount("ab/a", &empty()).unwrap())
}

async fn over_nothing() -> TestBackend {
    let overlaid = empty().overlay(&empty()).unwrap();
    TestBackend::keeping_alive(overlaid.backend().clone(), overlaid)
}

async fn over_something() -> TestBackend {
    let overlaid = planted().await.overlay(&empty()).unwrap();
    TestBackend::keeping_alive(overlaid.backend().clone(), overlaid)
}

/// Nothing of the lower layer shows any more.
async fn emptied() -> TestBackend {
    let overlaid = planted().await.overlay(&empty()).unwrap();
    let backend = overlaid.backend().clone();
    for name in backend.readdir(".").await.unwrap() {
        backend.rm(&name, RemoveOptions::recursive()).await.unwrap();
    }
    TestBackend::keeping_alive(backend, overlaid)
}

const ONE_MOUNT: WorkspaceLayout =
    WorkspaceLayout { mounts: &["b"], initial_file_layer: InitialFileLayer::SameLayer };
const MOUNTS: WorkspaceLayout = WorkspaceLayout {
    mounts: &["a.b/a", "ab", "ab/a"],
    initial_file_layer: InitialFileLayer::SameLayer,
};
const LOWER: WorkspaceLayout =
    WorkspaceLayout { mounts: &[], initial_file_layer: InitialFileLayer::LowerLayer };

model_tests! {
    memory => plain,
    memory_scoped => scoped,
    mounted => inside_a_mount,
    mounts => with_a_mount where ONE_MOUNT,
    mounts_nested => with_mounts where MOUNTS,
    overlay => over_nothing,
    overlay_emptied => emptied,
    overlay_over_files => over_something where LOWER,
}
