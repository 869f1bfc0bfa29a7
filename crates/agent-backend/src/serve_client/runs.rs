//! Runs in spaces of a server: started, and followed as they happen.

use std::fmt;

use ab_api::{Run, RunId, SpaceId};
use ab_core::Result;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::Value;

use super::stream::{MessageStream, NumberedMessage};
use super::{ServeClient, body};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const RESPOND_ASYNC: HeaderValue = HeaderValue::from_static("respond-async");

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunUpdate {
    /// An operation is performed now.
    Operation(StartedOperation),
    /// A command wrote output. Its event has all of it, and begins with the texts of these updates.
    Output(OperationOutput),
    /// An event of the operations protocol.
    Event(Value),
    /// The run waits for an approval.
    Parked(Run),
    /// The run has ended. Nothing follows.
    Complete(Run),
}

/// An operation that is performed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedOperation {
    pub operation_id: String,
    pub operation_type: String,
}

/// A piece of the output of a command.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationOutput {
    pub operation_id: String,
    pub channel: OperationOutputChannel,
    pub text: String,
}

/// The channel of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperationOutputChannel {
    Stdout,
    Stderr,
}

#[derive(Deserialize)]
struct Enveloped<T> {
    data: T,
}

impl ServeClient {
    /// Starts a run of an operations message, and returns while it is performed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ab_core::ErrorKind::Invalid) with every issue of the message; nothing is performed then.
    pub async fn start_run(&self, space: SpaceId, message: &Value) -> Result<Run> {
        let headers = HeaderMap::from_iter([(PREFER, RESPOND_ASYNC)]);
        let path = format!("/v1/spaces/{space}/runs");
        let answer = self.answer_with(Method::POST, &path, body(message)?, headers).await?;
        let Enveloped { data } = self.parsed(&answer)?;
        Ok(data)
    }

    /// One run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if there is none with this id.
    pub async fn run(&self, id: RunId) -> Result<Run> {
        let path = format!("/v1/runs/{id}");
        let Enveloped { data } = self.json(Method::GET, &path, Bytes::new()).await?;
        Ok(data)
    }

    /// The updates of a run from its start, then as they happen, until the run has ended.
    pub fn follow_run(&self, run: RunId) -> RunUpdateStream {
        let messages = MessageStream::new(self.clone(), format!("/v1/runs/{run}/stream"), None);
        RunUpdateStream { run, messages, has_ended: false }
    }
}

/// The updates of one run. After a lost connection it continues behind the last update that it returned.
pub struct RunUpdateStream {
    run: RunId,
    messages: MessageStream,
    has_ended: bool,
}

impl RunUpdateStream {
    /// The next update; `None` after the end. Updates of kinds that this version does not know are skipped. The future
    /// may be dropped: no update is lost.
    ///
    /// # Errors
    ///
    /// What the server answers instead of a stream, and
    /// [`ErrorKind::Disconnected`](ab_core::ErrorKind::Disconnected) once the server has been out of reach for the
    /// client's reconnect timeout.
    pub async fn next(&mut self) -> Result<Option<RunUpdate>> {
        while !self.has_ended {
            let Some(message) = self.messages.next().await? else { return Ok(None) };
            if let Some(update) = update(&message) {
                self.has_ended = matches!(update, RunUpdate::Complete(_));
                return Ok(Some(update));
            }
        }
        Ok(None)
    }
}

fn update(message: &NumberedMessage) -> Option<RunUpdate> {
    let data = message.data.as_str();
    match message.kind.as_deref()? {
        "operation" => serde_json::from_str(data).ok().map(RunUpdate::Operation),
        "output" => serde_json::from_str(data).ok().map(RunUpdate::Output),
        "event" => serde_json::from_str(data).ok().map(RunUpdate::Event),
        "parked" => serde_json::from_str(data).ok().map(RunUpdate::Parked),
        "complete" => serde_json::from_str(data).ok().map(RunUpdate::Complete),
        _ => None,
    }
}

impl fmt::Debug for RunUpdateStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = &self.messages.after;
        let mut shown = f.debug_struct("RunUpdateStream");
        shown.field("run", &self.run).field("after", after).finish_non_exhaustive()
    }
}
