//! The behaviour suite on the local driver, plain and under views, with and without the kernel's
//! help.

use std::sync::Arc;

use ab_core::journal::{JournalGuard, JournalVerbosity, MemoryJournalWriter};
use ab_core::{Backend, BackendOptions, Guards, Isolation, ScopeOptions};
use ab_host::{LocalDriver, LocalDriverOptions, LocalExecSettings, PathResolutionMode};
use ab_testkit::TestBackend;
use ab_testkit::behaviour_suite;

fn open(resolution: PathResolutionMode) -> (tempfile::TempDir, LocalDriver) {
    let keep = tempfile::tempdir().unwrap();
    let options =
        LocalDriverOptions { path_resolution: resolution, ..LocalDriverOptions::default() };
    let local = LocalDriver::open(keep.path(), options).unwrap();
    (keep, local)
}

async fn plain() -> TestBackend {
    let (keep, local) = open(PathResolutionMode::Auto);
    TestBackend::keeping_alive(Backend::new(local), keep)
}

async fn walking() -> TestBackend {
    let (keep, local) = open(PathResolutionMode::StepByStep);
    TestBackend::keeping_alive(Backend::new(local), keep)
}

async fn in_scope() -> TestBackend {
    let (keep, local) = open(PathResolutionMode::Auto);
    let whole = Backend::new(local);
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, (keep, whole))
}

async fn in_walking_scope() -> TestBackend {
    scoped_twice(PathResolutionMode::StepByStep)
}

async fn in_two_scopes() -> TestBackend {
    scoped_twice(PathResolutionMode::Auto)
}

fn scoped_twice(resolution: PathResolutionMode) -> TestBackend {
    let (keep, local) = open(resolution);
    let whole = Backend::new(local);
    let outer = whole.scope("tenants", ScopeOptions::default()).unwrap();
    let scope = outer.scope("ada", ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, (keep, whole, outer))
}

async fn with_guards() -> TestBackend {
    let (keep, local) = open(PathResolutionMode::Auto);
    let journal =
        JournalGuard::new(Arc::new(MemoryJournalWriter::default()), JournalVerbosity::Verbose);
    let guards = Guards { journal: Some(Arc::new(journal)), ..Guards::default() };
    let backend = Backend::with_options(
        Arc::new(local),
        BackendOptions { guards, ..BackendOptions::default() },
    );
    TestBackend::keeping_alive(backend, keep)
}

async fn overlaid() -> TestBackend {
    let ((below, lower), (above, upper)) =
        (open(PathResolutionMode::Auto), open(PathResolutionMode::Auto));
    let (lower, upper) = (Backend::new(lower), Backend::new(upper));
    let overlaid = lower.overlay(&upper).unwrap();
    TestBackend::keeping_alive(overlaid.backend().clone(), (overlaid, upper, below, above))
}

async fn overlaid_scoped() -> TestBackend {
    let whole = overlaid().await;
    let scope = whole.backend.scope("tenants/ada", ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, whole)
}

async fn mounted() -> TestBackend {
    let ((below, base), (above, other)) =
        (open(PathResolutionMode::Auto), open(PathResolutionMode::Auto));
    let whole = Backend::new(base).mount("mnt/data", &Backend::new(other)).unwrap();
    let scope = whole.scope("mnt/data", ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, (whole, below, above))
}

async fn beside_a_mount() -> TestBackend {
    let ((below, base), (above, other)) =
        (open(PathResolutionMode::Auto), open(PathResolutionMode::Auto));
    let whole = Backend::new(base).mount("mnt/data", &Backend::new(other)).unwrap();
    let scope = whole.scope("mnt/beside", ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, (whole, below, above))
}

/// A workspace whose commands run behind other walls than the strongest.
fn behind(isolation: Isolation) -> (tempfile::TempDir, Backend) {
    let keep = tempfile::tempdir().unwrap();
    let screen = Some(ab_policy::check_command_paths as ab_core::CommandLineCheck);
    let exec =
        LocalExecSettings { isolation, command_line_check: screen, ..LocalExecSettings::default() };
    let local = LocalDriver::open(
        keep.path(),
        LocalDriverOptions { exec, ..LocalDriverOptions::default() },
    );
    (keep, Backend::new(local.unwrap()))
}

async fn bwrap() -> TestBackend {
    let (keep, backend) = behind(Isolation::Bwrap);
    TestBackend::keeping_alive(backend, keep)
}

async fn landlock() -> TestBackend {
    let (keep, backend) = behind(Isolation::Landlock);
    TestBackend::keeping_alive(backend, keep)
}

async fn landlock_scoped() -> TestBackend {
    let (keep, whole) = behind(Isolation::Landlock);
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, (keep, whole))
}

async fn software() -> TestBackend {
    let (keep, backend) = behind(Isolation::Software);
    TestBackend::keeping_alive(backend, keep)
}

async fn open_to_all() -> TestBackend {
    let (keep, backend) = behind(Isolation::None);
    TestBackend::keeping_alive(backend, keep)
}

behaviour_suite! { local => plain }
behaviour_suite! { local_bwrap => bwrap, commands }
behaviour_suite! { local_landlock => landlock, commands }
behaviour_suite! { local_landlock_scoped => landlock_scoped, commands }
behaviour_suite! { local_software => software, commands }
behaviour_suite! { local_open => open_to_all, commands }
behaviour_suite! { local_walking => walking }
behaviour_suite! { local_scoped => in_scope }
behaviour_suite! { local_scoped_twice => in_two_scopes }
behaviour_suite! { local_walking_scoped_twice => in_walking_scope }
behaviour_suite! { local_guarded => with_guards }
behaviour_suite! { local_overlaid => overlaid }
behaviour_suite! { local_overlaid_scoped => overlaid_scoped }
behaviour_suite! { local_mounted => mounted }
behaviour_suite! { local_beside_a_mount => beside_a_mount }
