//! `completions`: prints the script with which a shell completes the command line of this program.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use clap_complete::Shell;

use super::{CliCommand, RunningCommand};
use crate::arguments;
use crate::failure::Failure;
use crate::terminal::Terminal;

const NAME: &str = "agent-backend";
const SHORT_NAME: &str = "ah";

/// Print the completion script of a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  source <(agent-backend completions bash)
  agent-backend completions fish > ~/.config/fish/completions/agent-backend.fish")]
pub(crate) struct Completions {
    /// Shell to print completions for
    shell: Shell,
}

impl CliCommand for Completions {
    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(async move { run(&self, terminal) })
    }
}

fn run(command: &Completions, terminal: &mut Terminal) -> Result<(), Failure> {
    let name = invoked_name(std::env::args_os().next());
    // Write to memory first, because the generator panics if its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut arguments::definition(), name, &mut script);
    terminal.bytes(&script)
}

/// The name by which the user called this program. The completion script applies to this name.
fn invoked_name(program: Option<OsString>) -> &'static str {
    let is_short = program.is_some_and(|program| {
        Path::new(&program).file_stem().is_some_and(|stem| stem == SHORT_NAME)
    });
    if is_short { SHORT_NAME } else { NAME }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_for_the_name_that_was_typed() {
        for (program, name) in
            [("ah", "ah"), ("/usr/bin/ah", "ah"), ("./agent-backend", "agent-backend"), ("x", NAME)]
        {
            assert_eq!(invoked_name(Some(program.into())), name);
        }
        assert_eq!(invoked_name(None), NAME);
    }
}
