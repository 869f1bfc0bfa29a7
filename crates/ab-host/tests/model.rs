//! The model on the local driver, with and without the kernel's help, and under scopes.

use std::path::Path;

use ab_core::{Backend, ScopeOptions};
use ab_host::{Local, LocalOptions, Resolution};
use ab_testkit::{World, model_tests};
use tempfile::TempDir;

/// Where files are kept in memory. One backend is enough to meet a real disk.
const QUICK: &str = "/dev/shm";

fn quick() -> TempDir {
    match Path::new(QUICK).is_dir() {
        true => tempfile::tempdir_in(QUICK).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn whole(keep: &TempDir, resolution: Resolution) -> Backend {
    let options = LocalOptions { resolution, ..LocalOptions::default() };
    Backend::new(Local::open(keep.path(), options).unwrap())
}

fn scope(resolution: Resolution) -> World {
    let keep = quick();
    let whole = whole(&keep, resolution);
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    World::keeping(scope, (whole, keep))
}

async fn on_disk() -> World {
    let keep = tempfile::tempdir().unwrap();
    World::keeping(whole(&keep, Resolution::Auto), keep)
}

async fn walking() -> World {
    let keep = quick();
    World::keeping(whole(&keep, Resolution::Walk), keep)
}

async fn scoped() -> World {
    scope(Resolution::Auto)
}

async fn walking_scoped() -> World {
    scope(Resolution::Walk)
}

model_tests! {
    local => on_disk,
    local_walking => walking,
    local_scoped => scoped,
    local_walking_scoped => walking_scoped,
}
