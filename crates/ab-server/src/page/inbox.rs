//! The approvals that wait for a person.

use ab_api::{Approval, Time};
use maud::{Markup, html};

use super::layout::{Chrome, Live, Section, frame};
use super::text::clean;
use super::time::ago;

/// Every pending approval, oldest first.
pub(crate) fn inbox(chrome: Chrome, approvals: &[Approval]) -> Markup {
    let body = html! {
        h1 { "Inbox" }
        div #asks data-live="keyed" {
            @if approvals.is_empty() {
                div.empty #nothing { p { "Nothing waits for you." } p.small { "When an agent asks before it acts, the question is here." } }
            }
            @for approval in approvals { (ask(approval, Link::Session)) }
        }
    };
    let live = Live { stream: Some("/api/v1/events".to_owned()), ..Live::default() };
    frame(chrome, "Inbox", Section::Inbox, &live, body)
}

/// What a question links to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    None,
    Session,
}

/// A question with its two buttons.
pub(super) fn ask(approval: &Approval, link: Link) -> Markup {
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
    html! {
        article.card.ask id={ "ask-" (approval.id) } {
            p.kind { "The agent " (wants) span.quiet { " · " (ago(approval.created_at, Time::now())) } }
            p.subject dir="auto" { (clean(&subject.title)) }
            @if let Some(detail) = &subject.detail { pre.wrap { (clean(detail)) } }
            form.act method="post" action={ "/ui/approvals/" (approval.id) } {
                div.actions {
                    button.primary id={ "approve-" (approval.id) } type="submit" name="decision" value="approve" data-busy="Approving…" { "Approve" }
                    button.danger id={ "deny-" (approval.id) } type="submit" name="decision" value="deny" data-busy="Denying…" { "Deny" }
                    @if link == Link::Session { a href={ "/ui/sessions/" (approval.session_id) } { "See the session" } }
                    span.said role="status" {}
                }
            }
        }
    }
}
