//! The model on memory, plain and under scopes.

use ab_core::{Backend, Memory, ScopeOptions};
use ab_testkit::{World, model_tests};

async fn plain() -> World {
    World::new(Backend::new(Memory::new()))
}

async fn in_scope() -> World {
    let whole = Backend::new(Memory::new());
    whole.write("beside", "not in the scope").await.unwrap();
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    World::keeping(scope, whole)
}

model_tests! {
    memory => plain,
    memory_scoped => in_scope,
}
