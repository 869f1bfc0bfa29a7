//! The command line: parses arguments, prints data on standard output and messages on standard
//! error, and returns an exit code.
//!
//! Only this crate reads the environment and the current directory. Other crates decide what is
//! allowed in a workspace. This crate only passes requests to these crates and shows the results.

mod approval_ref;
mod approver;
mod arguments;
mod backup;
mod browser;
mod commands;
mod config;
mod count;
mod data_dir;
mod exit;
mod failure;
mod follow;
mod git_identity;
mod help;
mod hint;
mod jobs;
mod json;
mod keyboard;
mod passphrase;
mod process;
mod progress;
mod remote;
mod restricted_paths;
mod secrets;
mod server;
mod session_ref;
mod signals;
mod stdio;
mod table;
mod terminal;
mod token;
mod toolchains;
mod traces;
mod wire;
mod workspace;

use std::ffi::OsString;
use std::panic;
use std::process::ExitCode;

use exit::Exit;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    process::report_panics();
    // The panic hook has already printed the message. Only the exit code remains to be set.
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
