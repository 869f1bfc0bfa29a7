//! The holder process of a background command. It runs the command, writes its output to files,
//! passes signals on, and exits when the command ends.
//!
//! `exec --detach` starts the holder with its own arguments and `--hold-job`. When the command is
//! running, the holder prints one line of JSON on standard output and detaches from the terminal.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use ab_core::process::{Process, ProcessControlMessage, ProcessExit};
use ab_core::{Error, ErrorCode, ErrorKind};
use ab_host::child_program::DetachedChildProgram;
use rustix::process::{Signal, setsid};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};

use super::files::JobDirectory;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::talk;

/// The flag that makes `exec` a holder.
const FLAG: &str = "--hold-job";
const KILL: i32 = 9;
/// The signals that the holder passes on to the command. Each entry contains the number of the
/// signal for the command, and the signal that is sent to the holder for it. Another signal stands
/// for SIGKILL, because the holder cannot handle SIGKILL.
const RELAYED: [(i32, Signal); 7] = [
    (1, Signal::HUP),
    (2, Signal::INT),
    (3, Signal::QUIT),
    (KILL, Signal::ALARM),
    (10, Signal::USR1),
    (12, Signal::USR2),
    (15, Signal::TERM),
];

/// The signal to send to a holder, so that the holder sends the signal `number` to its command.
pub(super) fn relayed(number: i32) -> Option<Signal> {
    RELAYED.iter().find(|(known, _)| *known == number).map(|(_, signal)| *signal)
}

/// Starts a holder with the arguments of this process, and waits until the command is running.
/// Returns the id of the job.
///
/// # Errors
///
/// Fails if the holder failed. The messages of the holder are printed on standard error.
pub(crate) async fn start() -> Result<String, Failure> {
    let own =
        std::env::current_exe().map_err(|error| Failure::input("find this program", error))?;
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.insert(1.min(arguments.len()), OsString::from(FLAG));
    let DetachedChildProgram { mut child, output, errors } =
        DetachedChildProgram::start(&own, &arguments)?;
    let fails = |error| Failure::input("start a background command", error);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).await.map_err(fails)?;
    let answer: Option<Value> = serde_json::from_str(&line).ok();
    if let Some(answer) = answer {
        talk(answer["note"].as_str().unwrap_or_default());
        return Ok(answer["id"].as_str().unwrap_or_default().to_owned());
    }
    let mut told = Vec::new();
    BufReader::new(errors).read_to_end(&mut told).await.map_err(fails)?;
    talk(&String::from_utf8_lossy(&told));
    let status = child.wait().await.map_err(fails)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
    Err(Failure::Told(code.map_or(Exit::OWN_FAILURE, Exit::Command)))
}

/// Runs as the holder of a command that was just started, until the command ends. `note` is a note
/// for the user who started it.
///
/// # Errors
///
/// Fails if the files of the job cannot be created. The command is then ended.
pub(crate) async fn hold(
    mut process: Process,
    command: &str,
    root: &Path,
    note: Option<&str>,
) -> Result<(), Failure> {
    let directory = JobDirectory::open()?;
    let mut writer = directory.add(command, &root.display().to_string())?;
    let mut signals = Relay::watch().map_err(|error| Failure::input("watch signals", error))?;
    let note = note.map(|note| format!("note: {note}\n"));
    let answer = json!({ "id": writer.id, "note": note });
    // This write fails if the process that started the holder has exited. The command is then
    // dropped.
    let mut out = io::stdout();
    writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(Failure::output)?;
    leave_terminal();
    let mut is_full = false;
    loop {
        tokio::select! {
            piece = process.output.recv() => match piece {
                // If the disk is full, output is lost, but the command keeps running.
                Some(piece) => is_full |= writer.append(piece.channel, &piece.bytes).is_err(),
                None => break,
            },
            number = signals.next() => {
                // Sending fails if the command has just ended.
                let _ = process.control.try_send(ProcessControlMessage::Signal(number));
            }
        }
    }
    let exit = process.wait().await.unwrap_or_else(ProcessExit::default);
    let finished = writer.finish(&exit);
    match (finished, is_full) {
        (Ok(()), false) => Ok(()),
        (Err(error), _) => Err(Failure::input("write the end of the job", error)),
        (Ok(()), true) => {
            let message = "some output of the job could not be written";
            Err(Error::new(ErrorCode::WriteFailed, ErrorKind::NoSpace, message).into())
        }
    }
}

/// Detaches this process from the terminal, so that it receives no hangup and no signals from keys.
#[expect(clippy::disallowed_methods, reason = "this process does nothing but hold the job")]
fn leave_terminal() {
    // This fails only if the process already leads a process group. A process that leads a process
    // group has already left the terminal.
    let _ = setsid();
    // Leave the working directory, so that it can be removed or unmounted.
    let _ = std::env::set_current_dir("/");
}

/// The signals that the holder passes on.
struct Relay {
    watched: Vec<(i32, tokio::signal::unix::Signal)>,
}

impl Relay {
    fn watch() -> io::Result<Relay> {
        let watch = |(number, by): &(i32, Signal)| {
            Ok((*number, signal(SignalKind::from_raw(by.as_raw()))?))
        };
        Ok(Relay { watched: RELAYED.iter().map(watch).collect::<io::Result<_>>()? })
    }

    /// The number of the next signal for the command.
    async fn next(&mut self) -> i32 {
        let waits = self.watched.iter_mut().map(|(number, signals)| {
            Box::pin(async {
                if signals.recv().await.is_none() {
                    std::future::pending::<()>().await;
                }
                *number
            })
        });
        futures_util::future::select_all(waits).await.0
    }
}
