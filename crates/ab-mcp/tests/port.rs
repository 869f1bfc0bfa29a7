//! An endpoint without a port, and the messages that are sent to it.

use ab_core::Backend;
use ab_mcp::{McpHttpEndpoint, McpHttpSettings};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::caller::Place;

pub(crate) struct Port {
    pub(crate) place: Place,
    pub(crate) endpoint: McpHttpEndpoint,
}

/// What came back.
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) kind: String,
    pub(crate) session: Option<String>,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{:?}", self.body))
    }

    /// The message of an error.
    pub(crate) fn error(&self) -> (StatusCode, i64, String) {
        let value = self.json();
        let message = value["error"]["message"].as_str().unwrap_or_default().to_owned();
        (self.status, value["error"]["code"].as_i64().unwrap_or_default(), message)
    }

    /// The messages of a stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect()
    }
}

impl Port {
    pub(crate) fn over(place: Place) -> Port {
        Port::with(
            place,
            &McpHttpSettings { max_body_bytes: 100_000, ..McpHttpSettings::default() },
        )
    }

    pub(crate) fn with(place: Place, settings: &McpHttpSettings) -> Port {
        let endpoint = McpHttpEndpoint::new(&place.backend, settings);
        Port { place, endpoint }
    }

    pub(crate) async fn memory() -> Port {
        let port = Port::over(Place::memory());
        port.place.fill(&[("a.txt", "one\ntwo\n")]).await;
        port
    }

    pub(crate) fn request(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        Request::post("http://localhost/mcp")
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))
            .unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Got {
        self.send_about(self.place.backend.clone(), request).await
    }

    pub(crate) async fn send_about(&self, backend: Backend, request: Request<Full<Bytes>>) -> Got {
        let answer = self.endpoint.handle_request(backend, request).await;
        let header = |name: &str| {
            let value = answer.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let (status, kind) = (answer.status(), header("content-type").unwrap_or_default());
        let session = header("mcp-session-id");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        Got { status, kind, session, body }
    }

    pub(crate) async fn post(&self, message: Value) -> Got {
        self.send(Port::request(message.to_string())).await
    }

    pub(crate) async fn post_as(&self, revision: &'static str, message: Value) -> Got {
        let mut request = Port::request(message.to_string());
        let revision = HeaderValue::from_static(revision);
        request.headers_mut().insert("mcp-protocol-version", revision);
        self.send(request).await
    }

    /// In the new era, with the headers that it wants.
    pub(crate) fn modern_request(message: &Value) -> Request<Full<Bytes>> {
        let method = message["method"].as_str().unwrap_or_default();
        let params = &message["params"];
        let name = params["name"].as_str().or(params["uri"].as_str());
        let mut request = Port::request(message.to_string());
        let headers = request.headers_mut();
        headers.insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
        headers.insert("mcp-method", HeaderValue::from_str(method).unwrap());
        if let Some(name) = name {
            headers.insert("mcp-name", HeaderValue::from_str(name).unwrap());
        }
        request
    }

    pub(crate) async fn post_modern(&self, message: Value) -> Got {
        self.send(Port::modern_request(&message)).await
    }
}

pub(crate) fn call(id: u64, tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

pub(crate) fn initialize(revision: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": revision,
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    } })
}

/// The same request in the new era, which says on each request what a handshake said once.
pub(crate) fn modern(mut message: Value) -> Value {
    message["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    message
}
