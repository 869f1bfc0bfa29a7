//! The behaviour suite on memory, under scopes, under guards, and under both.

use std::sync::Arc;

use ab_core::journal::{Journal, MemoryWriter, Mode};
use ab_core::{Assembly, Backend, Guard, Guards, Memory, ScopeOptions};
use ab_testkit::{Gate, Log, World, behaviour_suite};

fn plain() -> Backend {
    Backend::new(Memory::new())
}

/// A guard that lets everything pass in every place where one can stand, and a verbose journal.
fn with_guards() -> Backend {
    let log = Log::default();
    let open = |number| Arc::new(Gate::open(number, &log)) as Arc<dyn Guard>;
    let guards = Guards {
        trace: vec![open(1)],
        journal: Some(Arc::new(Journal::new(Arc::<MemoryWriter>::default(), Mode::Verbose))),
        policy: vec![open(2), open(3)],
        limits: vec![open(4)],
    };
    Backend::assemble(Arc::new(Memory::new()), Assembly { guards, ..Assembly::default() })
}

/// Scopes a backend and keeps it, with something beside the scope that must not be seen.
async fn below(parent: Backend, path: &str) -> World {
    parent.write("beside", "not in the scope").await.unwrap();
    let scope = parent.scope(path, ScopeOptions::default()).unwrap();
    World::keeping(scope, parent)
}

async fn memory() -> World {
    World::new(plain())
}

async fn memory_scoped() -> World {
    below(plain(), "tenants/a").await
}

async fn memory_scoped_twice() -> World {
    let outer = plain().scope("tenants/a", ScopeOptions::default()).unwrap();
    below(outer, "jobs/1").await
}

/// A scope whose root is that of its parent.
async fn memory_scoped_at_root() -> World {
    World::new(plain().scope(".", ScopeOptions::default()).unwrap())
}

async fn guarded() -> World {
    World::new(with_guards())
}

async fn guarded_scoped() -> World {
    below(with_guards(), "tenants/a").await
}

/// A scope with a journal of its own: guards above the scope, and below it.
async fn guarded_scoped_guarded() -> World {
    let journal = Arc::new(Journal::new(Arc::<MemoryWriter>::default(), Mode::Verbose));
    let options = ScopeOptions { journal: Some(journal), ..ScopeOptions::default() };
    World::new(with_guards().scope("tenants/a", options).unwrap())
}

behaviour_suite! { on_memory => memory }
behaviour_suite! { on_memory_scoped => memory_scoped }
behaviour_suite! { on_memory_scoped_twice => memory_scoped_twice }
behaviour_suite! { on_memory_scoped_at_root => memory_scoped_at_root }
behaviour_suite! { on_guarded => guarded }
behaviour_suite! { on_guarded_scoped => guarded_scoped }
behaviour_suite! { on_guarded_scoped_guarded => guarded_scoped_guarded }
