//! Decides whether a command gets the standard input of this process.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use ab_core::process::{Command, StdinMode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat, major, minor};
use rustix::time::Timespec;

/// Programs that become interactive when they are started without arguments.
const INTERACTIVE: [&str; 22] = [
    "bash", "cat", "dash", "fish", "gdb", "htop", "irb", "ksh", "less", "lua", "more", "mysql",
    "nano", "node", "psql", "python", "python3", "sh", "sqlite3", "top", "vim", "zsh",
];
/// The major and minor device number of `/dev/null` on Linux.
const NULL_DEVICE: (u32, u32) = (1, 3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedInput {
    /// Everything from standard input until EOF.
    All,
    /// Nothing: standard input is empty or closed.
    Empty,
    /// Nothing: standard input is a terminal, and the user did not ask to pass it on.
    Terminal,
}

impl PassedInput {
    /// Passes standard input on if it is a file or a pipe. A terminal is passed on only if `asked`.
    pub(crate) fn wanted(asked: bool) -> PassedInput {
        if asked {
            return PassedInput::All;
        }
        let stdin = io::stdin();
        if stdin.is_terminal() {
            PassedInput::Terminal
        } else if is_empty(stdin.as_fd()) {
            PassedInput::Empty
        } else {
            PassedInput::All
        }
    }

    pub(crate) fn mode(self) -> StdinMode {
        match self {
            PassedInput::All => StdinMode::Piped,
            PassedInput::Empty | PassedInput::Terminal => StdinMode::Closed,
        }
    }
}

/// Whether there is nothing to read: `/dev/null`, an empty file, a closed handle, or a pipe without
/// writers.
fn is_empty(stdin: impl AsFd) -> bool {
    let Ok(found) = fstat(&stdin) else { return true };
    match FileType::from_raw_mode(found.st_mode) {
        FileType::CharacterDevice => (major(found.st_rdev), minor(found.st_rdev)) == NULL_DEVICE,
        FileType::RegularFile => found.st_size == 0,
        _ => {
            let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
            let polled = poll(&mut ready, Some(&Timespec::default()));
            let state = ready[0].revents();
            polled.is_ok() && state.contains(PollFlags::HUP) && !state.contains(PollFlags::IN)
        }
    }
}

/// Whether the command is an interactive program without arguments, as in `exec bash`.
pub(super) fn wants_terminal(command: &Command) -> bool {
    let line = command.to_shell_line();
    let name = line.trim().rsplit('/').next().unwrap_or_default();
    INTERACTIVE.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interactive_programs_alone_want_a_terminal() {
        for (line, wants) in [
            ("bash", true),
            (" /bin/sh ", true),
            ("python3", true),
            ("bash -c ls", false),
            ("python3 x.py", false),
            ("ls", false),
            ("", false),
        ] {
            assert_eq!(wants_terminal(&Command::Shell(line.to_owned())), wants, "{line}");
        }
    }

    #[test]
    fn a_pipe_without_writers_is_empty() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        assert!(!is_empty(&read));
        rustix::io::write(&write, b"x").unwrap();
        drop(write);
        assert!(!is_empty(&read));
        rustix::io::read(&read, &mut [0; 4]).unwrap();
        assert!(is_empty(&read));
        assert!(is_empty(std::fs::File::open("/dev/null").unwrap()));
    }
}
