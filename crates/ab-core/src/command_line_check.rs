//! The check of command lines for commands that run without isolation.
//!
//! Drivers that run commands do not parse shell syntax. The creator of a driver can provide a
//! [`CommandLineCheck`]. A driver without this check refuses to run commands in an isolation mode
//! that requires the check.

use std::collections::BTreeMap;

use crate::error::Result;

/// The context in which a command line is to run.
#[derive(Clone, Copy, Debug)]
pub struct CommandLineCheckContext<'a> {
    /// Absolute paths of the root directory that the command may use. If empty, no absolute path is
    /// allowed.
    pub roots: &'a [String],
    /// The working directory, relative to the root. It is also the value of `HOME`, if `env` does
    /// not set `HOME`.
    pub cwd: &'a str,
    /// Environment variables that the caller sets for the command.
    pub env: &'a BTreeMap<String, String>,
    /// The whole standard input, if it is known in advance.
    pub stdin: Option<&'a [u8]>,
    /// System directories that the command line may contain, except as targets of output.
    pub readable_dirs: &'a [&'a str],
}

/// Fails if a word of the command line names a path outside of the root, or if the line cannot be
/// parsed. The result depends only on the arguments, so it can be cached.
pub type CommandLineCheck = fn(&str, &CommandLineCheckContext<'_>) -> Result<()>;
