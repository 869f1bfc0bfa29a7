//! Sends the traces of sessions to a collector, as OTLP JSON over HTTP.
//!
//! Each session is one trace. The trace id is the 128 bits of the session's id, so that users can
//! find the trace of a session.

use std::sync::Arc;
use std::time::Duration;

use ab_api::{SessionId, SessionStatus, Time};
use ab_control::{EndedSessionTraceSender, SessionSpan, SessionSpanKind, SessionTrace};
use agent_backend::http_post::JsonEndpoint;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// Maximum number of queued traces. Further traces are dropped and counted.
const QUEUE: usize = 1024;
/// Maximum number of traces in one request.
const BATCH: usize = 64;
/// How long the shutdown of the server waits for a collector.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// The path that is used if the endpoint URL has none.
const PATH: &str = "/v1/traces";
/// The characters that a ULID consists of.
const ULID_DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const STATUS_OK: u8 = 1;
const STATUS_ERROR: u8 = 2;
const KIND_INTERNAL: u8 = 1;

/// Parses the URL of a collector: either the base URL, or the complete URL with `/v1/traces`.
///
/// # Errors
///
/// Fails with a message if the text is not such a URL.
pub(crate) fn endpoint(url: &str) -> Result<JsonEndpoint, String> {
    let base = url.trim_end_matches('/');
    let whole = if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") };
    JsonEndpoint::parse(&whole).map_err(|error| error.message().to_owned())
}

/// A handle of the task that sends traces.
#[derive(Debug)]
pub(crate) struct TraceExporter {
    task: JoinHandle<()>,
    closing: Arc<Notify>,
}

impl TraceExporter {
    /// Starts the task, and returns the sender for the control plane.
    pub(crate) fn start(endpoint: JsonEndpoint) -> (TraceExporter, EndedSessionTraceSender) {
        let (sender, traces) = mpsc::channel(QUEUE);
        let closing = Arc::new(Notify::new());
        let closed = Arc::clone(&closing);
        let task = tokio::spawn(async move { export(endpoint, traces, &closed).await });
        (TraceExporter { task, closing }, sender)
    }

    /// Sends the queued traces, which may take a few seconds, and ends the task.
    pub(crate) async fn close(mut self) {
        self.closing.notify_one();
        match tokio::time::timeout(CLOSE_TIMEOUT, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the task that sends traces panicked"),
            Err(_) => {
                self.task.abort();
                // The task was aborted, so its result does not matter.
                let _ = self.task.await;
            }
        }
    }
}

async fn export(
    endpoint: JsonEndpoint,
    mut traces: mpsc::Receiver<SessionTrace>,
    closing: &Notify,
) {
    let mut is_reachable = true;
    loop {
        let mut batch = Vec::new();
        let count = tokio::select! {
            biased;
            count = traces.recv_many(&mut batch, BATCH) => count,
            () = closing.notified() => 0,
        };
        if count == 0 {
            return;
        }
        match endpoint.post(document(&batch).to_string().into_bytes()).await {
            Ok(()) => is_reachable = true,
            // Log only the first failure after a success, so that a collector that is down does not
            // fill the log.
            Err(error) if is_reachable => {
                tracing::warn!(%error, lost = count, "cannot send traces; later failures are not logged");
                is_reachable = false;
            }
            Err(error) => tracing::debug!(%error, lost = count, "cannot send traces"),
        }
    }
}

/// The body of a request with several traces.
fn document(traces: &[SessionTrace]) -> Value {
    let spans: Vec<Value> = traces.iter().flat_map(spans).collect();
    let version = env!("CARGO_PKG_VERSION");
    let resource = [text("service.name", "agent-backend"), text("service.version", version)];
    json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{
                "scope": { "name": "agent-backend", "version": version },
                "spans": spans,
            }],
        }],
    })
}

/// The phases of a session as spans. Their parent is a span for the whole session.
fn spans(trace: &SessionTrace) -> Vec<Value> {
    let root = trace.spans.iter().position(|span| span.kind == SessionSpanKind::Session);
    let parent = root.map(|root| span_id(trace.session, root));
    let span = |(index, span): (usize, &SessionSpan)| {
        let mut attributes = vec![text("session.id", &trace.session.to_string())];
        let is_root = Some(index) == root;
        let mut value = json!({
            "traceId": trace_id(trace.session),
            "spanId": span_id(trace.session, index),
            "name": span.kind.as_str(),
            "kind": KIND_INTERNAL,
            "startTimeUnixNano": nanoseconds(span.start),
            "endTimeUnixNano": nanoseconds(span.end),
        });
        if is_root {
            attributes.push(text("session.status", trace.status.as_str()));
            if let Some(reason) = trace.reason {
                attributes.push(
                    json!({ "key": "session.endReason", "value": { "stringValue": reason } }),
                );
            }
            let is_failed = trace.status == SessionStatus::Failed;
            value["status"] = json!({ "code": if is_failed { STATUS_ERROR } else { STATUS_OK } });
        } else if let Some(parent) = &parent {
            value["parentSpanId"] = json!(parent);
        }
        value["attributes"] = json!(attributes);
        value
    };
    trace.spans.iter().enumerate().map(span).collect()
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// A time in nanoseconds as a string. In JSON, OTLP represents 64-bit numbers as strings.
fn nanoseconds(time: Time) -> String {
    (i128::from(time.as_millis()) * 1_000_000).to_string()
}

/// The trace id, which consists of the bits of the session's id.
fn trace_id(session: SessionId) -> String {
    let digit = |byte: u8| ULID_DIGITS.iter().position(|known| *known == byte).unwrap_or_default();
    let bits =
        session.to_string().bytes().fold(0_u128, |bits, byte| (bits << 5) | digit(byte) as u128);
    format!("{bits:032x}")
}

fn span_id(session: SessionId, index: usize) -> String {
    let digest = Sha256::digest(format!("{session} {index}").as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_a_trace_with_its_id() {
        let session: SessionId = "01HVZ6K9T1N8S6M3V3Q3F0X5B7".parse().unwrap();
        let span = |kind, start, end| SessionSpan {
            kind,
            start: Time::from_millis(start),
            end: Time::from_millis(end),
        };
        let trace = SessionTrace {
            session,
            status: SessionStatus::Failed,
            reason: None,
            spans: vec![
                span(SessionSpanKind::Run, 1_000, 2_000),
                span(SessionSpanKind::Session, 0, 2_500),
            ],
        };
        let document = document(&[trace]);
        let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        let [run, root] = spans.as_slice() else { panic!("{document}") };
        assert_eq!(run["traceId"], "018efe69a741aa326a0f63b8de0e9567".to_owned());
        assert_eq!((&run["parentSpanId"], &run["name"]), (&root["spanId"], &"run".into()));
        assert_eq!(
            (&run["startTimeUnixNano"], &run["endTimeUnixNano"]),
            (&"1000000000".into(), &"2000000000".into())
        );
        assert!(root["parentSpanId"].is_null());
        assert_eq!(root["status"]["code"], STATUS_ERROR);
        let id = root["spanId"].as_str().unwrap();
        assert_eq!(id.len(), 16);
        assert_ne!(run["spanId"], root["spanId"]);
    }

    #[test]
    fn base_address_gets_the_usual_path() {
        for url in ["http://h:4318", "http://h:4318/", "http://h:4318/v1/traces"] {
            let shown = format!("{:?}", endpoint(url).unwrap());
            assert!(shown.contains("ws://h:4318/v1/traces,"), "{shown}");
        }
        assert!(endpoint("h:4318").unwrap_err().contains("must be like"));
    }
}
