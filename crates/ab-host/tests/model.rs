//! The model on the local driver, with and without the kernel's help, and under every view.

use std::path::Path;

use ab_core::{Backend, MemoryDriver, ScopeOptions};
use ab_host::{LocalDriver, LocalDriverOptions, PathResolutionMode};
use ab_testkit::model::{InitialFileLayer, WorkspaceLayout};
use ab_testkit::{TestBackend, model_tests};
use tempfile::TempDir;

/// Where files are kept in memory. One test is enough to meet a real disk.
const QUICK: &str = "/dev/shm";

fn quick() -> TempDir {
    if Path::new(QUICK).is_dir() {
        tempfile::tempdir_in(QUICK).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

fn whole(keep: &TempDir, resolution: PathResolutionMode) -> Backend {
    let options =
        LocalDriverOptions { path_resolution: resolution, ..LocalDriverOptions::default() };
    Backend::new(LocalDriver::open(keep.path(), options).unwrap())
}

fn scope(resolution: PathResolutionMode) -> TestBackend {
    let keep = quick();
    let whole = whole(&keep, resolution);
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, (whole, keep))
}

async fn plain() -> TestBackend {
    let keep = quick();
    TestBackend::keeping_alive(whole(&keep, PathResolutionMode::Auto), keep)
}

async fn on_disk() -> TestBackend {
    let keep = tempfile::tempdir().unwrap();
    TestBackend::keeping_alive(whole(&keep, PathResolutionMode::Auto), keep)
}

async fn walking() -> TestBackend {
    let keep = quick();
    TestBackend::keeping_alive(whole(&keep, PathResolutionMode::StepByStep), keep)
}

async fn scoped() -> TestBackend {
    scope(PathResolutionMode::Auto)
}

async fn walking_scoped() -> TestBackend {
    scope(PathResolutionMode::StepByStep)
}

async fn mounted() -> TestBackend {
    let (base, other) = (quick(), quick());
    let whole = whole(&base, PathResolutionMode::Auto);
    let mounted = whole.mount("b", &self::whole(&other, PathResolutionMode::Auto)).unwrap();
    TestBackend::keeping_alive(mounted, (whole, base, other))
}

/// Lays a workspace over files on the host.
async fn laid_over_files(upper: Backend, keep: TempDir) -> TestBackend {
    let below = quick();
    let lower = whole(&below, PathResolutionMode::Auto);
    for (path, text) in [("a/a", "ab\n"), ("a/b/a", "b"), ("a.b/b", ""), ("b", "aab")] {
        lower.write(path, text).await.unwrap();
    }
    lower.mkdir("ab/b").await.unwrap();
    let overlaid = lower.overlay(&upper).unwrap();
    TestBackend::keeping_alive(overlaid.backend().clone(), (overlaid, lower, upper, below, keep))
}

async fn local_over_local() -> TestBackend {
    let above = quick();
    laid_over_files(whole(&above, PathResolutionMode::Auto), above).await
}

async fn memory_over_local() -> TestBackend {
    laid_over_files(Backend::new(MemoryDriver::new()), quick()).await
}

const MOUNT: WorkspaceLayout =
    WorkspaceLayout { mounts: &["b"], initial_file_layer: InitialFileLayer::SameLayer };
const LOWER: WorkspaceLayout =
    WorkspaceLayout { mounts: &[], initial_file_layer: InitialFileLayer::LowerLayer };

model_tests! {
    local => plain,
    local_walking => walking,
    local_scoped => scoped,
    local_walking_scoped => walking_scoped,
    local_mounts => mounted where MOUNT,
    slow_local_on_disk => on_disk,
    slow_local_over_local => local_over_local where LOWER,
    slow_memory_over_local => memory_over_local where LOWER,
}
