//! The short way: a plain call of a tool, in a revision with a handshake, answered with JSON.
//!
//! Most requests are such calls, and most of what rmcp does for a request is of no use to them. What
//! is answered here is what rmcp would answer; a test compares the two.

use std::borrow::Cow;

use http::HeaderValue;
use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ErrorData, JsonObject, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{REVISION, REVISION_UNSAID};
use crate::server::Server;

/// A call whose caller wants nothing but the result.
pub(crate) struct Call {
    id: RequestId,
    request: CallToolRequestParams,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    id: RequestId,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Params<'a>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    arguments: Option<JsonObject>,
    #[serde(rename = "_meta")]
    meta: Option<IgnoredAny>,
    task: Option<IgnoredAny>,
}

/// Whether the headers ask for nothing special.
pub(crate) fn is_plain(parts: &Parts) -> bool {
    let mut special = parts.headers.keys().filter(|name| {
        let name = name.as_str();
        name.starts_with("mcp-") && name != REVISION.as_str()
    });
    let unsaid = HeaderValue::from_static(REVISION_UNSAID);
    let named = parts.headers.get(REVISION).unwrap_or(&unsaid);
    special.next().is_none() && has_handshake(named)
}

/// Whether this is one of the revisions before 2026-07-28.
pub(crate) fn has_handshake(named: &HeaderValue) -> bool {
    let mut known = ProtocolVersion::KNOWN_VERSIONS.iter();
    known.any(|known| named == known.as_str() && *known < ProtocolVersion::V_2026_07_28)
}

impl Call {
    pub(crate) fn new(id: RequestId, request: CallToolRequestParams) -> Call {
        Call { id, request }
    }

    pub(crate) fn tool(&self) -> &str {
        &self.request.name
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Call> {
        let message: Message<'_> = serde_json::from_slice(text).ok()?;
        let Message { jsonrpc, id, method, params, result, error } = message;
        let plain = jsonrpc == "2.0"
            && method == "tools/call"
            && params.meta.is_none()
            && params.task.is_none()
            && result.is_none()
            && error.is_none();
        if !plain {
            return None;
        }
        let mut request = CallToolRequestParams::new(params.name.into_owned());
        request.arguments = params.arguments;
        Some(Call { id, request })
    }

    pub(crate) async fn answer(self, server: &Server) -> ServerJsonRpcMessage {
        let Call { id, request } = self;
        message(server.called(request, None).await, id)
    }

    /// The answer as JSON.
    pub(crate) async fn written(self, server: &Server) -> serde_json::Result<Vec<u8>> {
        let Call { id, request } = self;
        let result = match server.outcome(request, None).await {
            Ok(Ok(answer)) => match answer.into_media() {
                Ok(media) => return media.into_response(&id),
                Err(answer) => Ok(answer.into_result()),
            },
            Ok(Err(failure)) => server.failed(failure).await,
            Err(error) => Err(error),
        };
        serde_json::to_vec(&message(result, id))
    }
}

fn message(result: Result<CallToolResult, ErrorData>, id: RequestId) -> ServerJsonRpcMessage {
    match result {
        Ok(mut result) => {
            // Only the new era has it.
            result.result_type = None;
            ServerJsonRpcMessage::response(ServerResult::CallToolResult(result), id)
        }
        Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
    }
}
