//! Answers tool calls directly with JSON, without rmcp. This is done only for calls in protocol
//! revisions with a handshake whose clients want only the result. It is used for HTTP and for JSON
//! lines.
//!
//! Most requests are such calls, and rmcp does much that they do not need. A test checks that the
//! answers are the same as the answers of rmcp.

use std::borrow::Cow;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use rmcp::model::{
    CallToolRequestParams, ErrorCode, ErrorData, JsonObject, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::running_calls::RunningCall;
use super::{REVISION, REVISION_UNSAID};
use crate::answer::plain;
use crate::failure::{CROWDED, Failure};
use crate::outgoing::held;
use crate::server::cancelled;
use crate::tools::WorkspaceTools;

/// A tool call whose caller wants only the result, and no progress notifications.
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

/// Whether the headers ask for nothing beyond the result of the call.
pub(crate) fn is_plain(parts: &Parts) -> bool {
    let mut special = parts.headers.keys().filter(|name| {
        let name = name.as_str();
        name.starts_with("mcp-") && name != REVISION.as_str()
    });
    let unsaid = HeaderValue::from_static(REVISION_UNSAID);
    let named = parts.headers.get(REVISION).unwrap_or(&unsaid);
    special.next().is_none() && has_handshake(named)
}

/// Whether the revision has a handshake. This is true for all revisions before 2026-07-28.
pub(crate) fn has_handshake(named: &HeaderValue) -> bool {
    let mut known = ProtocolVersion::KNOWN_VERSIONS.iter();
    known.any(|known| named == known.as_str() && *known < ProtocolVersion::V_2026_07_28)
}

impl Call {
    pub(crate) fn new(id: RequestId, request: CallToolRequestParams) -> Call {
        Call { id, request }
    }

    pub(crate) fn id(&self) -> &RequestId {
        &self.id
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

    /// The encoded answer. If the call is cancelled first, an error.
    pub(crate) async fn written_unless(
        self,
        tools: &WorkspaceTools,
        running_call: &RunningCall,
    ) -> Result<Bytes, Unwritten> {
        let id = self.id.clone();
        // Check the cancellation first, because a call that was cancelled before its turn must not
        // begin.
        tokio::select! {
            biased;
            () = running_call.cancelled() => Err(Unwritten::Cancelled(id)),
            written = self.written(tools) => written,
        }
    }

    /// Runs the call and encodes the answer as JSON. The memory reservation is released when the
    /// client has received the answer.
    pub(crate) async fn written(self, tools: &WorkspaceTools) -> Result<Bytes, Unwritten> {
        let Call { id, request } = self;
        let result = match tools.outcome(request, None).await {
            Ok(Ok(mut answer)) => {
                let (outgoing, weight) = (tools.outgoing(), answer.weight());
                let room = match answer.take_room() {
                    Some(room) => Ok(Some(room)),
                    None => outgoing.hold(weight).await,
                };
                let Ok(room) = room else { return Err(Unwritten::Crowded(id)) };
                let write = move || answer.into_response(&id);
                let text = outgoing.aside(weight, write).await.map_err(|_| Unwritten::Odd)?;
                return Ok(held(text, room));
            }
            Ok(Err(Failure::Crowded)) => return Err(Unwritten::Crowded(id)),
            Ok(Err(failure)) => tools.failed(failure).await,
            Err(error) => Err(error),
        };
        let message = match result {
            Ok(result) => {
                ServerJsonRpcMessage::response(ServerResult::CallToolResult(plain(result)), id)
            }
            Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
        };
        serde_json::to_vec(&message).map(Bytes::from).map_err(|_| Unwritten::Odd)
    }
}

/// Why there is no answer to a call.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// Memory could not be reserved for the answer to the call with this id.
    Crowded(RequestId),
    /// The caller cancelled the call with this id.
    Cancelled(RequestId),
    /// The answer cannot be encoded as JSON.
    Odd,
}

impl Unwritten {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Unwritten::Crowded(_) => StatusCode::SERVICE_UNAVAILABLE,
            Unwritten::Cancelled(_) => StatusCode::OK,
            Unwritten::Odd => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The error message that is sent to the caller.
    pub(crate) fn told(self) -> ServerJsonRpcMessage {
        match self {
            Unwritten::Crowded(id) => {
                let error = ErrorData::new(ErrorCode(-32000), CROWDED, None);
                ServerJsonRpcMessage::error(error, Some(id))
            }
            Unwritten::Cancelled(id) => ServerJsonRpcMessage::error(cancelled(), Some(id)),
            Unwritten::Odd => {
                let error = ErrorData::internal_error("the answer cannot be written", None);
                ServerJsonRpcMessage::error(error, None)
            }
        }
    }
}
