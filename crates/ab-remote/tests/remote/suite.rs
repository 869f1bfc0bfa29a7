//! The behaviour suite over connections, to workspaces of several kinds.

use ab_core::{Backend, ScopeOptions};
use ab_remote::Server;
use ab_testkit::{World, behaviour_suite};
use agent_backend::LocalConfig;

use super::world::{connected, server, settings};

fn local(keep: &tempfile::TempDir) -> (Backend, Server) {
    let config = LocalConfig::new(keep.path()).prevent_dangerous(false);
    let local = agent_backend::local_with(config).unwrap();
    let server = server(local.clone());
    (local, server)
}

async fn to_local() -> World {
    let keep = tempfile::tempdir().unwrap();
    let (local, server) = local(&keep);
    World::keeping(connected(settings(&server)).await, (keep, local, server))
}

async fn to_memory() -> World {
    let memory = agent_backend::memory();
    let server = server(memory.clone());
    World::keeping(connected(settings(&server)).await, (memory, server))
}

async fn in_scope() -> World {
    let keep = tempfile::tempdir().unwrap();
    let (local, server) = local(&keep);
    let whole = connected(settings(&server)).await;
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    World::keeping(scope, (keep, local, server, whole))
}

behaviour_suite! { duplex_to_local => to_local }
behaviour_suite! { duplex_to_memory => to_memory }
behaviour_suite! { scope_over_duplex => in_scope }
