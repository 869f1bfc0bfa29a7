//! The check of command lines for commands that run without isolation.
//!
//! Drivers that run commands do not parse shell syntax. Their creator may give them a
//! [`CommandLineCheck`]. Without one, they refuse to run commands in a mode that needs it.

use std::collections::BTreeMap;

use crate::error::Result;

/// Where a command line is to run.
#[derive(Clone, Copy, Debug)]
pub struct CommandLineCheckContext<'a> {
    /// Absolute paths of the root directory that the command may use. Without any, no absolute path
    /// is allowed.
    pub roots: &'a [String],
    /// The start directory, relative to the root. It is also `HOME`, unless `env` sets it.
    pub cwd: &'a str,
    /// Variables that the caller sets for the command.
    pub env: &'a BTreeMap<String, String>,
    /// The whole standard input, if it is known in advance.
    pub input: Option<&'a [u8]>,
    /// System directories that may be named, but not as targets of output.
    pub readable: &'a [&'a str],
}

/// Refuses a line if one of its words leads outside, or if it cannot be parsed. The result depends
/// only on the arguments, so it may be cached.
pub type CommandLineCheck = fn(&str, &CommandLineCheckContext<'_>) -> Result<()>;
