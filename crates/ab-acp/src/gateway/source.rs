//! Which agents a gateway can start: a name becomes a catalog entry with everything its launch needs.
//!
//! This is the seam to catalog and installation: the bridge asks [`AgentResolver::resolve`] before it starts a
//! process and knows nothing else about agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::catalog::{AgentCatalog, AgentCatalogEntry};
use crate::install::AgentInstallDir;
use crate::launch::LaunchSetup;
use crate::resolve::resolve_installed_entry;

/// Where the agents of a gateway come from.
#[derive(Clone, Debug, Default)]
pub struct AgentResolver {
    pub catalog: AgentCatalog,
    /// The running binary, for entries that start it.
    pub own_binary: Option<PathBuf>,
    /// Values of the variables that entries list as credentials.
    pub credentials: CredentialVariables,
    /// Variables for every agent. Those of an entry take precedence over them, except `HOME` of a server.
    pub env: BTreeMap<String, String>,
    /// A directory of programs `<agent>-acp`. They win over entries of the same name.
    pub launchers_dir: Option<PathBuf>,
    /// Where agents are installed.
    pub install_dir: Option<AgentInstallDir>,
}

/// Variables with credentials. `Debug` prints the names only.
#[derive(Clone, Default)]
pub struct CredentialVariables(pub BTreeMap<String, String>);

impl std::fmt::Debug for CredentialVariables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub enum AgentResolution {
    Ready(Box<AgentLaunchPlan>),
    /// The agent is known and its program is missing.
    NotInstalled {
        why: String,
    },
    Unknown,
}

/// An agent that can be started.
#[derive(Clone, Debug)]
pub struct AgentLaunchPlan {
    pub entry: AgentCatalogEntry,
    pub setup: LaunchSetup,
}

impl AgentResolver {
    /// The id of the agent with this name or alias.
    pub fn find_id(&self, name: &str) -> Option<String> {
        if self.launcher(name).is_some() {
            return Some(name.to_owned());
        }
        self.catalog.find(name).map(|entry| entry.id.clone())
    }

    /// Finds out how to start an agent.
    pub async fn resolve(&self, name: &str) -> AgentResolution {
        let launcher = self.launcher(name);
        let entry = match (&launcher, self.catalog.find(name)) {
            (Some(launcher), known) => launched_by(launcher, name, known),
            (None, Some(entry)) if entry.package.is_some() => match self.placed(entry) {
                Some(entry) => entry,
                None => {
                    let why = format!("run `agent-backend agent install {}`", entry.id);
                    return AgentResolution::NotInstalled { why };
                }
            },
            (None, Some(entry)) => entry.clone(),
            (None, None) => return AgentResolution::Unknown,
        };
        if let Some(why) = missing_program(&entry) {
            return AgentResolution::NotInstalled { why };
        }
        let mut entry = entry;
        for (name, value) in &self.env {
            entry.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let setup = LaunchSetup {
            own_binary: self.own_binary.clone(),
            credentials: self.credentials.0.clone(),
            ..LaunchSetup::default()
        };
        AgentResolution::Ready(Box::new(AgentLaunchPlan { entry, setup }))
    }

    /// Whether the program of an agent is there.
    pub fn is_installed(&self, entry: &AgentCatalogEntry) -> bool {
        let is_placed = || match entry.package {
            Some(_) => self.placed(entry).is_some(),
            None => missing_program(entry).is_none(),
        };
        self.launcher(&entry.id).is_some() || is_placed()
    }

    fn placed(&self, entry: &AgentCatalogEntry) -> Option<AgentCatalogEntry> {
        resolve_installed_entry(entry, self.install_dir.as_ref()?)
    }

    /// Names of agents that have a program in the directory of launchers.
    pub fn launcher_names(&self) -> Vec<String> {
        let Some(directory) = &self.launchers_dir else { return Vec::new() };
        let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let agents = names.filter_map(|name| name.strip_suffix(SUFFIX).map(str::to_owned));
        let mut agents: Vec<String> = agents.filter(|name| self.launcher(name).is_some()).collect();
        agents.sort();
        agents
    }

    fn launcher(&self, name: &str) -> Option<PathBuf> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(fits) {
            return None;
        }
        let path = self.launchers_dir.as_ref()?.join(format!("{name}{SUFFIX}"));
        path.is_file().then_some(path)
    }
}

const SUFFIX: &str = "-acp";

/// The entry of a launcher: as the catalog has it, except for the program.
fn launched_by(
    launcher: &Path,
    name: &str,
    known: Option<&AgentCatalogEntry>,
) -> AgentCatalogEntry {
    let argv = vec![launcher.to_string_lossy().into_owned()];
    // An alias stands for another program here.
    match known.filter(|entry| entry.id == name) {
        Some(entry) => AgentCatalogEntry { argv, ..entry.clone() },
        None => AgentCatalogEntry { id: name.to_owned(), argv, ..AgentCatalogEntry::default() },
    }
}

/// Why the entry's program cannot be started, as far as that can be told without its sandbox.
fn missing_program(entry: &AgentCatalogEntry) -> Option<String> {
    let program = Path::new(entry.argv.first()?);
    if !program.is_absolute() || program.is_file() {
        return None;
    }
    Some(format!("its program {} does not exist", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> AgentResolver {
        AgentResolver { own_binary: Some("/opt/ab".into()), ..AgentResolver::default() }
    }

    async fn argv(source: &AgentResolver, name: &str) -> Vec<String> {
        match source.resolve(name).await {
            AgentResolution::Ready(agent) => agent.entry.argv,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn names_are_those_of_the_catalog() {
        let mut source = source();
        assert_eq!(source.find_id("mock").as_deref(), Some("scripted"));
        assert_eq!(argv(&source, "mock").await[1..], ["agent", "script"]);
        assert!(matches!(source.resolve("no-such").await, AgentResolution::Unknown));
        let scripted = source.catalog.find("mock").unwrap().clone();
        let gone = AgentCatalogEntry {
            id: "gone".into(),
            aliases: Vec::new(),
            argv: vec!["/no/such/program".into()],
            ..scripted
        };
        source.catalog.add(gone).unwrap();
        match source.resolve("gone").await {
            AgentResolution::NotInstalled { why } => assert!(why.contains("/no/such/program")),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn launchers_win_over_the_catalog() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("mock-acp");
        std::fs::write(&program, "").unwrap();
        let mut source = source();
        source.launchers_dir = Some(directory.path().to_owned());
        assert_eq!(argv(&source, "mock").await, [program.to_str().unwrap()]);
        assert_eq!(source.find_id("mock").as_deref(), Some("mock"));
        assert_eq!(source.launcher_names(), ["mock"]);
        assert_eq!(argv(&source, "scripted").await[1..], ["agent", "script"]);
        assert!(matches!(source.resolve("../mock").await, AgentResolution::Unknown));
    }
}
