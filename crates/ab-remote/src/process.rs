//! Runs a process for an agent-backend client on its own channel. Client and server exchange frames
//! about it.
//!
//! The server sends no more output than the window that the client has granted. It reports how much
//! input the process has taken. The client may be at most [`PROCESS_STDIN_WINDOW_BYTES`] ahead of
//! this.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ab_core::process::{ExecRequest, OutputChunk, Process, ProcessControlMessage};
use ab_core::{Backend, Error, ErrorCode, ErrorKind, LostCallEffect, Verb};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::command::CommandSlots;
use crate::inbox::Inbox;
use crate::input::{InputQueue, Step};
use crate::ledger::{Caller, Seat, effect_of_failure};
use crate::outlet::{Gone, Outlet};
use crate::wire;
use crate::wire::frame::{
    MAX_PROCESS_FRAME_BYTES, PROCESS_STDIN_WINDOW_BYTES, ProcessClientFrame, ProcessServerFrame,
    encode_frame,
};

/// Maximum number of bytes of output in one frame.
const PIECE: usize = 64 * 1024;
/// Maximum number of queued bytes of input. A client that sends more violates the protocol, and its
/// process is ended.
const MAX_INPUT: usize = 4 * PROCESS_STDIN_WINDOW_BYTES as usize;

/// How long a process may take to read its remaining input after the client has given it up.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a channel until its process ends or the client gives the process up. Dropping the future
/// also gives the process up. A process that is not detached then ends.
pub(crate) async fn serve(
    backend: Backend,
    caller: Arc<Caller>,
    slots: CommandSlots,
    inbox: Arc<Inbox>,
    outlet: Outlet,
) {
    // An error means that the client has disconnected and needs no answer.
    let _: Result<(), Gone> = match begin(&backend, &caller, &slots, &inbox).await {
        Ok(begun) => attend(begun, &inbox, &outlet).await,
        Err(error) => outlet.stdout(encode_frame(&ProcessServerFrame::Refused(error))).await,
    };
    // Wait until the client closes the channel, because russh keeps state for channels that this
    // side closed first.
    let _ =
        timeout(CLOSE_TIMEOUT, async { while inbox.bytes(usize::MAX).await.is_some() {} }).await;
    let _ = outlet.exit(0).await;
    inbox.close();
}

struct Begun {
    process: Process,
    room: u64,
    /// Ends this channel if the client asks about calls of this connection on another connection.
    /// `None` if the client attached to a process that was already running.
    seat: Option<Seat>,
    /// Counts the command towards the limit. `None` if the client attached to it.
    _slot: Option<OwnedSemaphorePermit>,
}

async fn begin(
    backend: &Backend,
    caller: &Caller,
    slots: &CommandSlots,
    inbox: &Inbox,
) -> Result<Begun, Error> {
    match frame(inbox).await? {
        Some(ProcessClientFrame::Exec { call, window_bytes: room, request }) => {
            let Some(seat) = caller.seat(call.connection) else {
                return Err(misplaced("the call has the number of another connection"));
            };
            if seat.is_retired() {
                // Refuse the call, because the server has already told the client, on another
                // connection, that this call will never take effect.
                return Err(misplaced("the client closed the connection"));
            }
            let entry = seat.begin(call.request);
            let (process, slot) = match slots.take(&request.command.to_shell_line()) {
                Err(error) => (Err(error), None),
                Ok(_) if !request.restrictions.host_directories.is_empty() => {
                    (Err(no_binds(&request)), None)
                }
                Ok(slot) => (backend.spawn(*request).await, Some(slot)),
            };
            entry.done(match &process {
                Ok(_) => LostCallEffect::Applied,
                Err(error) => effect_of_failure(error),
            });
            Ok(Begun { process: process?, room, seat: Some(seat), _slot: slot })
        }
        Some(ProcessClientFrame::Attach { id, from, window_bytes: room }) => {
            let process = backend.attach(&id, from).await?;
            Ok(Begun { process, room, seat: None, _slot: None })
        }
        Some(_) | None => Err(misplaced("a process begins with what is to run")),
    }
}

/// The error for a client that binds host directories. Only the operator of the server decides
/// which directories outside the workspace are visible to commands.
fn no_binds(request: &ExecRequest) -> Error {
    let message = "a client cannot bind directories of the server's machine";
    Error::new(ErrorCode::DangerousOperation, ErrorKind::DeniedByPolicy, message)
        .with_verb(Verb::Exec)
        .with_command(request.command.to_shell_line())
}

/// Reads the next frame. `None` at the end.
async fn frame(inbox: &Inbox) -> Result<Option<ProcessClientFrame>, Error> {
    let packet = inbox.packet(MAX_PROCESS_FRAME_BYTES).await;
    let Some(packet) = packet.map_err(|_| misplaced("a frame is longer than any may be"))? else {
        return Ok(None);
    };
    wire::decode(packet).map(Some).map_err(|_| misplaced("invalid frame"))
}

fn misplaced(message: &str) -> Error {
    Error::new(ErrorCode::ExecError, ErrorKind::Invalid, message)
}

/// Sends frames to the client one at a time. This is necessary because several futures send frames,
/// and a frame that waits for the window of the client is sent in parts.
struct Speech<'a> {
    outlet: &'a Outlet,
    turn: Mutex<()>,
    /// Whether a frame is being sent. If this is set when the next frame begins, the sender of the
    /// previous frame was cancelled before it had sent the whole frame.
    frame_unfinished: AtomicBool,
}

impl<'a> Speech<'a> {
    fn new(outlet: &'a Outlet) -> Self {
        Self { outlet, turn: Mutex::new(()), frame_unfinished: AtomicBool::new(false) }
    }

    async fn say(&self, frame: &ProcessServerFrame) -> Result<(), Gone> {
        let _turn = self.turn.lock().await;
        if self.frame_unfinished.swap(true, Ordering::AcqRel) {
            return Err(Gone);
        }
        self.outlet.stdout(encode_frame(frame)).await?;
        self.frame_unfinished.store(false, Ordering::Release);
        Ok(())
    }
}

/// How a client has given up a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReleaseCause {
    /// The client sent a release frame.
    Asked,
    /// The channel ended, or the client violated the protocol.
    Lost,
}

async fn attend(begun: Begun, inbox: &Inbox, outlet: &Outlet) -> Result<(), Gone> {
    let speech = &Speech::new(outlet);
    let Begun { mut process, room, seat, _slot } = begun;
    let stdin = process.stdin.take();
    let began =
        ProcessServerFrame::Started { id: process.id.clone(), accepts_input: stdin.is_some() };
    speech.say(&began).await?;
    let space = &Semaphore::new(0);
    give(space, room);
    let input = &InputQueue::new(MAX_INPUT);
    let (control, ending) = (process.control.clone(), process.control.clone());
    let feeding = async {
        let Some(stdin) = stdin else { return };
        while let Some(step) = input.next().await {
            let Step::Bytes(piece) = step else {
                let _ = ending.send(ProcessControlMessage::CloseStdin).await;
                continue;
            };
            let length = piece.len();
            if stdin.send(piece).await.is_err() {
                return;
            }
            input.taken(length);
            if speech.say(&ProcessServerFrame::WindowAdjust(length as u64)).await.is_err() {
                return;
            }
        }
    };
    let listening = async move {
        // An invalid frame counts as the end of the channel.
        while let Ok(Some(frame)) = frame(inbox).await {
            match frame {
                ProcessClientFrame::Input(bytes) => {
                    let Ok(()) = input.push(&bytes) else { break };
                }
                ProcessClientFrame::InputEnd => input.close(),
                ProcessClientFrame::Control(ProcessControlMessage::CloseStdin) => {
                    let Ok(()) = input.end() else { break };
                }
                ProcessClientFrame::Control(wish) => {
                    let _ = control.send(wish).await;
                }
                ProcessClientFrame::WindowAdjust(bytes) => give(space, bytes),
                ProcessClientFrame::ProcessDropped => return ReleaseCause::Asked,
                ProcessClientFrame::Exec { .. } | ProcessClientFrame::Attach { .. } => break,
            }
        }
        ReleaseCause::Lost
    };
    let hearing = async {
        tokio::pin!(feeding);
        let mut fed_all = false;
        tokio::pin!(listening);
        let left = loop {
            tokio::select! {
                left = &mut listening => break left,
                () = &mut feeding, if !fed_all => fed_all = true,
            }
        };
        // Input that the client sent before it gave up the process must still reach the process.
        input.close();
        if left == ReleaseCause::Asked && !fed_all {
            let _ = timeout(CLOSE_TIMEOUT, feeding).await;
        }
    };
    let retired = async {
        match &seat {
            Some(seat) => seat.retired().await,
            None => std::future::pending().await,
        }
    };
    let mut end = process.exit_receiver().clone();
    let telling = async {
        let exit = end.wait().await;
        speech.say(&ProcessServerFrame::Ended(exit)).await
    };
    let talking = async {
        while let Some(output) = process.output.recv().await {
            for piece in pieces(output) {
                let length = u32::try_from(piece.bytes.len()).unwrap_or(u32::MAX);
                // The semaphore is never closed, so this returns a permit.
                let Ok(permit) = space.acquire_many(length).await else { return Err(Gone) };
                permit.forget();
                speech.say(&ProcessServerFrame::Output(piece)).await?;
            }
        }
        Ok(())
    };
    let speaking = async {
        tokio::try_join!(telling, talking)?;
        speech.say(&ProcessServerFrame::OutputEnd).await
    };
    tokio::select! {
        told = speaking => told,
        () = hearing => speech.say(&ProcessServerFrame::OutputEnd).await,
        () = retired => Err(Gone),
    }
}

fn give(space: &Semaphore, bytes: u64) {
    let room = Semaphore::MAX_PERMITS.saturating_sub(space.available_permits());
    space.add_permits(usize::try_from(bytes).unwrap_or(usize::MAX).min(room));
}

/// Splits output into pieces, each of which fits in a frame.
fn pieces(output: OutputChunk) -> impl Iterator<Item = OutputChunk> {
    let mut left = Some(output);
    std::iter::from_fn(move || {
        let mut output = left.take()?;
        if output.bytes.len() > PIECE {
            let rest = output.bytes.split_off(PIECE);
            left = Some(OutputChunk {
                offset: output.next_offset(),
                bytes: rest,
                lost_bytes_before: 0,
                ..output.clone()
            });
        }
        Some(output)
    })
}
