//! Attempts to get out of a sandbox, as a table that every surface which runs commands can be put
//! to.
//!
//! - Whether an attempt got out is told by something outside: a secret in a file, a server that is
//!   or is not called, a process that lives or does not.
//! - Each attempt names the control that must stop it. Where that control is said to be enforced,
//!   it has to; where it is not, the attempt may go either way.
//! - An attempt that did not take place proves nothing, and fails.

mod files;
mod ground;
mod kernel;
mod reach;
mod rights;

use ab_core::effective::{ControlStrength, ControlSubject};

pub use ground::Ground;

/// What a script prints once it has tried.
pub const TRIED: &str = "tried";
/// What a script prints when a call that must fail did not.
pub const DID: &str = "DID";

/// One way out.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub name: &'static str,
    pub stopped_by: ControlSubject,
    /// What the command is to be run with.
    pub wishes: &'static [Wish],
    /// Made by whoever sets the scene, outside, before the command.
    pub prepare: fn(&Ground),
    /// A line for the shell; [`Ground::fill`] says what stands for what in it.
    pub script: &'static str,
    pub oracle: Oracle,
    /// Whether it gets out wherever nothing stops it: then it is seen to, so that a broken attempt
    /// is not taken for a wall.
    pub works_without_walls: bool,
}

/// What a command is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wish {
    NoNetwork,
    ReadOnly(&'static str),
    Hidden(&'static str),
    /// The directory outside, to be read.
    BindOutside,
    Scope(&'static str),
    Terminal,
}

/// How it is known that an attempt got out.
#[derive(Clone, Copy, Debug)]
pub enum Oracle {
    /// The secret is in the output.
    Secret,
    /// Something outside was made or changed.
    Outside,
    /// Somebody called a server outside.
    Called,
    /// A process outside is gone.
    Killed,
    /// The script says that a call went through that nothing outside can notice.
    Said,
    /// This is there in the workspace.
    Made(&'static str),
}

/// What a surface says of one run.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub stdout: String,
    pub stderr: String,
    /// The command was not started at all, on purpose.
    pub refused: bool,
}

/// Whatever runs commands.
pub trait Surface {
    fn run(&self, ground: &Ground, wishes: &[Wish], line: &str) -> Said;
    /// What is said to be in force.
    fn strength(
        &self,
        ground: &Ground,
        wishes: &[Wish],
        subject: ControlSubject,
    ) -> ControlStrength;
    /// Whether nothing at all is meant to hold a command.
    fn is_open(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Blocked,
    Allowed,
    Inconclusive,
}

/// Every attempt of the table.
pub fn all() -> impl Iterator<Item = &'static Attempt> {
    let ways = files::ATTEMPTS.iter().chain(kernel::ATTEMPTS).chain(reach::ATTEMPTS);
    ways.chain(rights::ATTEMPTS)
}

/// Makes one attempt on fresh ground, and judges it.
///
/// # Errors
/// What is not as the surface says.
pub fn make(attempt: &Attempt, surface: &dyn Surface, ground: &Ground) -> Result<Outcome, String> {
    (attempt.prepare)(ground);
    let said = surface.run(ground, attempt.wishes, &ground.fill(attempt.script));
    let outcome = judge(attempt, ground, &said);
    let strength = surface.strength(ground, attempt.wishes, attempt.stopped_by);
    let subject = attempt.stopped_by.as_str();
    let told = || format!("{}: {outcome:?}, {subject} {strength:?}\n{said:?}", attempt.name);
    match (outcome, strength) {
        (Outcome::Inconclusive, _) => Err(told()),
        (Outcome::Allowed, ControlStrength::Enforced) => Err(told()),
        (Outcome::Blocked, _) if surface.is_open() && attempt.works_without_walls => Err(told()),
        _ => Ok(outcome),
    }
}

fn judge(attempt: &Attempt, ground: &Ground, said: &Said) -> Outcome {
    let out = match attempt.oracle {
        Oracle::Secret => said.stdout.contains(ground.secret()),
        Oracle::Outside => ground.was_changed(),
        Oracle::Called => ground.was_called(),
        Oracle::Killed => ground.was_killed(),
        Oracle::Said => said.stdout.lines().any(|line| line.trim() == DID),
        Oracle::Made(path) => ground.workspace().join(path).exists(),
    };
    let tried = said.refused || said.stdout.lines().any(|line| line.trim() == TRIED);
    match (out, tried) {
        (true, _) => Outcome::Allowed,
        (false, true) => Outcome::Blocked,
        (false, false) => Outcome::Inconclusive,
    }
}

impl Attempt {
    /// It depends on the host whether it gets out without walls.
    const fn where_it_may_fail(self) -> Attempt {
        Attempt { works_without_walls: false, ..self }
    }
}

/// Nothing to make.
const fn bare() -> fn(&Ground) {
    |_| {}
}
