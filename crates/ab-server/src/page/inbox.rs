//! The inbox: approvals that wait for a person.

use ab_api::{Approval, Session, SubjectDescriber, Time};
use maud::{Markup, html};

use super::feed::{meta, title};
use super::layout::{Chrome, Live, Section, frame};
use super::text::{TITLE_BYTES, cut, exact};
use super::time::ago;

/// A pending approval, and the session or space that asks.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) approval: Approval,
    pub(crate) asker: Option<Asker>,
}

/// The session or space that asks for an approval.
#[derive(Debug, Clone)]
pub(crate) enum Asker {
    Session(Box<Session>),
    /// The name of the space.
    Space(String),
}

/// Every pending approval, oldest first.
pub(crate) fn inbox(chrome: Chrome, asked: &[Asked], revision: u64) -> Markup {
    let body = html! {
        h1 { "Inbox" }
        div #asks data-live="keyed" {
            @if asked.is_empty() {
                div.empty #nothing { p { "Nothing waits for you." } p.small { "When an agent asks before it acts, the question is here." } }
            }
            @for asked in asked { (ask(&asked.approval, asked.asker.as_ref())) }
        }
    };
    let stream = format!("/v1/approvals?status=pending&after={revision}");
    let live = Live { stream: Some(stream), ..Live::default() };
    frame(chrome, "Inbox", Section::Inbox, &live, body)
}

/// Renders a question with its two buttons. `asker` is `None` if the page is already about the
/// asker.
pub(super) fn ask(approval: &Approval, asker: Option<&Asker>) -> Markup {
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
    let who = match (approval.session_id, &approval.requester, approval.run_id) {
        (Some(_), _, _) => "The agent".to_owned(),
        (None, Some(requester), _) => format!("The program {}", exact(&requester.name)),
        (None, None, Some(_)) => "A run".to_owned(),
        (None, None, None) => "A client".to_owned(),
    };
    let (session, space_name) = match asker {
        Some(Asker::Session(session)) => (Some(session.as_ref()), None),
        Some(Asker::Space(name)) => (None, Some(name.as_str())),
        None => (None, None),
    };
    html! {
        article.card.ask id={ "ask-" (approval.id) } {
            p.kind { (who) " " (wants) span.quiet { " · " (ago(approval.created_at, Time::now())) } }
            @if let Some(session) = session {
                p.task {
                    "Task: " a href={ "/ui/sessions/" (session.id) } dir="auto" { (title(session)) }
                }
                (meta(session, Time::now()))
            }
            @if let Some(space) = approval.space_id {
                p.task {
                    "Space: "
                    @if let Some(name) = space_name { (exact(name)) " · " }
                    code { (space) }
                    @if let Some(run) = approval.run_id { " · run " code { (run) } }
                }
            }
            @if let Some(caller) = &subject.asked_by { p.quiet.small { "Asked by " code { (exact(caller)) } } }
            @match cut(&subject.title, TITLE_BYTES) {
                (title, 0) => { p.subject dir="auto" { (exact(title)) } }
                (beginning, _) => {
                    p.subject dir="auto" { (exact(beginning)) "…" }
                    pre.wrap.detail dir="auto" { (exact(&subject.title)) }
                }
            }
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
    use ab_api::{ApprovalSubject, RunId, SpaceId};

    use super::*;

    #[test]
    fn a_question_of_a_space_names_the_space_and_the_run() {
        let (space, run) = (SpaceId::generate(), RunId::generate());
        let subject = ApprovalSubject {
            title: "Run rm -rf data".to_owned(),
            action: Some("execute".to_owned()),
            asked_by: Some("space-agent:build".to_owned()),
            ..ApprovalSubject::default()
        };
        let of_run = Approval {
            space_id: Some(space),
            run_id: Some(run),
            ..Approval::new_pending(subject, Time::now())
        };
        let asker = Asker::Space("build\u{202e} <b>".to_owned());
        let page = ask(&of_run, Some(&asker)).into_string();
        for shown in [
            "A run wants to run a command".to_owned(),
            "Asked by <code>space-agent:build</code>".to_owned(),
            format!(
                r"Space: build\u{{202e}} &lt;b&gt; · <code>{space}</code> · run <code>{run}</code>"
            ),
        ] {
            assert!(page.contains(&shown), "{shown}\n{page}");
        }
        // A tool of the space's MCP endpoint asks without a run.
        let of_client = Approval { run_id: None, ..of_run };
        let page = ask(&of_client, None).into_string();
        assert!(page.contains("A client wants to run a command"), "{page}");
        assert!(page.contains(&format!("Space: <code>{space}</code></p>")), "{page}");
    }

    #[test]
    fn long_title_of_a_question_is_shown_whole_below_its_beginning() {
        let title = format!("Run {} now", "echo ".repeat(200));
        let subject = ApprovalSubject { title: title.clone(), ..ApprovalSubject::default() };
        let page = ask(&Approval::new_pending(subject, Time::now()), None).into_string();
        let heading = page.split("class=\"subject\"").nth(1).expect("a heading");
        let heading = heading.split("</p>").next().expect("its end");
        assert!(heading.len() < 2 * TITLE_BYTES && heading.ends_with('…'), "{heading}");
        assert!(page.contains(&title), "{page}");
    }

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
        // The text of commands wraps, so that a long run of spaces cannot move text out of sight.
        let style = crate::page::STYLE;
        assert!(style.contains("pre.wrap { white-space: pre-wrap; overflow-wrap: anywhere; }"));
        assert!(style.contains(".ask .subject { font-weight: 600; margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }"));
    }
}
