//! The agent configuration of a directory: MCP servers and skills, by name, in JSON files below it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// The path of the file with the MCP servers, relative to the directory.
pub const MCP_CONFIG_FILE: &str = ".sandbox-agent/config/mcp.json";
/// The path of the file with the skills, relative to the directory.
pub const SKILLS_CONFIG_FILE: &str = ".sandbox-agent/config/skills.json";
/// Maximum size of each of these files in bytes.
pub const MAX_CONFIG_FILE_BYTES: u64 = 1024 * 1024;

/// An MCP server
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type")]
pub enum McpServerConfig {
    /// A program that speaks MCP over standard input and output
    #[serde(rename = "local", alias = "stdio", rename_all = "camelCase")]
    Local {
        command: CommandWords,
        #[serde(default)]
        args: Vec<String>,
        #[serde(default, alias = "environment", skip_serializing_if = "Option::is_none")]
        env: Option<BTreeMap<String, String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enabled: Option<bool>,
        #[serde(default, alias = "timeout", skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    },
    /// A server that is used over HTTP
    #[serde(rename = "remote", alias = "http", rename_all = "camelCase")]
    Remote {
        url: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        headers: Option<BTreeMap<String, String>>,
        #[serde(default, alias = "bearer_token_env_var", skip_serializing_if = "Option::is_none")]
        bearer_token_env_var: Option<String>,
        #[serde(
            default,
            alias = "envHttpHeaders",
            alias = "env_http_headers",
            skip_serializing_if = "Option::is_none"
        )]
        env_headers: Option<BTreeMap<String, String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oauth: Option<OAuth>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enabled: Option<bool>,
        #[serde(default, alias = "timeout", skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        transport: Option<RemoteTransport>,
    },
}

/// A program, or a program with arguments
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum CommandWords {
    One(String),
    Many(Vec<String>),
}

/// How to log in to a remote server; `false` for no login
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum OAuth {
    Client(OAuthClient),
    #[schema(value_type = bool)]
    Off(#[serde(deserialize_with = "only_false")] bool),
}

/// An OAuth client
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OAuthClient {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// The transport to a remote server
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemoteTransport {
    #[default]
    Http,
    Sse,
}

fn only_false<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    if bool::deserialize(deserializer)? {
        return Err(serde::de::Error::custom("oauth is an object or false"));
    }
    Ok(false)
}

impl CommandWords {
    /// The program and its first arguments, as a list.
    pub fn words(&self) -> &[String] {
        match self {
            CommandWords::One(word) => std::slice::from_ref(word),
            CommandWords::Many(words) => words,
        }
    }
}

impl McpServerConfig {
    /// Checks rules that the types cannot express.
    ///
    /// # Errors
    ///
    /// Returns a message that names the invalid field.
    pub fn check(&self) -> Result<(), String> {
        let (field, text) = match self {
            McpServerConfig::Local { command, .. } => ("command", command.words().first()),
            McpServerConfig::Remote { url, .. } => ("url", Some(url)),
        };
        match text {
            Some(text) if !text.trim().is_empty() => Ok(()),
            Some(_) | None => Err(format!("invalid {field}: must not be empty")),
        }
    }

    /// Whether agents should use this server.
    pub fn is_enabled(&self) -> bool {
        let (McpServerConfig::Local { enabled, .. } | McpServerConfig::Remote { enabled, .. }) =
            self;
        enabled.unwrap_or(true)
    }
}

/// Where skills come from
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillsConfig {
    pub sources: Vec<SkillSource>,
}

/// One source of skills
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillSource {
    /// `github`, `local` or `git`
    #[serde(rename = "type")]
    pub kind: String,
    /// `owner/repo`, a path, or the URL of a repository
    pub source: String,
    /// Only these skills of the source
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// A branch, tag or commit
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// A directory in the repository
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Converts an entry to the form that is stored. Fails with a message if the entry is invalid.
    fn stored(entry: Value) -> Result<Value, String> {
        let parsed: McpServerConfig =
            serde_json::from_value(entry).map_err(|error| error.to_string())?;
        parsed.check()?;
        Ok(serde_json::to_value(parsed).unwrap())
    }

    #[test]
    fn entries_are_stored_under_their_normal_names() {
        for (given, expect) in [
            (
                json!({ "type": "stdio", "command": "npx", "environment": { "A": "1" }, "timeout": 5 }),
                json!({ "type": "local", "command": "npx", "args": [], "env": { "A": "1" }, "timeoutMs": 5 }),
            ),
            (
                json!({ "type": "local", "command": ["a", "b"], "enabled": false, "cwd": "x", "other": 1 }),
                json!({ "type": "local", "command": ["a", "b"], "args": [], "enabled": false, "cwd": "x" }),
            ),
            (
                json!({ "type": "http", "url": "u", "bearer_token_env_var": "T", "env_http_headers": { "H": "V" },
                        "oauth": false, "transport": "sse" }),
                json!({ "type": "remote", "url": "u", "bearerTokenEnvVar": "T", "envHeaders": { "H": "V" },
                        "oauth": false, "transport": "sse" }),
            ),
            (
                json!({ "type": "remote", "url": "u", "oauth": { "clientId": "c" }, "headers": {} }),
                json!({ "type": "remote", "url": "u", "headers": {}, "oauth": { "clientId": "c" } }),
            ),
        ] {
            assert_eq!(stored(given.clone()), Ok(expect), "{given}");
        }
    }

    #[test]
    fn other_entries_are_refused() {
        for entry in [
            json!({}),
            json!({ "type": "sse", "url": "u" }),
            json!({ "type": "local" }),
            json!({ "type": "local", "command": 7 }),
            json!({ "type": "local", "command": [] }),
            json!({ "type": "remote" }),
            json!({ "type": "remote", "url": " " }),
            json!({ "type": "remote", "url": "u", "oauth": true }),
            json!({ "type": "remote", "url": "u", "transport": "ws" }),
        ] {
            assert!(stored(entry.clone()).is_err(), "{entry}");
        }
    }
}
