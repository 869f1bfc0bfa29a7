//! The command line: arguments in, data on standard output, talk on standard error, an exit code.
//!
//! This is the only crate that reads the environment and the current directory. What a workspace
//! may do is decided below it; here is only how that is asked for and shown.

mod approval_ref;
mod approver;
mod arguments;
mod browser;
mod commands;
mod config;
mod count;
mod data_dir;
mod exit;
mod failure;
mod follow;
mod help;
mod hint;
mod jobs;
mod json;
mod keyboard;
mod passphrase;
mod process;
mod progress;
mod remote;
mod secrets;
mod server;
mod session_ref;
mod signals;
mod stdio;
mod terminal;
mod token;
mod toolchains;
mod wire;
mod workspace;

use std::ffi::OsString;
use std::panic;
use std::process::ExitCode;

use exit::Exit;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    process::report_panics();
    // The hook has told about a panic; what is left is the exit code.
    panic::catch_unwind(run).unwrap_or(Exit::Bug).into()
}

fn run() -> Exit {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    secrets::take(&arguments);
    match arguments::parse(arguments.into_iter()) {
        Ok(command) => process::run(command),
        Err(refusal) => refusal.print(),
    }
}
