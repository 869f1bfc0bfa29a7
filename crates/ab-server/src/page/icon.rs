//! Inline icons, because the content security policy allows no images from other sites.

use maud::{Markup, PreEscaped, html};

/// The meaning of an icon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Icon {
    Message,
    Thought,
    Prompt,
    Tool,
    Edit,
    Question,
    Yes,
    No,
    Dot,
    Branch,
    Plus,
}

/// Draws an icon in the colour of the surrounding text. The text must state the meaning too.
pub(super) fn icon(icon: Icon) -> Markup {
    let path = match icon {
        Icon::Message => "M3 4h10M3 8h10M3 12h6",
        Icon::Thought => "M8 3.2a4.8 4.8 0 1 1 0 9.6 4.8 4.8 0 0 1 0-9.6M6 8h.01M8 8h.01M10 8h.01",
        Icon::Prompt => "M3 4l4 4-4 4M9 12h4",
        Icon::Tool => "M2.5 3.5h11v9h-11zM5 6.5 6.8 8 5 9.5M8.5 10H11",
        Icon::Edit => "M3 13l.6-2.8L10.8 3l2.2 2.2-7.2 7.2zM9.4 4.4l2.2 2.2",
        Icon::Question => "M6 6a2 2 0 1 1 2.8 1.9c-.6.3-.8.7-.8 1.4M8 12h.01",
        Icon::Yes => "M3.5 8.5l3 3 6-7",
        Icon::No => "M4.5 4.5l7 7m0-7l-7 7",
        Icon::Dot => "M8 8h.01",
        Icon::Branch => "M5 3v10M5 10c0-3 6-1.5 6-5M11 5V3.5",
        Icon::Plus => "M8 3v10M3 8h10",
    };
    html! {
        svg.icon viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" { (PreEscaped(format!("<path d=\"{path}\"/>"))) }
    }
}
