//! Short commands that the client itself runs on a plain SSH server, each on its own channel. One
//! command tests whether the server can run commands. The others send signals, because few servers
//! support signals directly.

use std::sync::Arc;
use std::time::Duration;

use ab_core::process::OutputChannel;
use ab_core::{Error, ErrorCode, ErrorKind, Result, Verb};
use bytes::BytesMut;
use tokio::time::timeout;

use super::command;
use super::output_buffer::{EndOfOutput, OutputBuffer};
use crate::client::carrier::{HalfChannel, Unopened};
use crate::client::lines::Exited;
use crate::client::session::{Later, Session, Speech};

/// Time limit for sending a signal.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A command that tests whether the server runs commands. Its text does not contain the answer, so
/// a server that only repeats the line does not pass the test.
const QUESTION: &str = "printf 'agent-%s' backend";
const ANSWER: &[u8] = b"agent-backend";
/// Maximum number of bytes that the login shell may print before the answer.
const MOST_NOISE: usize = 1024 * 1024;

/// Whether the server runs the command that the client requests, and not a fixed program. Fails if
/// the connection was lost or no channel could be opened.
pub(super) async fn can_run(session: &Session) -> Result<bool> {
    let unasked = |why: Unopened| command::unopened(session, &why);
    let half = command::open(session).await.map_err(unasked)?;
    let (open, output_buffer) = Open::new(session, half);
    open.ask(QUESTION).await.map_err(unasked)?;
    let (mut said, mut heard) = (BytesMut::new(), 0);
    while heard <= MOST_NOISE {
        match output_buffer.next().await {
            Ok((channel, piece)) => {
                output_buffer.taken(piece.len());
                heard += piece.len();
                if channel == OutputChannel::Stdout {
                    said.extend_from_slice(&piece);
                }
                if said.windows(ANSWER.len()).any(|words| words == ANSWER) {
                    return Ok(true);
                }
                // Keep the last bytes, because the answer may arrive in two pieces.
                let _ = said.split_to(said.len().saturating_sub(ANSWER.len()));
            }
            Err(EndOfOutput::Refused) => return Ok(false),
            Err(EndOfOutput::Over | EndOfOutput::Full) if session.is_over() => {
                return Err(session.lost(Verb::Exec));
            }
            Err(EndOfOutput::Over | EndOfOutput::Full) => match output_buffer.exited() {
                Some(Exited::Signal(_)) => return Err(ended(session)),
                Some(Exited::Status(_)) | None => return Ok(false),
            },
        }
    }
    Ok(false)
}

/// The error for a command that was killed before it printed anything.
fn ended(session: &Session) -> Error {
    let message = format!("{}: a command was ended before it began", session.who);
    Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message).with_verb(Verb::Exec)
}

/// Sends a signal to a process.
pub(super) async fn signal(session: &Session, process: u32, signal: i32) {
    alone(session, &format!("kill -s {signal} {process} 2>/dev/null")).await;
}

/// Kills a process group. If there is no such group, kills only the process with this id.
pub(super) async fn end_group(session: &Session, group: u32) {
    let line = format!("kill -s KILL -- -{group} 2>/dev/null || kill -s KILL {group} 2>/dev/null");
    alone(session, &line).await;
}

/// Runs a line. Lines run one at a time, because servers offer only a few channels. Does nothing on
/// an agent-backend server.
async fn alone(session: &Session, line: &str) {
    let Speech::Plain(plain) = &session.speech else { return };
    let _turn = plain.own_commands.acquire().await;
    let _ = timeout(TIMEOUT, run(session, line)).await;
}

/// Runs a line until it ends. Its output is ignored.
async fn run(session: &Session, line: &str) {
    let Ok(half) = session.carrier.open().await else { return };
    let (open, output_buffer) = Open::new(session, half);
    if open.ask(line).await.is_ok() {
        while let Ok((_, piece)) = output_buffer.next().await {
            output_buffer.taken(piece.len());
        }
    }
}

/// A channel for one line. Dropping it closes the channel.
struct Open<'a> {
    session: &'a Session,
    half: Option<HalfChannel>,
}

impl<'a> Open<'a> {
    fn new(session: &'a Session, half: HalfChannel) -> (Self, Arc<OutputBuffer>) {
        let output_buffer = Arc::new(OutputBuffer::default());
        session.lines.add(half.id(), output_buffer.clone());
        (Self { session, half: Some(half) }, output_buffer)
    }

    /// Requests that the server run a line. The line gets no input.
    async fn ask(&self, line: &str) -> Result<(), Unopened> {
        let Some(half) = &self.half else { return Err(Unopened::Gone) };
        half.exec(line).await?;
        half.end_of_input().await;
        Ok(())
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(half) = self.half.take() {
            self.session.lines.end(half.id());
            self.session.later(Later::Close(half));
        }
    }
}
