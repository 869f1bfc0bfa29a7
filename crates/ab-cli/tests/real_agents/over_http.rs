//! A client of the gateway that takes an agent through one turn.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};

/// The agent of one `server_id`.
#[derive(Clone)]
pub(crate) struct AgentOverHttp {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) token: String,
    pub(crate) agent: &'static str,
}

impl AgentOverHttp {
    /// A turn with one prompt. Every question of the agent is answered with yes. Returns the reason of its end.
    pub(crate) fn turn(self, cwd: &str, auth_method: Option<&str>, prompt: &str) -> String {
        let this = Arc::new(self);
        this.initialize();
        let listening = Arc::clone(&this);
        let listening = thread::spawn(move || listening.answer_questions());
        let setup = json!({ "cwd": cwd, "mcpServers": [] });
        let mut made = this.call(2, "session/new", &setup);
        if let (Some(_), Some(method)) = (made.get("error"), auth_method) {
            let login = this.call(3, "authenticate", &json!({ "methodId": method }));
            assert!(login.get("result").is_some(), "{login}");
            made = this.call(4, "session/new", &setup);
        }
        let Some(session) = made["result"]["sessionId"].as_str() else { panic!("{made}") };
        let reason = this.prompt(session, prompt);
        let (status, _) = this.send("DELETE", "");
        assert_eq!(status, 204);
        // The stream of events ends with its agent.
        listening.join().unwrap();
        reason
    }

    /// A turn that is cancelled when the agent has said something. Returns the reason of its end.
    pub(crate) fn cancelled_turn(self, cwd: &str, prompt: &str) -> String {
        self.initialize();
        let made = self.call(2, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        let Some(session) = made["result"]["sessionId"].as_str() else { panic!("{made}") };
        let reason = thread::scope(|threads| {
            let turn = threads.spawn(|| self.prompt(session, prompt));
            let mut lines = BufReader::new(self.request("GET", "")).lines().map_while(Result::ok);
            assert!(lines.any(|line| line.contains("agent_message_chunk")), "it said nothing");
            let cancel = json!({
                "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session },
            });
            let (status, body) = self.send("POST", &cancel.to_string());
            assert_eq!(status, 202, "{body}");
            turn.join().unwrap()
        });
        let (status, _) = self.send("DELETE", "");
        assert_eq!(status, 204);
        reason
    }

    fn initialize(&self) {
        let capabilities =
            json!({ "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false });
        let hello = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        let hello = self.call(1, "initialize", &hello);
        assert!(hello.get("result").is_some(), "{hello}");
    }

    fn prompt(&self, session: &str, prompt: &str) -> String {
        let prompt = json!([{ "type": "text", "text": prompt }]);
        let ended =
            self.call(5, "session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
        let Some(reason) = ended["result"]["stopReason"].as_str() else { panic!("{ended}") };
        reason.to_owned()
    }

    fn call(&self, id: u32, method: &str, params: &Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let (status, body) = self.send("POST", &message.to_string());
        assert_eq!(status, 200, "{method}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    fn answer_questions(&self) {
        let mut lines = BufReader::new(self.request("GET", "")).lines().map_while(Result::ok);
        let data = lines.by_ref().filter_map(|line| line.strip_prefix("data:").map(str::to_owned));
        for data in data {
            let message: Value = serde_json::from_str(&data).unwrap();
            // Notifications have no id, and answers no method.
            if message.get("id").is_none() || message.get("method").is_none() {
                continue;
            }
            let mut answer = json!({ "jsonrpc": "2.0", "id": message["id"] });
            if message["method"] == "session/request_permission" {
                let options = message["params"]["options"].as_array().unwrap();
                let allowed = options.iter().find(|option| option["kind"] == "allow_once").unwrap();
                let outcome = json!({ "outcome": "selected", "optionId": allowed["optionId"] });
                answer["result"] = json!({ "outcome": outcome });
            } else {
                answer["error"] = json!({ "code": -32601, "message": "Method not found" });
            }
            let (status, body) = self.send("POST", &answer.to_string());
            assert_eq!(status, 202, "{body}");
        }
    }

    /// The status and the body of a response.
    fn send(&self, method: &str, body: &str) -> (u16, String) {
        let mut answer = String::new();
        self.request(method, body).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Sends a request. A client of HTTP/1.0 gets a stream without chunks.
    fn request(&self, method: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "{method} /v1/acp/turn?agent={} HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.agent,
            self.address,
            self.token,
            body.len(),
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }
}
