//! Decides whether a rule matches a command.

use ab_core::Result;
use ab_core::search::glob::{DotfileMatching, Glob};

use super::{OneOrMoreWords, PolicyRule, invalid};
use crate::analysis::{AnalysedCommand, CommandPathAccess, ExpandedShellWord};
use crate::place::CommandPathLocation;

/// Whether a rule matches a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    No,
    /// Whether the rule matches depends on a word that is only known at run time.
    Perhaps,
    Yes,
}

/// The compiled path patterns of a rule.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    inside: Vec<Glob>,
    outside: Vec<Glob>,
}

impl Matcher {
    pub(crate) fn new(rule: &PolicyRule) -> Result<Self> {
        let mut matcher = Self::default();
        for pattern in &rule.path {
            let compiled = Glob::new(pattern, DotfileMatching::Any).map_err(|problem| {
                invalid(format!("rule '{}': path '{pattern}': {problem}", rule.id))
            })?;
            if pattern.starts_with('/') {
                matcher.outside.push(compiled);
            } else {
                matcher.inside.push(compiled);
            }
        }
        Ok(matcher)
    }

    /// How well the conditions of `rule` match `command`. Does not check the condition about
    /// effects.
    pub(crate) fn fits(&self, rule: &PolicyRule, command: &AnalysedCommand) -> Fit {
        if !rule.command.is_empty() {
            let Some(program) = command.program() else { return Fit::No };
            if !rule.command.iter().any(|pattern| like(pattern, program)) {
                return Fit::No;
            }
        }
        let prefix = prefix_fit(&rule.prefix, command);
        if prefix == Fit::No || !arguments_fit(rule, command) || !self.paths_fit(rule, command) {
            return Fit::No;
        }
        prefix
    }

    fn paths_fit(&self, rule: &PolicyRule, command: &AnalysedCommand) -> bool {
        if rule.path.is_empty() {
            return true;
        }
        let wanted = |access: CommandPathAccess| !rule.writes || access == CommandPathAccess::Write;
        command.paths.iter().filter(|used| wanted(used.access)).any(|used| match &used.location {
            CommandPathLocation::Inside(path) => self.inside.iter().any(|glob| covers(glob, path)),
            CommandPathLocation::Outside(path) => {
                self.outside.iter().any(|glob| covers(glob, path.trim_start_matches('/')))
            }
            CommandPathLocation::Unknown => false,
        })
    }
}

/// Whether a glob matches a path or one of its parent directories.
fn covers(glob: &Glob, path: &str) -> bool {
    let mut at = glob.start_state();
    path.split('/').filter(|name| !name.is_empty()).any(|name| {
        let fits = glob.matches(&at, name);
        at = glob.next_state(&at, name);
        fits
    })
}

fn prefix_fit(prefix: &[OneOrMoreWords], command: &AnalysedCommand) -> Fit {
    let mut fit = Fit::Yes;
    for (at, choice) in prefix.iter().enumerate() {
        let Some(word) = command.words.get(at) else { return Fit::No };
        let text = if at == 0 { command.program().unwrap_or_default() } else { &word.text };
        let same = match choice {
            OneOrMoreWords::Word(expect) => expect == text,
            OneOrMoreWords::Any(words) => words.iter().any(|expect| expect == text),
        };
        match (word.is_value_known, same) {
            (true, true) => {}
            (true, false) => return Fit::No,
            // A program whose name is not known is reported by a separate finding.
            (false, _) if at == 0 => return Fit::No,
            (false, _) => fit = Fit::Perhaps,
        }
    }
    fit
}

fn arguments_fit(rule: &PolicyRule, command: &AnalysedCommand) -> bool {
    let words = command.words.get(1..).unwrap_or_default();
    let some = |pattern: &String| words.iter().any(|word| word_fits(pattern, word));
    let arguments = &rule.arguments;
    (arguments.any.is_empty() || arguments.any.iter().any(some))
        && arguments.all.iter().all(some)
        && !arguments.none.iter().any(some)
}

fn word_fits(pattern: &str, word: &ExpandedShellWord) -> bool {
    (word.is_value_known || pattern == "*") && like(pattern, &word.text)
}

/// Whether `text` matches `pattern`. `*` stands for any text, `?` for one character, and `[0-9]`
/// for a digit.
fn like(pattern: &str, text: &str) -> bool {
    if !pattern.contains(['*', '?', '[']) {
        return pattern == text;
    }
    let pattern: Vec<char> = pattern.replace("[0-9]", "\u{0}").chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let one = pattern.get(p).is_some_and(|c| match c {
            '?' => true,
            '\u{0}' => text[t].is_ascii_digit(),
            c => *c == text[t] && *c != '*',
        });
        if one {
            (p, t) = (p + 1, t + 1);
        } else if pattern.get(p) == Some(&'*') {
            star = Some((p, t));
            p += 1;
        } else if let Some((at, from)) = star {
            (p, t) = (at + 1, from + 1);
            star = Some((at, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_like_text() {
        for (pattern, text, expect) in [
            ("mkfs*", "mkfs.ext4", true),
            ("mkfs*", "mkf", false),
            ("4???", "4755", true),
            ("4???", "475", false),
            ("-*e", "-lvpe", true),
            ("-*e", "-lvp", false),
            ("*=*", "a=b", true),
            ("[0-9]*.*", "10.0.0.1", true),
            ("[0-9]*.*", "eth0.1", false),
            ("sudo", "sudo", true),
            ("*", "", true),
        ] {
            assert_eq!(like(pattern, text), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn a_glob_covers_what_is_below() {
        let covered = |pattern: &str, path: &str| {
            covers(&Glob::new(pattern, DotfileMatching::Any).unwrap(), path)
        };
        assert!(covered("secrets", "secrets") && covered("secrets", "a/secrets/b"));
        assert!(covered("secrets/**", "secrets/a/b") && !covered("secrets/**", "a/secrets/b"));
        assert!(covered("*.pem", "a/b.pem") && !covered("*.pem", "a/b.pem.txt"));
        assert!(covered(".ssh", "src/.ssh/id") && !covered("node_modules", "src/node_modules2"));
    }
}
