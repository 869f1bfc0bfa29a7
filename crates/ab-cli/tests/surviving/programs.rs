//! Agents of the agent library that ask a person at the built server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_backend::agent::{
    AgentDefinition, AgentSessionId, AgentTools, FilesystemToolset, ServerApprover, SessionOptions,
    ToolApproval,
};
use agent_backend::{Backend, ServeClient, ServeClientSettings, memory};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::approvals::{pending, press_in_the_page};
use super::fixture::{Fixture, Server};
use crate::outliving::comes;
use crate::stage::{BINARY, run};

/// One address for a server that is started again on another port.
struct Relay {
    url: String,
    target: Arc<Mutex<String>>,
}

impl Relay {
    fn start(runtime: &Runtime, server: &Server) -> Relay {
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = Arc::new(Mutex::new(server.address.clone()));
        let current = target.clone();
        runtime.spawn(async move {
            while let Ok((mut caller, _)) = listener.accept().await {
                let address = current.lock().unwrap().clone();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(address).await else { return };
                    drop(tokio::io::copy_bidirectional(&mut caller, &mut server).await);
                });
            }
        });
        Relay { url, target }
    }

    fn lead_to(&self, server: &Server) {
        self.target.lock().unwrap().clone_from(&server.address);
    }

    fn client(&self, server: &Server) -> ServeClient {
        let settings = ServeClientSettings::new(&self.url).token(server.token.clone());
        ServeClient::new(settings).unwrap()
    }
}

/// The tools of a session whose writes need an approval.
fn tools(runtime: &Runtime, backend: &Backend, approval: ToolApproval) -> AgentTools {
    let definition = AgentDefinition::builder()
        .backend(backend.clone())
        .toolset(FilesystemToolset::new().allow_writes())
        .approval(approval.require(["write_file"]))
        .build();
    let options = SessionOptions::for_session(AgentSessionId::parse("chat-1").unwrap());
    runtime.block_on(async { definition.start(options).await.unwrap().tools().await.unwrap() })
}

fn write(content: &str) -> Value {
    json!({ "path": "a.txt", "content": content })
}

fn is_asked(server: &Server) -> bool {
    server.get("/v1/approvals?status=pending")["total"] == 1
}

#[test]
fn slow_an_agent_of_the_library_waits_for_the_inbox_over_a_restart() {
    let runtime = Runtime::new().unwrap();
    let fixture = Fixture::new();
    let mut server = fixture.start(&[]);
    let relay = Relay::start(&runtime, &server);
    let backend = memory();
    let approval = ToolApproval::by_server(relay.client(&server));
    let tools = tools(&runtime, &backend, approval);
    let calling = tools.clone();
    let call =
        runtime.spawn(async move { calling.call_tool("write_file", write("all of it")).await });
    comes("the question", || is_asked(&server));
    let asked = pending(&server);
    assert_eq!(
        (&asked["requester"]["name"], &asked["action"]),
        (&json!("agent:chat-1"), &json!("edit"))
    );
    let id = asked["id"].as_str().unwrap();
    let approvals = |arguments: &[&str]| {
        let mut command = fixture.stage.command(BINARY);
        command.arg("approvals").args(arguments).arg("--data-dir").arg(fixture.data());
        let done = run(command, b"");
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.err);
        done.text()
    };
    let list = approvals(&["list"]);
    assert!(list.contains("program agent:chat-1") && list.contains("write a.txt"), "{list}");
    let shown = approvals(&["show", id]);
    assert!(shown.contains("the program's description:\n"), "{shown}");
    assert!(shown.contains("\"content\":\"all of it\""), "all arguments: {shown}");

    server.signal(Signal::KILL);
    server.wait();
    let server = fixture.start(&[]);
    relay.lead_to(&server);
    assert_eq!(pending(&server)["id"], id, "the question outlives the server");
    let shows = ["The program agent:chat-1 wants to change files", "As the program describes it"];
    press_in_the_page(&server, &asked, "approve", &shows);
    let done = runtime.block_on(call).unwrap();
    assert!(!done.is_error, "{}", done.all_text());
    assert_eq!(runtime.block_on(backend.read_text("a.txt")).unwrap(), "all of it");
    let used = server.get(&format!("/v1/approvals/{id}"));
    assert!(used["usedAt"].is_string(), "{used:#}");

    // A yes counts once: the same call is a new question, and a no reaches the model with its reason.
    let calling = tools.clone();
    let call =
        runtime.spawn(async move { calling.call_tool("write_file", write("all of it")).await });
    comes("the next question", || is_asked(&server));
    let next = pending(&server);
    assert_ne!(next["id"], id);
    approvals(&["deny", next["id"].as_str().unwrap(), "--reason", "once is enough"]);
    let refused = runtime.block_on(call).unwrap();
    assert!(refused.is_error, "{}", refused.all_text());
    assert!(
        refused.all_text().contains("person:admin refused this call of write_file: once is enough"),
        "{}",
        refused.all_text()
    );
    server.end();
}

#[test]
fn slow_an_agent_of_the_library_is_told_to_come_back_for_the_answer() {
    let runtime = Runtime::new().unwrap();
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    let relay = Relay::start(&runtime, &server);
    let backend = memory();
    let approver = ServerApprover::new(relay.client(&server));
    let approver = approver.wait_at_most(Duration::ZERO).expires_after(Duration::from_secs(600));
    let tools = tools(&runtime, &backend, ToolApproval::by_approver(Arc::new(approver)));
    let call = |content: &str| runtime.block_on(tools.call_tool("write_file", write(content)));
    let waits = call("one");
    let asked = pending(&server);
    assert!(
        waits.is_error && waits.all_text().contains("Repeat the same call"),
        "{}",
        waits.all_text()
    );
    assert_eq!(waits.data, Some(json!({ "approvalId": asked["id"] })));
    // Repeated too early, it is the same question.
    assert!(call("one").is_error);
    let path = format!("/v1/approvals/{}", pending(&server)["id"].as_str().unwrap());
    assert_eq!(server.ask("POST", &path, r#"{"decision":"approve"}"#).status, 200);
    // The answer is for these arguments only.
    assert!(call("two").is_error);
    let done = call("one");
    assert!(!done.is_error, "{}", done.all_text());
    assert_eq!(runtime.block_on(backend.read_text("a.txt")).unwrap(), "one");
    server.end();
}

#[test]
fn an_agent_of_the_library_is_told_that_no_server_can_be_asked() {
    let runtime = Runtime::new().unwrap();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut settings = ServeClientSettings::new(format!("http://{address}"));
    settings.reconnect_timeout = Duration::ZERO;
    let approval = ToolApproval::by_server(ServeClient::new(settings).unwrap());
    let backend = memory();
    let tools = tools(&runtime, &backend, approval);
    let refused = runtime.block_on(tools.call_tool("write_file", write("one")));
    assert!(refused.is_error, "{}", refused.all_text());
    let says = refused.all_text();
    assert!(
        says.contains("cannot ask for an approval") && says.contains(&address.to_string()),
        "{says}"
    );
    assert!(!runtime.block_on(backend.exists("a.txt")).unwrap());
}
