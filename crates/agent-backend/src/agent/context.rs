//! What a factory is told about the session that it makes a backend for.

use std::fmt;
use std::sync::Arc;

use ab_core::error::escape_unprintable;
use ab_core::{Error, ErrorCode, ErrorKind, Principal, Result};
use serde_json::Value;

/// Bytes of the longest [`AgentSessionId`].
pub const MAX_AGENT_SESSION_ID_BYTES: usize = 64;

/// Names a session of an agent: 1 to [`MAX_AGENT_SESSION_ID_BYTES`] ASCII letters, digits, `.`, `_` or `-`, of which the
/// first is a letter or a digit. So it is the name of one directory, wherever that is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentSessionId(Arc<str>);

impl AgentSessionId {
    /// # Errors
    /// [`ErrorKind::Invalid`] for a text that is not such a name.
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

    /// An id that no other session has.
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

/// A session as factories and providers see it.
#[derive(Clone, Debug)]
pub struct SessionContext {
    pub session_id: AgentSessionId,
    /// The state of the conversation that the session goes on from.
    pub snapshot_id: Option<String>,
    /// Who acts in the session.
    pub principal: Principal,
    /// The session that started this one as its sub-agent.
    pub parent: Option<AgentSessionId>,
    /// What the caller gave along. Null unless it gave something.
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
