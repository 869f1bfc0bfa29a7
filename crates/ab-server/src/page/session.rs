//! The page of one session.

use ab_api::{Approval, Event, Session, SessionStatus};
use maud::{Markup, html};

use super::feed::{first_line, meta, pill};
use super::layout::{Chrome, Live, Section, frame};
use super::{diff, events, inbox};

/// Everything that the page of a session shows.
#[derive(Debug)]
pub(crate) struct SessionView<'a> {
    pub(crate) session: &'a Session,
    /// The events so far, oldest first.
    pub(crate) events: &'a [Event],
    /// How many older events are left out.
    pub(crate) omitted: u64,
    /// The sequence of the last of them.
    pub(crate) cursor: u64,
    /// The pending approvals of the session.
    pub(crate) approvals: &'a [Approval],
    /// The unified diff of the work so far, where one is known.
    pub(crate) diff: Option<&'a str>,
}

pub(crate) fn session(chrome: Chrome, view: &SessionView<'_>) -> Markup {
    let session = view.session;
    let ended = session.status.is_terminal();
    let body = html! {
        div.card {
            div.head { h1.title { (first_line(&session.prompt)) } (pill(session)) }
            (meta(session))
            @if session.prompt.trim() != first_line(&session.prompt) {
                details { summary { "the whole prompt" } pre { (session.prompt) } }
            }
            @if let Some(detail) = &session.end_detail { p.bad[session.status == SessionStatus::Failed] { (detail) } }
            div #actions .actions {
                @if !ended {
                    (act(session, "stop", "Stop", "Asks the agent to wrap up, keeps its work"))
                    (act(session, "cancel", "Cancel", "Ends the agent now"))
                }
                @if session.changes.is_some_and(|changes| changes.files_changed > 0) {
                    a.button href={ "/api/v1/sessions/" (session.id) "/diff" } { "Patch" }
                }
                span #live .live aria-hidden="true" {}
            }
        }
        div #asks { @for approval in view.approvals { (inbox::ask(approval, false)) } }
        h2 { "Activity" }
        @if view.omitted > 0 {
            p.meta { (view.omitted) " older events are in the " a href={ "/api/v1/sessions/" (session.id) "/logs" } { "logs" } "." }
        }
        ul #activity .activity { @for event in view.events { (events::row(event)) } }
        div #changes {
            @if let Some(text) = view.diff {
                h2 { "Changes" }
                (diff::diff(text))
            }
        }
    };
    let live = Live {
        session: Some(session.id.to_string()),
        ended,
        cursor: view.cursor,
        ..Live::default()
    };
    frame(chrome, first_line(&session.prompt), Section::Sessions, &live, body)
}

fn act(session: &Session, act: &str, name: &str, title: &str) -> Markup {
    html! {
        form.inline method="post" action={ "/ui/sessions/" (session.id) "/" (act) } {
            button type="submit" class=[(act == "cancel").then_some("danger")] title=(title) { (name) }
        }
    }
}
