//! Batches: several messages in one HTTP body. Only some protocol revisions support them. The
//! messages are answered in order.

use ab_core::Backend;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, RequestId, ServerJsonRpcMessage,
};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::running_calls::{Caller, RunningCall};
use super::{
    HttpResponse, JSON, McpHttpEndpoint, REVISION, REVISION_UNSAID, SESSION, answer,
    cancelled_call, direct, refusal,
};
use crate::bounds::{BATCH_BYTES, BATCH_MESSAGES};
use crate::failure::CROWDED;
use crate::nonsense::refused;
use crate::outgoing::{Crowded, held};

/// The last protocol revision that supports batches.
const LAST_WITH_BATCHES: &str = "2025-03-26";

impl McpHttpEndpoint {
    pub(super) async fn batch(
        &self,
        backend: Backend,
        caller: &Caller,
        parts: &Parts,
        text: &[u8],
    ) -> Result<HttpResponse, HttpResponse> {
        let refuse = |code, why: String| refusal(StatusCode::BAD_REQUEST, None, code, why);
        let revision = parts.headers.get(REVISION).and_then(|value| value.to_str().ok());
        let revision = revision.unwrap_or(REVISION_UNSAID);
        if revision > LAST_WITH_BATCHES {
            let why = format!("there are no batches in revision {revision}: send one message");
            return Err(refuse(
                ErrorCode::INVALID_REQUEST,
                ab_core::error::escape_unprintable(&why),
            ));
        }
        if let Some(named) = parts.headers.get(SESSION) {
            self.sessions.admit(named, &backend, caller, None).await?;
        }
        let messages: Vec<Value> = serde_json::from_slice(text)
            .map_err(|error| refuse(ErrorCode::PARSE_ERROR, format!("no JSON: {error}")))?;
        if messages.is_empty() || messages.len() > BATCH_MESSAGES {
            let why = format!("a batch has between 1 and {BATCH_MESSAGES} messages");
            return Err(refuse(ErrorCode::INVALID_REQUEST, why));
        }
        // Register all calls at the start. A client can then also cancel a call that has not begun
        // yet.
        let running_calls: Vec<Option<RunningCall>> =
            messages.iter().map(|message| self.running_call(caller, message)).collect();
        let mut answers = b"[".to_vec();
        for (message, running_call) in messages.into_iter().zip(running_calls) {
            let one = if answers.len() < BATCH_BYTES {
                self.one_of_batch(&backend, caller, parts, message, running_call).await
            } else {
                too_much(&message)
            };
            let Some(one) = one else { continue };
            if answers.len() > 1 {
                answers.push(b',');
            }
            answers.extend_from_slice(&one);
        }
        if answers.len() == 1 {
            return Ok(answer(StatusCode::ACCEPTED, "text/plain", Bytes::new()));
        }
        answers.push(b']');
        let room = self.server.own_tools().outgoing().hold(answers.len()).await;
        let room = room.map_err(|Crowded| {
            refusal(StatusCode::SERVICE_UNAVAILABLE, None, ErrorCode(-32000), CROWDED.to_owned())
        })?;
        Ok(answer(StatusCode::OK, JSON, held(answers, room)))
    }

    fn running_call(&self, caller: &Caller, message: &Value) -> Option<RunningCall> {
        if message["method"] != "tools/call" {
            return None;
        }
        let id: RequestId = serde_json::from_value(message.get("id")?.clone()).ok()?;
        Some(self.running_calls.begin(caller, &id))
    }

    /// The answer to one message. `None` if the message needs no answer. Progress notifications are
    /// not sent.
    async fn one_of_batch(
        &self,
        backend: &Backend,
        caller: &Caller,
        parts: &Parts,
        message: Value,
        running_call: Option<RunningCall>,
    ) -> Option<Bytes> {
        let text = Bytes::from(serde_json::to_vec(&message).ok()?);
        let parsed = match serde_json::from_slice::<ClientJsonRpcMessage>(&text) {
            Ok(parsed) => parsed,
            Err(error) => {
                let refusal = refused(&text, &error);
                return value(&ServerJsonRpcMessage::error(refusal.error, refusal.id));
            }
        };
        if let Some(id) = cancelled_call(&parsed) {
            self.running_calls.cancel(caller, &id);
        }
        let ClientJsonRpcMessage::Request(request) = parsed else { return None };
        match request.request {
            ClientRequest::InitializeRequest(_) => {
                let error = rmcp::model::ErrorData::invalid_request(
                    "initialize cannot be part of a batch",
                    None,
                );
                value(&ServerJsonRpcMessage::error(error, Some(request.id)))
            }
            ClientRequest::CallToolRequest(call)
                if !self.server.is_of_extension(&call.params.name) =>
            {
                let call = direct::Call::new(request.id, call.params);
                let tools = self.server.own_tools().over(backend.clone());
                let written = match &running_call {
                    Some(running_call) => call.written_unless(&tools, running_call).await,
                    None => call.written(&tools).await,
                };
                written.map_or_else(|unwritten| value(&unwritten.told()), Some)
            }
            _ => {
                // Remove the registration of the call, because `by_protocol` registers it again.
                drop(running_call);
                let mut alone = Request::new(());
                *alone.method_mut() = Method::POST;
                *alone.headers_mut() = parts.headers.clone();
                *alone.uri_mut() = parts.uri.clone();
                let (alone, ()) = alone.into_parts();
                let answered = self.by_protocol(backend.clone(), caller, alone, text).await;
                let answered = answered.unwrap_or_else(|refusal| refusal);
                let body = answered.into_body().collect().await.ok()?.to_bytes();
                serde_json::from_slice::<IgnoredAny>(&body).ok()?;
                Some(body)
            }
        }
    }
}

/// The error for a message that is refused because the answers of its batch are already too large.
fn too_much(message: &Value) -> Option<Bytes> {
    let id: RequestId = serde_json::from_value(message.get("id")?.clone()).ok()?;
    let why =
        format!("the answers of this batch are over {BATCH_BYTES} bytes: send fewer at a time");
    let error = rmcp::model::ErrorData::new(ErrorCode(-32000), why, None);
    value(&ServerJsonRpcMessage::error(error, Some(id)))
}

fn value(message: &ServerJsonRpcMessage) -> Option<Bytes> {
    serde_json::to_vec(message).ok().map(Bytes::from)
}
