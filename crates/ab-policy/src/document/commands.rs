//! The shell section of a document: every command of a line is judged by its program and its words.

use ab_core::Verdict;

use super::{PolicyDocumentMatch, ShellPolicy, join};
use crate::analysis::{AnalysedCommand, CommandAnalysis};

/// Shell builtins that need no entry in a list of allowed programs, because they start no program
/// and access no file.
const BUILT_INS: [&str; 16] = [
    "cd", "true", "false", "test", "[", ":", "exit", "return", "export", "unset", "local", "shift",
    "wait", "break", "continue", "printf",
];

/// Returns the strictest verdict on the commands of a line. If a rule matches a command, the rule
/// decides about it. The list of allowed programs decides about the other commands.
pub(super) fn judge(
    shell: &ShellPolicy,
    analysis: &CommandAnalysis,
) -> Option<PolicyDocumentMatch> {
    if !shell.enabled {
        return Some(PolicyDocumentMatch {
            verdict: Verdict::Deny,
            rule: "shell.enabled",
            reason: "commands are disabled".to_owned(),
            suggestion: "use file operations, or enable shell in the policy".to_owned(),
        });
    }
    let hits = analysis.commands.iter().filter_map(|command| judge_one(shell, command));
    // If several verdicts are equally strict, the first one is used.
    hits.reduce(|greatest, hit| if hit.verdict > greatest.verdict { hit } else { greatest })
}

fn judge_one(shell: &ShellPolicy, command: &AnalysedCommand) -> Option<PolicyDocumentMatch> {
    if command.words.is_empty() {
        return None;
    }
    let matching = |patterns: &[String]| patterns.iter().find(|it| fits(it, command)).cloned();
    if let Some(pattern) = matching(&shell.blocked_patterns) {
        return Some(PolicyDocumentMatch {
            verdict: Verdict::Deny,
            rule: "shell.blockedPatterns",
            reason: format!("command '{pattern}' is blocked"),
            suggestion: format!("remove {} from the command", program(command)),
        });
    }
    if let Some(pattern) = matching(&shell.approval_required) {
        return Some(PolicyDocumentMatch {
            verdict: Verdict::Ask,
            rule: "shell.approvalRequired",
            reason: format!("command '{pattern}' requires approval"),
            suggestion: "do without the command".to_owned(),
        });
    }
    let is_listed = |name: &str| {
        shell.allowed_commands.iter().any(|listed| listed == name) || BUILT_INS.contains(&name)
    };
    let allows_all =
        shell.allowed_commands.is_empty() || shell.allowed_commands.iter().any(|it| it == "*");
    // The list of allowed programs does not apply to a command that is only examined, because the
    // line does not start it.
    if allows_all || command.not_started || command.program().is_some_and(is_listed) {
        return None;
    }
    Some(PolicyDocumentMatch {
        verdict: Verdict::Deny,
        rule: "shell.allowedCommands",
        reason: format!("command '{}' is not among the allowed commands", program(command)),
        suggestion: format!("use one of {}", join(shell.allowed_commands.iter())),
    })
}

fn program(command: &AnalysedCommand) -> &str {
    let written = || command.words.first().map_or("", |word| word.text.as_str());
    command.program().unwrap_or_else(written)
}

/// Whether a pattern matches a command. The program must be the same. Short flags may be in any
/// order and grouping. Long options may be abbreviated or have a value. Other words must be equal.
fn fits(pattern: &str, command: &AnalysedCommand) -> bool {
    let mut words = pattern.split_whitespace();
    if words.next().is_none_or(|first| command.program() != Some(first)) {
        return false;
    }
    let arguments = || command.words.iter().skip(1).map(|word| word.text.as_str());
    words.all(|wanted| match flags(wanted) {
        Some(mut letters) => letters
            .all(|letter| arguments().filter_map(flags).flatten().any(|given| given == letter)),
        None => arguments().any(|given| given == wanted || abbreviates(given, wanted)),
    })
}

/// Whether a word is a long option in a form that GNU programs accept: the beginning of its name,
/// optionally with a value.
fn abbreviates(given: &str, option: &str) -> bool {
    let name = given.split_once('=').map_or(given, |(name, _)| name);
    name.len() > "--".len() && option.starts_with("--") && option.starts_with(name)
}

/// The letters of a word with flags, in lower case. The long options of `rm` are converted to their
/// letters.
fn flags(word: &str) -> Option<impl Iterator<Item = char>> {
    let letters = match word {
        word if abbreviates(word, "--recursive") => "r",
        word if abbreviates(word, "--force") => "f",
        word => word.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with('-'))?,
    };
    Some(letters.chars().map(|letter| letter.to_ascii_lowercase()))
}
