//! The approvals that wait for a person.

use ab_api::{Approval, Session, SubjectDescriber, Time};
use maud::{Markup, html};

use super::feed::{meta, title};
use super::layout::{Chrome, Live, Section, frame};
use super::text::exact;
use super::time::ago;

/// A pending approval and the session that asks, if it is known.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) approval: Approval,
    pub(crate) session: Option<Session>,
}

/// Every pending approval, oldest first.
pub(crate) fn inbox(chrome: Chrome, asked: &[Asked], revision: u64) -> Markup {
    let body = html! {
        h1 { "Inbox" }
        div #asks data-live="keyed" {
            @if asked.is_empty() {
                div.empty #nothing { p { "Nothing waits for you." } p.small { "When an agent asks before it acts, the question is here." } }
            }
            @for asked in asked { (ask(&asked.approval, asked.session.as_ref())) }
        }
    };
    let stream = format!("/v1/approvals?status=pending&after={revision}");
    let live = Live { stream: Some(stream), ..Live::default() };
    frame(chrome, "Inbox", Section::Inbox, &live, body)
}

/// A question with its two buttons, and the task of its session if the page does not show it.
pub(super) fn ask(approval: &Approval, session: Option<&Session>) -> Markup {
    let subject = &approval.subject;
    let wants = match subject.action.as_deref() {
        Some("execute") => "wants to run a command",
        Some("edit") => "wants to change files",
        Some("delete") => "wants to delete files",
        Some("move") => "wants to move files",
        Some("read") => "wants to read files",
        Some("fetch") => "wants to use the network",
        _ => "asks for permission",
    };
    let asker = match (&approval.session_id, &approval.requester) {
        (Some(_), _) => "The agent".to_owned(),
        (None, Some(requester)) => format!("The program {}", exact(&requester.name)),
        (None, None) => "A run".to_owned(),
    };
    html! {
        article.card.ask id={ "ask-" (approval.id) } {
            p.kind { (asker) " " (wants) span.quiet { " · " (ago(approval.created_at, Time::now())) } }
            @if let Some(session) = session {
                p.task {
                    "Task: " a href={ "/ui/sessions/" (session.id) } dir="auto" { (title(session)) }
                }
                (meta(session, Time::now()))
            }
            p.subject dir="auto" { (exact(&subject.title)) }
            @if let Some(detail) = &subject.detail { pre.wrap.detail { (exact(detail)) } }
            @if subject.described_by == SubjectDescriber::Agent {
                p.quiet.small { "As the agent describes it. The answer is for this request; what the agent then does is up to the agent." }
            }
            @if subject.described_by == SubjectDescriber::Program {
                p.quiet.small { "As the program describes it. The answer is for its request; what the program then does is up to the program." }
            }
            @if subject.is_cut {
                p.small { "This is not everything: it is too large to be shown, so it can only be denied." }
            }
            form.act method="post" action={ "/ui/approvals/" (approval.id) } {
                div.actions {
                    @if !subject.is_cut {
                        button.primary id={ "approve-" (approval.id) } type="submit" name="decision" value="approve" data-busy="Approving…" { "Approve" }
                    }
                    button.danger id={ "deny-" (approval.id) } type="submit" name="decision" value="deny" data-busy="Denying…" { "Deny" }
                    @if let Some(session) = session { a href={ "/ui/sessions/" (session.id) } { "See the session" } }
                    span.said role="status" {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ab_api::ApprovalSubject;

    use super::*;

    #[test]
    fn a_command_cannot_hide_a_part_of_itself_in_its_question() {
        let title = "rm -rf precious # \rls -la";
        let detail = "rm -rf precious # \u{1b}[2K\u{1b}[1Gls -la\nvariable: A=\u{202e}b\n";
        let subject = ApprovalSubject { title: title.to_owned(), ..ApprovalSubject::default() };
        let subject = subject.with_detail(detail.to_owned());
        let page = ask(&Approval::new_pending(subject, Time::now()), None).into_string();
        for shown in [
            r"rm -rf precious # \rls -la</p>",
            r"rm -rf precious # \u{1b}[2K\u{1b}[1Gls -la",
            r"variable: A=\u{202e}b",
        ] {
            assert!(page.contains(shown), "{shown}\n{page}");
        }
        assert!(!page.contains(['\r', '\u{1b}', '\u{202e}']), "{page:?}");
        // Runs of spaces wrap, so that none of them moves text out of sight.
        let style = crate::page::STYLE;
        assert!(style.contains("pre.wrap { white-space: pre-wrap; overflow-wrap: anywhere; }"));
        assert!(style.contains(".ask .subject { font-weight: 600; margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }"));
    }
}
