//! The behaviour suite over connections, to workspaces of several kinds.

use ab_core::{Backend, ScopeOptions};
use ab_remote::client::{
    Credential, HostKeyCheck, RemoteClientSettings, RemoteEndpoint, SecretText, SshEndpoint,
};
use ab_remote::{SshListenerOptions, SshServer, serve_ssh_on_listener};
use ab_testkit::model::{WorkspaceLayout, check_against_reference_with_default_count};
use ab_testkit::{TestBackend, behaviour_suite};
use agent_backend::LocalWorkspaceConfig;
use tokio::net::TcpListener;

use super::world::{connected, server, settings};

fn local(keep: &tempfile::TempDir) -> (Backend, SshServer) {
    let config = LocalWorkspaceConfig::new(keep.path()).prevent_dangerous_commands(false);
    let local = agent_backend::local_with(config).unwrap();
    let server = server(local.clone());
    (local, server)
}

async fn to_local() -> TestBackend {
    let keep = tempfile::tempdir().unwrap();
    let (local, server) = local(&keep);
    TestBackend::keeping_alive(connected(settings(&server)).await, (keep, local, server))
}

async fn to_memory() -> TestBackend {
    let memory = agent_backend::memory();
    let server = server(memory.clone());
    TestBackend::keeping_alive(connected(settings(&server)).await, (memory, server))
}

async fn by_tcp() -> TestBackend {
    let keep = tempfile::tempdir().unwrap();
    let (local, server) = local(&keep);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve_ssh_on_listener(
        listener,
        server.clone(),
        SshListenerOptions::default(),
    ));
    let settings = RemoteClientSettings::parse(&format!("ssh://agent@{address}")).unwrap();
    let RemoteEndpoint::Ssh(ssh) = settings.endpoint.clone() else { panic!("{settings:?}") };
    let ssh = SshEndpoint {
        credentials: vec![Credential::Password(SecretText::new("any"))],
        host_key: HostKeyCheck::Pin(server.settings().host_key.fingerprint().parse().unwrap()),
        ..ssh
    };
    let root = local.info().root_aliases.first().cloned();
    let settings = RemoteClientSettings { endpoint: RemoteEndpoint::Ssh(ssh), root, ..settings };
    TestBackend::keeping_alive(connected(settings).await, (keep, local, server, serving))
}

async fn in_scope() -> TestBackend {
    let keep = tempfile::tempdir().unwrap();
    let (local, server) = local(&keep);
    let whole = connected(settings(&server)).await;
    let scope = whole.scope("tenants/ada", ScopeOptions::default()).unwrap();
    TestBackend::keeping_alive(scope, (keep, local, server, whole))
}

behaviour_suite! { duplex_to_local => to_local }
behaviour_suite! { duplex_to_memory => to_memory }
behaviour_suite! { scope_over_duplex => in_scope }
behaviour_suite! { tcp_to_local => by_tcp }

/// Each sequence has a connection of its own, which takes longer than all it does.
const SEQUENCES: u32 = 100;

#[test]
fn duplex_to_local_is_as_the_model_says() {
    check_against_reference_with_default_count(
        "duplex_to_local",
        to_local,
        WorkspaceLayout::default(),
        SEQUENCES,
    );
}

#[test]
fn duplex_to_memory_is_as_the_model_says() {
    check_against_reference_with_default_count(
        "duplex_to_memory",
        to_memory,
        WorkspaceLayout::default(),
        SEQUENCES,
    );
}

#[test]
fn scope_over_duplex_is_as_the_model_says() {
    check_against_reference_with_default_count(
        "scope_over_duplex",
        in_scope,
        WorkspaceLayout::default(),
        SEQUENCES,
    );
}

#[test]
fn tcp_to_local_is_as_the_model_says() {
    check_against_reference_with_default_count(
        "tcp_to_local",
        by_tcp,
        WorkspaceLayout::default(),
        SEQUENCES,
    );
}
