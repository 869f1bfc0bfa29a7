//! The list of sessions.

use ab_api::{Activity, Session, SessionStatus};
use maud::{Markup, html};

use super::events;
use super::layout::{Chrome, Live, Section, frame};

/// The newest sessions as cards.
pub(crate) fn feed(chrome: Chrome, sessions: &[Session]) -> Markup {
    let body = html! {
        h1 { "Sessions" }
        p.meta { span #live .live aria-hidden="true" {} }
        div #feed {
            @if sessions.is_empty() {
                div.card.empty {
                    p { "No session yet. Give an agent something to do:" }
                    p { code { "ah task \"describe the change\" --follow" } }
                    p { "or " a href="/ui/new" { "start one here" } "." }
                }
            }
            @for session in sessions { (card(session)) }
        }
    };
    let live = Live { feed: true, ..Live::default() };
    frame(chrome, "Sessions", Section::Sessions, &live, body)
}

fn card(session: &Session) -> Markup {
    html! {
        article.card id={ "session-" (session.id) } {
            div.head {
                a.title href={ "/ui/sessions/" (session.id) } { (first_line(&session.prompt)) }
                (pill(session))
            }
            (meta(session))
            ul.rows { @for event in &session.recent_events { (events::line(event)) } }
        }
    }
}

/// The status of a session as a coloured label.
pub(super) fn pill(session: &Session) -> Markup {
    let waits = session.status == SessionStatus::Running
        && (session.open_approvals > 0 || session.activity == Some(Activity::AwaitingApproval));
    html! {
        @if waits { span #status .pill data-status="waiting" { "waiting for you" } }
        @else { span #status .pill data-status=(session.status) { (session.status) } }
    }
}

/// What a session works on, in one line.
pub(super) fn meta(session: &Session) -> Markup {
    let created = session.created_at.to_string();
    html! {
        div.meta {
            span { (session.agent.kind) }
            span.mono { (repository_name(&session.repo.url)) }
            @if let Some(branch) = &session.repo.branch { span.mono { (branch) } }
            @if let Some(changes) = &session.changes {
                span {
                    (changes.files_changed) @if changes.files_changed == 1 { " file" } @else { " files" }
                    (events::counts(changes.lines_added, changes.lines_removed))
                }
            }
            time datetime=(created) { (created) }
        }
    }
}

pub(super) fn first_line(prompt: &str) -> &str {
    prompt.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(empty prompt)")
}

/// The last part of a repository's address.
pub(super) fn repository_name(url: &str) -> &str {
    let trimmed = url.trim_end_matches('/');
    let name = trimmed.rsplit(['/', ':']).next().unwrap_or(trimmed);
    name.strip_suffix(".git").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn cards_show_the_first_line_with_words() {
        assert_eq!(first_line("\n  fix it\nnow"), "fix it");
        assert_eq!(first_line(" \n"), "(empty prompt)");
    }
}
