//! The list of sessions.

use ab_api::{Session, SessionActivity, SessionStatus, Time};
use maud::{Markup, html};

use super::layout::{Chrome, Live, Section, frame};
use super::rows::{counts, line};
use super::text::{TITLE_BYTES, clean, cut, first_line};
use super::time::{ago, took};

/// The data of one page of the list of sessions.
#[derive(Debug)]
pub(crate) struct FeedView {
    /// The sessions that wait for a person.
    pub(crate) waiting: FeedGroup,
    pub(crate) at_work: FeedGroup,
    pub(crate) ended: FeedGroup,
    pub(crate) page: u32,
}

/// One page of a group of sessions.
#[derive(Debug)]
pub(crate) struct FeedGroup {
    /// The sessions, newest first.
    pub(crate) sessions: Vec<Session>,
    /// The number of sessions on all pages.
    pub(crate) total: u64,
    pub(crate) has_older: bool,
}

/// Sessions as cards: first those that wait for a person, then those that are working.
pub(crate) fn feed(chrome: Chrome, view: &FeedView) -> Markup {
    let now = Time::now();
    let groups =
        [("Waiting for you", &view.waiting), ("At work", &view.at_work), ("Ended", &view.ended)];
    let is_empty = groups.iter().all(|(_, group)| group.sessions.is_empty());
    let has_older = groups.iter().any(|(_, group)| group.has_older);
    let body = html! {
        h1 { "Sessions" }
        div #feed data-live="keyed" {
            @if is_empty && view.page <= 1 {
                div.empty #nothing {
                    p { "No session yet. Give an agent something to do, in a terminal inside a git repository:" }
                    p { code { "agent-backend task \"Describe this project\" --follow" } }
                    p { a.button href="/ui/new" { "Or start one here" } }
                }
            }
            @for (name, group) in &groups {
                @if !group.sessions.is_empty() {
                    section id={ "group-" (slug(name)) } {
                        h2 { (name) " " span.quiet { (group.total) } }
                        @for session in &group.sessions { (card(session, now)) }
                    }
                }
            }
        }
        @if has_older || view.page > 1 {
            nav.pages aria-label="Pages" {
                @if view.page > 1 { a.button href={ "/ui?page=" (view.page - 1) } { "Newer" } }
                @if has_older { a.button href={ "/ui?page=" (view.page + 1) } { "Older" } }
            }
        }
    };
    let live = Live { stream: Some("/api/v1/events".to_owned()), ..Live::default() };
    frame(chrome, "Sessions", Section::Sessions, &live, body)
}

fn slug(name: &str) -> String {
    name.to_lowercase().replace(' ', "-")
}

fn card(session: &Session, now: Time) -> Markup {
    html! {
        article.card.session id={ "session-" (session.id) } data-status=(state(session)) {
            div.head {
                a.title id={ "open-" (session.id) } href={ "/ui/sessions/" (session.id) } dir="auto" { (title(session)) }
                (pill(session))
            }
            (meta(session, now))
            @if !session.status.is_terminal() {
                ol.recent { @for event in &session.recent_events { (line(event)) } }
            } @else if let Some(detail) = session.end_detail.as_ref().filter(|_| session.status == SessionStatus::Failed) {
                p.outcome.bad { (first_line(detail)) }
            }
        }
    }
}

/// The first words of the prompt.
pub(super) fn title(session: &Session) -> String {
    beginning(&session.prompt)
}

fn beginning(prompt: &str) -> String {
    let line = first_line(prompt);
    match cut(&line, TITLE_BYTES) {
        ("", _) => "(empty prompt)".to_owned(),
        (title, 0) => title.to_owned(),
        (title, _) => format!("{}…", title.trim_end()),
    }
}

/// Whether the session waits for the decision of a person.
pub(super) fn waits(session: &Session) -> bool {
    session.status == SessionStatus::Running
        && (session.open_approvals > 0
            || session.activity == Some(SessionActivity::AwaitingApproval))
}

fn state(session: &Session) -> &'static str {
    if waits(session) { "waiting" } else { session.status.as_str() }
}

/// The status of a session as a coloured label.
pub(super) fn pill(session: &Session) -> Markup {
    let words = match (session.status, session.activity) {
        _ if waits(session) => "waiting for you",
        (SessionStatus::Running, Some(SessionActivity::Idle)) => "waiting for a prompt",
        (SessionStatus::Running, Some(SessionActivity::Delivering)) => "delivering",
        (status, _) => status.as_str(),
    };
    html! { span.pill data-status=(state(session)) { (words) } }
}

/// One line about the session: its times, agent, repository and changes.
pub(super) fn meta(session: &Session, now: Time) -> Markup {
    html! {
        div.meta {
            span { (ago(session.created_at, now)) }
            @if let Some(ended) = session.ended_at { span { "took " (took(session.created_at, ended)) } }
            span { (session.agent.kind) }
            span.mono title=(session.repo.url) { (clean(repository_name(session.repo.display_text()))) }
            @if let Some(branch) = &session.repo.branch { span.mono { (clean(branch)) } }
            @if let Some(changes) = session.changes.filter(|changes| changes.files_changed > 0) {
                span {
                    (changes.files_changed) @if changes.files_changed == 1 { " file " } @else { " files " }
                    (counts(changes.lines_added, changes.lines_removed))
                }
            }
        }
    }
}

/// The last part of a repository's URL.
fn repository_name(url: &str) -> &str {
    let trimmed = url.trim_end_matches('/');
    let name = trimmed.rsplit(['/', ':']).next().unwrap_or(trimmed);
    name.strip_suffix(".git").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_the_first_words_of_prompts() {
        let long = format!("fix {}", "é".repeat(5_000));
        for (prompt, expect) in [
            ("\n fix it\nnow", "fix it".to_owned()),
            (" ", "(empty prompt)".to_owned()),
            (long.as_str(), format!("fix {}…", "é".repeat((TITLE_BYTES - 4) / 2))),
        ] {
            assert_eq!(beginning(prompt), expect);
        }
    }

    #[test]
    fn repositories_are_named_by_their_last_part() {
        for (url, name) in [
            ("/srv/shop/", "shop"),
            ("git@host:acme/shop.git", "shop"),
            ("https://host/acme/shop.git", "shop"),
            ("shop", "shop"),
        ] {
            assert_eq!(repository_name(url), name);
        }
    }
}
