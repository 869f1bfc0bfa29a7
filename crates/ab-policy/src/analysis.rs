//! Analyses a command line: which programs it would run, and which effects it has that rules can
//! refer to.

mod argument;
mod braces;
mod effect;
mod environment;
mod fields;
mod files;
mod functions;
mod git;
mod programs;
mod screen;
mod shells;
mod simple;
mod state;
mod walk;
mod wrappers;

pub use effect::CommandFindingKind;
pub use screen::check_command_paths;

use crate::place::{CommandCheckContext, CommandPathLocation};
use crate::shell::{self, Dialect, Meter, Problem};
use walk::Walk;

/// Maximum number of simple commands in one line.
pub(crate) const MAX_COMMANDS_PER_LINE: usize = 20_000;
/// Maximum length of a finding's detail, in characters.
const MAX_DETAIL: usize = 200;

/// The commands of a command line, and everything that rules need to know about them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandAnalysis {
    /// All simple commands, in the order of the text. If a wrapper such as `env` starts a command,
    /// the command comes after the wrapper.
    pub commands: Vec<AnalysedCommand>,
    pub findings: Vec<CommandFinding>,
    /// The cost of the analysis. One unit is about one examined byte. The cost grows with the text
    /// and is limited.
    pub analysis_cost: usize,
}

/// A simple command with its words after expansion.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalysedCommand {
    pub words: Vec<ExpandedShellWord>,
    /// The index of the wrapper that starts this command, if there is one.
    pub wrapper_index: Option<usize>,
    /// Whether the command was only examined. The line does not start the command in this form, but
    /// a program may start it later.
    pub not_started: bool,
    /// The paths that its words and redirects lead to.
    pub paths: Vec<CommandPathUse>,
}

/// A word in the form in which a program receives it, after the shell has expanded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandedShellWord {
    /// The text of the word. If its value is not known, the source text.
    pub text: String,
    pub is_value_known: bool,
}

/// A path that a command uses, and how the command uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandPathUse {
    pub location: CommandPathLocation,
    pub access: CommandPathAccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandPathAccess {
    /// The path is named, and the file may be read.
    Read,
    Write,
}

/// An effect and the command that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFinding {
    pub kind: CommandFindingKind,
    /// The index of the command. `None` if the finding is about the whole line.
    pub command_index: Option<usize>,
    /// The part of the text that has the effect.
    pub detail: String,
}

impl CommandAnalysis {
    /// The commands that the line starts, with their indices.
    pub fn started_commands_with_index(&self) -> impl Iterator<Item = (usize, &AnalysedCommand)> {
        self.commands.iter().enumerate().filter(|(_, command)| !command.not_started)
    }

    fn absorb(&mut self, other: CommandAnalysis) {
        let moved = |at: usize| at + self.commands.len();
        let findings = other
            .findings
            .into_iter()
            .map(|found| CommandFinding { command_index: found.command_index.map(moved), ..found });
        self.findings.extend(findings);
        let commands = other.commands.into_iter();
        let via: Vec<AnalysedCommand> = commands
            .map(|each| AnalysedCommand { wrapper_index: each.wrapper_index.map(moved), ..each })
            .collect();
        self.commands.extend(via);
    }
}

impl AnalysedCommand {
    /// The name of the program without its directory. `None` if it is not known.
    pub fn program(&self) -> Option<&str> {
        let first = self.words.first().filter(|word| word.is_value_known)?;
        Some(argument::base_name(&first.text))
    }
}

/// Analyses a command line as it would run in `context`.
pub fn analyse_command(command: &str, context: &CommandCheckContext) -> CommandAnalysis {
    let meter = Meter::default();
    let mut analysis = match shell::parse(command, Dialect::Bash, 0, &meter) {
        Ok(script) => Walk::new(context, Dialect::Bash, &meter).top(&script),
        Err(error) => {
            let mut walk = Walk::new(context, Dialect::Bash, &meter);
            walk.unparsable(&error);
            walk.out
        }
    };
    if shell::has_two_readings(command) {
        analysis.absorb(second_reading(command, context, &meter));
    }
    analysis.analysis_cost = meter.spent();
    analysis
}

/// Analyses the constructs that only bash knows in the way in which a POSIX shell reads them. Text
/// that is not valid in a POSIX shell is ignored, because it has no effect there.
fn second_reading(command: &str, scene: &CommandCheckContext, meter: &Meter) -> CommandAnalysis {
    let mut walk = Walk::new(scene, Dialect::Posix, meter);
    match shell::parse(command, Dialect::Posix, 0, meter) {
        Ok(script) => {
            walk.shadow += 1;
            let mut found = walk.top(&script);
            // The bash reading has already reported separators and chains. This reading may only
            // add dangers.
            let ours = |found: &CommandFinding| {
                !matches!(
                    found.kind,
                    CommandFindingKind::SequentialCommands
                        | CommandFindingKind::ConditionalChain
                        | CommandFindingKind::Unparsable
                )
            };
            found.findings.retain(ours);
            found
        }
        Err(error) => match error.problem {
            Problem::Limit(_) => {
                walk.unparsable(&error);
                walk.out
            }
            Problem::Syntax(_) => CommandAnalysis::default(),
        },
    }
}
