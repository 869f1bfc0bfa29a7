//! Describes the policy that is in force for commands in sentences for people. `doctor` and `exec
//! --explain` print the same sentences.

use std::time::Duration;

use ab_core::effective_policy::{
    EffectivePolicy, EffectivePolicyControl, PolicyControlKind, PolicyControlStrength,
};
use ab_core::process::ExecLimits;
use anstyle::Style;

use super::{FAIR, GOOD, HEADING, POOR};
use crate::commands::exec;
use crate::failure::Failure;
use crate::progress::size;
use crate::terminal::Terminal;

/// Whose limits are described.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LimitsOf<'a> {
    /// Limits in general: the text says how limits are enforced.
    AnyCommand,
    /// The limits that one command has.
    Command(&'a ExecLimits),
}

/// Prints a sentence about the isolation, and a line for each control.
pub(crate) fn print_policy(
    policy: &EffectivePolicy,
    limits: LimitsOf<'_>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    if let Some(isolation) = policy.isolation {
        let sentence = capitalized(&exec::in_force(isolation, true));
        let sentence = terminal.painted(HEADING, &format!("{sentence}."));
        terminal.line(&sentence)?;
    }
    for control in &policy.controls {
        let (what, (style, how)) = sentences(control, limits);
        let how = terminal.painted(style, &how);
        let line = format!("- {}: {} {how}", name(control.kind), capitalized(&what));
        terminal.line(line.trim_end())?;
    }
    Ok(())
}

/// Two texts about a control: what the control does, and how it is enforced. The second text has a
/// colour.
fn sentences(control: &EffectivePolicyControl, limits: LimitsOf<'_>) -> (String, (Style, String)) {
    let what = control.in_force.trim_end_matches('.');
    let nothing = (GOOD, String::new());
    if control.kind == PolicyControlKind::Shell {
        return (format!("command lines run with {what}."), nothing);
    }
    if control.kind == PolicyControlKind::Commands
        && control.strength > PolicyControlStrength::NotEnforced
    {
        return (format!("the rules of the profile {what} apply."), enforced(control));
    }
    if control.kind == PolicyControlKind::Commands {
        return ("no rules apply.".to_owned(), enforced(control));
    }
    let is_limit = is_limit(control.kind);
    match (limits, control.strength) {
        _ if !is_limit => (format!("{what}."), enforced(control)),
        (LimitsOf::Command(given), _) if limit(control.kind, given).is_none() => {
            ("not limited.".to_owned(), nothing)
        }
        (_, PolicyControlStrength::NotEnforced) => {
            ("a limit cannot be enforced here.".to_owned(), (POOR, String::new()))
        }
        (LimitsOf::Command(given), _) => {
            let most = limit(control.kind, given).unwrap_or_default();
            (format!("at most {most}, {what}."), enforced(control))
        }
        (LimitsOf::AnyCommand, _) => (format!("a limit applies {what}."), enforced(control)),
    }
}

fn enforced(control: &EffectivePolicyControl) -> (Style, String) {
    let by = control.mechanism.trim_end_matches('.');
    match control.strength {
        PolicyControlStrength::Enforced => (GOOD, format!("Enforced by {by}.")),
        PolicyControlStrength::Advisory => (FAIR, format!("Only partly enforced, by {by}.")),
        PolicyControlStrength::NotEnforced => (POOR, "Not restricted.".to_owned()),
    }
}

fn is_limit(kind: PolicyControlKind) -> bool {
    let all = ExecLimits {
        wall_time: Some(Duration::ZERO),
        cpu: Some(Duration::ZERO),
        memory: Some(0),
        processes: Some(0),
        file_size: Some(0),
        open_files: Some(0),
    };
    limit(kind, &all).is_some()
}

/// The value of the limit that this control enforces. `None` if the limit is not set or the control
/// enforces no limit.
fn limit(kind: PolicyControlKind, limits: &ExecLimits) -> Option<String> {
    let time = |time: Duration| format!("{time:?}");
    match kind {
        PolicyControlKind::Time => limits.wall_time.map(time),
        PolicyControlKind::Cpu => limits.cpu.map(time),
        PolicyControlKind::Memory => limits.memory.map(size),
        PolicyControlKind::FileSize => limits.file_size.map(size),
        PolicyControlKind::ProcessCount => limits.processes.map(|most| most.to_string()),
        PolicyControlKind::OpenFiles => limits.open_files.map(|most| most.to_string()),
        PolicyControlKind::Files
        | PolicyControlKind::Attributes
        | PolicyControlKind::Restrictions
        | PolicyControlKind::Network
        | PolicyControlKind::Sockets
        | PolicyControlKind::Processes
        | PolicyControlKind::Orphans
        | PolicyControlKind::Kernel
        | PolicyControlKind::Environment
        | PolicyControlKind::Output
        | PolicyControlKind::Commands
        | PolicyControlKind::Shell => None,
    }
}

/// The name of a control, as it is shown to people.
fn name(kind: PolicyControlKind) -> &'static str {
    match kind {
        PolicyControlKind::Files => "Files",
        PolicyControlKind::Attributes => "File attributes",
        PolicyControlKind::Restrictions => "Hidden and read-only paths",
        PolicyControlKind::Network => "Network",
        PolicyControlKind::Sockets => "Unix sockets",
        PolicyControlKind::Processes => "Other processes",
        PolicyControlKind::Orphans => "Processes left behind",
        PolicyControlKind::Kernel => "System calls",
        PolicyControlKind::Environment => "Environment",
        PolicyControlKind::Time => "Run time",
        PolicyControlKind::Memory => "Memory",
        PolicyControlKind::ProcessCount => "Processes and threads",
        PolicyControlKind::Cpu => "CPU time",
        PolicyControlKind::FileSize => "File size",
        PolicyControlKind::OpenFiles => "Open files",
        PolicyControlKind::Output => "Output",
        PolicyControlKind::Commands => "Command rules",
        PolicyControlKind::Shell => "Shell",
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(kind: PolicyControlKind, what: &str, by: &str) -> EffectivePolicyControl {
        EffectivePolicyControl {
            kind,
            requested: "no limit".to_owned(),
            in_force: what.to_owned(),
            strength: PolicyControlStrength::Enforced,
            mechanism: by.to_owned(),
            proof: None,
        }
    }

    #[test]
    fn a_limit_is_described_by_its_value_or_as_missing() {
        let memory =
            control(PolicyControlKind::Memory, "for all processes together", "a control group");
        let check = |limits: LimitsOf<'_>, expect: &str| {
            let (what, (_, how)) = sentences(&memory, limits);
            assert_eq!(format!("{what} {how}").trim_end(), expect);
        };
        let limits = ExecLimits { memory: Some(2 << 30), ..ExecLimits::default() };
        check(
            LimitsOf::Command(&limits),
            "at most 2.0 GiB, for all processes together. Enforced by a control group.",
        );
        check(LimitsOf::Command(&ExecLimits::default()), "not limited.");
        check(
            LimitsOf::AnyCommand,
            "a limit applies for all processes together. Enforced by a control group.",
        );
    }

    #[test]
    fn every_control_has_a_name_of_its_own() {
        let names = PolicyControlKind::ALL.map(name);
        let all: std::collections::BTreeSet<&str> = names.into_iter().collect();
        assert_eq!(all.len(), names.len());
    }
}
