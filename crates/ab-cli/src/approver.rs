//! Asks the person at the terminal whether an action that requires approval may be performed.

use std::io::{self, BufRead, IsTerminal};

use ab_core::{ApprovalAnswer, ApprovalRequest, Approver, Principal, PrincipalKind};
use async_trait::async_trait;

use crate::keyboard::discard_typed;
use crate::terminal::{Format, talk, without_controls};

/// Asks on standard error and reads the answer from standard input, if both are terminals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TerminalApprover {
    format: Format,
}

impl TerminalApprover {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// Whether a person can be asked. If the output is JSON, the caller is a program.
    fn is_watched(self) -> bool {
        self.format == Format::Text && io::stdin().is_terminal() && io::stderr().is_terminal()
    }
}

#[async_trait]
impl Approver for TerminalApprover {
    async fn ask(&self, asked: &ApprovalRequest) -> ApprovalAnswer {
        if !self.is_watched() {
            return ApprovalAnswer::NoPersonAvailable;
        }
        // A line that was typed before the question was shown does not answer it.
        discard_typed();
        talk(&question(asked));
        let read = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map(|_| line)
        });
        match read.await {
            Ok(Ok(line)) => answer(&line),
            Ok(Err(error)) => {
                ApprovalAnswer::No(person(), format!("cannot read the answer: {error}"))
            }
            Err(error) => ApprovalAnswer::No(person(), format!("cannot read the answer: {error}")),
        }
    }
}

/// The text of the prompt: the whole call with its directory, variables and limits. Control
/// characters are removed, so that the call cannot move the cursor or change colours.
fn question(asked: &ApprovalRequest) -> String {
    format!("{}run it? [y/N] ", without_controls(&asked.describe()))
}

fn answer(line: &str) -> ApprovalAnswer {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => ApprovalAnswer::Yes(person()),
        _ => ApprovalAnswer::No(person(), String::new()),
    }
}

/// The principal for the person at the terminal, who has no account.
fn person() -> Principal {
    Principal::new(PrincipalKind::Person, "terminal")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ab_core::process::ExecRequest;
    use ab_core::{Actor, Call, PathParser, TriggeringRule, Verb};

    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (line, yes) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("yep\n", false)]
        {
            assert_eq!(matches!(answer(line), ApprovalAnswer::Yes(_)), yes, "{line:?}");
        }
    }

    #[test]
    fn a_question_shows_directory_variables_and_time_limit() {
        let actor = Actor::default();
        let mut request = ExecRequest::shell("rm -r build");
        request.cwd = PathParser::lenient().parse("precious").unwrap();
        request.env.insert("PATH".to_owned(), "./evil\r".to_owned());
        request.limits.wall_time = Some(Duration::from_secs(9));
        let call = Call { request: Some(&request), ..Call::new(&actor, Verb::Exec) };
        let (rule, reason) = ("own.rule".to_owned(), "it may be wrong".to_owned());
        let rule = TriggeringRule { rule, reason, suggestion: None };
        let expect = "rm -r build\ndirectory: precious\nvariable: PATH=./evil\\r\nat most: 9s\n\n\
                      it may be wrong (rule own.rule)\nrun it? [y/N] ";
        assert_eq!(question(&ApprovalRequest::new(&call, rule)), expect);
    }

    #[test]
    fn a_question_cannot_fake_its_own_answer() {
        let actor = Actor::default();
        let request = ExecRequest::shell("$X\r\u{1b}[2K ls");
        let call = Call { request: Some(&request), ..Call::new(&actor, Verb::Exec) };
        let origin = TriggeringRule {
            rule: "own.rule".to_owned(),
            reason: "the target is unknown".to_owned(),
            suggestion: Some("write it out".to_owned()),
        };
        let text = question(&ApprovalRequest::new(&call, origin));
        assert!(!text.contains(['\r', '\u{1b}']), "{text:?}");
        assert!(
            text.contains("the target is unknown (rule own.rule)") && text.ends_with("[y/N] "),
            "{text}"
        );
    }
}
