//! The behaviour suite through the daemon's WebSocket: a workspace elsewhere behaves like here.

use std::time::Duration;

use ab_core::{Backend, ScopeOptions};
use ab_host::{LocalDriver, LocalDriverOptions};
use ab_remote::client::{RemoteClientSettings, RemoteDriver, RemoteEndpoint, SecretText};
use ab_remote::{HostKey, SshAccess, SshServer};
use ab_server::RunningHttpServer;
use ab_testkit::model::{WorkspaceLayout, check_against_reference_with_default_count};
use ab_testkit::{TestBackend, behaviour_suite};
use tempfile::TempDir;

use crate::caller::{TOKEN, guarded, open, serves};

/// A remote backend that reaches `served` through a port that asks for its token.
async fn through_a_port(served: Backend, keep: TempDir) -> TestBackend {
    let ssh = server(&served);
    let (backend, port) = connected(&served, ssh).await;
    TestBackend::keeping_alive(backend, (port, served, keep))
}

fn server(served: &Backend) -> SshServer {
    let key = HostKey::generate_ephemeral("a test").unwrap();
    SshServer::new(served.clone(), ab_remote::SshServerSettings::new(key, SshAccess::AnyUser))
}

async fn connected(served: &Backend, ssh: SshServer) -> (Backend, RunningHttpServer) {
    let port = open(serves(served).with_ssh(ssh), guarded()).await;
    let mut settings =
        RemoteClientSettings::parse(&format!("ws://{}/ssh", port.address())).unwrap();
    let RemoteEndpoint::WebSocket(socket) = &mut settings.endpoint else { panic!("{settings:?}") };
    socket.token = Some(SecretText::new(TOKEN));
    settings.root = served.info().root_aliases.first().cloned();
    let backend = Backend::new(RemoteDriver::new(settings).unwrap());
    backend.connect().await.unwrap();
    (backend, port)
}

#[tokio::test]
async fn destroying_closes_the_websocket() {
    let (served, _keep) = local();
    let ssh = server(&served);
    let (backend, port) = connected(&served, ssh.clone()).await;
    assert_eq!(ssh.connection_count(), 1);
    backend.destroy().await.unwrap();
    let gone = async {
        while ssh.connection_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("it stays");
    drop(port);
}

/// A request for a WebSocket may choose a part of the workspace, as any other may.
#[tokio::test]
async fn a_websocket_is_confined_to_the_scope_that_its_request_names() {
    let (served, _keep) = local();
    served.write("tenants/a/file", "theirs").await.unwrap();
    served.write("file", "not theirs").await.unwrap();
    let port = open(serves(&served).with_ssh(server(&served)), guarded()).await;
    let mut settings =
        RemoteClientSettings::parse(&format!("ws://{}/ssh", port.address())).unwrap();
    let RemoteEndpoint::WebSocket(socket) = &mut settings.endpoint else { panic!("{settings:?}") };
    socket.token = Some(SecretText::new(TOKEN));
    socket.headers.insert("X-Scope-Path", "tenants/a").unwrap();
    let backend = Backend::new(RemoteDriver::new(settings).unwrap());
    backend.connect().await.unwrap();
    assert_eq!(backend.read_text("file").await.unwrap(), "theirs");
    assert_eq!(backend.read_text("/file").await.unwrap(), "theirs");
    assert!(backend.read_text("../../file").await.is_err());
    let said = backend.exec("cat file; cat ../../file || true").await.unwrap();
    assert!(!said.stdout_text().contains("not theirs"), "{said:?}");
    backend.destroy().await.unwrap();
    port.shutdown().await;
}

fn local() -> (Backend, TempDir) {
    let keep = tempfile::tempdir().unwrap();
    let local = LocalDriver::open(keep.path(), LocalDriverOptions::default()).unwrap();
    (Backend::new(local), keep)
}

async fn to_local() -> TestBackend {
    let (local, keep) = local();
    through_a_port(local, keep).await
}

/// As with `--scopePath`: the scope is the server's.
async fn to_scope() -> TestBackend {
    let (local, keep) = local();
    let scope = local.scope("tenants/ada", ScopeOptions::default()).unwrap();
    through_a_port(scope, keep).await
}

behaviour_suite! { websocket_to_local => to_local }
behaviour_suite! { websocket_to_scoped => to_scope }

#[test]
fn websocket_to_local_is_as_the_model_says() {
    check_against_reference_with_default_count(
        "websocket_to_local",
        to_local,
        WorkspaceLayout::default(),
        100,
    );
}

#[test]
fn websocket_to_scoped_is_as_the_model_says() {
    check_against_reference_with_default_count(
        "websocket_to_scoped",
        to_scope,
        WorkspaceLayout::default(),
        100,
    );
}
