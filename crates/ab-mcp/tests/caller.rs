//! A client on one end of a pipe, our server on the other, a workspace behind it.

use ab_core::{Backend, MemoryDriver};
use ab_host::{LocalDriver, LocalDriverOptions, LocalExecSettings};
use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject, Tool};
use rmcp::service::{Peer, RoleClient, RunningService, ServiceExt};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// A workspace of each kind that tools are tried on.
pub(crate) struct Place {
    pub(crate) backend: Backend,
    pub(crate) keep: Option<TempDir>,
}

impl Place {
    pub(crate) fn memory() -> Place {
        Place { backend: Backend::new(MemoryDriver::new()), keep: None }
    }

    pub(crate) fn local() -> Place {
        let keep = tempfile::tempdir().unwrap();
        let exec = LocalExecSettings {
            isolation: ab_core::Isolation::None,
            ..LocalExecSettings::default()
        };
        let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
        let backend = Backend::new(LocalDriver::open(keep.path(), options).unwrap());
        Place { backend, keep: Some(keep) }
    }

    /// One of each, with these files.
    pub(crate) async fn each(files: &[(&str, &str)]) -> [Place; 2] {
        let places = [Place::memory(), Place::local()];
        for place in &places {
            place.fill(files).await;
        }
        places
    }

    pub(crate) async fn fill(&self, files: &[(&str, &str)]) {
        for (path, content) in files {
            self.backend.write(path, *content).await.unwrap();
        }
    }

    pub(crate) async fn call(&self) -> Caller {
        Caller::of(self.backend.clone()).await
    }
}

pub(crate) struct Caller {
    client: RunningService<RoleClient, ()>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Caller {
    pub(crate) async fn of(backend: Backend) -> Caller {
        let (theirs, ours) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(ours);
        let serving = tokio::spawn(ab_mcp::serve_mcp_over_streams(backend, input, output));
        let client = ().serve(theirs).await.unwrap();
        Caller { client, serving }
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.client.peer()
    }

    pub(crate) async fn tools(&self) -> Vec<Tool> {
        self.client.list_all_tools().await.unwrap()
    }

    pub(crate) async fn result(&self, tool: &'static str, arguments: Value) -> CallToolResult {
        self.client.call_tool(params(tool, arguments)).await.unwrap()
    }

    /// The text of a call that works.
    pub(crate) async fn text(&self, tool: &'static str, arguments: Value) -> String {
        let result = self.result(tool, arguments.clone()).await;
        let text = text(&result);
        assert_ne!(result.is_error, Some(true), "{tool} {arguments}: {text}");
        assert!(result.structured_content.is_some(), "{tool} {arguments}");
        text
    }

    /// The value of a call that works.
    pub(crate) async fn value(&self, tool: &'static str, arguments: Value) -> Value {
        let result = self.result(tool, arguments.clone()).await;
        assert_ne!(result.is_error, Some(true), "{tool} {arguments}: {}", text(&result));
        result.structured_content.unwrap()
    }

    /// The text of a call that fails.
    pub(crate) async fn refusal(&self, tool: &'static str, arguments: Value) -> String {
        let result = self.result(tool, arguments.clone()).await;
        assert_eq!(result.is_error, Some(true), "{tool} {arguments}: {}", text(&result));
        text(&result)
    }

    /// Closes our end and waits for the server to notice.
    pub(crate) async fn leave(self) {
        self.client.cancel().await.unwrap();
        self.serving.await.unwrap().unwrap();
    }
}

pub(crate) fn params(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let arguments: JsonObject = match arguments {
        Value::Object(arguments) => arguments,
        other => panic!("no arguments: {other}"),
    };
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

pub(crate) fn text(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|text| text.text.as_str()).collect::<Vec<_>>().join("\n")
}
