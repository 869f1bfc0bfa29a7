//! Tools for background processes: read output, send input, end a process, and list the processes.

use std::time::Duration;

use ab_core::process::{OutputChannel, Process, ProcessControlMessage, ProcessId, ProcessInfo};
use ab_core::{Backend, Error, ErrorKind};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use super::Outcome;
use super::exec::status;
use super::info::shown;
use crate::answer::{ToolAnswer, joined};
use crate::arguments::Arguments;
use crate::bounds::{COMMAND_CHARS, DEFAULT_MAX_RESULT_BYTES, KILL_WAIT, MAX_WAIT, QUIET};
use crate::failure::Failure;
use crate::quantity::grouped;

/// A cursor after all output, for a caller that wants no earlier output.
const NOW: u64 = u64::MAX;

pub(crate) async fn output(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let id = ProcessId::new(arguments.text("processId")?);
    let cursor = arguments.whole("cursor")?.unwrap_or(0);
    let wait = arguments.seconds("wait")?.unwrap_or(0.0);
    let wait = Duration::try_from_secs_f64(wait).unwrap_or(MAX_WAIT).min(MAX_WAIT);
    let mut process = attached(backend, &id, cursor).await?;
    let heard = Heard::from(&mut process, cursor, wait).await;
    let exit =
        if heard.ended { timeout(KILL_WAIT, process.wait()).await.ok().flatten() } else { None };
    let state = match (&exit, heard.ended) {
        (Some(exit), _) => status(exit),
        (None, true) => "it has ended".to_owned(),
        (None, false) => format!("still running; go on with cursor {}", heard.next),
    };
    let lost = match heard.lost {
        0 => String::new(),
        lost => format!("{} bytes before this are no longer kept; ", grouped(lost)),
    };
    let more =
        if heard.full { format!("there is more: go on with cursor {}", heard.next) } else { state };
    let answer = ToolAnswer::noted(heard.text, Some(format!("{lost}{more}")));
    Ok(answer
        .with("nextCursor", heard.next)
        .with("lost", heard.lost)
        .with("running", !heard.ended)
        .with_some("exitCode", exit.as_ref().and_then(|exit| exit.code))
        .with_some("signal", exit.as_ref().and_then(|exit| exit.signal)))
}

pub(crate) async fn input(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let id = ProcessId::new(arguments.text("processId")?);
    let text = arguments.optional_text("input")?.unwrap_or_default();
    let end = arguments.flag("end", false)?;
    if text.is_empty() && !end {
        return Err(arguments.missing("input", "a string that is not empty, or end: true"));
    }
    let process = attached(backend, &id, NOW).await?;
    let bytes = text.len() as u64;
    if !text.is_empty() {
        let Some(stdin) = &process.stdin else { return Err(deaf(&id)) };
        let sending = stdin.send(Bytes::from(text));
        match timeout(KILL_WAIT, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(deaf(&id)),
            Err(_) => {
                let message =
                    format!("process {id} does not read its standard input now; try again later");
                return Err(Failure::misuse(message));
            }
        }
    }
    let mut said = format!("Sent {} bytes to process {id}", grouped(bytes));
    if end {
        if process.control.send(ProcessControlMessage::CloseStdin).await.is_err() {
            return Err(deaf(&id));
        }
        said.push_str(" and ended its input");
    }
    Ok(ToolAnswer::text(said))
}

pub(crate) async fn kill(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let id = ProcessId::new(arguments.text("processId")?);
    let (name, signal) = arguments.choice(
        "signal",
        &[
            ("TERM", ("TERM", 15)),
            ("KILL", ("KILL", 9)),
            ("INT", ("INT", 2)),
            ("HUP", ("HUP", 1)),
            ("QUIT", ("QUIT", 3)),
        ],
    )?;
    let mut process = attached(backend, &id, NOW).await?;
    // Sending fails if the process has already ended.
    let _ = process.control.send(ProcessControlMessage::Signal(signal)).await;
    let ended = timeout(KILL_WAIT, process.wait()).await.ok().flatten();
    let text = match &ended {
        Some(exit) => format!("Process {id}: {}", status(exit)),
        None => {
            format!("Process {id} got {name} and still runs; signal \"KILL\" cannot be ignored")
        }
    };
    Ok(ToolAnswer::text(text).with("running", ended.is_none()))
}

pub(crate) async fn list(backend: &Backend) -> Outcome {
    let processes = backend.detached_processes().await?;
    if processes.is_empty() {
        return Ok(ToolAnswer::text("No background processes").with("processes", json!([])));
    }
    let (text, shown, whole) = joined(processes.iter().map(row), DEFAULT_MAX_RESULT_BYTES);
    let note = (!whole).then(|| format!("the first {} of {}", shown, processes.len()));
    let values: Vec<Value> = processes.iter().take(shown).map(value).collect();
    Ok(ToolAnswer::noted(text, note).with("processes", values))
}

/// The output of a process from a cursor on.
#[derive(Default)]
struct Heard {
    text: String,
    next: u64,
    lost: u64,
    /// Whether the output of the process has ended.
    ended: bool,
    /// Whether there is more output than fits in the answer.
    full: bool,
}

impl Heard {
    /// Waits for new output, and then takes all output until there is a pause.
    async fn from(process: &mut Process, cursor: u64, wait: Duration) -> Heard {
        let mut heard = Heard { next: cursor, ..Heard::default() };
        let mut bytes: Vec<u8> = Vec::new();
        let mut last = OutputChannel::Stdout;
        let mut deadline = Instant::now() + wait.max(QUIET);
        loop {
            let piece = match timeout_at(deadline, process.output.recv()).await {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    heard.ended = true;
                    break;
                }
                Err(_) => break,
            };
            heard.lost += piece.lost_bytes_before;
            if piece.channel != last && !piece.bytes.is_empty() {
                if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                    bytes.push(b'\n');
                }
                bytes.extend_from_slice(match piece.channel {
                    OutputChannel::Stdout => b"[stdout]\n",
                    OutputChannel::Stderr => b"[stderr]\n",
                });
                last = piece.channel;
            }
            let room = DEFAULT_MAX_RESULT_BYTES.saturating_sub(bytes.len());
            let taken = piece.bytes.len().min(room);
            bytes.extend_from_slice(&piece.bytes[..taken]);
            heard.next = piece.offset + taken as u64;
            if taken < piece.bytes.len() {
                heard.full = true;
                break;
            }
            deadline = Instant::now() + QUIET;
        }
        heard.text = String::from_utf8_lossy(&bytes).into_owned();
        heard
    }
}

async fn attached(backend: &Backend, id: &ProcessId, from: u64) -> Result<Process, Failure> {
    match backend.attach(id, from).await {
        Ok(process) => Ok(process),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(unknown(backend, error).await),
        Err(error) => Err(error.into()),
    }
}

/// The error for an unknown process id. It lists the ids of existing processes.
async fn unknown(backend: &Backend, error: Error) -> Failure {
    let processes = backend.detached_processes().await.unwrap_or_default();
    let ids: Vec<&str> = processes.iter().take(10).map(|process| process.id.as_str()).collect();
    let hint = match ids.as_slice() {
        [] => "there are none; exec with background: true starts one".to_owned(),
        ids => format!("there are: {}", ids.join(", ")),
    };
    error.with_hint(hint).into()
}

fn deaf(id: &ProcessId) -> Failure {
    Failure::misuse(format!("process {id} has ended, or its standard input is closed"))
}

fn row(process: &ProcessInfo) -> String {
    let state = process.exit.as_ref().map_or("running".to_owned(), status);
    let command: String = process.command.chars().take(COMMAND_CHARS).collect();
    let more = if command.len() < process.command.len() { "…" } else { "" };
    let command = ab_core::error::escape_unprintable(&command);
    format!("{} [{state}] {command}{more}", process.id)
}

fn value(process: &ProcessInfo) -> Value {
    let mut value = json!({
        "processId": process.id.as_str(),
        "command": process.command.chars().take(COMMAND_CHARS).collect::<String>(),
        "cwd": process.cwd.to_string(),
        "started": shown(process.started),
        "running": process.exit.is_none(),
    });
    if let (Some(exit), Value::Object(fields)) = (&process.exit, &mut value) {
        fields.extend(exit.code.map(|code| ("exitCode".to_owned(), json!(code))));
        fields.extend(exit.signal.map(|signal| ("signal".to_owned(), json!(signal))));
    }
    value
}
