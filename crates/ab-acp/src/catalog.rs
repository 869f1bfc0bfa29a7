//! The catalog of agents that can be started: entries that are built in or added by the operator's
//! configuration.

mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use settings::{AgentSettingRule, AgentSettingType};

/// How to start an agent, and what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AgentCatalogEntry {
    pub id: String,
    /// Other names that users may type.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The display name. Default: the id.
    #[serde(default)]
    pub title: Option<String>,
    /// The program and its arguments. The program `{self}` stands for the running `agent-backend`
    /// binary. `{agent}`, `{node}` and `{platform}` are replaced when the agent is resolved.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Variables that are set for the agent.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables of the server that are passed to the agent if they are set. They must not contain
    /// secrets.
    #[serde(default)]
    pub inherit: Vec<String>,
    /// Variables of the server that contain credentials of this agent. They are not passed to other
    /// agents.
    #[serde(default)]
    pub credentials: Vec<String>,
    /// Settings of this agent that a task may set, by name.
    #[serde(default)]
    pub settings: BTreeMap<String, AgentSettingRule>,
    /// Files with a login, relative to the operator's home. They are copied into the session's
    /// home.
    #[serde(default)]
    pub login_files: Vec<String>,
    /// The directory in which the agent looks for skills, relative to its home, in addition to
    /// `.agents/skills`.
    #[serde(default)]
    pub skills_dir: Option<String>,
    /// Whether the agent requires at least one of its credentials or login files.
    #[serde(default)]
    pub needs_credential: Option<bool>,
    /// The login method to use if the agent asks for a login.
    #[serde(default)]
    pub auth_method: Option<String>,
    /// Directories of the host that contain the program and its dependencies. They are visible in
    /// the sandbox, read-only, and come first in `PATH`.
    #[serde(default)]
    pub toolchains: Vec<PathBuf>,
    /// The lowest major version of Node.js that can run the agent.
    #[serde(default)]
    pub node: Option<u32>,
    /// The npm package with the agent. Only built-in agents have a package, because only they come
    /// with a lock file.
    #[serde(default)]
    pub package: Option<AgentPackage>,
    /// Instructions to install an agent that has no `package`.
    #[serde(default)]
    pub get: Option<String>,
    /// How the vendor's own sandbox is turned off inside ours, as text for people.
    #[serde(default)]
    pub own_sandbox: Option<String>,
    /// The turns that are covered by the token counts in the answer to a prompt. By default they
    /// cover only the turn that ended.
    #[serde(default)]
    pub token_reports: Option<AgentTokenReports>,
    /// What a prompt may contain besides text, as far as this is known.
    #[serde(default)]
    pub prompt_content: Vec<AgentPromptContent>,
    /// Whether our tests have run a complete turn with this version.
    #[serde(default)]
    pub tested: bool,
}

/// The turns that are covered by the token counts that an agent reports at the end of a turn.
/// Version 1 of ACP allows both variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentTokenReports {
    #[default]
    Turn,
    /// All turns of the conversation so far.
    Session,
}

/// A kind of content in prompts that not every agent accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentPromptContent {
    Images,
    /// Files whose content is part of the prompt.
    Files,
}

/// An npm package with an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AgentPackage {
    pub name: String,
    pub version: String,
    /// The approximate download size.
    pub megabytes: u32,
    /// The supported platforms. Empty if all are supported.
    #[serde(default)]
    pub platforms: Vec<String>,
}

/// The placeholder for the path of the running `agent-backend` binary, used as the program of an
/// entry.
pub const OWN_EXECUTABLE_PLACEHOLDER: &str = "{self}";

/// The agents of a server, by id and alias.
#[derive(Clone, Debug)]
pub struct AgentCatalog {
    entries: Vec<AgentCatalogEntry>,
}

/// Why an entry cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentCatalogError {
    EmptyName,
    EmptyCommand {
        id: String,
    },
    DuplicateName {
        name: String,
        by: String,
    },
    /// The built-in catalog is invalid.
    Unreadable {
        detail: String,
    },
}

impl std::fmt::Display for AgentCatalogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AgentCatalogError::EmptyName => f.write_str("an agent has an empty id or alias"),
            AgentCatalogError::EmptyCommand { id } => write!(f, "agent {id:?}: argv is empty"),
            AgentCatalogError::DuplicateName { name, by } => {
                write!(f, "the agent name {name:?} is taken by agent {by:?}")
            }
            AgentCatalogError::Unreadable { detail } => {
                write!(f, "cannot read the built-in agents: {detail}")
            }
        }
    }
}

impl std::error::Error for AgentCatalogError {}

/// The built-in agents, as TOML.
const BUILT_IN: &str = include_str!("catalog/agents.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogFile {
    agents: Vec<AgentCatalogEntry>,
}

/// The built-in agents.
impl Default for AgentCatalog {
    fn default() -> Self {
        // A test parses the same text, so parsing cannot fail in a build that passed its tests.
        let parsed = AgentCatalog::parse(BUILT_IN);
        debug_assert!(parsed.is_ok(), "{parsed:?}");
        parsed.unwrap_or(AgentCatalog { entries: Vec::new() })
    }
}

impl AgentCatalog {
    fn parse(text: &str) -> Result<AgentCatalog, AgentCatalogError> {
        let unreadable =
            |error: toml::de::Error| AgentCatalogError::Unreadable { detail: error.to_string() };
        let file: CatalogFile = toml::from_str(text).map_err(unreadable)?;
        let mut catalog = AgentCatalog { entries: Vec::new() };
        for entry in file.agents {
            catalog.add_or_change(entry)?;
        }
        Ok(catalog)
    }

    /// Adds an entry. If an entry with this id exists, the result depends on the new entry. A new
    /// entry with a command replaces the existing entry. A new entry without a command changes the
    /// existing entry: its variables and toolchains are added, and its other set fields replace the
    /// existing ones.
    pub fn add_or_change(&mut self, entry: AgentCatalogEntry) -> Result<(), AgentCatalogError> {
        let names = || std::iter::once(&entry.id).chain(&entry.aliases);
        if names().any(|name| name.trim().is_empty()) {
            return Err(AgentCatalogError::EmptyName);
        }
        let position = self.entries.iter().position(|known| known.id == entry.id);
        let is_change = entry.argv.is_empty() && position.is_some();
        if !is_change && entry.argv.first().is_none_or(|program| program.is_empty()) {
            return Err(AgentCatalogError::EmptyCommand { id: entry.id });
        }
        for name in names() {
            if let Some(other) = self.find(name).filter(|other| other.id != entry.id) {
                return Err(AgentCatalogError::DuplicateName {
                    name: name.clone(),
                    by: other.id.clone(),
                });
            }
        }
        match position {
            Some(at) if is_change => self.entries[at].change(entry),
            Some(at) => self.entries[at] = entry,
            None => self.entries.push(entry),
        }
        Ok(())
    }

    /// The entry with this id or alias.
    pub fn find(&self, name: &str) -> Option<&AgentCatalogEntry> {
        let named = |entry: &&AgentCatalogEntry| {
            entry.id == name || entry.aliases.iter().any(|alias| alias == name)
        };
        self.entries.iter().find(named)
    }

    /// All entries: built-in ones first, then in the order of configuration.
    pub fn entries(&self) -> &[AgentCatalogEntry] {
        &self.entries
    }
}

impl AgentCatalogEntry {
    /// The title, or the id.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.id)
    }

    /// Replaces or extends the fields that `change` sets.
    fn change(&mut self, change: AgentCatalogEntry) {
        let replace = |mine: &mut Vec<String>, theirs: Vec<String>| {
            if !theirs.is_empty() {
                *mine = theirs;
            }
        };
        replace(&mut self.aliases, change.aliases);
        replace(&mut self.inherit, change.inherit);
        replace(&mut self.credentials, change.credentials);
        replace(&mut self.login_files, change.login_files);
        if !change.prompt_content.is_empty() {
            self.prompt_content = change.prompt_content;
        }
        self.env.extend(change.env);
        self.settings.extend(change.settings);
        self.toolchains.extend(change.toolchains);
        self.title = change.title.or(self.title.take());
        self.skills_dir = change.skills_dir.or(self.skills_dir.take());
        self.auth_method = change.auth_method.or(self.auth_method.take());
        self.needs_credential = change.needs_credential.or(self.needs_credential);
        self.node = change.node.or(self.node);
        self.token_reports = change.token_reports.or(self.token_reports);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, aliases: &[&str]) -> AgentCatalogEntry {
        let aliases = aliases.iter().map(|&alias| alias.to_owned()).collect();
        AgentCatalogEntry {
            id: id.to_owned(),
            aliases,
            argv: vec!["x".into()],
            ..AgentCatalogEntry::default()
        }
    }

    #[test]
    fn entries_are_found_by_id_and_alias() {
        let mut catalog = AgentCatalog::default();
        assert_eq!(catalog.find("mock").map(|entry| entry.id.as_str()), Some("scripted"));
        assert_eq!(catalog.find("claude-code").map(AgentCatalogEntry::title), Some("Claude Code"));
        catalog.add_or_change(entry("own", &["o"])).unwrap();
        assert_eq!(catalog.find("o").map(AgentCatalogEntry::title), Some("own"));
        assert!(catalog.find("none").is_none());
    }

    #[test]
    fn a_later_entry_replaces_one_with_its_id() {
        let mut catalog = AgentCatalog::default();
        let before = catalog.entries().len();
        catalog
            .add_or_change(AgentCatalogEntry {
                argv: vec!["mine".into()],
                ..entry("scripted", &[])
            })
            .unwrap();
        assert_eq!(catalog.entries().len(), before);
        assert_eq!(catalog.find("scripted").unwrap().argv, ["mine"]);
    }

    #[test]
    fn entries_that_make_no_sense_are_refused() {
        let mut catalog = AgentCatalog::default();
        let taken = AgentCatalogError::DuplicateName { name: "mock".into(), by: "scripted".into() };
        assert_eq!(catalog.add_or_change(entry("x", &["mock"])), Err(taken));
        assert_eq!(catalog.add_or_change(entry("x", &[""])), Err(AgentCatalogError::EmptyName));
        let empty = AgentCatalogEntry { argv: Vec::new(), ..entry("x", &[]) };
        assert_eq!(
            catalog.add_or_change(empty),
            Err(AgentCatalogError::EmptyCommand { id: "x".into() })
        );
    }

    #[test]
    fn entry_without_a_command_changes_the_built_in_agent() {
        let mut catalog = AgentCatalog::default();
        let env = BTreeMap::from([("GOOSE_MODE".to_owned(), "approve".to_owned())]);
        let credentials = vec!["MY_KEY".to_owned()];
        let id = "goose".to_owned();
        catalog
            .add_or_change(AgentCatalogEntry {
                id,
                env,
                credentials,
                ..AgentCatalogEntry::default()
            })
            .unwrap();
        let goose = catalog.find("goose").unwrap();
        assert_eq!(goose.credentials, ["MY_KEY"]);
        assert_eq!(goose.env["GOOSE_MODE"], "approve");
        assert_eq!(goose.env["GOOSE_DISABLE_KEYRING"], "1");
        assert!(goose.package.is_some() && goose.argv.len() == 2);
    }

    #[test]
    fn built_in_entries_say_what_they_need() {
        let catalog = AgentCatalog::parse(BUILT_IN).unwrap();
        for id in ["claude", "codex", "gemini", "opencode", "qwen", "copilot", "goose"] {
            let entry = catalog.find(id).unwrap();
            assert!(entry.package.is_some() && entry.own_sandbox.is_some(), "{id}");
        }
        for entry in catalog.entries().iter().filter(|entry| entry.id != "scripted") {
            let id = &entry.id;
            assert!(entry.package.is_some() != entry.get.is_some(), "{id}: package or get");
            assert!(!entry.credentials.is_empty(), "{id}");
            let uses_node = entry.argv[0] == "{node}";
            assert!(!uses_node || entry.node.is_some(), "{id}: no version of node");
            let is_relative = |file: &String| !file.starts_with('/') && !file.contains("..");
            assert!(entry.login_files.iter().all(is_relative), "{id}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text = "id = \"x\"\nargv = [\"x\"]\narguments = []\n";
        let error = toml::from_str::<AgentCatalogEntry>(text).unwrap_err().to_string();
        assert!(error.contains("arguments"), "{error}");
    }
}
