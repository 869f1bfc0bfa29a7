//! The model on the local driver, with and without the kernel's help, and under every view.

use std::path::Path;

use ab_core::{Backend, Memory, ScopeOptions};
use ab_host::{Local, LocalOptions, PathResolution};
use ab_testkit::model::{Given, Layout};
use ab_testkit::{World, model_tests};
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

fn whole(keep: &TempDir, resolution: PathResolution) -> Backend {
    let options = LocalOptions { resolution, ..LocalOptions::default() };
    Backend::new(Local::open(keep.path(), options).unwrap())
}

fn scope(resolution: PathResolution) -> World {
    let keep = quick();
    let whole = whole(&keep, resolution);
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    World::keeping(scope, (whole, keep))
}

async fn plain() -> World {
    let keep = quick();
    World::keeping(whole(&keep, PathResolution::Auto), keep)
}

async fn on_disk() -> World {
    let keep = tempfile::tempdir().unwrap();
    World::keeping(whole(&keep, PathResolution::Auto), keep)
}

async fn walking() -> World {
    let keep = quick();
    World::keeping(whole(&keep, PathResolution::Walk), keep)
}

async fn scoped() -> World {
    scope(PathResolution::Auto)
}

async fn walking_scoped() -> World {
    scope(PathResolution::Walk)
}

async fn mounted() -> World {
    let (base, other) = (quick(), quick());
    let whole = whole(&base, PathResolution::Auto);
    let mounted = whole.mount("b", &self::whole(&other, PathResolution::Auto)).unwrap();
    World::keeping(mounted, (whole, base, other))
}

/// Lays a workspace over files on the host.
async fn laid_over_files(upper: Backend, keep: TempDir) -> World {
    let below = quick();
    let lower = whole(&below, PathResolution::Auto);
    for (path, text) in [("a/a", "ab\n"), ("a/b/a", "b"), ("a.b/b", ""), ("b", "aab")] {
        lower.write(path, text).await.unwrap();
    }
    lower.mkdir("ab/b").await.unwrap();
    let overlaid = lower.overlay(&upper).unwrap();
    World::keeping(overlaid.backend().clone(), (overlaid, lower, upper, below, keep))
}

async fn local_over_local() -> World {
    let above = quick();
    laid_over_files(whole(&above, PathResolution::Auto), above).await
}

async fn memory_over_local() -> World {
    laid_over_files(Backend::new(Memory::new()), quick()).await
}

const MOUNT: Layout = Layout { mounts: &["b"], given: Given::Here };
const LOWER: Layout = Layout { mounts: &[], given: Given::Below };

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
