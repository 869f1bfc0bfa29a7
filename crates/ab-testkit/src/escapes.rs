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

use ab_core::effective::{PolicyControlKind, PolicyControlStrength};

pub use ground::EscapeTestbed;

/// What a script prints once it has tried.
pub const ESCAPE_ATTEMPTED_MARKER: &str = "tried";
/// What a script prints when a call that must fail did not.
pub const FORBIDDEN_CALL_SUCCEEDED_MARKER: &str = "DID";

/// One way out.
#[derive(Clone, Copy, Debug)]
pub struct EscapeAttempt {
    pub name: &'static str,
    pub stopped_by: PolicyControlKind,
    /// What the command is to be run with.
    pub sandbox_options: &'static [SandboxOption],
    /// Made by whoever sets the scene, outside, before the command.
    pub prepare: fn(&EscapeTestbed),
    /// A line for the shell; [`EscapeTestbed::expand_placeholders`] says what stands for what in it.
    pub script: &'static str,
    pub evidence: EscapeEvidence,
    /// Whether it gets out wherever nothing stops it: then it is seen to, so that a broken attempt
    /// is not taken for a wall.
    pub succeeds_unconfined: bool,
}

/// What a command is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SandboxOption {
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
pub enum EscapeEvidence {
    /// The secret is in the output.
    SecretInOutput,
    /// Something outside was made or changed.
    OutsideChanged,
    /// Somebody called a server outside.
    ServerReached,
    /// A process outside is gone.
    OutsideProcessKilled,
    /// The script says that a call went through that nothing outside can notice.
    ScriptReportedSuccess,
    /// This is there in the workspace.
    WorkspaceFileCreated(&'static str),
}

/// What a surface says of one run.
#[derive(Clone, Debug, Default)]
pub struct CommandReport {
    pub stdout: String,
    pub stderr: String,
    /// The command was not started at all, on purpose.
    pub refused: bool,
}

/// Whatever runs commands.
pub trait CommandRunner {
    fn run(&self, ground: &EscapeTestbed, wishes: &[SandboxOption], line: &str) -> CommandReport;
    /// What is said to be in force.
    fn claimed_control_strength(
        &self,
        ground: &EscapeTestbed,
        wishes: &[SandboxOption],
        subject: PolicyControlKind,
    ) -> PolicyControlStrength;
    /// Whether nothing at all is meant to hold a command.
    fn is_unconfined(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscapeOutcome {
    Blocked,
    Allowed,
    Inconclusive,
}

/// Every attempt of the table.
pub fn all_attempts() -> impl Iterator<Item = &'static EscapeAttempt> {
    let ways = files::ATTEMPTS.iter().chain(kernel::ATTEMPTS).chain(reach::ATTEMPTS);
    ways.chain(rights::ATTEMPTS)
}

/// Makes one attempt on fresh ground, and judges it.
///
/// # Errors
/// What is not as the surface says.
pub fn run_attempt(
    attempt: &EscapeAttempt,
    surface: &dyn CommandRunner,
    ground: &EscapeTestbed,
) -> Result<EscapeOutcome, String> {
    (attempt.prepare)(ground);
    let said =
        surface.run(ground, attempt.sandbox_options, &ground.expand_placeholders(attempt.script));
    let outcome = judge(attempt, ground, &said);
    let strength =
        surface.claimed_control_strength(ground, attempt.sandbox_options, attempt.stopped_by);
    let subject = attempt.stopped_by.as_str();
    let told = || format!("{}: {outcome:?}, {subject} {strength:?}\n{said:?}", attempt.name);
    match (outcome, strength) {
        (EscapeOutcome::Inconclusive, _) => Err(told()),
        (EscapeOutcome::Allowed, PolicyControlStrength::Enforced) => Err(told()),
        (EscapeOutcome::Blocked, _) if surface.is_unconfined() && attempt.succeeds_unconfined => {
            Err(told())
        }
        _ => Ok(outcome),
    }
}

fn judge(attempt: &EscapeAttempt, ground: &EscapeTestbed, said: &CommandReport) -> EscapeOutcome {
    let out = match attempt.evidence {
        EscapeEvidence::SecretInOutput => said.stdout.contains(ground.secret()),
        EscapeEvidence::OutsideChanged => ground.was_changed(),
        EscapeEvidence::ServerReached => ground.was_called(),
        EscapeEvidence::OutsideProcessKilled => ground.was_killed(),
        EscapeEvidence::ScriptReportedSuccess => {
            said.stdout.lines().any(|line| line.trim() == FORBIDDEN_CALL_SUCCEEDED_MARKER)
        }
        EscapeEvidence::WorkspaceFileCreated(path) => ground.workspace_dir().join(path).exists(),
    };
    let tried =
        said.refused || said.stdout.lines().any(|line| line.trim() == ESCAPE_ATTEMPTED_MARKER);
    match (out, tried) {
        (true, _) => EscapeOutcome::Allowed,
        (false, true) => EscapeOutcome::Blocked,
        (false, false) => EscapeOutcome::Inconclusive,
    }
}

impl EscapeAttempt {
    /// It depends on the host whether it gets out without walls.
    const fn where_it_may_fail(self) -> EscapeAttempt {
        EscapeAttempt { succeeds_unconfined: false, ..self }
    }
}

/// Nothing to make.
const fn bare() -> fn(&EscapeTestbed) {
    |_| {}
}
