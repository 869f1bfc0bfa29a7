//! A table of attempts to escape from a sandbox. Every surface that runs commands can be tested
//! with it.
//!
//! - An object outside the sandbox shows whether an attempt succeeded. It is a secret in a file, a
//!   server that may be contacted, or a process that may be killed.
//! - Each attempt names the control that must stop it. If the control is reported as enforced, it
//!   must stop the attempt. Otherwise the attempt may succeed or fail.
//! - An attempt that did not run proves nothing, and the test fails.

mod files;
mod kernel;
mod reach;
mod rights;
mod testbed;

use ab_core::effective_policy::{PolicyControlKind, PolicyControlStrength};

pub use testbed::EscapeTestbed;

/// Printed by a script once it has made its attempt.
pub const ESCAPE_ATTEMPTED_MARKER: &str = "tried";
/// Printed by a script if a call succeeded that must fail.
pub const FORBIDDEN_CALL_SUCCEEDED_MARKER: &str = "DID";

/// One escape attempt.
#[derive(Clone, Copy, Debug)]
pub struct EscapeAttempt {
    pub name: &'static str,
    pub stopped_by: PolicyControlKind,
    /// The options to run the command with.
    pub sandbox_options: &'static [SandboxOption],
    /// Runs outside of the sandbox, before the command.
    pub prepare: fn(&EscapeTestbed),
    /// A line for the shell; see [`EscapeTestbed::expand_placeholders`].
    pub script: &'static str,
    pub evidence: EscapeEvidence,
    /// Whether the attempt always succeeds without isolation. This is checked, so that a broken
    /// attempt is not mistaken for a working isolation.
    pub succeeds_unconfined: bool,
}

/// An option for running a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SandboxOption {
    NoNetwork,
    ReadOnly(&'static str),
    Hidden(&'static str),
    /// Binds the directory outside, read-only.
    BindOutside,
    /// Shows the directory outside as a toolchain.
    ToolchainOutside,
    /// The home directory is the directory outside, and toolchains are looked for in it; see
    /// [`EscapeTestbed::home_toolchain_dir`].
    FoundToolchain,
    Scope(&'static str),
    Terminal,
    /// At most [`LIMITED_PROCESSES`] processes and [`LIMITED_OPEN_FILES`] open files of each.
    Limited,
}

/// Maximum number of processes of a command that is [`SandboxOption::Limited`].
pub const LIMITED_PROCESSES: u64 = 24;
/// Open files of each of its processes.
pub const LIMITED_OPEN_FILES: u64 = 64;

/// How a successful attempt is detected.
#[derive(Clone, Copy, Debug)]
pub enum EscapeEvidence {
    /// The secret is in the output.
    SecretInOutput,
    /// A file outside was created or changed.
    OutsideChanged,
    /// A server outside was contacted.
    ServerReached,
    /// A process outside was killed.
    OutsideProcessKilled,
    /// The script reports that a forbidden call succeeded, which cannot be seen from outside.
    ScriptReportedSuccess,
    /// This file exists in the workspace.
    WorkspaceFileCreated(&'static str),
}

/// What a surface reports about one run.
#[derive(Clone, Debug, Default)]
pub struct CommandReport {
    pub stdout: String,
    pub stderr: String,
    /// The command was deliberately not started.
    pub refused: bool,
}

/// A surface that runs commands.
pub trait CommandRunner {
    fn run(&self, testbed: &EscapeTestbed, wishes: &[SandboxOption], line: &str) -> CommandReport;
    /// The strength of a control that the surface reports.
    fn claimed_control_strength(
        &self,
        testbed: &EscapeTestbed,
        wishes: &[SandboxOption],
        subject: PolicyControlKind,
    ) -> PolicyControlStrength;
    /// Whether commands are deliberately run without isolation.
    fn is_unconfined(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscapeOutcome {
    Blocked,
    Allowed,
    Inconclusive,
}

/// All attempts of the table.
pub fn all_attempts() -> impl Iterator<Item = &'static EscapeAttempt> {
    let ways = files::ATTEMPTS.iter().chain(kernel::ATTEMPTS).chain(reach::ATTEMPTS);
    ways.chain(rights::ATTEMPTS)
}

/// Makes one attempt in a new testbed and evaluates it.
///
/// # Errors
/// What differs from the surface's report.
pub fn run_attempt(
    attempt: &EscapeAttempt,
    surface: &dyn CommandRunner,
    testbed: &EscapeTestbed,
) -> Result<EscapeOutcome, String> {
    (attempt.prepare)(testbed);
    let said =
        surface.run(testbed, attempt.sandbox_options, &testbed.expand_placeholders(attempt.script));
    let outcome = judge(attempt, testbed, &said);
    let strength =
        surface.claimed_control_strength(testbed, attempt.sandbox_options, attempt.stopped_by);
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

fn judge(attempt: &EscapeAttempt, testbed: &EscapeTestbed, said: &CommandReport) -> EscapeOutcome {
    let out = match attempt.evidence {
        EscapeEvidence::SecretInOutput => said.stdout.contains(testbed.secret()),
        EscapeEvidence::OutsideChanged => testbed.was_changed(),
        EscapeEvidence::ServerReached => testbed.was_called(),
        EscapeEvidence::OutsideProcessKilled => testbed.was_killed(),
        EscapeEvidence::ScriptReportedSuccess => {
            said.stdout.lines().any(|line| line.trim() == FORBIDDEN_CALL_SUCCEEDED_MARKER)
        }
        EscapeEvidence::WorkspaceFileCreated(path) => testbed.workspace_dir().join(path).exists(),
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
    /// Whether it succeeds without isolation depends on the host.
    const fn where_it_may_fail(self) -> EscapeAttempt {
        EscapeAttempt { succeeds_unconfined: false, ..self }
    }
}

/// No preparation.
const fn bare() -> fn(&EscapeTestbed) {
    |_| {}
}
