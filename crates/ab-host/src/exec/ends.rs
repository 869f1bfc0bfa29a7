//! Makes the pipes or the terminal of a command. The result holds the child's ends, in the order of
//! their file descriptor numbers, and our ends.

use std::os::fd::{AsRawFd, OwnedFd};

use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::{ExecRequest, StderrMode, StdinMode, TerminalSize};
use rustix::fs::{Mode, OFlags};

use super::unstarted;
use crate::process::child::Terminal;
use crate::process::stream::{ReadEnd, WriteEnd, input_pipe, no_waiting, output_pipe};
use crate::process::supervise::{Channels, OutputEnd};

/// Both ends of a command's pipes or terminal. The ends in `theirs` belong to the child, in the
/// order of their file descriptor numbers.
pub(super) struct Ends {
    pub(super) theirs: Vec<OwnedFd>,
    pub(super) ours: Channels,
    pub(super) terminal: Terminal,
}

/// Returns a handle through which a process can open a write end of the pipe `output` for itself.
/// The returned handle does not keep the pipe open for writing.
pub(super) fn reopenable(output: &OwnedFd) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", output.as_raw_fd());
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|errno| unstarted(&errno.into()))
}

/// Returns the write end of a pipe that has no reader, for use as output. `/dev/null` is not used,
/// because root could change the mode of the host's device through its handle.
pub(super) fn unread_output() -> Result<OwnedFd> {
    let (_, theirs) = output_pipe().map_err(|error| unstarted(&error))?;
    Ok(theirs)
}

pub(super) fn ends(request: &ExecRequest) -> Result<Ends> {
    match request.terminal {
        Some(size) => terminal_ends(request, size),
        None => pipe_ends(request),
    }
}

fn pipe_ends(request: &ExecRequest) -> Result<Ends> {
    let made = |pipe: std::io::Result<(OwnedFd, OwnedFd)>| pipe.map_err(|e| unstarted(&e));
    let (stdin, input) = if piped(request) {
        let (ours, theirs) = made(input_pipe())?;
        (Some(WriteEnd::new(ours)), theirs)
    } else {
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        (None, null.map_err(|errno| unstarted(&errno.into()))?)
    };
    let (stdout, output) = made(output_pipe())?;
    let (stderr, errors) = match request.stderr {
        StderrMode::Separate => {
            let (ours, theirs) = made(output_pipe())?;
            (Some(watched(ours)?), theirs)
        }
        StderrMode::Merged => (None, output.try_clone().map_err(|error| unstarted(&error))?),
    };
    Ok(Ends {
        theirs: vec![input, output, errors],
        ours: Channels {
            stdout: Some(watched(stdout)?),
            stderr,
            stdin,
            terminal: None,
            theirs: Vec::new(),
            report: None,
            output_end: OutputEnd::Unseen,
        },
        terminal: Terminal::None,
    })
}

fn terminal_ends(request: &ExecRequest, size: TerminalSize) -> Result<Ends> {
    let open = || -> std::io::Result<(OwnedFd, OwnedFd)> {
        use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        let size = rustix::termios::Winsize {
            ws_row: size.rows,
            ws_col: size.columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&theirs, size)?;
        no_waiting(&ours)?;
        Ok((ours, theirs))
    };
    let copy = |handle: &OwnedFd| handle.try_clone().map_err(|error| unstarted(&error));
    let (ours, theirs) = open().map_err(|error| {
        let message = format!("cannot create a terminal: {error}");
        Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message)
    })?;
    let stdin = if piped(request) { Some(WriteEnd::new(copy(&ours)?)) } else { None };
    Ok(Ends {
        ours: Channels {
            stdout: Some(watched(copy(&ours)?)?),
            stderr: None,
            stdin,
            terminal: Some(ours),
            theirs: Vec::new(),
            report: None,
            output_end: OutputEnd::Unseen,
        },
        theirs: vec![copy(&theirs)?, copy(&theirs)?, theirs],
        terminal: Terminal::Controlling,
    })
}

pub(super) fn piped(request: &ExecRequest) -> bool {
    request.stdin == StdinMode::Piped
}

fn watched(handle: OwnedFd) -> Result<ReadEnd> {
    ReadEnd::new(handle).map_err(|error| unstarted(&error))
}
