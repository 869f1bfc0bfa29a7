//! The description of a session that its backend factory receives.

use std::fmt;
use std::sync::Arc;

use ab_core::error::escape_unprintable;
use ab_core::{Error, ErrorCode, ErrorKind, Principal, Result};
use serde_json::Value;

/// Maximum length of an [`AgentSessionId`] in bytes.
pub const MAX_AGENT_SESSION_ID_BYTES: usize = 64;

/// The id of an agent's session: 1 to [`MAX_AGENT_SESSION_ID_BYTES`] ASCII letters, digits, `.`,
/// `_` or `-`, starting with a letter or a digit. Such an id is always a valid name of one
/// directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentSessionId(Arc<str>);

impl AgentSessionId {
    /// Parses an id.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the text is not a valid id.
    pub fn parse(text: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || text.len() > MAX_AGENT_SESSION_ID_BYTES || !text.chars().all(plain) {
            let message = format!(
                "invalid session id \"{}\": must be 1 to {MAX_AGENT_SESSION_ID_BYTES} ASCII letters, digits, '.', '_' \
                 or '-', and begin with a letter or a digit",
                escape_unprintable(&text.chars().take(100).collect::<String>())
            );
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
        }
        Ok(Self(Arc::from(text)))
    }

    /// Generates a new unique id.
    pub fn generate() -> Self {
        Self(Arc::from(ab_api::SessionId::generate().to_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The description of a session that factories and providers receive.
#[derive(Clone, Debug)]
pub struct SessionContext {
    pub session_id: AgentSessionId,
    /// The stored state of the conversation that the session continues.
    pub snapshot_id: Option<String>,
    /// The principal of the session.
    pub principal: Principal,
    /// The session that started this session as its sub-agent.
    pub parent: Option<AgentSessionId>,
    /// Any value from the caller. Null by default.
    pub context: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_name_of_one_directory() {
        for text in ["a", "01M7P7Z3QS", "user-7.chat_2", AgentSessionId::generate().as_str()] {
            assert_eq!(AgentSessionId::parse(text).unwrap().as_str(), text);
        }
        let long = "x".repeat(MAX_AGENT_SESSION_ID_BYTES + 1);
        for text in ["", ".", "..", ".hidden", "-rf", "a/b", "a\\b", "a b", "C:", "ä", &long] {
            assert_eq!(AgentSessionId::parse(text).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
