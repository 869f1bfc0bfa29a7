//! The page of one session.

use ab_api::{
    Approval, DeliveryResult, Event, PlanEntry, PlanEntryStatus, Session, SessionActivity,
    SessionPrompt, SessionStatus, Time,
};
use maud::{Markup, html};

use super::diff::Diff;
use super::feed::{meta, pill, title};
use super::icon::{Icon, icon};
use super::inbox;
use super::layout::{Chrome, Live, Section, frame};
use super::queue;
use super::rows::{capitalised, counts, rows};
use super::text::clean;

/// The data that the page of a session shows.
#[derive(Debug)]
pub(crate) struct SessionView<'a> {
    pub(crate) session: &'a Session,
    /// The events after the reader's cursor, oldest first.
    pub(crate) events: &'a [Event],
    /// The number of older events that are not shown.
    pub(crate) omitted: u64,
    /// The sequence number of the last event.
    pub(crate) cursor: u64,
    pub(crate) has_more: bool,
    /// The newest plan of the agent.
    pub(crate) plan: &'a [PlanEntry],
    /// The result that was delivered, if there is one.
    pub(crate) delivered: Option<&'a DeliveryResult>,
    /// The pending approvals of the session.
    pub(crate) approvals: &'a [Approval],
    /// The queued prompts, in their order.
    pub(crate) queue: &'a [SessionPrompt],
    pub(crate) changes: Changes<'a>,
}

/// The part of a response about the changes of a session.
#[derive(Debug)]
pub(crate) enum Changes<'a> {
    /// The request did not ask for the changes. An open page keeps the ones that it shows.
    NotAsked,
    /// A unified diff. Empty if nothing changed or if there is no workspace.
    Diff(&'a str),
}

pub(crate) fn session(chrome: Chrome, view: &SessionView<'_>) -> Markup {
    let session = view.session;
    let ended = session.status.is_terminal();
    let diff = match view.changes {
        Changes::NotAsked => None,
        Changes::Diff(text) => Some(Diff::parse(text)),
    };
    let body = html! {
        nav.crumbs aria-label="Breadcrumb" { a href="/ui" { "Sessions" } }
        (head(session))
        div #result data-live="swap" {
            @if let Some(delivered) = view.delivered.filter(|delivered| delivered.changed) { (result(delivered)) }
        }
        div #asks data-live="keyed" { @for approval in view.approvals { (inbox::ask(approval, None)) } }
        div.columns {
            section.stream aria-labelledby="activity-title" {
                h2 #activity-title { "Activity" }
                @if view.omitted > 0 {
                    p.quiet.small { (view.omitted) " older events are in the " a href={ "/api/v1/sessions/" (session.id) "/logs" } { "log" } "." }
                }
                div.scroll tabindex="0" role="log" aria-labelledby="activity-title" {
                    ol #activity .activity data-live="append" { (rows(view.events, session.created_at)) }
                }
                div #queue data-live="keyed" {
                    @for prompt in view.queue.iter().filter(|prompt| prompt.number > 1) { (queue::queued(session.id, prompt)) }
                }
                div #follow-up data-live="keyed" {
                    @if takes_prompts(session) { (follow_up(session)) }
                    @if can_be_continued(session) { (continuation(session)) }
                }
            }
            aside {
                section #plan data-live="swap" { @if !view.plan.is_empty() { h2 { "Plan" } (plan(view.plan)) } }
                @if let Some(diff) = &diff {
                    section #files data-live="swap" { @if !diff.is_empty() { h2 { "Changed files" } (diff.list()) } }
                }
                section { h2 { "About" } (about(session)) }
            }
        }
        @if let Some(diff) = &diff {
            section #changes data-live="swap" {
                @if !diff.is_empty() {
                    h2 { "Changes" }
                    (diff.files(&format!("/api/v1/sessions/{}/diff", session.id)))
                } @else if ended {
                    h2 { "Changes" }
                    p.empty.small { "This session changed nothing." }
                }
            }
        }
    };
    let stream = format!("/api/v1/sessions/{}/events?after={}", session.id, view.cursor);
    let live = Live {
        stream: (!ended || view.has_more).then_some(stream),
        cursor: Some(view.cursor),
        has_more: view.has_more,
    };
    frame(chrome, &title(session), Section::Sessions, &live, body)
}

fn head(session: &Session) -> Markup {
    let ended = session.status.is_terminal();
    html! {
        header #head .session-head data-live="swap" {
            div.line { h1 dir="auto" { (title(session)) } (pill(session)) }
            (meta(session, Time::now()))
            @if session.prompt.trim() != title(session) {
                details #prompt { summary { "Whole prompt" } pre.wrap dir="auto" { (clean(&session.prompt)) } }
            }
            @if let Some(detail) = &session.end_detail {
                p.callout data-tone=(tone(session.status)) { (clean(detail)) }
            }
            @if !ended {
                div.actions {
                    (act(session, &Act { path: "stop", name: "Stop", busy: "Stopping…", confirm: None }))
                    (act(session, &Act {
                        path: "cancel", name: "Cancel", busy: "Cancelling…",
                        confirm: Some("Cancel this session? Its workspace is removed."),
                    }))
                    span.said role="status" {}
                }
            }
        }
    }
}

/// Whether the session currently accepts prompts.
fn takes_prompts(session: &Session) -> bool {
    let is_delivering = session.activity == Some(SessionActivity::Delivering);
    !(session.status.is_terminal() || session.status == SessionStatus::Stopping || is_delivering)
}

/// The form for another prompt. The form does not depend on the status, so that an update of the
/// page does not replace what the user is typing.
fn follow_up(session: &Session) -> Markup {
    html! {
        form.act.card.follow-up #follow-up-form method="post" action={ "/ui/sessions/" (session.id) "/prompt" } {
            label {
                "What shall the agent do next?"
                textarea #next-prompt name="prompt" rows="3" required {}
            }
            div.actions {
                button.primary #send-prompt type="submit" data-busy="Sending…" { "Send" }
                button #send-now type="submit" name="now" value="true" data-busy="Sending…" title="Cancel what the agent does, and send this first" { "Send now" }
                span.hint { "The agent gets it when its turn ends, or now." }
                span.said role="status" {}
            }
        }
        @if session.activity == Some(SessionActivity::Idle) {
            form.act #finish-form method="post" action={ "/ui/sessions/" (session.id) "/finish" } {
                div.actions {
                    button #act-finish type="submit" data-busy="Finishing…" { "Finish" }
                    span.hint { "The agent waits. Finishing delivers its work and ends the session." }
                    span.said role="status" {}
                }
            }
        }
    }
}

/// Whether the workspace of an ended session is kept, so that another session can continue in it.
fn can_be_continued(session: &Session) -> bool {
    matches!(session.status, SessionStatus::Stopped | SessionStatus::Failed)
        && session.workspace.mount_path.is_some()
}

/// The form that starts a new session in the kept workspace.
fn continuation(session: &Session) -> Markup {
    html! {
        form.act.card.follow-up #continue-form method="post" action={ "/ui/sessions/" (session.id) "/continue" } {
            label {
                "What shall the agent do now?"
                textarea #continue-prompt name="prompt" rows="3" placeholder="The task of this session, if left empty" {}
            }
            div.actions {
                button.primary #act-continue type="submit" data-busy="Continuing…" { "Continue" }
                span.hint { "The work of this session is kept. A new session goes on with it." }
                span.said role="status" {}
            }
        }
    }
}

fn tone(status: SessionStatus) -> &'static str {
    match status {
        SessionStatus::Failed => "bad",
        SessionStatus::Completed => "good",
        _ => "none",
    }
}

/// A button on the page that sends a request to change a session.
struct Act {
    path: &'static str,
    name: &'static str,
    /// The label while the request is in progress.
    busy: &'static str,
    confirm: Option<&'static str>,
}

fn act(session: &Session, act: &Act) -> Markup {
    let Act { path, name, busy, confirm } = act;
    let explained = match *path {
        "stop" => "End the agent and keep its work",
        _ => "End the agent now and remove its workspace",
    };
    html! {
        form.act method="post" action={ "/ui/sessions/" (session.id) "/" (path) } data-confirm=[*confirm] {
            button id={ "act-" (path) } type="submit" class=[(*path == "cancel").then_some("danger")] data-busy=(busy) title=(explained) { (name) }
        }
    }
}

fn result(delivered: &DeliveryResult) -> Markup {
    html! {
        div.callout data-tone="good" {
            @if let Some(branch) = &delivered.branch {
                p { strong { "Delivered" } " as branch " code { (clean(branch)) } }
                p.small { "In the repository: " code { "git diff HEAD..." (clean(branch)) } " shows it, " code { "git merge " (clean(branch)) } " takes it." }
            } @else {
                p { strong { "The patch is ready." } " " code { "agent-backend session diff" } " prints it." }
            }
        }
    }
}

fn plan(entries: &[PlanEntry]) -> Markup {
    html! {
        ol.plan {
            @for entry in entries {
                @let (state, sign, told) = match entry.status {
                    PlanEntryStatus::Pending => ("pending", Icon::Dot, "to do"),
                    PlanEntryStatus::InProgress => ("running", Icon::Dot, "in progress"),
                    PlanEntryStatus::Completed => ("good", Icon::Yes, "done"),
                };
                li data-state=(state) { span.mark title=(told) { (icon(sign)) } span dir="auto" { (clean(&entry.content)) } }
            }
        }
    }
}

fn attachments(session: &Session) -> String {
    let names: Vec<&str> = session.task.attachments.iter().map(|it| it.name.as_str()).collect();
    names.join(", ")
}

fn about(session: &Session) -> Markup {
    html! {
        dl.facts {
            dt { "Session" } dd.mono { (session.id) }
            dt { "Repository" } dd.mono { (clean(session.repo.display_text())) }
            @if !session.task.attachments.is_empty() {
                dt { "Attachments" } dd { (clean(&attachments(session))) }
            }
            @if let Some(branch) = &session.vcs.delivered_branch { dt { "Delivered as" } dd.mono { (clean(branch)) } }
            @if let Some(base) = &session.vcs.base_commit { dt { "Starts from" } dd.mono { (base.get(..10).unwrap_or(base)) } }
            dt { "Agent" } dd { (session.agent.kind) " " (session.agent.version) }
            dt { "Result" } dd { (capitalised(&format!("{:?}", session.delivery.mode).to_lowercase())) }
            @if let Some(changes) = session.changes { dt { "Change" } dd { (counts(changes.lines_added, changes.lines_removed)) } }
            dt { "In a terminal" } dd.mono { "agent-backend session events " (session.id) " --follow" }
        }
    }
}
