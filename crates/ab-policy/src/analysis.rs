//! What a command line does: the programs it would run, and the effects that rules speak about.

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

use crate::place::{CommandCheckContext, PathLocation};
use crate::shell::{self, Dialect, Meter, Problem};
use walk::Walk;

/// Most simple commands of one line.
pub const MAX_COMMANDS_PER_LINE: usize = 20_000;
/// Most characters of a finding's detail.
const MAX_DETAIL: usize = 200;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandAnalysis {
    /// Every simple command, in the order of the text; what a wrapper starts comes after it.
    pub commands: Vec<AnalysedCommand>,
    pub findings: Vec<CommandFinding>,
    /// How much work it was to find that out, in units of about one byte looked at. It grows with
    /// the text, and is bounded.
    pub work: usize,
}

/// A simple command as a program would get it.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalysedCommand {
    pub words: Vec<ExpandedWord>,
    /// The wrapper that starts it, by its place in the list.
    pub wrapper: Option<usize>,
    /// Whether it was only looked at: this line does not start it as such, but something may.
    pub not_started: bool,
    /// Where its words and redirects lead.
    pub paths: Vec<PathUse>,
}

/// A word after expansion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandedWord {
    /// The text; where it is not known, as it was written.
    pub text: String,
    pub known: bool,
}

/// A place that a command touches.
#[derive(Clone, Debug, PartialEq)]
pub struct PathUse {
    pub location: PathLocation,
    pub access: PathAccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathAccess {
    /// Named, and perhaps read.
    Read,
    Write,
}

/// One effect, where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFinding {
    pub effect: CommandFindingKind,
    /// The command it belongs to; nothing when it belongs to the line.
    pub command: Option<usize>,
    /// The part of the text that shows it.
    pub detail: String,
}

impl CommandAnalysis {
    /// The commands that the line starts, as programs would get them.
    pub fn started_commands(&self) -> impl Iterator<Item = (usize, &AnalysedCommand)> {
        self.commands.iter().enumerate().filter(|(_, command)| !command.not_started)
    }

    fn absorb(&mut self, other: CommandAnalysis) {
        let moved = |at: usize| at + self.commands.len();
        let findings = other
            .findings
            .into_iter()
            .map(|found| CommandFinding { command: found.command.map(moved), ..found });
        self.findings.extend(findings);
        let commands = other.commands.into_iter();
        let via: Vec<AnalysedCommand> = commands
            .map(|each| AnalysedCommand { wrapper: each.wrapper.map(moved), ..each })
            .collect();
        self.commands.extend(via);
    }
}

impl AnalysedCommand {
    /// The name of the program, without its directory.
    pub fn program(&self) -> Option<&str> {
        let first = self.words.first().filter(|word| word.known)?;
        Some(argument::base_name(&first.text))
    }
}

/// Looks at a command line as it would run in `scene`.
pub fn analyse_command(command: &str, scene: &CommandCheckContext) -> CommandAnalysis {
    let meter = Meter::default();
    let mut analysis = match shell::parse(command, Dialect::Bash, 0, &meter) {
        Ok(script) => Walk::new(scene, Dialect::Bash, &meter).top(&script),
        Err(error) => {
            let mut walk = Walk::new(scene, Dialect::Bash, &meter);
            walk.unparsable(&error);
            walk.out
        }
    };
    if shell::has_two_readings(command) {
        analysis.absorb(second_reading(command, scene, &meter));
    }
    analysis.work = meter.spent();
    analysis
}

/// What a POSIX shell would do where bash sees a construct of its own. Text that is no POSIX shell
/// does nothing there.
fn second_reading(command: &str, scene: &CommandCheckContext, meter: &Meter) -> CommandAnalysis {
    let mut walk = Walk::new(scene, Dialect::Posix, meter);
    match shell::parse(command, Dialect::Posix, 0, meter) {
        Ok(script) => {
            walk.shadow += 1;
            let mut found = walk.top(&script);
            // Bash has said what its own constructs chain; this shell may only add dangers.
            let ours = |found: &CommandFinding| {
                !matches!(
                    found.effect,
                    CommandFindingKind::Separates
                        | CommandFindingKind::Chains
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
