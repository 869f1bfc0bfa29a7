//! Handles the output, the input and the end of a command on a plain SSH server, until the command
//! has ended or the caller drops it.

use std::pin::pin;
use std::time::Duration;

use ab_core::process::{
    DriverProcessChannels, ExitCause, MAX_EXIT_OUTPUT_TAIL_BYTES, OutputChannel, OutputChunk,
    ProcessControlMessage, ProcessExit,
};
use ab_core::{LostCallEffect, Verb};
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::super::markers::{Event, Identity};
use super::super::output_buffer::{EndOfOutput, OutputBuffer};
use super::super::own_command;
use super::Running;
use crate::client::carrier::HalfChannel;
use crate::client::lines::Exited;
use crate::client::session::Session;

const KILL: i32 = 9;
/// How long a killed command may take to end, and the server to close its channel.
const GRACE: Duration = Duration::from_secs(5);
/// Control-D, which is the key for the end of input on a terminal.
const END_OF_INPUT: &[u8] = b"\x04";

pub(super) async fn carry(
    mut running: Running,
    feed: DriverProcessChannels,
    wall: Option<Duration>,
    destroyed: impl Future<Output = ()>,
) {
    let DriverProcessChannels {
        output,
        stdin,
        control,
        exit: ending,
        process_dropped: mut resources,
    } = feed;
    let Some(half) = running.half.take() else { return };
    let (session, output_buffer) = (running.session.clone(), running.output_buffer.clone());
    let (Identity { group, process }, terminal) = (running.identity, running.terminal);
    let (arrived, waiting) = mpsc::unbounded_channel();
    let mut destroyed = pin!(destroyed);
    let mut delivering = pin!(deliver(&output_buffer, output, waiting));
    let living = async {
        let mut ears = pin!(listen(&mut running, arrived));
        match wall {
            None => (ears.await, ExitCause::Exited),
            Some(wall) => match timeout(wall, &mut ears).await {
                Ok(heard) => (heard, ExitCause::Exited),
                Err(_) => {
                    own_command::end_group(&session, group).await;
                    (timeout(GRACE, ears).await.unwrap_or_default(), ExitCause::Timeout)
                }
            },
        }
    };
    let speaking = speak(&half, &session, process, Input { pieces: stdin, terminal }, control);
    let lived = tokio::select! {
        biased;
        () = &mut destroyed => None,
        _ = &mut resources => None,
        lived = living => Some(lived),
        () = speaking => None,
        () = &mut delivering => None,
    };
    match lived {
        Some((heard, cause)) => {
            if heard.code.is_none() && cause == ExitCause::Exited {
                // The shell code around the command was killed, so it has not killed the rest of
                // the process group.
                own_command::end_group(&session, group).await;
            }
            match heard.exit(&output_buffer, cause) {
                Some(exit) => ending.send(exit),
                None if session.is_over() => {
                    ending.send_process_lost(
                        session
                            .lost(Verb::Exec)
                            .with_lost_call_effect(LostCallEffect::Unknown, None),
                    );
                }
                // Dropping the sender reports that the exit of the process is unknown.
                None => drop(ending),
            }
            tokio::select! {
                biased;
                () = &mut destroyed => {}
                _ = &mut resources => {}
                () = &mut delivering => {}
            }
        }
        None => {
            ending
                .send(ProcessExit { cause: ExitCause::DroppedByCaller, ..ProcessExit::default() });
            own_command::end_group(&session, group).await;
        }
    }
    // The server offers only a few channels. Wait until it has closed this one.
    let _ = timeout(GRACE, async { while output_buffer.next().await.is_ok() {} }).await;
    running.half = Some(half);
}

/// What is known about the end of a command.
#[derive(Debug, Default)]
struct Heard {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    full: bool,
}

impl Heard {
    /// The exit of the command. `None` if it is unknown.
    fn exit(self, output_buffer: &OutputBuffer, cause: ExitCause) -> Option<ProcessExit> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let exit = ProcessExit {
            cause,
            stdout_tail: text(&self.stdout),
            stderr_tail: text(&self.stderr),
            ..ProcessExit::default()
        };
        if self.full {
            let stderr_tail = "ended: its output was not read, and the buffer of 64 MiB is full";
            return Some(ProcessExit {
                signal: Some(KILL),
                cause: ExitCause::DroppedByCaller,
                stderr_tail: stderr_tail.to_owned(),
                ..exit
            });
        }
        match (self.code, output_buffer.exited(), cause) {
            (Some(code), _, _) => Some(ProcessExit { code: Some(code), ..exit }),
            (None, Some(Exited::Signal(signal)), _) => {
                Some(ProcessExit { signal: Some(signal.unwrap_or(KILL)), ..exit })
            }
            (None, Some(Exited::Status(code)), _) => {
                Some(ProcessExit { code: i32::try_from(code).ok(), ..exit })
            }
            (None, None, ExitCause::Timeout) => Some(ProcessExit { signal: Some(KILL), ..exit }),
            (None, None, _) => None,
        }
    }
}

/// Reads the output of a command until it ends.
async fn listen(running: &mut Running, arrived: mpsc::UnboundedSender<OutputChunk>) -> Heard {
    let mut heard = Heard::default();
    let mut sequence = 0;
    // On a terminal there is no separate standard error.
    let mut silent = (false, running.terminal);
    loop {
        let (channel, events) = match running.early.pop_front() {
            Some((channel, event)) => (channel, vec![event]),
            None => match running.output_buffer.next().await {
                Ok((channel, bytes)) => (channel, running.heard(channel, bytes)),
                Err(silence) => {
                    heard.full = silence == EndOfOutput::Full;
                    return heard;
                }
            },
        };
        for event in events {
            match event {
                Event::Bytes(bytes) => {
                    let tail = match channel {
                        OutputChannel::Stdout => &mut heard.stdout,
                        OutputChannel::Stderr => &mut heard.stderr,
                    };
                    keep_tail(tail, &bytes);
                    let piece =
                        OutputChunk { offset: sequence, channel, bytes, lost_bytes_before: 0 };
                    sequence = piece.next_offset();
                    let _ = arrived.send(piece);
                }
                Event::Ended(code) => {
                    heard.code = heard.code.or(code);
                    match channel {
                        OutputChannel::Stdout => silent.0 = true,
                        OutputChannel::Stderr => silent.1 = true,
                    }
                }
                Event::Began(_) | Event::NoProgram => {}
            }
        }
        if silent == (true, true) {
            return heard;
        }
    }
}

fn keep_tail(tail: &mut Vec<u8>, bytes: &Bytes) {
    let new = &bytes[bytes.len().saturating_sub(MAX_EXIT_OUTPUT_TAIL_BYTES)..];
    let old = tail.len().saturating_sub(MAX_EXIT_OUTPUT_TAIL_BYTES - new.len());
    tail.drain(..old);
    tail.extend_from_slice(new);
}

/// Passes output on as fast as the reader takes it.
async fn deliver(
    output_buffer: &OutputBuffer,
    output: mpsc::Sender<OutputChunk>,
    mut waiting: mpsc::UnboundedReceiver<OutputChunk>,
) {
    while let Some(piece) = waiting.recv().await {
        let length = piece.bytes.len();
        // If the reader is gone, the output is discarded, so that the command does not block.
        let _ = output.send(piece).await;
        output_buffer.taken(length);
    }
}

/// The input of a command.
struct Input {
    pieces: Option<mpsc::Receiver<Bytes>>,
    terminal: bool,
}

/// Sends input, signals and terminal sizes to the command. Never returns.
async fn speak(
    half: &HalfChannel,
    session: &Session,
    process: u32,
    input: Input,
    mut control: mpsc::Receiver<ProcessControlMessage>,
) {
    let no_more = Notify::new();
    let feeding = async {
        if let Some(mut pieces) = input.pieces {
            loop {
                tokio::select! {
                    biased;
                    piece = pieces.recv() => match piece {
                        Some(piece) => drop(half.say(piece).await),
                        None => break,
                    },
                    // Send the earlier input first.
                    () = no_more.notified() => break,
                }
            }
            if input.terminal {
                let _ = half.say(Bytes::from_static(END_OF_INPUT)).await;
            } else {
                half.end_of_input().await;
            }
            // Discard input that arrives after its end.
            while pieces.recv().await.is_some() {}
        }
    };
    let steering = async {
        while let Some(wish) = control.recv().await {
            match wish {
                ProcessControlMessage::CloseStdin => no_more.notify_one(),
                ProcessControlMessage::Resize(size) => half.resize(size).await,
                ProcessControlMessage::Signal(signal) => {
                    own_command::signal(session, process, signal).await
                }
            }
        }
    };
    tokio::join!(feeding, steering);
    std::future::pending().await
}
