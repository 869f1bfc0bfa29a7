//! Starts runs in spaces of a server, and follows them as they happen.

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
    /// An operation is being performed.
    Operation(StartedOperation),
    /// A command wrote output. The command's event has the whole output, which begins with the text
    /// of these updates.
    Output(OperationOutput),
    /// An event of the operations protocol.
    Event(Value),
    /// The run waits for an approval.
    WaitingForApproval(Run),
    /// The run has ended. This is the last update.
    Complete(Run),
}

/// An operation that is being performed.
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
    /// Starts a run of an operations message. Returns without waiting for the operations.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ab_core::ErrorKind::Invalid) with every issue of the message if it is
    /// not valid. In this case nothing is performed.
    pub async fn start_run(&self, space: SpaceId, message: &Value) -> Result<Run> {
        let headers = HeaderMap::from_iter([(PREFER, RESPOND_ASYNC)]);
        let path = format!("/v1/spaces/{space}/runs");
        let answer = self.answer_with(Method::POST, &path, body(message)?, headers).await?;
        let Enveloped { data } = self.parsed(&answer)?;
        Ok(data)
    }

    /// Returns the run with this id.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if there is no such run.
    pub async fn run(&self, id: RunId) -> Result<Run> {
        let path = format!("/v1/runs/{id}");
        let Enveloped { data } = self.json(Method::GET, &path, Bytes::new()).await?;
        Ok(data)
    }

    /// Follows the updates of a run: first the updates since its start, then new updates as they
    /// happen, until the run has ended.
    pub fn follow_run(&self, run: RunId) -> RunUpdateStream {
        let messages = MessageStream::new(self.clone(), format!("/v1/runs/{run}/stream"), None);
        RunUpdateStream { run, messages, has_ended: false }
    }
}

/// The updates of one run. After a lost connection the stream continues after the last update that
/// it returned.
pub struct RunUpdateStream {
    run: RunId,
    messages: MessageStream,
    has_ended: bool,
}

impl RunUpdateStream {
    /// Returns the next update, or `None` after the end of the run. Updates of kinds that this
    /// version does not know are skipped. Cancel safe.
    ///
    /// # Errors
    ///
    /// Fails if the server answers with an error instead of a stream.
    /// [`ErrorKind::Disconnected`](ab_core::ErrorKind::Disconnected) if the server could not be
    /// reached for the client's reconnect timeout.
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
        "parked" => serde_json::from_str(data).ok().map(RunUpdate::WaitingForApproval),
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
