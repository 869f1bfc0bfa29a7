//! The behaviour suite on memory, under scopes, under guards, and under both.

use std::sync::Arc;

use ab_core::journal::{JournalGuard, JournalVerbosity, MemoryJournalWriter};
use ab_core::options::RemoveOptions;
use ab_core::{Backend, BackendOptions, Guard, Guards, MemoryDriver, ScopeOptions};
use ab_testkit::{GuardLog, ScriptedGuard, TestBackend, behaviour_suite};

fn plain() -> Backend {
    Backend::new(MemoryDriver::new())
}

/// A guard that lets everything pass in every place where one can stand, and a verbose journal.
fn with_guards() -> Backend {
    let log = GuardLog::default();
    let open = |number| Arc::new(ScriptedGuard::allow_all(number, &log)) as Arc<dyn Guard>;
    let guards = Guards {
        trace: vec![open(1)],
        journal: Some(Arc::new(JournalGuard::new(
            Arc::<MemoryJournalWriter>::default(),
            JournalVerbosity::Verbose,
        ))),
        policy: vec![open(2), open(3)],
        limits: vec![open(4)],
    };
    Backend::with_options(
        Arc::new(MemoryDriver::new()),
        BackendOptions { guards, ..BackendOptions::default() },
    )
}

/// Scopes a backend and keeps it, with something beside the scope that must not be seen.
async fn below(parent: Backend, path: &str) -> TestBackend {
    parent.write("beside", "not in the scope").await.unwrap();
    let scope = parent.scope(path, ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, parent)
}

async fn memory() -> TestBackend {
    TestBackend::new(plain())
}

async fn memory_scoped() -> TestBackend {
    below(plain(), "tenants/a").await
}

async fn memory_scoped_twice() -> TestBackend {
    let outer = plain().scope("tenants/a", ScopeOptions::default()).unwrap();
    below(outer, "jobs/1").await
}

/// A scope whose root is that of its parent.
async fn memory_scoped_at_root() -> TestBackend {
    TestBackend::new(plain().scope(".", ScopeOptions::default()).unwrap())
}

async fn guarded() -> TestBackend {
    TestBackend::new(with_guards())
}

async fn guarded_scoped() -> TestBackend {
    below(with_guards(), "tenants/a").await
}

/// A scope with a journal of its own: guards above the scope, and below it.
async fn guarded_scoped_guarded() -> TestBackend {
    let journal = Arc::new(JournalGuard::new(
        Arc::<MemoryJournalWriter>::default(),
        JournalVerbosity::Verbose,
    ));
    let options = ScopeOptions { journal: Some(journal), ..ScopeOptions::default() };
    TestBackend::new(with_guards().scope("tenants/a", options).unwrap())
}

/// A workspace that is mounted into another, seen through the view and nowhere else.
async fn mounted() -> TestBackend {
    let whole = plain().mount("mnt/data", &plain()).unwrap();
    below(whole, "mnt/data").await
}

/// Beside a mount, in the workspace that others are mounted into.
async fn beside_a_mount() -> TestBackend {
    let whole = plain().mount("other/mnt", &plain()).unwrap();
    below(whole, "work").await
}

/// In a mount that has another one beside what is looked at, and lies in a third.
async fn mounted_in_a_mount() -> TestBackend {
    let whole = plain().mount("outer", &plain()).unwrap();
    let whole = whole.mount("outer/inner", &plain()).unwrap();
    below(whole.mount("outer/inner/deep", &plain()).unwrap(), "outer/inner/work").await
}

/// Laid over a workspace with nothing in it.
async fn overlay() -> TestBackend {
    let overlaid = plain().overlay(&plain()).unwrap();
    TestBackend::keeping_alive(overlaid.backend().clone(), overlaid)
}

/// Laid over a workspace whose content was all removed, so that marks are everywhere.
async fn overlay_emptied() -> TestBackend {
    let lower = plain();
    for path in ["file", "dir/file", "a/b/c", "from/old", "b/inner/deep/old", "log"] {
        lower.write(path, "removed").await.unwrap();
    }
    let overlaid = lower.overlay(&plain()).unwrap();
    for name in lower.readdir(".").await.unwrap() {
        overlaid.backend().rm(&name, RemoveOptions::recursive()).await.unwrap();
    }
    TestBackend::keeping_alive(overlaid.backend().clone(), (overlaid, lower))
}

/// An overlay over an overlay over something.
async fn overlay_over_overlay() -> TestBackend {
    let lower = plain();
    lower.write("tenants/a/old", "removed").await.unwrap();
    let first = lower.overlay(&plain()).unwrap();
    first.backend().rm("tenants/a/old", RemoveOptions::default()).await.unwrap();
    let second = first.backend().overlay(&plain()).unwrap();
    let world = below(second.backend().clone(), "tenants/a").await;
    TestBackend::keeping_alive(world.backend.clone(), (world, first, second))
}

behaviour_suite! { on_memory => memory }
behaviour_suite! { on_overlay => overlay }
behaviour_suite! { on_overlay_emptied => overlay_emptied }
behaviour_suite! { on_overlay_over_overlay => overlay_over_overlay }
behaviour_suite! { on_mounted => mounted }
behaviour_suite! { on_beside_a_mount => beside_a_mount }
behaviour_suite! { on_mounted_in_a_mount => mounted_in_a_mount }
behaviour_suite! { on_memory_scoped => memory_scoped }
behaviour_suite! { on_memory_scoped_twice => memory_scoped_twice }
behaviour_suite! { on_memory_scoped_at_root => memory_scoped_at_root }
behaviour_suite! { on_guarded => guarded }
behaviour_suite! { on_guarded_scoped => guarded_scoped }
behaviour_suite! { on_guarded_scoped_guarded => guarded_scoped_guarded }
