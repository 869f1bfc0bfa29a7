//! What the words of a command line may name where no wall is to be had, and who sees to it.
//!
//! Drivers that run commands know nothing of shells. Whoever makes such a driver may give it a
//! [`CommandLineCheck`]; without one it runs no command in a mode that needs it.

use std::collections::BTreeMap;

use crate::error::Result;

/// Where a command line is to run.
#[derive(Clone, Copy, Debug)]
pub struct CommandLineCheckContext<'a> {
    /// Absolute paths that mean the root of what the command may use. Without any, no path can be
    /// named.
    pub roots: &'a [String],
    /// The directory it starts in, below the root. It is its `HOME` too, unless `env` has another.
    pub cwd: &'a str,
    /// Variables that the caller gives the command.
    pub env: &'a BTreeMap<String, String>,
    /// All of its standard input, where that is known beforehand.
    pub input: Option<&'a [u8]>,
    /// Directories of the system that may be named, but not as targets of output.
    pub readable: &'a [&'a str],
}

/// Refuses a line when a word of it leads out of the confines, or when it cannot be understood. It
/// looks at nothing but these: a line that passed once passes there again, unasked.
pub type CommandLineCheck = fn(&str, &CommandLineCheckContext<'_>) -> Result<()>;
