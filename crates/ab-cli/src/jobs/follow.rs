//! Presents a background command on this machine as a [`Process`]. Its output is read from the
//! files and its end from its record. Signals are sent to its holder, which is the process that
//! runs the command.

use std::time::Duration;

use ab_core::process::{
    DriverProcessChannels, Process, ProcessControlMessage, ProcessExit, ProcessId, StdinMode,
};
use ab_core::{Error, ErrorCode, ErrorKind, Result};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use super::files::JobDirectory;
use super::{JobState, holder};

/// How often the files are checked while there is no new output.
const PACE: Duration = Duration::from_millis(50);

/// How far the output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Up to the end of the output that exists now.
    Now,
    /// Until the job ends.
    End,
}

/// Presents a job as a process. Dropping the process stops the reading, but the job keeps running.
pub(crate) fn attach(directory: &JobDirectory, id: &str, from: u64, until: Until) -> Process {
    let (process, feed) = Process::new_with_driver_channels(ProcessId::new(id), StdinMode::Closed);
    let (directory, id) = (directory.clone(), id.to_owned());
    // The task ends with the job, or when the process is dropped.
    tokio::spawn(async move { watch(&directory, &id, from, until, feed).await });
    process
}

async fn watch(
    directory: &JobDirectory,
    id: &str,
    from: u64,
    until: Until,
    feed: DriverProcessChannels,
) {
    let DriverProcessChannels { output, mut control, exit, process_dropped: mut dropped, .. } =
        feed;
    let mut reader = directory.output(id, from);
    loop {
        // Read the state before the output. If the state says that the job has ended, the output
        // that is read afterwards is complete.
        let found = directory.find(id);
        loop {
            let piece = match reader.next() {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => {
                    let message = format!("read the output of job {id}: {error}");
                    exit.send_process_lost(Error::new(
                        ErrorCode::ReadFailed,
                        ErrorKind::Io,
                        message,
                    ));
                    return;
                }
            };
            tokio::select! {
                sent = output.send(piece) => if sent.is_err() { return },
                _ = &mut dropped => return,
            }
        }
        match found.map(|held| held.job.state) {
            Some(JobState::Ended(ended)) => return exit.send(ended),
            Some(JobState::Running) if until == Until::Now => return,
            Some(JobState::Running) => {}
            Some(JobState::Lost) | None => return exit.send_process_lost(lost(id)),
        }
        tokio::select! {
            () = tokio::time::sleep(PACE) => {}
            message = control.recv() => if let Some(ProcessControlMessage::Signal(number)) = message {
                // Sending fails if the job has just ended.
                let _ = signal(directory, id, number);
            },
            _ = &mut dropped => return,
        }
    }
}

fn lost(id: &str) -> Error {
    let message = format!("the end of job {id} is unknown: the process that ran it was killed");
    Error::new(ErrorCode::ExecError, ErrorKind::NotFound, message)
        .with_hint("read its output: agent-backend job logs ID")
}

/// Sends a signal to the command of a job.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if the command has ended. [`ErrorKind::Invalid`] if the holder cannot
/// pass on this signal.
pub(crate) fn signal(directory: &JobDirectory, id: &str, number: i32) -> Result<()> {
    let gone = || {
        let message = format!("job {id} is not running");
        Error::new(ErrorCode::ExecError, ErrorKind::NotFound, message)
    };
    let Some(relayed) = holder::relayed(number) else {
        let message = format!("signal {number} cannot be sent to a job");
        return Err(Error::new(ErrorCode::ExecError, ErrorKind::Invalid, message));
    };
    let held = directory.find(id).ok_or_else(gone)?;
    let pid = held.holder.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    // Use a handle, because a process id may later refer to another process.
    let handle = pidfd_open(pid.ok_or_else(gone)?, PidfdFlags::empty()).map_err(|_| gone())?;
    // Read the state after the handle was opened. If the holder is running now, it was also running
    // when the handle was opened. The handle then belongs to the holder and not to a later process
    // with the same id.
    let running =
        directory.find(id).is_some_and(|held| matches!(held.job.state, JobState::Running));
    if !running {
        return Err(gone());
    }
    pidfd_send_signal(&handle, relayed).map_err(|_| gone())
}

/// Waits until the job has ended, and returns how it ended. `None` if the job was lost.
pub(crate) async fn ended(directory: &JobDirectory, id: &str) -> Option<ProcessExit> {
    loop {
        match directory.find(id).map(|held| held.job.state) {
            Some(JobState::Running) => tokio::time::sleep(PACE).await,
            Some(JobState::Ended(exit)) => return Some(exit),
            Some(JobState::Lost) | None => return None,
        }
    }
}
