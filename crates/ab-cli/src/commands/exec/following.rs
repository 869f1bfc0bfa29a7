//! Follows a command until it ends. If the connection is lost, explains what happens to the
//! command.

use ab_core::process::{ExitCause, LeftoverProcessOutcome, Process, ProcessExit, ProcessId};
use ab_core::{Backend, ConnectionStatus, ConnectionStatusChange, Error, ErrorCode, ErrorKind};

use super::live::{self, Interrupts};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Terminal, talk};
use crate::workspace::WorkspaceFlags;

/// How a command is followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watching<'a> {
    pub(crate) workspace: &'a WorkspaceFlags,
    /// Maximum number of bytes of each output that are shown. `None` for no limit.
    pub(crate) max_output: Option<u64>,
    /// Whether to print no notes.
    pub(crate) quiet: bool,
    /// The ID of a background command. It keeps running when it is not followed any more.
    pub(crate) job: Option<&'a str>,
}

impl Watching<'_> {
    fn note(&self, text: &str, terminal: &mut Terminal) {
        if !self.quiet {
            terminal.note(text);
        }
    }

    /// Shows the output of a command until it ends. `backend` is the workspace of the command.
    /// `None` for a local background job.
    pub(crate) async fn follow(
        &self,
        process: Process,
        backend: Option<&Backend>,
        terminal: &mut Terminal,
    ) -> Result<Exit, Failure> {
        let remote = backend.filter(|_| self.job.is_some());
        let _subscription = remote.map(|backend| backend.on_status_change(tell_of_the_way));
        let interrupts = match self.job {
            Some(_) => Interrupts::Leave,
            None => Interrupts::PassOn,
        };
        let ended = live::follow(process, self.max_output, interrupts, terminal).await?;
        for (name, said) in [("standard output", ended.stdout), ("standard error", ended.stderr)] {
            if said.shown < said.total {
                let (shown, total) = (said.shown, said.total);
                self.note(&format!("{name} was cut after {shown} of {total} bytes"), terminal);
            }
        }
        let exit = match (ended.exit, ended.left, self.job) {
            (Some(exit), _, _) => exit,
            (None, Some(exit), Some(id)) => {
                self.tell_how_to_watch_again(id, terminal);
                return Ok(exit);
            }
            (None, Some(exit), None) => {
                self.note("the command did not end in time; its exit code is unknown", terminal);
                return Ok(exit);
            }
            (None, None, _) => return Err(self.lost(backend, ended.why_lost).await?),
        };
        self.tell_how_it_ended(&exit, terminal);
        Ok(match exit_code(&exit) {
            // A part of the output is missing, so the caller must not see a success.
            Exit::Success if ended.missing > 0 => Exit::OWN_FAILURE,
            exit => exit,
        })
    }

    /// Prints notes about the end of a command that its exit code does not tell.
    pub(crate) fn tell_how_it_ended(&self, exit: &ProcessExit, terminal: &mut Terminal) {
        match exit.cause {
            ExitCause::Timeout => self.note("the command was ended by its time limit", terminal),
            ExitCause::MemoryLimit => {
                self.note("the command was ended by its memory limit", terminal);
            }
            ExitCause::CpuLimit => {
                self.note("the command was ended by its limit of CPU time", terminal);
            }
            ExitCause::FileSizeLimit => {
                self.note("the command was ended by its limit on the size of files", terminal);
            }
            ExitCause::DroppedByCaller => self.note(&ended_for(&exit.stderr_tail), terminal),
            ExitCause::Exited => {}
        }
        if exit.leftover_processes == LeftoverProcessOutcome::Ended {
            self.note(
                "the command left processes running (for example with & or nohup), and they were \
                 ended; to keep a process running, start it with exec --detach",
                terminal,
            );
        }
    }

    /// Prints how to watch a job again that keeps running.
    pub(crate) fn tell_how_to_watch_again(&self, id: &str, terminal: &mut Terminal) {
        let again = format!("agent-backend job attach {id}");
        self.note(&format!("the job keeps running; to watch it again: {again}"), terminal);
    }

    /// The failure to report if it is unknown how the command ended.
    pub(crate) async fn lost(
        &self,
        backend: Option<&Backend>,
        why: Option<Error>,
    ) -> Result<Failure, Failure> {
        let (Some(backend), true) = (backend, self.workspace.is_elsewhere()?) else {
            let unknown =
                || Error::new(ErrorCode::ExecError, ErrorKind::Io, "the command was lost");
            return Ok(why.unwrap_or_else(unknown).into());
        };
        let failed = |message: &str, hint: &str| {
            let error = Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message);
            Ok(Failure::from(error).with_hint(hint))
        };
        // Any error other than a lost connection explains itself.
        let else_than_lost = |kind| {
            !matches!(kind, ErrorKind::Disconnected | ErrorKind::Timeout | ErrorKind::NotFound)
        };
        if let Some(why) = why.filter(|why| else_than_lost(why.kind())) {
            return Ok(self.workspace.out_of_reach(why));
        }
        let Some(id) = self.job else {
            let hint = after_the_loss(backend.info().capabilities.detached_processes);
            return failed("the connection was lost while the command ran", hint);
        };
        // Find out whether the daemon cannot be reached or no longer knows the command.
        let forgotten = backend.status() != ConnectionStatus::Disconnected && {
            let asked = backend.attach(&ProcessId::new(id), 0).await;
            asked.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        if forgotten {
            failed(
                "the daemon was restarted while the command ran, which ended the command",
                "start the command again",
            )
        } else {
            failed(
                "the connection was lost while the command ran",
                "the job keeps running while its daemon runs; to watch it again: agent-backend job attach ID",
            )
        }
    }
}

/// Why a command was ended without our request. A driver that ends a command appends the line
/// `ended: REASON` to the standard error of the command.
fn ended_for(errors: &str) -> String {
    match errors.lines().next_back().and_then(|line| line.strip_prefix("ended: ")) {
        Some(why) => format!("the command was ended: {why}"),
        None => "the command was ended: its client disconnected".to_owned(),
    }
}

/// The note after a reconnect. The client does not send signals and input again, because the first
/// copy may have arrived.
const CONNECTED_AGAIN: &str = "note: connected again; signals and input from just before the loss \
                               may be missing\n";

fn tell_of_the_way(change: &ConnectionStatusChange) {
    match change.to {
        ConnectionStatus::Reconnecting => talk("note: the connection was lost; reconnecting\n"),
        ConnectionStatus::Connected => talk(CONNECTED_AGAIN),
        ConnectionStatus::Connecting
        | ConnectionStatus::Disconnected
        | ConnectionStatus::Destroyed => {}
    }
}

/// Describes what happens to a command after the connection to a daemon or to a plain SSH server is
/// lost.
fn after_the_loss(daemon: bool) -> &'static str {
    if daemon {
        "the daemon ends the command; to keep a command running, start it with --detach"
    } else {
        "the command may keep running until it reads or writes; an agent-backend daemon on that \
             machine would end it, or keep it with --detach"
    }
}

/// The exit code of this process for a command that ended in this way.
pub(crate) fn exit_code(exit: &ProcessExit) -> Exit {
    const TIMED_OUT: u8 = 124;
    const BY_SIGNAL: i32 = 128;
    let number = |code: i32| u8::try_from(code & 0xff).unwrap_or(u8::MAX);
    match (exit.cause, exit.code, exit.signal) {
        (ExitCause::Timeout, _, _) => Exit::Command(TIMED_OUT),
        (_, Some(0), _) => Exit::Success,
        (_, Some(code), _) => Exit::Command(number(code)),
        (_, None, Some(signal)) => Exit::Command(number(BY_SIGNAL + signal)),
        (_, None, None) => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_an_ended_command_is_shown() {
        let full = "ended: its output was not read, and the buffer of 64 MiB is full";
        let told =
            "the command was ended: its output was not read, and the buffer of 64 MiB is full";
        assert_eq!(ended_for(full), told);
        for of_its_own in ["", "some error\n", "ended: \nmore"] {
            assert_eq!(ended_for(of_its_own), "the command was ended: its client disconnected");
        }
    }

    #[test]
    fn only_a_daemon_is_said_to_end_a_command_or_to_keep_it() {
        assert!(after_the_loss(true).contains("--detach"));
        let plain = after_the_loss(false);
        assert!(plain.contains("may keep running"), "{plain}");
    }
}
