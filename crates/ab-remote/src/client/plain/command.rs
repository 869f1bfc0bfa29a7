//! Commands on a plain SSH server. Each command runs on its own channel, in shell code that reports
//! its process id and its exit status. See [`super::line`].
//!
//! If the caller drops the process, its process group is killed through another channel. If the
//! connection is lost, the command cannot be killed. In this case it ends only when it reads or
//! writes.

mod carry;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ab_core::metadata::FileKind;
use ab_core::process::{
    ExecRequest, OutputChannel, Process, ProcessId, ProcessLifetime, StdinMode, TerminalSize,
};
use ab_core::{Error, ErrorCode, ErrorKind, LostCallEffect, Result, Verb};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use self::carry::carry;
use super::Plain;
use super::lacks;
use super::line::{self, Line, Scene};
use super::markers::{Event, Identity, Markers};
use super::output_buffer::{EndOfOutput, OutputBuffer};
use super::spot::Final;
use crate::client::carrier::{HalfChannel, Unopened};
use crate::client::context::CallContext;
use crate::client::remote::Shared;
use crate::client::session::{Later, Session};

/// How often a channel is requested again after the server has refused it. The repetition helps if
/// the server is still closing another channel.
const OPEN_AGAIN: usize = 10;
const OPEN_AFTER: Duration = Duration::from_millis(100);

impl Plain {
    pub(crate) async fn exec(
        &self,
        shared: &Arc<Shared>,
        session: &Arc<Session>,
        context: CallContext<'_>,
        request: ExecRequest,
    ) -> Result<Process> {
        let command = request.command.to_shell_line();
        let started = self.start(shared, session, context, request).await;
        started.map_err(|error| error.with_command(command))
    }

    async fn start(
        &self,
        shared: &Arc<Shared>,
        session: &Arc<Session>,
        context: CallContext<'_>,
        request: ExecRequest,
    ) -> Result<Process> {
        if request.lifetime == ProcessLifetime::Detached {
            return Err(lacks::keeps_nothing(&session.who, Verb::Exec));
        }
        let word = word();
        let ready = self.ready(session, context, &request, &word).await;
        let (line, permit) = ready.map_err(|error| match error.kind() {
            // The command was not sent, so it cannot have run.
            ErrorKind::Disconnected | ErrorKind::Timeout => {
                error.with_lost_call_effect(LostCallEffect::NotApplied, None)
            }
            _ => error,
        })?;
        let begin = Begin {
            session: session.clone(),
            line,
            word,
            stdin: request.stdin,
            terminal: request.terminal,
            wall: request.limits.wall_time,
            until: context.until(session.time_limit),
            permit,
        };
        let (tell, told) = oneshot::channel();
        shared.processes.spawn(run(begin, shared.processes.ended(), tell));
        told.await.unwrap_or_else(|_| {
            Err(session.lost(Verb::Exec).with_lost_call_effect(LostCallEffect::Unknown, None))
        })
    }

    /// Prepares the command line, and waits for a permit to run a command.
    async fn ready(
        &self,
        session: &Arc<Session>,
        context: CallContext<'_>,
        request: &ExecRequest,
        word: &str,
    ) -> Result<(Line, OwnedSemaphorePermit)> {
        if !self.runs(session, context).await? {
            return Err(lacks::runs_nothing(&session.who));
        }
        let act = self.act(session, context, Verb::Exec, &request.cwd);
        let spot = act.spot(Final::Follow).await?;
        match spot.kind() {
            Some(FileKind::Dir) => {}
            Some(FileKind::File | FileKind::Symlink | FileKind::Other) => {
                return Err(act.not_a_directory());
            }
            None => return Err(act.nothing(&spot)),
        }
        let scene = Scene {
            cwd: &self.at(&spot.real),
            env: &request.env,
            terminal: request.terminal.is_some(),
            stderr: request.stderr,
            word,
        };
        let line = line::line(&request.command, &scene)?;
        let turn = self.commands.clone().acquire_owned();
        let Some(Ok(permit)) = context.within(session.time_limit, turn).await else {
            let message = format!("{} commands run already", super::COMMANDS);
            return Err(Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message)
                .with_verb(Verb::Exec)
                .with_hint("a plain server runs few at a time; end one first"));
        };
        Ok((line, permit))
    }
}

/// Everything that is needed to start a command.
struct Begin {
    session: Arc<Session>,
    line: Line,
    word: String,
    stdin: StdinMode,
    terminal: Option<TerminalSize>,
    wall: Option<Duration>,
    /// The deadline for the start.
    until: Instant,
    permit: OwnedSemaphorePermit,
}

/// A running command. Dropping it closes its channel.
struct Running {
    session: Arc<Session>,
    half: Option<HalfChannel>,
    output_buffer: Arc<OutputBuffer>,
    stdout: Markers,
    stderr: Markers,
    /// Output that arrived before the command was reported as started.
    early: VecDeque<(OutputChannel, Event)>,
    identity: Identity,
    terminal: bool,
    /// The permit. It is held until the server has closed the channel.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(half) = self.half.take() {
            self.session.lines.end(half.id());
            self.session.later(Later::Close(half));
        }
    }
}

/// Starts a command and handles it until it ends, even if the caller stops waiting.
async fn run(
    begin: Begin,
    destroyed: impl Future<Output = ()>,
    tell: oneshot::Sender<Result<Process>>,
) {
    let (session, stdin, wall) = (begin.session.clone(), begin.stdin, begin.wall);
    let id = ProcessId::new(format!("plain-{}", begin.word));
    let mut asked = false;
    let began = match timeout_at(begin.until, begin.go(&mut asked)).await {
        Ok(began) => began,
        Err(_) => {
            Err(session.late(Verb::Exec, 0, false).with_lost_call_effect(effect(asked), None))
        }
    };
    match began {
        Ok(running) => {
            let (process, feed) = Process::new_with_driver_channels(id, stdin);
            // If the caller no longer waits, this drops the process. The drop ends the command.
            let _ = tell.send(Ok(process));
            carry(running, feed, wall, destroyed).await;
        }
        Err(error) => drop(tell.send(Err(error))),
    }
}

impl Begin {
    /// Starts the command. Sets `asked` when the request has been sent and cannot be undone.
    async fn go(self, asked: &mut bool) -> Result<Running> {
        let Self { session, line, word, stdin, terminal, permit, .. } = self;
        let failed = |why: Unopened| unopened(&session, &why);
        let half = open(&session).await.map_err(failed)?;
        let output_buffer = Arc::new(OutputBuffer::default());
        session.lines.add(half.id(), output_buffer.clone());
        let mut running = Running {
            session: session.clone(),
            half: Some(half),
            output_buffer,
            stdout: Markers::new(&word),
            stderr: Markers::new(&word),
            early: VecDeque::new(),
            identity: Identity::default(),
            terminal: terminal.is_some(),
            _permit: permit,
        };
        if let Some(half) = &running.half {
            if let Some(size) = terminal {
                half.request_terminal(line::terminal(), size).await.map_err(failed)?;
            }
            half.exec(&line.text).await.map_err(failed)?;
            *asked = true;
            if !line.script.is_empty() {
                half.say(line.script).await;
            }
            if stdin == StdinMode::Closed && terminal.is_none() {
                half.end_of_input().await;
            }
        }
        running.begun().await?;
        Ok(running)
    }
}

/// What is known about the effect of a command whose start was not confirmed.
fn effect(asked: bool) -> LostCallEffect {
    if asked { LostCallEffect::Unknown } else { LostCallEffect::NotApplied }
}

/// The error for a command that could not be requested.
pub(super) fn unopened(session: &Session, why: &Unopened) -> Error {
    match why {
        Unopened::Gone => session.lost(Verb::Exec).with_lost_call_effect(effect(false), None),
        Unopened::Refused(_) => {
            let message = format!("{}: {why}", session.who);
            Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message).with_verb(Verb::Exec)
        }
    }
}

/// Opens a channel for a command. If the server refuses, tries again after a pause.
pub(super) async fn open(session: &Session) -> Result<HalfChannel, Unopened> {
    let mut tries = 0;
    loop {
        match session.carrier.open().await {
            Err(Unopened::Refused(_)) if tries < OPEN_AGAIN && !session.is_over() => {
                tries += 1;
                sleep(OPEN_AFTER).await;
            }
            opened => return opened,
        }
    }
}

impl Running {
    /// Waits until the shell code around the command reports that the command has started.
    async fn begun(&mut self) -> Result<()> {
        while self.identity.group == 0 {
            let (channel, bytes) = match self.output_buffer.next().await {
                Ok(piece) => piece,
                Err(silence) => return Err(self.never_began(silence)),
            };
            for event in self.heard(channel, bytes) {
                match event {
                    Event::Began(Some(identity)) => self.identity = identity,
                    Event::Began(None) => {}
                    Event::NoProgram => {
                        let message = "no such program";
                        let error = Error::new(ErrorCode::ExecError, ErrorKind::NotFound, message);
                        return Err(error.with_verb(Verb::Exec));
                    }
                    event => self.early.push_back((channel, event)),
                }
            }
        }
        Ok(())
    }

    fn heard(&mut self, channel: OutputChannel, bytes: Bytes) -> Vec<Event> {
        let length = bytes.len();
        let events = match channel {
            OutputChannel::Stdout => self.stdout.hear(bytes),
            OutputChannel::Stderr => self.stderr.hear(bytes),
        };
        // Bytes that are not part of the command's output do not count as unread.
        let passed: usize = events.iter().map(Event::len).sum();
        self.output_buffer.taken(length.saturating_sub(passed));
        events
    }

    fn never_began(&self, silence: EndOfOutput) -> Error {
        let who = &self.session.who;
        if self.session.is_over() {
            return self.session.lost(Verb::Exec).with_lost_call_effect(effect(true), None);
        }
        let message = match silence {
            EndOfOutput::Refused => format!("{who} runs no commands"),
            EndOfOutput::Over | EndOfOutput::Full => {
                let noise = [self.stderr.noise(), self.stdout.noise()].join(" ");
                let said = ab_core::error::escape_unprintable(noise.trim());
                format!("{who} did not run the command: {said}")
            }
        };
        Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message).with_verb(Verb::Exec)
    }
}

/// A random word that distinguishes the markers in the output from text that the command prints.
fn word() -> String {
    let mut chance = [0; 16];
    // If this fails, the word is predictable, and a command could imitate its own end. This would
    // harm only the command itself.
    let _ = getrandom::fill(&mut chance);
    chance.iter().map(|byte| format!("{byte:02x}")).collect()
}
