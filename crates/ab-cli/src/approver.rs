//! The person at the terminal, who may say yes to what a rule asks about.

use std::io::{self, BufRead, IsTerminal};

use ab_core::error::printable;
use ab_core::{Answer, Approver, Question};
use async_trait::async_trait;

use crate::terminal::{Format, talk};

/// Asks on standard error and reads the answer from standard input, where both are a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TerminalApprover {
    format: Format,
}

impl TerminalApprover {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// Whether somebody sits there; with JSON a program does.
    fn is_watched(self) -> bool {
        self.format == Format::Text && io::stdin().is_terminal() && io::stderr().is_terminal()
    }
}

#[async_trait]
impl Approver for TerminalApprover {
    async fn ask(&self, question: &Question<'_>) -> Answer {
        if !self.is_watched() {
            return Answer::Nobody;
        }
        talk(&asked(question));
        let read = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map(|_| line)
        });
        match read.await {
            Ok(Ok(line)) => answer(&line),
            Ok(Err(_)) | Err(_) => Answer::No,
        }
    }
}

/// What is shown. Nothing of it can move the cursor or change a colour.
fn asked(question: &Question<'_>) -> String {
    let command = printable(question.command.unwrap_or_default());
    let mut text = format!("{command}\n{} (rule {})\n", question.reason, question.rule);
    if let Some(suggestion) = question.suggestion {
        text.push_str(&format!("instead: {suggestion}\n"));
    }
    text.push_str("run it? [y/N] ");
    text
}

fn answer(line: &str) -> Answer {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Answer::Yes,
        _ => Answer::No,
    }
}

#[cfg(test)]
mod tests {
    use ab_core::{Actor, Verb};

    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (line, expect) in [
            ("y\n", Answer::Yes),
            ("YES\n", Answer::Yes),
            ("\n", Answer::No),
            ("", Answer::No),
            ("yep\n", Answer::No),
        ] {
            assert_eq!(answer(line), expect, "{line:?}");
        }
    }

    #[test]
    fn a_question_cannot_fake_its_own_answer() {
        let actor = Actor::default();
        let question = Question {
            actor: &actor,
            verb: Verb::Exec,
            path: None,
            command: Some("$X\r\u{1b}[2K ls"),
            rule: "own.rule",
            reason: "nobody knows",
            suggestion: Some("write it out"),
        };
        let text = asked(&question);
        assert!(!text.contains(['\r', '\u{1b}']), "{text:?}");
        assert!(
            text.contains("nobody knows (rule own.rule)") && text.ends_with("[y/N] "),
            "{text}"
        );
    }
}
