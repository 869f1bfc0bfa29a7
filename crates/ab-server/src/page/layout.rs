//! The frame around every page.

use maud::{DOCTYPE, Markup, html};

/// What the frame shows around a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Chrome {
    /// How many approvals wait for a decision.
    pub(crate) pending_approvals: u64,
}

/// The entries of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Sessions,
    Inbox,
    NewTask,
}

/// What `page.js` needs to know about a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    /// Set on the page of one session.
    pub(super) session: Option<String>,
    pub(super) ended: bool,
    /// Set on the list of sessions.
    pub(super) feed: bool,
    /// The last event that the page already shows.
    pub(super) cursor: u64,
}

pub(super) fn frame(
    chrome: Chrome,
    title: &str,
    section: Section,
    live: &Live,
    body: Markup,
) -> Markup {
    let entry = |name: &str, path: &str, of: Section, inner: Markup| {
        let current = (of == section).then_some("page");
        html! { a href=(path) aria-current=[current] { (name) (inner) } }
    };
    let count = html! {
        span #inbox-count .count data-count=(chrome.pending_approvals) { (chrome.pending_approvals) }
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · agent-backend" }
                link rel="stylesheet" href="/ui/page.css";
                script src="/ui/page.js" defer {}
            }
            body data-session=[live.session.as_deref()] data-ended=(live.ended)
                data-feed=[live.feed.then_some("true")] data-cursor=(live.cursor) {
                header.top {
                    a.brand href="/ui" { "agent-backend" }
                    nav aria-label="Main" {
                        (entry("Sessions", "/ui", Section::Sessions, html! {}))
                        (entry("Inbox", "/ui/inbox", Section::Inbox, count))
                    }
                    a.button.primary href="/ui/new" aria-current=[(section == Section::NewTask).then_some("page")] { "New task" }
                }
                main {
                    (body)
                }
            }
        }
    }
}
