//! MCP servers of a directory.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{ConfigFile, ConfigProblems, EntryKind};
use crate::app::HttpApp;
use crate::extract::{JsonBody, QueryParams};
use crate::problem::{Problem, ProblemKind};

/// An MCP server
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type")]
pub(crate) enum McpServerConfig {
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
    /// A server that is reached by HTTP
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
pub(crate) enum CommandWords {
    One(String),
    Many(Vec<String>),
}

/// How a remote server is logged in to; `false` for not at all
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum OAuth {
    Client(OAuthClient),
    #[schema(value_type = bool)]
    Off(#[serde(deserialize_with = "only_false")] bool),
}

/// A client of OAuth
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OAuthClient {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

/// How a remote server is spoken to
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RemoteTransport {
    Http,
    Sse,
}

fn only_false<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    if bool::deserialize(deserializer)? {
        return Err(serde::de::Error::custom("oauth is an object or false"));
    }
    Ok(false)
}

impl McpServerConfig {
    /// Checks what types cannot say.
    fn check(&self) -> Result<(), Problem> {
        let empty = |field: &str| {
            Err(Problem::new(ProblemKind::Invalid, format!("invalid {field}: must not be empty")))
        };
        let is_blank = |text: &str| text.trim().is_empty();
        match self {
            McpServerConfig::Local { command: CommandWords::One(word), .. } if is_blank(word) => {
                empty("command")
            }
            McpServerConfig::Local { command: CommandWords::Many(words), .. }
                if words.first().is_none_or(|word| is_blank(word)) =>
            {
                empty("command")
            }
            McpServerConfig::Remote { url, .. } if is_blank(url) => empty("url"),
            McpServerConfig::Local { .. } | McpServerConfig::Remote { .. } => Ok(()),
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub(crate) struct McpConfigQuery {
    /// In the served root; required
    directory: Option<String>,
    /// The name of the server; required. `mcp_name` is the same
    #[serde(alias = "mcp_name")]
    mcp_name: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct McpEntriesQuery {
    /// In the served root; required
    directory: Option<String>,
}

/// All MCP servers of a directory
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct McpEntries {
    /// By name
    entries: BTreeMap<String, McpServerConfig>,
}

/// Read an MCP server of a directory
#[utoipa::path(
    get,
    path = "/v1/config/mcp",
    tag = "config",
    params(McpConfigQuery),
    responses((status = OK, body = McpServerConfig), ConfigProblems)
)]
pub(crate) async fn read_mcp(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<McpConfigQuery>,
) -> Result<Json<McpServerConfig>, Problem> {
    let file = ConfigFile::find(&app, EntryKind::Mcp, query.directory.as_deref()).await?;
    file.read(query.mcp_name.as_deref()).await.map(Json)
}

/// Store an MCP server of a directory
#[utoipa::path(
    put,
    path = "/v1/config/mcp",
    tag = "config",
    params(McpConfigQuery),
    request_body = McpServerConfig,
    responses((status = NO_CONTENT, description = "It is stored"), ConfigProblems)
)]
pub(crate) async fn write_mcp(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<McpConfigQuery>,
    JsonBody(entry): JsonBody<McpServerConfig>,
) -> Result<StatusCode, Problem> {
    let file = ConfigFile::find(&app, EntryKind::Mcp, query.directory.as_deref()).await?;
    entry.check()?;
    file.write(query.mcp_name.as_deref(), &entry).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete an MCP server of a directory
#[utoipa::path(
    delete,
    path = "/v1/config/mcp",
    tag = "config",
    params(McpConfigQuery),
    responses((status = NO_CONTENT, description = "There is no such entry any more"), ConfigProblems)
)]
pub(crate) async fn delete_mcp(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<McpConfigQuery>,
) -> Result<StatusCode, Problem> {
    let file = ConfigFile::find(&app, EntryKind::Mcp, query.directory.as_deref()).await?;
    file.delete(query.mcp_name.as_deref()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the MCP servers of a directory
#[utoipa::path(
    get,
    path = "/v1/config/mcp/entries",
    tag = "config",
    params(McpEntriesQuery),
    responses((status = OK, body = McpEntries), ConfigProblems)
)]
pub(crate) async fn list_mcp(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<McpEntriesQuery>,
) -> Result<Json<McpEntries>, Problem> {
    let file = ConfigFile::find(&app, EntryKind::Mcp, query.directory.as_deref()).await?;
    Ok(Json(McpEntries { entries: file.list().await? }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An entry as it is stored; the error for one that is refused.
    fn stored(entry: Value) -> Result<Value, String> {
        let parsed: McpServerConfig =
            serde_json::from_value(entry).map_err(|error| error.to_string())?;
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
            json!({ "type": "remote" }),
            json!({ "type": "remote", "url": "u", "oauth": true }),
            json!({ "type": "remote", "url": "u", "transport": "ws" }),
        ] {
            assert!(stored(entry.clone()).is_err(), "{entry}");
        }
        let blank = McpServerConfig::Remote {
            url: " ".to_owned(),
            headers: None,
            bearer_token_env_var: None,
            env_headers: None,
            oauth: None,
            enabled: None,
            timeout_ms: None,
            transport: None,
        };
        assert!(blank.check().is_err());
    }
}
