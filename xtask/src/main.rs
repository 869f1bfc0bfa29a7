//! Entry of `cargo xtask`: turns one command line into one task and its exit code.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a task talks to the terminal of whoever started it"
)]

mod debian;
mod failure;
mod leftovers;
mod peers;
mod runner;
mod scratch;
mod sequence;
mod step;
mod tally;
mod task;
mod tasks;
#[cfg(test)]
mod tidy;
mod workspace;

use std::env;
use std::process::ExitCode;

use task::Task;

fn main() -> ExitCode {
    let arguments = env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let outcome = Task::parse(arguments).and_then(tasks::run);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.code())
        }
    }
}
