//! Applies the configuration of a session's source directory: MCP servers, which the agent starts
//! inside the sandbox, and skills, which are copied into the session's home.
//!
//! The configuration may come from a repository. So it is trusted no more than the files of the
//! workspace. It cannot refer to files outside of its directory or to variables that the agent does
//! not have.

use std::collections::BTreeMap;
use std::path::Path;

use ab_acp::agent_readiness::AgentReadyToLaunch;
use ab_acp::{AgentCapabilities, McpServer};
use ab_api::{
    MAX_CONFIG_FILE_BYTES, MCP_CONFIG_FILE, McpServerConfig, OAuth, RemoteTransport,
    SKILLS_CONFIG_FILE, Session, SkillsConfig,
};
use ab_core::options::ReadOptions;
use ab_core::{Backend, Error, ErrorKind, Isolation};
use ab_local::LocalWorkspace;
use ab_snapshot::{PreparedWorkspace, SessionWorkspaceStore};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{request, skills};

/// A shell script that changes to the directory in its first argument and runs the rest as a
/// program.
const IN_DIRECTORY: &str = r#"cd -- "$1" && shift && exec "$@""#;

/// The entries that can be applied, and notes about the others.
#[derive(Debug, Default)]
pub(super) struct Configured {
    servers: BTreeMap<String, McpServerConfig>,
    pub(super) notes: Vec<String>,
}

impl Configured {
    /// Reads the configuration and copies the skills. Problems become notes, because the agent can
    /// work without them.
    pub(super) async fn apply(
        session: &Session,
        agent: &AgentReadyToLaunch,
        repositories: &SessionWorkspaceStore,
        to: &PreparedWorkspace,
    ) -> Configured {
        let mut configured = Configured::default();
        let Some(directory) = directory(session) else { return configured };
        let builder = LocalWorkspace::builder(&directory);
        let opened =
            builder.isolation(Isolation::None).minimum_isolation(Isolation::None).open().await;
        let source = match opened {
            Ok(opened) => opened.backend,
            Err(error) => {
                configured.notes.push(format!("Its configuration cannot be read: {error}"));
                return configured;
            }
        };
        let notes = &mut configured.notes;
        let skills: BTreeMap<String, SkillsConfig> =
            entries(&source, SKILLS_CONFIG_FILE, notes).await;
        skills::copy(&source, &directory, repositories, &skills, agent, &to.home, notes).await;
        configured.servers = entries(&source, MCP_CONFIG_FILE, notes).await;
        if let Err(error) = source.destroy().await {
            tracing::debug!(%error, "cannot close the source directory of a session");
        }
        configured
    }

    /// Returns the MCP servers for an agent. The agent itself starts the servers that are local
    /// programs.
    pub(super) fn servers(
        &mut self,
        agent: &AgentReadyToLaunch,
        profile: &AgentCapabilities,
        own_name: &str,
        workspace: &PreparedWorkspace,
    ) -> Vec<McpServer> {
        let mut servers = Vec::new();
        for (name, config) in &self.servers {
            if !config.is_enabled() {
                continue;
            }
            let made = if name == own_name {
                Err("the session's own server has this name".to_owned())
            } else {
                server(name, config, agent, profile, workspace)
            };
            match made {
                Ok(server) => servers.push(server),
                Err(why) => self.notes.push(format!("The MCP server {name:?} is left out: {why}.")),
            }
        }
        servers
    }
}

/// The source directory, if it is on this machine.
fn directory(session: &Session) -> Option<std::path::PathBuf> {
    request::source(session).ok()?.local_path().map(Path::to_owned)
}

/// Reads the valid entries of a configuration file.
async fn entries<T: DeserializeOwned>(
    source: &Backend,
    file: &str,
    notes: &mut Vec<String>,
) -> BTreeMap<String, T> {
    let read = source
        .read_with(file, ReadOptions { max_bytes: MAX_CONFIG_FILE_BYTES, ..Default::default() });
    let bytes = match read.await {
        Ok(content) => content.bytes,
        Err(error) if is_absent(&error) => return BTreeMap::new(),
        Err(error) => {
            notes.push(format!("{file} is left out: {error}"));
            return BTreeMap::new();
        }
    };
    let entries: Map<String, Value> = match serde_json::from_slice(&bytes) {
        Ok(entries) => entries,
        Err(error) => {
            notes.push(format!("{file} is left out: it is not a JSON object of entries: {error}"));
            return BTreeMap::new();
        }
    };
    let mut parsed = BTreeMap::new();
    for (name, entry) in entries {
        match serde_json::from_value(entry) {
            Ok(entry) => {
                parsed.insert(name, entry);
            }
            Err(error) => {
                notes.push(format!("{file}: the entry {name:?} is left out: {error}"));
            }
        }
    }
    parsed
}

pub(super) fn is_absent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Converts an entry to the form in which the agent gets it. If the entry cannot be used, returns
/// the reason.
fn server(
    name: &str,
    config: &McpServerConfig,
    agent: &AgentReadyToLaunch,
    profile: &AgentCapabilities,
    workspace: &PreparedWorkspace,
) -> Result<McpServer, String> {
    config.check()?;
    let name = name.to_owned();
    match config {
        McpServerConfig::Local { command, args, env, cwd, .. } => {
            let mut words: Vec<String> = command.words().iter().chain(args).cloned().collect();
            let in_tree = |path: &str| workspace.tree.join(path).to_string_lossy().into_owned();
            if let Some(program) = words.first_mut()
                && program.contains('/')
            {
                *program = in_tree(program);
            }
            if let Some(cwd) = cwd {
                let shell = ["/bin/sh", "-c", IN_DIRECTORY, "sh", &in_tree(cwd)].map(str::to_owned);
                words.splice(0..0, shell);
            }
            let env = env.iter().flatten().map(|(name, value)| (name.clone(), value.clone()));
            let env = env.collect();
            let command = words.remove(0);
            Ok(McpServer::Stdio { name, command, args: words, env })
        }
        McpServerConfig::Remote {
            url,
            headers,
            bearer_token_env_var: bearer,
            env_headers,
            oauth,
            transport,
            ..
        } => {
            let transport = transport.unwrap_or_default();
            let (is_taken, kind) = match transport {
                RemoteTransport::Http => (profile.mcp_http, "HTTP"),
                RemoteTransport::Sse => (profile.mcp_sse, "SSE"),
            };
            if !is_taken {
                return Err(format!("the agent does not support MCP servers over {kind}"));
            }
            if matches!(oauth, Some(OAuth::Client(_))) {
                return Err("its login by OAuth cannot be passed on to agents".to_owned());
            }
            let mut all: Vec<(String, String)> = headers.clone().into_iter().flatten().collect();
            if let Some(variable) = bearer {
                let token = variable_of(agent, variable)?;
                all.push(("Authorization".to_owned(), format!("Bearer {token}")));
            }
            for (header, variable) in env_headers.iter().flatten() {
                all.push((header.clone(), variable_of(agent, variable)?.to_owned()));
            }
            let url = url.clone();
            Ok(match transport {
                RemoteTransport::Http => McpServer::Http { name, url, headers: all },
                RemoteTransport::Sse => McpServer::Sse { name, url, headers: all },
            })
        }
    }
}

/// The value of an environment variable that the agent has.
fn variable_of<'a>(agent: &'a AgentReadyToLaunch, name: &str) -> Result<&'a str, String> {
    let value = agent.credentials.get(name).or_else(|| agent.entry.env.get(name));
    value.map(String::as_str).ok_or_else(|| {
        format!("the agent has no variable {name}: its entry names it under inherit or credentials")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent() -> AgentReadyToLaunch {
        let credentials = BTreeMap::from([("KEY".to_owned(), "k".to_owned())]);
        let entry = ab_acp::catalog::AgentCatalogEntry::default();
        AgentReadyToLaunch { entry, credentials, login_files: Vec::new() }
    }

    fn made(config: Value, profile: &AgentCapabilities) -> Result<McpServer, String> {
        let config: McpServerConfig = serde_json::from_value(config).unwrap();
        let token = ab_snapshot::WorkspaceToken::parse(&request::token_text(
            ab_api::SessionId::generate(),
            ab_api::SnapshotProvider::Copy,
        ));
        let workspace = PreparedWorkspace {
            token: token.unwrap(),
            tree: "/w".into(),
            home: "/h".into(),
            bundle_dir: "/o".into(),
            attachments_dir: None,
            read_only_dirs: Vec::new(),
            base_commit: None,
            base_branch: None,
            branch: None,
            notes: Vec::new(),
        };
        server("s", &config, &agent(), profile, &workspace)
    }

    fn stdio(words: &[&str]) -> McpServer {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let (command, args) = (words[0].clone(), words[1..].to_vec());
        McpServer::Stdio { name: "s".to_owned(), command, args, env: Vec::new() }
    }

    #[test]
    fn programs_start_in_the_workspace() {
        let profile = AgentCapabilities::default();
        for (config, expect) in [
            (json!({ "type": "local", "command": "npx", "args": ["x"] }), &["npx", "x"][..]),
            (json!({ "type": "local", "command": ["./a", "b"] }), &["/w/./a", "b"]),
            (
                json!({ "type": "local", "command": "a", "cwd": "d" }),
                &["/bin/sh", "-c", IN_DIRECTORY, "sh", "/w/d", "a"],
            ),
        ] {
            assert_eq!(made(config.clone(), &profile), Ok(stdio(expect)), "{config}");
        }
    }

    #[test]
    fn remote_servers_get_only_variables_of_the_agent() {
        let profile = AgentCapabilities { mcp_http: true, ..AgentCapabilities::default() };
        let remote = |member: &str, value: Value| {
            let mut config = json!({ "type": "remote", "url": "http://x" });
            config[member] = value;
            made(config, &profile)
        };
        let header = |name: &str, value: &str| McpServer::Http {
            name: "s".to_owned(),
            url: "http://x".to_owned(),
            headers: vec![(name.to_owned(), value.to_owned())],
        };
        assert_eq!(
            remote("bearerTokenEnvVar", "KEY".into()),
            Ok(header("Authorization", "Bearer k"))
        );
        assert_eq!(remote("envHeaders", json!({ "X": "KEY" })), Ok(header("X", "k")));
        for (member, value, says) in [
            ("bearerTokenEnvVar", json!("PATH"), "no variable PATH"),
            ("transport", json!("sse"), "not support MCP servers over SSE"),
            ("oauth", json!({ "clientId": "c" }), "OAuth"),
        ] {
            let why = remote(member, value).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
