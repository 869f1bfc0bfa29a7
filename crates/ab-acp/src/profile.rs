//! The agent's answer to `initialize`.

use serde_json::Value;

use crate::failure::AcpError;

/// The protocol version that this client requests.
pub(crate) const PROTOCOL_VERSION: u64 = 1;

/// The name of an agent and the features that it supports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentCapabilities {
    pub name: Option<String>,
    pub title: Option<String>,
    pub version: Option<String>,
    /// Whether the agent supports `session/load`: it can reopen a session and sends its history
    /// again.
    pub loads_sessions: bool,
    /// Whether the agent supports `session/resume`: it can reopen a session without sending its
    /// history.
    pub resumes_sessions: bool,
    /// Whether the agent supports `session/close`.
    pub closes_sessions: bool,
    /// Whether the client may offer MCP servers over HTTP. Every agent supports stdio.
    pub mcp_http: bool,
    /// Whether the client may offer MCP servers over server-sent events.
    pub mcp_sse: bool,
    /// Whether a prompt may contain images.
    pub images: bool,
    /// Whether a prompt may contain the content of files.
    pub embedded_context: bool,
    pub auth_methods: Vec<AuthMethod>,
}

/// A way to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthMethod {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
}

impl AgentCapabilities {
    /// Parses an answer to `initialize`. Checks the shape of the answer and not its version number.
    /// Some agents repeat any number that the client sends and still answer in the shape of version
    /// 1.
    pub(crate) fn parse(answer: &Value) -> Result<AgentCapabilities, AcpError> {
        let bad =
            |reason: String| AcpError::InvalidResponse { method: "initialize".into(), reason };
        let Some(object) = answer.as_object() else {
            return Err(bad("it is not an object".to_owned()));
        };
        if !object.contains_key("agentCapabilities") && object.contains_key("capabilities") {
            let version = &answer["protocolVersion"];
            let reason = format!(
                "it has the shape of another protocol version ({version}); this client speaks \
                 version {PROTOCOL_VERSION}"
            );
            return Err(bad(reason));
        }
        let known = ["protocolVersion", "agentCapabilities", "agentInfo", "authMethods"];
        if !known.iter().any(|key| object.contains_key(*key)) {
            return Err(bad("it has neither a protocol version nor capabilities".to_owned()));
        }
        let capabilities = &answer["agentCapabilities"];
        let sessions = &capabilities["sessionCapabilities"];
        let flag = |value: &Value| value.as_bool().unwrap_or_default();
        // A session capability is an object. `null` and `false` mean that it is not supported.
        let offered = |value: &Value| value.is_object() || flag(value);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let info = &answer["agentInfo"];
        let methods = answer["authMethods"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(AgentCapabilities {
            name: text(&info["name"]),
            title: text(&info["title"]),
            version: text(&info["version"]),
            loads_sessions: flag(&capabilities["loadSession"]),
            resumes_sessions: offered(&sessions["resume"]),
            closes_sessions: offered(&sessions["close"]),
            mcp_http: flag(&capabilities["mcpCapabilities"]["http"]),
            mcp_sse: flag(&capabilities["mcpCapabilities"]["sse"]),
            images: flag(&capabilities["promptCapabilities"]["image"]),
            embedded_context: flag(&capabilities["promptCapabilities"]["embeddedContext"]),
            auth_methods: methods.iter().filter_map(AuthMethod::parse).collect(),
        })
    }
}

impl AuthMethod {
    fn parse(value: &Value) -> Option<AuthMethod> {
        let id = value["id"].as_str()?.to_owned();
        let name = value["name"].as_str().unwrap_or(&id).to_owned();
        let description = value["description"].as_str().map(str::to_owned);
        Some(AuthMethod { id, name, description })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shape_decides_about_the_version() {
        // goose echoes the version number of the request.
        let goose = json!({ "protocolVersion": 2, "agentCapabilities": { "loadSession": true } });
        assert!(AgentCapabilities::parse(&goose).unwrap().loads_sessions);
        let second = json!({ "protocolVersion": 2, "info": {}, "capabilities": {} });
        let error = AgentCapabilities::parse(&second).unwrap_err().to_string();
        assert!(error.contains("another protocol version (2)"), "{error}");
        for answer in [json!({}), json!(null), json!("ok"), json!({ "x": 1 })] {
            AgentCapabilities::parse(&answer).unwrap_err();
        }
    }

    #[test]
    fn missing_members_mean_no() {
        let profile = AgentCapabilities::parse(&json!({ "protocolVersion": 1 })).unwrap();
        assert_eq!(profile, AgentCapabilities::default());
    }

    #[test]
    fn all_members_are_read() {
        let profile = AgentCapabilities::parse(&json!({
            "protocolVersion": 1,
            "agentInfo": { "name": "a", "title": "A", "version": "1.2" },
            "agentCapabilities": {
                "loadSession": true,
                "mcpCapabilities": { "http": true },
                "promptCapabilities": { "image": true, "embeddedContext": true },
                "sessionCapabilities": { "resume": {}, "close": null },
            },
            "authMethods": [{ "id": "key", "name": "API key" }, { "name": "no id" }],
        }))
        .unwrap();
        assert!(profile.loads_sessions && profile.resumes_sessions && !profile.closes_sessions);
        assert!(profile.mcp_http && profile.images && profile.embedded_context);
        assert_eq!(profile.name.as_deref(), Some("a"));
        assert_eq!(profile.auth_methods.len(), 1);
    }
}
