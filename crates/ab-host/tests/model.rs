//! The model on the local driver, with and without the kernel's help, and under scopes.

use ab_core::{Backend, ScopeOptions};
use ab_host::{Local, LocalOptions, Resolution};
use ab_testkit::{World, model_tests};

fn open(resolution: Resolution) -> (tempfile::TempDir, Backend) {
    let keep = tempfile::tempdir().unwrap();
    let options = LocalOptions { resolution, ..LocalOptions::default() };
    let local = Local::open(keep.path(), options).unwrap();
    (keep, Backend::new(local))
}

fn in_scope(resolution: Resolution) -> World {
    let (keep, whole) = open(resolution);
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    World::keeping(scope, (whole, keep))
}

async fn plain() -> World {
    let (keep, backend) = open(Resolution::Auto);
    World::keeping(backend, keep)
}

async fn walking() -> World {
    let (keep, backend) = open(Resolution::Walk);
    World::keeping(backend, keep)
}

async fn scoped() -> World {
    in_scope(Resolution::Auto)
}

async fn walking_scoped() -> World {
    in_scope(Resolution::Walk)
}

model_tests! {
    local => plain,
    local_walking => walking,
    local_scoped => scoped,
    local_walking_scoped => walking_scoped,
}
