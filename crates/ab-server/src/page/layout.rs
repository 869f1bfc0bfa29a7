//! The frame around every page: head and navigation.

use maud::{DOCTYPE, Markup, html};

use super::icon::{Icon, icon};

/// Data that the frame of a page shows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Chrome {
    /// The number of approvals that wait for a decision.
    pub(crate) pending_approvals: u64,
}

/// The entries of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Sessions,
    Inbox,
    NewTask,
}

/// The data that `page.js` needs to keep a page current.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    /// The path of the event stream that triggers updates. If `None`, the page is not updated.
    pub(super) stream: Option<String>,
    /// The id of the last event that the page shows. Set for pages to which rows are appended.
    pub(super) cursor: Option<u64>,
    /// Whether there are more events than this response contains.
    pub(super) has_more: bool,
}

pub(super) fn frame(
    chrome: Chrome,
    title: &str,
    section: Section,
    live: &Live,
    body: Markup,
) -> Markup {
    let waiting = chrome.pending_approvals;
    let entry = |name: &str, path: &str, of: Section, inner: Markup| {
        let current = (of == section).then_some("page");
        html! { a href=(path) aria-current=[current] { (name) (inner) } }
    };
    let count = html! {
        span #inbox-count .count data-live="swap" data-count=(waiting) aria-label={ (waiting) " waiting" } { (waiting) }
    };
    let header = html! {
        header.top {
            div.wide {
                a.brand href="/ui" { span.logo { (icon(Icon::Prompt)) } span { "agent-backend" } }
                nav aria-label="Main" {
                    (entry("Sessions", "/ui", Section::Sessions, html! {}))
                    (entry("Inbox", "/ui/inbox", Section::Inbox, count))
                }
                span #connection role="status" {}
                a.button.primary href="/ui/new" aria-current=[(section == Section::NewTask).then_some("page")] {
                    (icon(Icon::Plus)) span { "New task" }
                }
            }
        }
    };
    document(title, live, &html! { (header) main.wide { (body) } })
}

/// Renders a page without the navigation.
pub(super) fn document(title: &str, live: &Live, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · agent-backend" }
                link rel="icon" type="image/svg+xml" href="/ui/icon.svg";
                link rel="stylesheet" href="/ui/page.css";
                script src="/ui/page.js" defer {}
            }
            body data-stream=[live.stream.as_deref()] data-cursor=[live.cursor] data-more=[live.has_more.then_some("true")] {
                (body)
            }
        }
    }
}
