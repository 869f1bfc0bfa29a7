//! The model on memory, plain and under every view.

use ab_core::options::RemoveOptions;
use ab_core::{Backend, Memory, ScopeOptions};
use ab_testkit::model::{Given, Layout};
use ab_testkit::{World, model_tests};

fn empty() -> Backend {
    Backend::new(Memory::new())
}

/// Something of every kind where sequences look for it.
async fn planted() -> Backend {
    let backend = empty();
    for (path, text) in [("a/a", "ab\n"), ("a/b/a", "b"), ("a.b/b", ""), ("b", "aab")] {
        backend.write(path, text).await.unwrap();
    }
    backend
}

async fn plain() -> World {
    World::new(empty())
}

async fn scoped() -> World {
    let whole = empty();
    whole.write("beside", "not in the scope").await.unwrap();
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    World::keeping(scope, whole)
}

async fn inside_a_mount() -> World {
    let whole = empty().mount("mnt/data", &empty()).unwrap();
    World::keeping(whole.scope("mnt/data", ScopeOptions::default()).unwrap(), whole)
}

async fn with_a_mount() -> World {
    World::new(empty().mount("b", &empty()).unwrap())
}

/// One mount in another, and one at the end of a directory that only it makes.
async fn with_mounts() -> World {
    let whole = planted().await.mount("a.b/a", &empty()).unwrap();
    let whole = whole.mount("ab", &planted().await).unwrap();
    World::new(whole.mount("ab/a", &empty()).unwrap())
}

async fn over_nothing() -> World {
    let overlaid = empty().overlay(&empty()).unwrap();
    World::keeping(overlaid.backend().clone(), overlaid)
}

async fn over_something() -> World {
    let overlaid = planted().await.overlay(&empty()).unwrap();
    World::keeping(overlaid.backend().clone(), overlaid)
}

/// Nothing of the lower layer shows any more.
async fn emptied() -> World {
    let overlaid = planted().await.overlay(&empty()).unwrap();
    let backend = overlaid.backend().clone();
    for name in backend.readdir(".").await.unwrap() {
        backend.rm(&name, RemoveOptions::recursive()).await.unwrap();
    }
    World::keeping(backend, overlaid)
}

const ONE_MOUNT: Layout = Layout { mounts: &["b"], given: Given::Here };
const MOUNTS: Layout = Layout { mounts: &["a.b/a", "ab", "ab/a"], given: Given::Here };
const LOWER: Layout = Layout { mounts: &[], given: Given::Below };

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
