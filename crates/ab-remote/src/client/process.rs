//! Processes on an agent-backend server, which this client has started or attached to.
//!
//! Each process has its own channel, and a task that handles its output, input and end. A detached
//! process continues when the connection is lost. On the next connection, its output is read from
//! the same offset, so that no byte is lost or repeated. The end of its input and the size of its
//! terminal are sent again. The client does not send signals and input again after a reconnect,
//! because the first copy may have arrived.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_core::process::{
    DriverProcessChannels, ExecRequest, ExitCause, OutputChunk, Process, ProcessControlMessage,
    ProcessExit, ProcessExitSender, ProcessId, ProcessLifetime, StdinMode, TerminalSize,
};
use ab_core::{Error, ErrorCode, ErrorKind, LostCallEffect, Result, Verb};
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::carrier::{HalfChannel, Unopened};
use super::context::CallContext;
use super::lines::Line;
use super::remote::Shared;
use super::session::{Later, Session};
use crate::inbox::{Gauge, Inbox, MAX_UNREAD};
use crate::wire;
use crate::wire::call::RemoteCallId;
use crate::wire::frame::{
    MAX_PROCESS_FRAME_BYTES, PROCESS_STDIN_WINDOW_BYTES, PROCESS_SUBSYSTEM, ProcessClientFrame,
    ProcessServerFrame, encode_frame,
};

/// Maximum number of bytes of output that the server may send before the reader has taken them.
const OUTPUT_ROOM: u64 = 1024 * 1024;
/// Maximum number of queued pieces without bytes. A piece without bytes reports output that is no
/// longer available.
const LOSSES: u64 = 1024;
/// Time limit for the server to confirm that the client gives a process up.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes of input in one frame.
const PIECE: usize = 64 * 1024;

/// The tasks that handle the processes of a backend.
#[derive(Debug)]
pub(crate) struct Processes {
    tasks: Mutex<JoinSet<()>>,
    /// Whether the backend was destroyed.
    ended: watch::Sender<bool>,
}

impl Default for Processes {
    fn default() -> Self {
        Self { tasks: Mutex::default(), ended: watch::Sender::new(false) }
    }
}

impl Processes {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Gives up all processes. Processes that are not detached end. Returns when the tasks of all
    /// processes have ended.
    pub(crate) async fn end(&self) {
        self.ended.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.tasks());
        while tasks.join_next().await.is_some() {}
    }

    /// Waits until the backend is destroyed.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + use<> {
        let mut ended = self.ended.subscribe();
        async move {
            // If the sender was dropped, the backend is destroyed too.
            let _ = ended.wait_for(|ended| *ended).await;
        }
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first request on a channel.
pub(crate) enum Begin {
    Exec(Box<ExecRequest>),
    Attach { id: ProcessId, from: u64 },
}

/// Starts a process or attaches to one.
pub(crate) async fn begin(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    context: CallContext<'_>,
    begin: Begin,
) -> Result<Process> {
    let (lifetime, stdin, from) = match &begin {
        Begin::Exec(request) => (request.lifetime, request.stdin, 0),
        Begin::Attach { from, .. } => (ProcessLifetime::Detached, StdinMode::Closed, *from),
    };
    let followed = matches!(begin, Begin::Attach { .. });
    let (line, began) = Channel::begin(session, context, begin).await?;
    let stdin = match (followed, began.input) {
        (false, _) => stdin,
        (true, true) => StdinMode::Piped,
        (true, false) => StdinMode::Closed,
    };
    let (process, feed) = Process::new_with_driver_channels(began.id.clone(), stdin);
    let wishes = Wishes::default();
    let held = Held { id: began.id, lifetime, next: from, wishes, let_go: None };
    shared.processes.spawn(carry(shared.clone(), line, held, feed));
    Ok(process)
}

/// The state of a process that its task keeps across connections.
struct Held {
    id: ProcessId,
    lifetime: ProcessLifetime,
    /// The offset of the next byte of output.
    next: u64,
    wishes: Wishes,
    /// The number of the last connection on which the server closed the channel of this process but
    /// kept the connection open.
    let_go: Option<u128>,
}

/// State that is sent again after a reconnect.
#[derive(Default)]
struct Wishes {
    size: Option<TerminalSize>,
    input_ended: bool,
    /// Input that has not been sent yet.
    unsent: Bytes,
}

struct Began {
    id: ProcessId,
    input: bool,
}

/// A channel of one process. Dropping it closes it.
struct Channel {
    session: Arc<Session>,
    half: Option<HalfChannel>,
    mail: Arc<Mail>,
}

/// Buffers the data of a channel until the reader takes it. A correct server never sends more than
/// the window allows. Bytes beyond the window are discarded.
struct Mail {
    inbox: Inbox,
    gauge: Arc<Gauge>,
    flooded: AtomicBool,
}

impl Mail {
    fn new() -> Self {
        let gauge = Arc::<Gauge>::default();
        let inbox = Inbox::new(gauge.clone());
        Self { inbox, gauge, flooded: AtomicBool::new(false) }
    }

    /// Stops accepting data, because the server has sent more than the window allows.
    fn flood(&self) {
        self.flooded.store(true, Ordering::Release);
        self.inbox.close();
    }
}

impl Line for Mail {
    fn data(&self, bytes: &[u8]) {
        if self.gauge.unread() > MAX_UNREAD { self.flood() } else { self.inbox.push(bytes) }
    }

    fn refused(&self) {
        self.inbox.end();
    }

    fn over(&self) {
        self.inbox.end();
    }
}

impl Channel {
    async fn begin(
        session: &Arc<Session>,
        context: CallContext<'_>,
        begin: Begin,
    ) -> Result<(Self, Began)> {
        let verb = match &begin {
            Begin::Exec(_) => Verb::Exec,
            Begin::Attach { .. } => Verb::Attach,
        };
        let call = RemoteCallId { connection: session.number, request: session.requests.number() };
        let starts = matches!(begin, Begin::Exec(_));
        let command = match &begin {
            Begin::Exec(request) => Some(request.command.to_shell_line()),
            Begin::Attach { .. } => None,
        };
        let beginning = async {
            let channel = Self::open(session, verb).await?;
            let frame = match begin {
                Begin::Exec(request) => {
                    ProcessClientFrame::Exec { call, window_bytes: OUTPUT_ROOM, request }
                }
                Begin::Attach { id, from } => {
                    ProcessClientFrame::Attach { id, from, window_bytes: OUTPUT_ROOM }
                }
            };
            let frame = encode_frame(&frame);
            if frame.len() > MAX_PROCESS_FRAME_BYTES {
                let message = format!("the command is longer than {MAX_PROCESS_FRAME_BYTES} bytes");
                return Err(
                    Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message).with_verb(verb)
                );
            }
            if !channel.say(frame).await {
                return Err(unsure(
                    session.lost(verb),
                    starts.then_some(LostCallEffect::NotApplied),
                    None,
                ));
            }
            let ticket = session.ticket(call.request);
            match channel.hear().await {
                Heard::Frame(ProcessServerFrame::Started { id, accepts_input: input }) => {
                    Ok((channel, Began { id, input }))
                }
                Heard::Frame(ProcessServerFrame::Refused(error)) => Err(error),
                Heard::Frame(_) | Heard::Flood | Heard::End => {
                    let why =
                        if session.is_over() { session.lost(verb) } else { let_go(session, verb) };
                    Err(unsure(why, starts.then_some(LostCallEffect::Unknown), ticket))
                }
            }
        };
        let begun = context.within(session.time_limit, beginning).await;
        let begun = begun.unwrap_or_else(|| Err(session.late(verb, call.request, starts)));
        begun.map_err(|error| match (error.command(), command) {
            (None, Some(command)) => error.with_command(command),
            _ => error,
        })
    }

    async fn open(session: &Arc<Session>, verb: Verb) -> Result<Self> {
        let refused = |why: Unopened| match why {
            Unopened::Gone => session.lost(verb),
            Unopened::Refused(_) => {
                let message = format!("{}: {why}", session.who);
                Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message).with_verb(verb)
            }
        };
        let half = session.carrier.open().await.map_err(refused)?;
        let mail = Arc::new(Mail::new());
        session.lines.add(half.id(), mail.clone());
        let channel = Self { session: session.clone(), half: Some(half), mail };
        if let Some(half) = &channel.half {
            half.request_subsystem(PROCESS_SUBSYSTEM).await.map_err(refused)?;
        }
        Ok(channel)
    }

    /// Sends a frame. Returns `false` if the connection is closed.
    async fn say(&self, frame: Bytes) -> bool {
        let Some(half) = &self.half else { return false };
        self.session.carrier.data(half.id(), frame).await.is_ok()
    }

    async fn hear(&self) -> Heard {
        match self.mail.inbox.packet(MAX_PROCESS_FRAME_BYTES).await {
            Ok(Some(packet)) => wire::decode(packet).map_or(Heard::End, Heard::Frame),
            Ok(None) if self.mail.flooded.load(Ordering::Acquire) => Heard::Flood,
            Ok(None) | Err(_) => Heard::End,
        }
    }
}

enum Heard {
    Frame(ProcessServerFrame),
    /// The server sent more than the window allows.
    Flood,
    /// The channel is closed, or the server sent an invalid frame.
    End,
}

impl Channel {
    /// Gives the process up. Waits for the confirmation of the server. Frames that were sent
    /// earlier therefore still reach the process.
    async fn leave(self) {
        let leaving = async {
            let mut heard = self.say(encode_frame(&ProcessClientFrame::ProcessDropped)).await;
            while heard {
                heard = match self.hear().await {
                    Heard::Frame(ProcessServerFrame::OutputEnd) | Heard::Flood | Heard::End => {
                        false
                    }
                    Heard::Frame(_) => true,
                };
            }
        };
        // If the server does not confirm in time, the channel is dropped.
        let _ = timeout(CLOSE_TIMEOUT, leaving).await;
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(half) = self.half.take() {
            self.session.lines.end(half.id());
            self.session.later(Later::Close(half));
        }
    }
}

fn unsure(
    error: Error,
    effect: Option<LostCallEffect>,
    ticket: Option<ab_core::LostCallId>,
) -> Error {
    match effect {
        Some(effect) => error.with_lost_call_effect(effect, ticket),
        None => error,
    }
}

/// Why the task no longer uses a channel.
enum Left {
    /// The process has ended, and all output was delivered.
    Over,
    /// The caller dropped the process.
    HandleDropped,
    /// The connection has ended, or the server no longer knows the process.
    Lost,
}

/// Handles a process until it ends, over as many connections as necessary.
async fn carry(
    shared: Arc<Shared>,
    mut channel: Channel,
    mut held: Held,
    feed: DriverProcessChannels,
) {
    let DriverProcessChannels {
        output,
        mut stdin,
        mut control,
        exit: ending,
        process_dropped: mut resources,
    } = feed;
    let mut ending = Some(ending);
    let ended = shared.processes.ended();
    let carrying = async {
        loop {
            let mut ends = Ends {
                output: &output,
                stdin: &mut stdin,
                control: &mut control,
                ending: &mut ending,
                resources: &mut resources,
            };
            match attend(&channel, &mut held, &mut ends).await {
                Left::Lost if held.lifetime == ProcessLifetime::Detached => {}
                Left::Lost if channel.session.is_over() => {
                    let why = channel.session.lost(Verb::Exec);
                    return lost(
                        ending.take(),
                        why.with_lost_call_effect(LostCallEffect::Unknown, None),
                    );
                }
                Left::Lost => {
                    let why = let_go(&channel.session, Verb::Exec);
                    return lost(
                        ending.take(),
                        why.with_lost_call_effect(LostCallEffect::Unknown, None),
                    );
                }
                Left::HandleDropped if held.lifetime == ProcessLifetime::Detached => {
                    let unsent = std::mem::take(&mut held.wishes.unsent);
                    let left = stdin.iter_mut().flat_map(|pieces| {
                        std::iter::from_fn(|| pieces.try_recv().ok()).collect::<Vec<_>>()
                    });
                    for mut piece in std::iter::once(unsent).chain(left.collect::<Vec<_>>()) {
                        while !piece.is_empty() {
                            let part = piece.split_to(piece.len().min(PIECE));
                            let _ =
                                channel.say(encode_frame(&ProcessClientFrame::Input(part))).await;
                        }
                    }
                    channel.leave().await;
                    return;
                }
                Left::Over | Left::HandleDropped => return,
            }
            let next = tokio::select! {
                next = again(&shared, &channel, &mut held) => next,
                // The caller dropped the process.
                _ = &mut resources => return,
            };
            channel = match next {
                Ok(channel) => channel,
                Err(error) => return lost(ending.take(), error),
            };
        }
    };
    tokio::select! {
        biased;
        () = ended => {
            if let Some(ending) = ending.take() {
                ending.send(ProcessExit { cause: ExitCause::DroppedByCaller, ..ProcessExit::default() });
            }
        }
        // Dropping the sender reports that the exit of the process is unknown.
        () = carrying => {}
    }
}

/// Reports that the exit of the process is unknown, with the reason.
fn lost(ending: Option<ProcessExitSender>, why: Error) {
    if let Some(ending) = ending {
        ending.send_process_lost(why);
    }
}

/// Attaches to the process again on the next connection. If only the channel has ended, makes one
/// attempt on the same connection. If attaching fails, returns the reason.
async fn again(shared: &Arc<Shared>, last: &Channel, held: &mut Held) -> Result<Channel> {
    let mut session = last.session.clone();
    let mut lives = !session.is_over();
    loop {
        if lives && held.let_go.replace(session.number) == Some(session.number) {
            return Err(let_go(&session, Verb::Exec));
        }
        if !lives {
            session = shared.next_session(&session).await?;
        }
        let attach = Begin::Attach { id: held.id.clone(), from: held.next };
        match Channel::begin(&session, CallContext::NONE, attach).await {
            Ok((channel, _)) => return Ok(channel),
            Err(error) if error.kind() == ErrorKind::Disconnected || session.is_over() => {
                lives = false
            }
            // The server was restarted, or has lost this process.
            Err(error) => return Err(error),
        }
    }
}

/// The error if the server closed only the channel of the process.
fn let_go(session: &Session, verb: Verb) -> Error {
    let message = format!("{} closed the channel of the process, which is lost", session.who);
    Error::new(ErrorCode::ExecError, ErrorKind::Io, message).with_verb(verb)
}

/// The channels between a [`Process`] and the task that handles it.
struct Ends<'a> {
    output: &'a mpsc::Sender<OutputChunk>,
    stdin: &'a mut Option<mpsc::Receiver<Bytes>>,
    control: &'a mut mpsc::Receiver<ProcessControlMessage>,
    /// The sender of the exit. `None` after the exit was reported.
    ending: &'a mut Option<ProcessExitSender>,
    resources: &'a mut oneshot::Receiver<()>,
}

async fn attend(channel: &Channel, held: &mut Held, ends: &mut Ends<'_>) -> Left {
    let room = &Semaphore::new(usize::try_from(PROCESS_STDIN_WINDOW_BYTES).unwrap_or(usize::MAX));
    let no_more_input = Notify::new();
    let owned = held.lifetime == ProcessLifetime::Owned;
    let (arrived, mut waiting) = mpsc::unbounded_channel::<OutputChunk>();
    let ending = &mut *ends.ending;
    let next = &mut held.next;
    let Wishes { size, input_ended, unsent } = &mut held.wishes;
    if *input_ended {
        no_more_input.notify_one();
    }
    let (space, losses) = (&AtomicU64::new(OUTPUT_ROOM), &AtomicU64::new(LOSSES));
    let listening = async move {
        loop {
            match channel.hear().await {
                Heard::Frame(ProcessServerFrame::Output(output)) => {
                    let (left, takes) = match output.bytes.len() as u64 {
                        0 => (losses, 1),
                        length => (space, length),
                    };
                    if take(left, takes) {
                        drop(arrived.send(output));
                    } else {
                        channel.mail.flood();
                    }
                }
                Heard::Frame(ProcessServerFrame::WindowAdjust(bytes)) => {
                    room.add_permits(
                        usize::try_from(bytes.min(PROCESS_STDIN_WINDOW_BYTES)).unwrap_or(0),
                    );
                }
                Heard::Frame(ProcessServerFrame::Ended(exit)) => match (exit, ending.take()) {
                    (Some(exit), Some(ending)) => ending.send(exit),
                    (None, ending) => drop(ending),
                    (Some(_), None) => {}
                },
                Heard::Frame(ProcessServerFrame::OutputEnd) => return Left::Over,
                Heard::Flood => {
                    lost(ending.take(), flooded(&channel.session));
                    return Left::Over;
                }
                Heard::Frame(
                    ProcessServerFrame::Started { .. } | ProcessServerFrame::Refused(_),
                )
                | Heard::End => {
                    return Left::Lost;
                }
            }
        }
    };
    let output = ends.output;
    let delivering = async {
        while let Some(piece) = waiting.recv().await {
            let length = piece.bytes.len() as u64;
            *next = piece.next_offset();
            // If the reader is gone, the output is discarded, so that the process does not block.
            let _ = output.send(piece).await;
            match length {
                0 => drop(losses.fetch_add(1, Ordering::Relaxed)),
                length => {
                    space.fetch_add(length, Ordering::Relaxed);
                    let _ =
                        channel.say(encode_frame(&ProcessClientFrame::WindowAdjust(length))).await;
                }
            }
        }
    };
    // Deliver the output that arrived before the loss first, and then request more.
    let hearing = async { tokio::join!(listening, delivering).0 };
    let stdin = &mut *ends.stdin;
    let feeding = async {
        loop {
            feed(channel, room, unsent).await;
            let next = async {
                match stdin.as_mut() {
                    Some(pieces) => pieces.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                piece = next => match piece {
                    Some(piece) => *unsent = piece,
                    None => {
                        *stdin = None;
                        if owned {
                            let _ = channel.say(encode_frame(&ProcessClientFrame::InputEnd)).await;
                        }
                    }
                },
                // Send the earlier input first.
                () = no_more_input.notified() => {
                    let _ = channel.say(encode_frame(&ProcessClientFrame::Control(ProcessControlMessage::CloseStdin))).await;
                }
            }
        }
    };
    let control = &mut *ends.control;
    let steering = async {
        if let Some(size) = *size {
            let _ = channel
                .say(encode_frame(&ProcessClientFrame::Control(ProcessControlMessage::Resize(
                    size,
                ))))
                .await;
        }
        while let Some(wish) = control.recv().await {
            match wish {
                ProcessControlMessage::CloseStdin => {
                    *input_ended = true;
                    no_more_input.notify_one();
                    continue;
                }
                ProcessControlMessage::Resize(wanted) => *size = Some(wanted),
                ProcessControlMessage::Signal(_) => {}
            }
            let _ = channel.say(encode_frame(&ProcessClientFrame::Control(wish))).await;
        }
    };
    let speaking = async {
        let ((), ()) = tokio::join!(feeding, steering);
    };
    tokio::select! {
        biased;
        _ = &mut *ends.resources => Left::HandleDropped,
        left = hearing => left,
        () = speaking => Left::Lost,
    }
}

/// Sends input as far as the server allows. The rest remains in `unsent`.
async fn feed(channel: &Channel, room: &Semaphore, unsent: &mut Bytes) {
    while !unsent.is_empty() {
        let length = unsent.len().min(PIECE);
        let permits = u32::try_from(length).unwrap_or(u32::MAX);
        // The semaphore is never closed, so this returns a permit.
        let Ok(permit) = room.acquire_many(permits).await else { return };
        permit.forget();
        let part = unsent.split_to(length);
        let _ = channel.say(encode_frame(&ProcessClientFrame::Input(part))).await;
    }
}

/// Subtracts `amount` from `left`. Returns `false` if too little is left.
fn take(left: &AtomicU64, amount: u64) -> bool {
    let less = |left: u64| left.checked_sub(amount);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

fn flooded(session: &Session) -> Error {
    let message = format!(
        "{} sent more output than the {OUTPUT_ROOM} bytes that it was given room for",
        session.who
    );
    Error::new(ErrorCode::ExecError, ErrorKind::Io, message).with_verb(Verb::Exec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn mail_that_nobody_reads_is_bounded() {
        let mail = Mail::new();
        let piece = vec![0; 1024 * 1024];
        for _ in 0..=MAX_UNREAD / piece.len() {
            mail.data(&piece);
        }
        // Exactly this number of bytes is allowed. One more byte is not.
        assert!(!mail.flooded.load(Ordering::Acquire));
        mail.data(&[0]);
        assert!(mail.flooded.load(Ordering::Acquire));
        mail.data(&piece);
        assert_eq!(mail.gauge.unread(), 0);
        assert_eq!(mail.inbox.packet(MAX_PROCESS_FRAME_BYTES).await, Ok(None));
    }
}
