//! Describes an HTTP response that was received instead of a protocol upgrade, so that the user can
//! find the proxy or program that sent it.

/// Number of bytes of a body that are examined.
pub(super) const LOOKED_AT: usize = 4096;
/// Number of characters of a body that an error quotes.
const QUOTED: usize = 120;
/// Number of characters of the content type that an error quotes.
const TYPE: usize = 60;

/// A hint with the most likely causes.
pub(super) const HINT: &str = "the server sent a web page: check for a proxy or a captive portal, and that the path of the URL is /ssh";

/// The same hint for the response of a proxy.
pub(super) const PROXY_HINT: &str =
    "the proxy sent a web page: it may refuse the connection, or be a captive portal";

/// An HTTP response received instead of a protocol upgrade.
pub(super) struct Page<'a> {
    pub(super) status: u16,
    /// The value of the `Content-Type` header, if present.
    pub(super) content_type: Option<&'a [u8]>,
    /// The start of the body, as far as it was received.
    pub(super) body: &'a [u8],
}

impl Page<'_> {
    /// Whether the response is an HTML page.
    pub(super) fn is_html(&self) -> bool {
        let start = self.text().to_ascii_lowercase();
        self.kind().is_some_and(|kind| kind.contains("html"))
            || start.contains("<html")
            || start.contains("<!doctype")
    }

    /// Describes who sent the response, what was expected, and how the page begins. Omits the quote
    /// of the page if the quote contains one of `secrets`.
    pub(super) fn describe<'s>(
        &self,
        who: &str,
        instead: &str,
        mut secrets: impl Iterator<Item = &'s str>,
    ) -> String {
        let mut said = format!("{who} answered HTTP {}", self.status);
        match (self.kind(), self.is_html()) {
            (Some(kind), _) => said.push_str(&format!(" with {kind}")),
            (None, true) => said.push_str(" with a page"),
            (None, false) => {}
        }
        said.push_str(&format!(" instead of {instead}"));
        let gist = self.gist();
        let tells = secrets.any(|secret| !secret.is_empty() && gist.contains(secret));
        if !gist.is_empty() && !tells {
            said.push_str(&format!(": '{gist}'"));
        }
        said
    }

    fn kind(&self) -> Option<String> {
        let text = String::from_utf8_lossy(self.content_type?);
        let kind = tidy(text.split(';').next().unwrap_or_default(), TYPE);
        Some(kind).filter(|kind| !kind.is_empty())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(LOOKED_AT)]).into_owned()
    }

    /// The title of the page, or otherwise the beginning of its text.
    fn gist(&self) -> String {
        let text = self.text();
        match title(&text) {
            Some(title) => tidy(title, QUOTED),
            None => tidy(&without_tags(&text), QUOTED),
        }
    }
}

fn title(text: &str) -> Option<&str> {
    // The conversion changes only ASCII letters, so offsets are the same in both strings.
    let lower = text.to_ascii_lowercase();
    let tag = lower.find("<title")?;
    let start = tag + lower[tag..].find('>')? + 1;
    let end = lower[start..].find("</title").map_or(text.len(), |end| start + end);
    Some(&text[start..end]).filter(|title| !title.trim().is_empty())
}

fn without_tags(text: &str) -> String {
    let mut inside = false;
    let outside = |letter: char| match letter {
        '<' => {
            inside = true;
            ' '
        }
        '>' if inside => {
            inside = false;
            ' '
        }
        _ if inside => ' ',
        letter => letter,
    };
    text.chars().map(outside).collect()
}

/// Shortens a text to at most `most` characters on one line, without control characters.
fn tidy(text: &str, most: usize) -> String {
    let visible = |letter: char| match letter {
        // Characters that are invisible or change the direction of text.
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => ' ',
        '\u{feff}' | '\u{fffd}' => ' ',
        letter if letter.is_control() => ' ',
        letter => letter,
    };
    let plain: String = text.chars().map(visible).collect();
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(content_type: Option<&str>, body: &[u8]) -> String {
        let content_type = content_type.map(str::as_bytes);
        let page = Page { status: 200, content_type, body };
        page.describe("box:80", "upgrading", ["hunter2"].into_iter())
    }

    #[test]
    fn a_page_is_named_and_quoted() {
        for (content_type, body, expect) in [
            (None, "", ""),
            (Some("text/html; charset=utf-8"), "", " with text/html"),
            (Some("text/html"), "<TITLE a=b>Log\n in</title><p>x", " with text/html: 'Log in'"),
            (None, "<!doctype html><h1>Hi</h1><p>there", " with a page: 'Hi there'"),
            (None, "<html><title></title>So", " with a page: 'So'"),
            (Some("text/plain"), "no\x1b[31m\u{202e}\0 way", " with text/plain: 'no [31m way'"),
            (Some("text/plain"), "you sent hunter2", " with text/plain"),
            (Some("\u{1b}[0m"), "", " with [0m"),
        ] {
            let (kind, gist) = expect
                .split_once(':')
                .map_or((expect, String::new()), |(a, b)| (a, format!(":{b}")));
            let expect = format!("box:80 answered HTTP 200{kind} instead of upgrading{gist}");
            assert_eq!(said(content_type, body.as_bytes()), expect);
        }
    }

    #[test]
    fn what_is_quoted_is_bounded() {
        let body = format!("<title>{}", "é".repeat(100_000));
        let said = said(Some(&"x".repeat(5000)), body.as_bytes());
        assert!(said.chars().count() < 300, "{said}");
        assert!(said.ends_with("é…'"), "{said}");
        // One body is truncated in the middle of a character, and one is not text.
        let mut odd = vec![b'a'; LOOKED_AT - 1];
        odd.extend("é".bytes());
        self::said(None, &odd);
        self::said(None, &[0xff; 9000]);
    }
}
