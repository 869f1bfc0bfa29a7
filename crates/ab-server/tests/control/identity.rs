//! The served directory: each caller is the actor of its own calls.

use std::sync::Arc;

use ab_acp::gateway::AgentGateway;
use ab_core::journal::{JournalGuard, JournalVerbosity, MemoryJournalWriter};
use ab_core::{Backend, BackendOptions, Guards, MemoryDriver, MemoryDriverOptions};
use ab_remote::client::{RemoteClientSettings, RemoteDriver, RemoteEndpoint, SecretText};
use ab_remote::{HostKey, SshAccess, SshServer, SshServerSettings};
use ab_server::{AgentGatewayRoutes, ServedDirectory};
use serde_json::json;

use super::fake::{JSON, Served, serve_beside};
use crate::caller::{Got, ROOT, call, head, send, serves};
use crate::gateway::unsandboxed;

const MCP: [(&str, &str); 2] = [JSON, ("accept", "application/json, text/event-stream")];

/// A port with a control plane and every route over one journaled directory.
async fn serve_directory() -> (Served, Arc<MemoryJournalWriter>) {
    let writer = Arc::new(MemoryJournalWriter::default());
    let journal = Arc::new(JournalGuard::new(writer.clone(), JournalVerbosity::Standard));
    let guards = Guards { journal: Some(journal), ..Guards::default() };
    let driver = MemoryDriver::with_options(MemoryDriverOptions {
        root: ROOT.to_owned(),
        ..Default::default()
    });
    let options = BackendOptions { guards, ..BackendOptions::default() };
    let backend = Backend::with_options(Arc::new(driver.unwrap()), options);
    let key = HostKey::generate_ephemeral("a test").unwrap();
    let ssh = SshServer::new(backend.clone(), SshServerSettings::new(key, SshAccess::AnyUser));
    let gateway = AgentGateway::new(unsandboxed(ROOT.into()));
    let gateway =
        AgentGatewayRoutes::new(gateway).with_files(ServedDirectory::new(backend.clone(), ROOT));
    let served = serve_beside(|app| {
        app.with_daemon_routes(serves(&backend).with_ssh(ssh)).with_agent_gateway_routes(gateway)
    });
    (served.await, writer)
}

async fn ask(
    served: &Served,
    key: &str,
    request: (&str, &str),
    more: &[(&str, &str)],
    body: &str,
) -> Got {
    let shown = format!("Bearer {key}");
    let headers = [&[("authorization", shown.as_str())], more].concat();
    send(served.address(), &head(request.0, request.1, &headers), body).await
}

#[tokio::test]
async fn every_route_over_the_served_directory_acts_as_its_caller() {
    let (served, writer) = serve_directory().await;
    let key = served.key("laptop").await;
    let actors = || {
        let actors: Vec<String> = writer.records().into_iter().map(|it| it.actor).collect();
        writer.clear();
        actors
    };
    let write = call("write_file", json!({ "path": "a", "content": "x" })).to_string();
    let server = json!({ "type": "remote", "url": "https://mcp.example" }).to_string();
    let scoped = [MCP.as_slice(), &[("x-scope-path", "tenants/a")]].concat();
    let tar = [("content-type", "application/x-tar")];
    for (request, headers, body) in [
        (("POST", "/mcp"), MCP.as_slice(), write.as_str()),
        (("POST", "/mcp"), scoped.as_slice(), write.as_str()),
        (("PUT", "/v1/fs/file?path=b"), &[], "x"),
        (("POST", "/v1/fs/mkdir?path=made"), &[], ""),
        (("POST", "/v1/fs/move"), &[JSON], r#"{"from":"b","to":"c"}"#),
        (("DELETE", "/v1/fs/entry?path=c"), &[], ""),
        (("POST", "/v1/fs/upload-batch?path=made"), &tar, &"\0".repeat(1024)),
        (("PUT", "/v1/config/mcp?directory=tenants&mcpName=docs"), &[JSON], &server),
    ] {
        let got = ask(&served, &key, request, headers, body).await;
        assert!((200..300).contains(&got.status), "{request:?}: {got:?}");
        let actors = actors();
        assert!(!actors.is_empty(), "{request:?} is not in the journal");
        assert!(actors.iter().all(|actor| actor == "api-key:laptop"), "{request:?}: {actors:?}");
    }
    let mut settings =
        RemoteClientSettings::parse(&format!("ws://{}/ssh", served.address())).unwrap();
    let RemoteEndpoint::WebSocket(socket) = &mut settings.endpoint else { panic!("{settings:?}") };
    socket.token = Some(SecretText::new(&key));
    let remote = Backend::new(RemoteDriver::new(settings).unwrap());
    remote.write("over-ssh", "x").await.unwrap();
    let actors = actors();
    assert!(!actors.is_empty() && actors.iter().all(|it| it == "api-key:laptop"), "{actors:?}");
    remote.destroy().await.unwrap();
}

#[tokio::test]
async fn an_mcp_session_is_of_the_key_that_began_it() {
    let (served, _writer) = serve_directory().await;
    let (mine, other) = (served.key("mine").await, served.key("other").await);
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    } });
    let start = ("POST", "/mcp?session=true");
    let begun = ask(&served, &mine, start, &MCP, &initialize.to_string()).await;
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let within = [MCP.as_slice(), &[("mcp-session-id", session.as_str())]].concat();
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    for (method, body) in [("POST", ping.as_str()), ("GET", ""), ("DELETE", "")] {
        let got = ask(&served, &other, (method, "/mcp"), &within, body).await;
        assert_eq!(got.status, 404, "{method}: {got:?}");
    }
    assert_eq!(ask(&served, &mine, ("POST", "/mcp"), &within, &ping).await.status, 200);
    assert_eq!(ask(&served, &mine, ("DELETE", "/mcp"), &within, "").await.status, 202);
}
