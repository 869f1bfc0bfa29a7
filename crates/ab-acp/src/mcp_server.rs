//! MCP servers that are offered to an agent when a session opens.

use std::fmt;

use serde_json::{Value, json};

/// An MCP server that an agent can use.
#[derive(Clone, PartialEq, Eq)]
pub enum McpServer {
    /// A server over HTTP. Only for agents whose capabilities include `mcp_http`.
    Http { name: String, url: String, headers: Vec<(String, String)> },
    /// A server over server-sent events. Only for agents whose capabilities include `mcp_sse`.
    Sse { name: String, url: String, headers: Vec<(String, String)> },
    /// A program that the agent starts. Every agent supports this.
    Stdio { name: String, command: String, args: Vec<String>, env: Vec<(String, String)> },
}

impl McpServer {
    pub(crate) fn to_json(&self) -> Value {
        let pairs = |pairs: &[(String, String)]| -> Value {
            pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
        };
        match self {
            McpServer::Http { name, url, headers } => {
                json!({ "type": "http", "name": name, "url": url, "headers": pairs(headers) })
            }
            McpServer::Sse { name, url, headers } => {
                json!({ "type": "sse", "name": name, "url": url, "headers": pairs(headers) })
            }
            McpServer::Stdio { name, command, args, env } => {
                json!({ "name": name, "command": command, "args": args, "env": pairs(env) })
            }
        }
    }

    /// Parses an MCP server that a client offers. `None` if its kind is not supported.
    pub(crate) fn parse(value: &Value) -> Option<McpServer> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let pairs = |key: &str| -> Vec<(String, String)> {
            let pair = |value: &Value| {
                Some((value["name"].as_str()?.to_owned(), value["value"].as_str()?.to_owned()))
            };
            value[key].as_array().into_iter().flatten().filter_map(pair).collect()
        };
        let name = text("name")?;
        match value["type"].as_str() {
            Some("http") => {
                Some(McpServer::Http { name, url: text("url")?, headers: pairs("headers") })
            }
            None | Some("stdio") => {
                let args = value["args"].as_array().into_iter().flatten();
                let args = args.filter_map(Value::as_str).map(str::to_owned).collect();
                Some(McpServer::Stdio { name, command: text("command")?, args, env: pairs("env") })
            }
            Some(_) => None,
        }
    }
}

/// Values of headers and variables are not printed, because they contain tokens.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |pairs: &[(String, String)]| -> Vec<String> {
            pairs.iter().map(|(name, _)| name.clone()).collect()
        };
        match self {
            McpServer::Http { name, url, headers } | McpServer::Sse { name, url, headers } => f
                .debug_struct(if matches!(self, McpServer::Sse { .. }) { "Sse" } else { "Http" })
                .field("name", name)
                .field("url", url)
                .field("headers", &names(headers))
                .finish(),
            McpServer::Stdio { name, command, args, env } => f
                .debug_struct("Stdio")
                .field("name", name)
                .field("command", command)
                .field("args", args)
                .field("env", &names(env))
                .finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn both_kinds_round_trip() {
        let (name, url) = ("ws".to_owned(), "http://127.0.0.1:1/mcp".to_owned());
        let http =
            McpServer::Http { name: name.clone(), url, headers: pair("authorization", "s3cret") };
        let (command, args) = ("/bin/x".to_owned(), vec!["a".to_owned()]);
        let stdio = McpServer::Stdio { name, command, args, env: pair("TOKEN", "s3cret") };
        for server in [http, stdio] {
            assert_eq!(McpServer::parse(&server.to_json()), Some(server.clone()));
            assert!(!format!("{server:?}").contains("s3cret"));
        }
        assert_eq!(McpServer::parse(&json!({ "type": "sse", "name": "x", "url": "y" })), None);
    }
}
