//! Asks questions at the terminal: shows prompts and reads answers. Flags can answer the questions
//! instead.

use std::io::{self, IsTerminal};

use ab_api::{
    Approval, ApprovalDecision, ApprovalId, ApprovalStatus, ApproveOrDeny, DeciderKind,
    DecisionChannel, SubjectDescriber,
};
use ab_core::ErrorKind;
use ab_core::error::escape_unprintable;
use agent_backend::ServeClient;

use super::Approve;
use crate::failure::Failure;
use crate::keyboard::Keyboard;
use crate::terminal::{Format, Terminal, talk};

/// Longer titles are truncated in the line of their event, so the prompt repeats the whole title.
const MAX_TITLE_ABOVE: usize = 160;

/// After this many consecutive EOFs, no more input is read.
const MAX_INPUT_ENDS: u32 = 3;

/// Why a question whose text is incomplete is not approved.
const INCOMPLETE: &str = "it cannot be shown in full, so it can only be denied";

const ASK: &str = "allow it? [y/n/l] ";
const ASK_INCOMPLETE: &str = "allow it? [n/l] ";

/// Where the titles of questions are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Titles {
    /// The title is in the line of the event, directly above the prompt.
    InEvents,
    /// The title is shown only in the prompt.
    Repeated,
}

/// The result of a line that the person typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The decision was sent.
    Decided,
    /// The question stays open, because the person wants to decide later.
    Later,
    /// The line is not an answer.
    Nothing,
}

/// Whether the prompt repeats the title of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Title {
    /// The line of the event directly above shows the title, so the prompt does not.
    IsAbove,
    Repeated,
}

/// The open questions, and the terminal at which they are answered.
pub(crate) struct Questions {
    client: ServeClient,
    approve: Approve,
    /// Whether a person can be asked.
    is_interactive: bool,
    titles: Titles,
    /// The flags with which the user can reach the same server again.
    server_flags: String,
    open: Vec<Approval>,
    keyboard: Option<Keyboard>,
    /// The number of consecutive EOFs since the last line.
    input_ends: u32,
}

impl Questions {
    pub(crate) fn new(
        client: ServeClient,
        approve: Approve,
        titles: Titles,
        server_flags: &str,
        terminal: &Terminal,
    ) -> Self {
        let is_person = io::stdin().is_terminal() && terminal.is_heard();
        let is_interactive = is_person && terminal.format() == Format::Text;
        Self {
            client,
            approve,
            is_interactive,
            titles,
            server_flags: server_flags.to_owned(),
            open: Vec::new(),
            keyboard: None,
            input_ends: 0,
        }
    }

    /// Whether a question is shown at the terminal and waits for an answer.
    pub(crate) fn is_asking(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether a person can be asked.
    pub(crate) fn is_interactive(&self) -> bool {
        self.is_interactive
    }

    /// Handles a question that has been opened. If a flag answers it, the answer is sent. Otherwise
    /// the person is asked.
    pub(crate) async fn open(
        &mut self,
        approval: Approval,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        let id = approval.id;
        match self.approve {
            Approve::Always if approval.subject.is_cut => {
                let reason = Some(INCOMPLETE.to_owned());
                let deny = ApprovalDecision { reason, ..ApproveOrDeny::Deny.into() };
                self.send(id, deny).await?;
                terminal.note(&format!("denied {id} in spite of --approve always: {INCOMPLETE}"));
                Ok(())
            }
            Approve::Always => self.send(id, ApproveOrDeny::Approve.into()).await,
            Approve::Never => self.send(id, ApproveOrDeny::Deny.into()).await,
            Approve::Ask if self.is_interactive => {
                self.open.push(approval);
                if self.open.len() == 1 {
                    let is_whole = self.open[0].subject.title.len() <= MAX_TITLE_ABOVE;
                    let is_above = self.titles == Titles::InEvents && is_whole;
                    let title = if is_above { Title::IsAbove } else { Title::Repeated };
                    self.ask(title);
                }
                Ok(())
            }
            Approve::Ask => {
                let flags = &self.server_flags;
                terminal.note(&format!(
                    "the session waits for a decision: agent-backend approvals show {id}{flags}, \
                     then approvals approve or deny {id}{flags}"
                ));
                Ok(())
            }
        }
    }

    /// Handles a question that has been decided, here or by another client.
    pub(crate) fn close(&mut self, id: ApprovalId) {
        let was_asking = self.open.first().is_some_and(|open| open.id == id);
        self.open.retain(|open| open.id != id);
        if was_asking {
            self.ask(Title::Repeated);
        }
    }

    /// Shows the first open question.
    fn ask(&mut self, title: Title) {
        let Some(approval) = self.open.first() else { return };
        let text = question(approval, title);
        self.show(&text);
    }

    /// Shows a prompt. Lines that were typed before do not answer it.
    fn show(&mut self, prompt: &str) {
        self.keyboard.get_or_insert_with(Keyboard::open).forget();
        talk(prompt);
    }

    /// Waits for the next line that the person types while a question is open. `None` at EOF.
    pub(crate) async fn answer(&mut self) -> Option<io::Result<String>> {
        match &mut self.keyboard {
            Some(keyboard) if !self.open.is_empty() && self.input_ends < MAX_INPUT_ENDS => {
                keyboard.next().await
            }
            _ => std::future::pending().await,
        }
    }

    /// Handles a line that the person typed.
    pub(crate) async fn decide(
        &mut self,
        line: Option<io::Result<String>>,
        terminal: &mut Terminal,
    ) -> Result<Answered, Failure> {
        let Some(line) = line else {
            // At a terminal, the person can type more after Ctrl-D.
            self.keyboard = None;
            self.input_ends += 1;
            if self.input_ends < MAX_INPUT_ENDS {
                terminal.note("answer y or n; Ctrl-C detaches and leaves the question open");
                self.ask(Title::Repeated);
            } else {
                terminal.note("the input has ended; the question stays open");
            }
            return Ok(Answered::Nothing);
        };
        self.input_ends = 0;
        let line = line.map_err(|error| Failure::input("read the answer", error))?;
        let Some(approval) = self.open.first() else { return Ok(Answered::Nothing) };
        let id = approval.id;
        let is_cut = approval.subject.is_cut;
        let choice = match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" if is_cut => {
                terminal.note(INCOMPLETE);
                // The text is right above, and longer than a screen.
                self.show(ASK_INCOMPLETE);
                return Ok(Answered::Nothing);
            }
            "y" | "yes" => ApproveOrDeny::Approve,
            "n" | "no" => ApproveOrDeny::Deny,
            "l" | "later" => {
                self.open.remove(0);
                let flags = &self.server_flags;
                terminal.note(&format!(
                    "{id} stays open; to decide it later: agent-backend approvals approve {id}{flags}"
                ));
                self.ask(Title::Repeated);
                return Ok(Answered::Later);
            }
            _ if is_cut => {
                terminal.note("answer n, or l for later");
                self.show(ASK_INCOMPLETE);
                return Ok(Answered::Nothing);
            }
            _ => {
                terminal.note("answer y, n or l for later");
                self.ask(Title::Repeated);
                return Ok(Answered::Nothing);
            }
        };
        self.open.remove(0);
        self.send(id, choice.into()).await?;
        self.ask(Title::Repeated);
        Ok(Answered::Decided)
    }

    async fn send(&self, id: ApprovalId, decision: ApprovalDecision) -> Result<(), Failure> {
        let by = match self.approve {
            Approve::Ask => DeciderKind::Person,
            Approve::Always | Approve::Never => DeciderKind::Rule,
        };
        let (by, via) = (Some(by), Some(DecisionChannel::Cli));
        let decision = ApprovalDecision { by, via, ..decision };
        match self.client.decide_approval(id, &decision).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                // Ignore the error only if another client has already decided. If the question is
                // still pending, report the error, so that the question does not stay open
                // unnoticed.
                match self.client.approval(id).await?.status {
                    ApprovalStatus::Pending => Err(error.into()),
                    _ => Ok(()),
                }
            }
            other => Ok(other.map(drop)?),
        }
    }
}

/// The text of the prompt. Control characters are escaped, so that the question cannot move the
/// cursor or change colours.
fn question(approval: &Approval, title: Title) -> String {
    let subject = &approval.subject;
    let mut text = match title {
        Title::IsAbove => String::new(),
        Title::Repeated => format!("? {}\n", escape_unprintable(&subject.title)),
    };
    for line in detail_lines(subject.detail.as_deref().unwrap_or_default()) {
        text.push_str(&line);
        text.push('\n');
    }
    let describer = match subject.described_by {
        SubjectDescriber::Server => None,
        SubjectDescriber::Agent => Some("agent"),
        SubjectDescriber::Program => Some("program"),
    };
    if let Some(describer) = describer.filter(|_| subject.detail.is_some()) {
        text.push_str(&format!("  (as the {describer} describes it)\n"));
    }
    if subject.is_cut {
        text.push_str("  this is not everything; it can only be denied\n");
    }
    text.push_str(if subject.is_cut { ASK_INCOMPLETE } else { ASK });
    text
}

/// The details that an agent sent about a call, as lines for the terminal.
pub(crate) fn detail_lines(detail: &str) -> impl Iterator<Item = String> {
    detail.lines().map(|line| format!("  {}", escape_unprintable(line)))
}

#[cfg(test)]
mod tests {
    use ab_api::{ApprovalSubject, Time};

    use super::*;

    #[test]
    fn a_question_cannot_move_the_cursor() {
        let subject = ApprovalSubject {
            title: "Run \u{1b}[2Kls\r".to_owned(),
            detail: Some("rm -rf build\n\u{7}echo".to_owned()),
            ..ApprovalSubject::default()
        };
        let approval = Approval::new_pending(subject, Time::now());
        let rest = "  rm -rf build\n  \\u{7}echo\nallow it? [y/n/l] ";
        let whole = format!("? Run \\u{{1b}}[2Kls\\r\n{rest}");
        assert_eq!(question(&approval, Title::Repeated), whole);
        // The title is shown in the line of the event.
        assert_eq!(question(&approval, Title::IsAbove), rest);
    }
}
