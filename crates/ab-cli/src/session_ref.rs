//! A reference to a session in an argument: its id, or a prefix of the id.

use std::fmt;
use std::str::FromStr;

use ab_api::SessionId;
use agent_backend::ServeClient;
use agent_backend::serve_client::SessionQuery;

use crate::failure::Failure;

/// Minimum length of a prefix. A shorter prefix would match too many sessions.
pub(crate) const SHORTEST: usize = 4;
const LONGEST: usize = 26;
pub(crate) const PER_PAGE: u32 = 200;
/// Maximum number of pages of sessions that are searched, newest sessions first.
pub(crate) const MOST_PAGES: u32 = 50;
/// Maximum number of sessions that the error for an ambiguous prefix lists.
pub(crate) const NAMED: usize = 5;

/// The id of a session, or a prefix of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRef(String);

/// Converts an id, or a prefix of an id, to upper case. `None` if `text` is neither.
pub(crate) fn id_prefix(text: &str) -> Option<String> {
    let text = text.to_ascii_uppercase();
    // The characters that a ULID can contain.
    let is_digit = |c: char| c.is_ascii_alphanumeric() && !"ILOU".contains(c);
    let is_prefix = (SHORTEST..=LONGEST).contains(&text.len()) && text.chars().all(is_digit);
    is_prefix.then_some(text)
}

/// The error for a text that is neither an id nor a prefix of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidReference {
    /// What the text should refer to, such as `session`.
    pub(crate) kind: &'static str,
    is_short: bool,
}

impl InvalidReference {
    pub(crate) fn new(kind: &'static str, text: &str) -> InvalidReference {
        InvalidReference { kind, is_short: text.len() < SHORTEST }
    }
}

impl fmt::Display for InvalidReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidReference { kind, is_short } = self;
        let article = if kind.starts_with('a') { "an" } else { "a" };
        if *is_short {
            return write!(
                f,
                "at least {SHORTEST} characters of the ID of {article} {kind} are needed"
            );
        }
        write!(f, "this is not the ID of {article} {kind} or its first characters")
    }
}

impl std::error::Error for InvalidReference {}

impl FromStr for SessionRef {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<SessionRef, InvalidReference> {
        id_prefix(text).map(SessionRef).ok_or_else(|| InvalidReference::new("session", text))
    }
}

impl SessionRef {
    /// Finds the session.
    ///
    /// # Errors
    ///
    /// A usage error unless exactly one session has this prefix. Also fails if the server cannot be
    /// reached.
    pub(crate) async fn find(&self, client: &ServeClient) -> Result<SessionId, Failure> {
        let SessionRef(text) = self;
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let mut found = Vec::new();
        let mut page = Some(1);
        while let Some(number) = page.filter(|number| *number <= MOST_PAGES) {
            let query = SessionQuery {
                page: Some(number),
                per_page: Some(PER_PAGE),
                ..SessionQuery::default()
            };
            let answer = client.sessions(&query).await?;
            let ids = answer.items.iter().map(|session| session.id);
            found.extend(ids.filter(|id| id.to_string().starts_with(text.as_str())));
            page = answer.next_page;
        }
        match found.as_slice() {
            [id] => Ok(*id),
            [] => Err(Failure::usage(format!("no session ID starts with '{text}'"))
                .with_hint("list all sessions: agent-backend session list")),
            several => {
                let names: Vec<String> =
                    several.iter().take(NAMED).map(ToString::to_string).collect();
                let count = several.len();
                Err(Failure::usage(format!(
                    "{count} session IDs start with '{text}': {}",
                    names.join(", ")
                ))
                .with_hint("type more of the ID"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_their_beginnings_are_references() {
        assert_eq!("01kx".parse(), Ok(SessionRef("01KX".to_owned())));
        assert!(SessionId::generate().to_string().parse::<SessionRef>().is_ok());
        for text in ["", "01k", "../etc", "01kx%", "nonsense", &"0".repeat(27)] {
            assert!(text.parse::<SessionRef>().is_err(), "{text}");
        }
    }
}
