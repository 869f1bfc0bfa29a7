//! The agents that can be started: plain data, built in or added by the operator's configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How to start an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AgentEntry {
    pub id: String,
    /// Other names that users may type.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// A name for people; the id by default.
    #[serde(default)]
    pub title: Option<String>,
    /// Program and arguments. A program of `{self}` is the running `agent-backend` binary.
    pub argv: Vec<String>,
    /// Variables for the agent.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables of the server that hold credentials of this agent. No other agent gets them.
    #[serde(default)]
    pub credentials: Vec<String>,
    /// The login method to use if the agent asks for a login.
    #[serde(default)]
    pub auth_method: Option<String>,
    /// Directories of the host that hold the program and what it needs. The sandbox shows them read-only, and their
    /// programs come first on the path.
    #[serde(default)]
    pub toolchains: Vec<PathBuf>,
}

/// A program that stands for the running binary.
pub const OWN_BINARY: &str = "{self}";

/// The agents of a server, by id and alias.
#[derive(Clone, Debug)]
pub struct Catalog {
    entries: Vec<AgentEntry>,
}

/// Why an entry cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogError {
    EmptyName,
    EmptyCommand { id: String },
    TakenName { name: String, by: String },
}

impl std::fmt::Display for CatalogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CatalogError::EmptyName => f.write_str("an agent has an empty id or alias"),
            CatalogError::EmptyCommand { id } => write!(f, "agent {id:?}: argv is empty"),
            CatalogError::TakenName { name, by } => {
                write!(f, "the agent name {name:?} is taken by agent {by:?}")
            }
        }
    }
}

impl std::error::Error for CatalogError {}

impl Default for Catalog {
    fn default() -> Self {
        Catalog { entries: vec![scripted()] }
    }
}

impl Catalog {
    /// Adds an entry. An entry with the id of an earlier one replaces it.
    pub fn add(&mut self, entry: AgentEntry) -> Result<(), CatalogError> {
        let names = || std::iter::once(&entry.id).chain(&entry.aliases);
        if names().any(|name| name.trim().is_empty()) {
            return Err(CatalogError::EmptyName);
        }
        if entry.argv.first().is_none_or(|program| program.is_empty()) {
            return Err(CatalogError::EmptyCommand { id: entry.id });
        }
        for name in names() {
            if let Some(other) = self.find(name).filter(|other| other.id != entry.id) {
                return Err(CatalogError::TakenName { name: name.clone(), by: other.id.clone() });
            }
        }
        match self.entries.iter_mut().find(|known| known.id == entry.id) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
        Ok(())
    }

    /// The entry with this id or alias.
    pub fn find(&self, name: &str) -> Option<&AgentEntry> {
        let named = |entry: &&AgentEntry| {
            entry.id == name || entry.aliases.iter().any(|alias| alias == name)
        };
        self.entries.iter().find(named)
    }

    /// All entries: built-in ones first, then in the order of configuration.
    pub fn entries(&self) -> &[AgentEntry] {
        &self.entries
    }
}

impl AgentEntry {
    /// The title, or the id.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.id)
    }
}

fn scripted() -> AgentEntry {
    AgentEntry {
        id: "scripted".to_owned(),
        aliases: vec!["mock".to_owned()],
        title: Some("Scripted agent".to_owned()),
        argv: [OWN_BINARY, "agent", "script"].map(str::to_owned).to_vec(),
        env: BTreeMap::new(),
        credentials: Vec::new(),
        auth_method: None,
        toolchains: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, aliases: &[&str]) -> AgentEntry {
        let aliases = aliases.iter().map(|&alias| alias.to_owned()).collect();
        AgentEntry { id: id.to_owned(), aliases, title: None, ..scripted() }
    }

    #[test]
    fn entries_are_found_by_id_and_alias() {
        let mut catalog = Catalog::default();
        assert_eq!(catalog.find("mock").map(|entry| entry.id.as_str()), Some("scripted"));
        catalog.add(entry("goose", &["g"])).unwrap();
        assert_eq!(catalog.find("g").map(AgentEntry::title), Some("goose"));
        assert!(catalog.find("none").is_none());
    }

    #[test]
    fn a_later_entry_replaces_one_with_its_id() {
        let mut catalog = Catalog::default();
        catalog.add(AgentEntry { argv: vec!["mine".into()], ..entry("scripted", &[]) }).unwrap();
        assert_eq!(catalog.entries().len(), 1);
        assert_eq!(catalog.find("scripted").unwrap().argv, ["mine"]);
    }

    #[test]
    fn entries_that_make_no_sense_are_refused() {
        let mut catalog = Catalog::default();
        let taken = CatalogError::TakenName { name: "mock".into(), by: "scripted".into() };
        assert_eq!(catalog.add(entry("x", &["mock"])), Err(taken));
        assert_eq!(catalog.add(entry("x", &[""])), Err(CatalogError::EmptyName));
        let empty = AgentEntry { argv: Vec::new(), ..entry("x", &[]) };
        assert_eq!(catalog.add(empty), Err(CatalogError::EmptyCommand { id: "x".into() }));
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text = "id = \"x\"\nargv = [\"x\"]\narguments = []\n";
        let error = toml::from_str::<AgentEntry>(text).unwrap_err().to_string();
        assert!(error.contains("arguments"), "{error}");
    }
}
