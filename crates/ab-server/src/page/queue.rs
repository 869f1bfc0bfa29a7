//! The queued prompts on the page of a session.

use ab_api::{SessionId, SessionPrompt};
use maud::{Markup, html};

use super::text::clean;

/// Renders a queued prompt with its forms. The elements have ids, so that text which a reader is
/// typing survives an update of the page.
pub(super) fn queued(session: SessionId, prompt: &SessionPrompt) -> Markup {
    let SessionPrompt { number, prompt: text, .. } = prompt;
    let path = format!("/ui/sessions/{session}/prompts/{number}");
    html! {
        div.card.queued id={ "queued-" (number) } {
            p.small.quiet { "Queued" }
            pre.wrap dir="auto" { (clean(text)) }
            details id={ "edit-queued-" (number) } {
                summary { "Change" }
                form.act method="post" action={ (path) "/edit" } {
                    label { "New text" textarea id={ "queued-text-" (number) } name="prompt" rows="3" required { (text) } }
                    div.actions {
                        button id={ "save-queued-" (number) } type="submit" data-busy="Saving…" { "Save" }
                        span.said role="status" {}
                    }
                }
            }
            form.act method="post" action={ (path) "/withdraw" } {
                div.actions {
                    button id={ "withdraw-queued-" (number) } type="submit" data-busy="Withdrawing…" { "Withdraw" }
                    span.said role="status" {}
                }
            }
        }
    }
}
