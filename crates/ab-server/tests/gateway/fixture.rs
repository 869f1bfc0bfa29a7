//! A port with a gateway whose agents are shell scripts, and its callers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use ab_acp::catalog::{AgentCatalog, AgentCatalogEntry};
use ab_acp::gateway::{AgentGateway, AgentGatewaySettings, AgentResolver, AgentSandboxSettings};
use ab_core::{Isolation, NetworkAccess};
use ab_server::{
    AgentGatewayRoutes, HttpAccessPolicy, HttpApp, HttpServer, RunningHttpServer, ServedDirectory,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::caller::{Got, head, local, open_with, send};

/// An agent: it answers requests with what they were, tells of every message, and does what some methods name.
pub(super) const ECHO: &str = r#"
while IFS= read -r line; do
    id=${line#*'"id":'}; id=${id%%[,\}]*}
    case "$line" in
        *'"method":"exit"'*) echo 'last words' >&2; exit 3 ;;
        *'"method":"hang"'*) printf '{"method":"hanging"}\n'; continue ;;
        *'"method":"garbage"'*) printf 'not a message\n' ;;
        *'"method":"ask"'*) printf '{"id":"q","method":"question"}\n'; continue ;;
        *'"method":"burst"'*) i=0; while [ $i -lt 300 ]; do i=$((i+1)); printf '{"method":"n","params":%d}\n' $i; done ;;
        *'"method":"pid"'*) printf '{"id":%s,"result":%s}\n' "$id" "$$"; continue ;;
        *'"id":"q","result"'*) printf '{"id":7,"result":"asked"}\n' ;;
    esac
    printf '{"jsonrpc":"2.0","method":"seen","params":%s}\n' "$line"
    case "$line" in
        *'"id":'*'"method":'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"echo":%s}}\n' "$id" "$line" ;;
    esac
done
"#;

pub(crate) struct Fixture {
    pub(super) port: RunningHttpServer,
    pub(super) root: PathBuf,
    pub(super) keep: TempDir,
}

impl Fixture {
    pub(crate) async fn start() -> Fixture {
        Fixture::with(HttpAccessPolicy::default(), |_| {}).await
    }

    /// With the agent `echo`, and whatever `change` adds.
    pub(crate) async fn with(
        gate: HttpAccessPolicy,
        change: impl FnOnce(&mut AgentGatewaySettings),
    ) -> Fixture {
        Fixture::with_max_upload(None, gate, change).await
    }

    /// With a limit on uploads.
    pub(super) async fn with_max_upload(
        max_upload: Option<u64>,
        gate: HttpAccessPolicy,
        change: impl FnOnce(&mut AgentGatewaySettings),
    ) -> Fixture {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().canonicalize().unwrap().join("root");
        std::fs::create_dir(&root).unwrap();
        let mut settings = unsandboxed(root.clone());
        add(&mut settings, "echo", ECHO);
        change(&mut settings);
        let files = ServedDirectory::new(local(&root), root.to_str().unwrap());
        let files = files.with_max_upload_bytes(max_upload);
        let surface = AgentGatewayRoutes::new(AgentGateway::new(settings)).with_files(files);
        let port =
            open_with(HttpServer::new(HttpApp::new(gate).with_agent_gateway_routes(surface))).await;
        Fixture { port, root, keep }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Posts a message to a server.
    pub(super) async fn post(&self, server: &str, body: &Value) -> Got {
        self.post_text(server, &body.to_string()).await
    }

    pub(super) async fn post_text(&self, server: &str, body: &str) -> Got {
        let path = format!("/v1/acp/{server}");
        let json = [("content-type", "application/json")];
        send(self.address(), &head("POST", &path, &json), body).await
    }

    /// A request that is answered with 200; the response.
    pub(super) async fn request(&self, server: &str, id: Value, method: &str) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        let got = self.post(server, &message).await;
        assert_eq!(got.status, 200, "{got:?}");
        got.json()
    }

    pub(super) async fn ask(&self, method: &str, path: &str, body: &str) -> Got {
        let json = [("content-type", "application/json")];
        send(self.address(), &head(method, path, &json), body).await
    }

    pub(super) async fn delete(&self, server: &str) -> u16 {
        self.ask("DELETE", &format!("/v1/acp/{server}"), "").await.status
    }

    /// The servers, as id and status.
    pub(super) async fn servers(&self) -> Vec<(String, String)> {
        let listed = self.ask("GET", "/v1/acp", "").await.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let servers = listed["servers"].as_array().unwrap();
        servers.iter().map(|it| (text(&it["serverId"]), text(&it["status"]))).collect()
    }

    pub(super) async fn events(&self, server: &str, last_event_id: Option<&str>) -> Events {
        let mut headers = vec![("accept", "text/event-stream")];
        headers.extend(last_event_id.map(|id| ("last-event-id", id)));
        Events::open(self.address(), &head("GET", &format!("/v1/acp/{server}"), &headers)).await
    }
}

/// Settings of a gateway without agents, whose agents would run without isolation.
pub(crate) fn unsandboxed(root: PathBuf) -> AgentGatewaySettings {
    let sandbox = AgentSandboxSettings {
        root: Some(root),
        servers_dir: None,
        hidden_paths: Vec::new(),
        read_only_paths: Vec::new(),
        mounts: Vec::new(),
        variables: BTreeMap::new(),
        isolation: Isolation::None,
        minimum_isolation: Isolation::None,
        network: NetworkAccess::Shared,
        toolchains: Vec::new(),
        disabled_reason: None,
    };
    AgentGatewaySettings::new(AgentResolver::default(), sandbox)
}

/// Adds an agent that is a shell script.
pub(super) fn add(settings: &mut AgentGatewaySettings, id: &str, script: &str) {
    let scripted = AgentCatalog::default().find("scripted").unwrap().clone();
    let entry = AgentCatalogEntry {
        id: id.to_owned(),
        aliases: Vec::new(),
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        ..scripted
    };
    settings.agents.catalog.add_or_change(entry).unwrap();
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) id: Option<u64>,
    pub(super) data: Value,
}

/// An open stream of events.
pub(super) struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    async fn open(address: SocketAddr, head: &str) -> Events {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
        let mut events = Events { stream, text: String::new() };
        while !events.text.contains("\r\n\r\n") {
            assert!(events.fill().await, "{}", events.text);
        }
        let (head, rest) = events.text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        events.text = rest.to_owned();
        events
    }

    async fn fill(&mut self) -> bool {
        let mut bytes = vec![0; 64 * 1024];
        let count = self.stream.read(&mut bytes).await.unwrap();
        self.text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        count > 0
    }

    /// The next event; `None` at the end of the stream. Sizes of chunks stand between events.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = block.lines().filter_map(|line| line.strip_prefix(name));
                    lines.map(str::to_owned).next_back()
                };
                let (name, id, data) = (field("event: "), field("id: "), field("data: "));
                self.text = rest.to_owned();
                if let (Some(name), Some(data)) = (name, data) {
                    let id = id.map(|id| id.parse().unwrap());
                    return Some(Event { name, id, data: serde_json::from_str(&data).unwrap() });
                }
                continue;
            }
            // The connection stays open after the last chunk.
            if self.text.ends_with("0\r\n\r\n") || !self.fill().await {
                return None;
            }
        }
    }

    /// So many events.
    pub(super) async fn take(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.next().await.unwrap_or_else(|| panic!("only {events:?}")));
        }
        events
    }
}
