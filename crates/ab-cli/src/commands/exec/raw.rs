//! Puts the user's terminal into raw mode while the command has its own terminal, so that keys are
//! passed on unchanged.

use std::io;

use ab_core::process::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The size that is used if the real size is unknown. Programs assume it too.
const USUAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };

/// The size of the user's terminal.
pub(super) fn size() -> TerminalSize {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            TerminalSize { columns: size.ws_col, rows: size.ws_row }
        }
        Ok(_) | Err(_) => USUAL,
    }
}

/// Raw mode of the terminal. Dropping it restores the old mode.
pub(super) struct Raw {
    /// Absent when standard input is no terminal.
    before: Option<Termios>,
}

impl Raw {
    pub(super) fn enter() -> Raw {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            // If the terminal does not support raw mode, it still works line by line.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &raw);
        }
        Raw { before }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
