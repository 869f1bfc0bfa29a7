//! The approvals that wait for a person.

use ab_api::Approval;
use maud::{Markup, html};

use super::layout::{Chrome, Live, Section, frame};

/// Every pending approval, oldest first.
pub(crate) fn inbox(chrome: Chrome, approvals: &[Approval]) -> Markup {
    let body = html! {
        h1 { "Inbox" }
        @if approvals.is_empty() { div.card.empty { "Nothing waits for you." } }
        div #asks { @for approval in approvals { (ask(approval, true)) } }
    };
    frame(chrome, "Inbox", Section::Inbox, &Live::default(), body)
}

/// A question with its two buttons.
pub(super) fn ask(approval: &Approval, with_link: bool) -> Markup {
    let decide = format!("/ui/approvals/{}", approval.id);
    html! {
        article.card.ask {
            div.head { strong.title { (approval.subject.title) } }
            @if let Some(detail) = &approval.subject.detail { pre { (detail) } }
            div.actions {
                form.inline method="post" action=(decide) {
                    input type="hidden" name="decision" value="approve";
                    button.primary type="submit" { "Approve" }
                }
                form.inline method="post" action=(decide) {
                    input type="hidden" name="decision" value="deny";
                    button.danger type="submit" { "Deny" }
                }
                @if with_link { a href={ "/ui/sessions/" (approval.session_id) } { "See the session" } }
            }
        }
    }
}
