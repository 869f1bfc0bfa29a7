//! Resolves the name of an agent to a catalog entry with everything that its launch needs.
//!
//! The gateway calls [`AgentResolver::find_agent`] before it starts a process. Other modules of the
//! gateway do not know how the catalog and the installation work.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::agent_readiness::{self, HostEnvironment, LoginFile, ReadinessProblem};
use crate::catalog::{AgentCatalog, AgentCatalogEntry};
use crate::install::{AgentInstallDir, InstalledAgent};
use crate::launch::AgentLaunchOptions;

/// Finds the agents of a gateway in its catalog, its launcher directory and its installation
/// directory.
#[derive(Clone, Debug, Default)]
pub struct AgentResolver {
    pub catalog: AgentCatalog,
    /// The running binary, for entries that use it as their program.
    pub own_executable: Option<PathBuf>,
    /// The variables and login files of this machine that entries may name.
    pub host: HostEnvironment,
    /// Variables for every agent. Variables of an entry override them. The exception is `HOME`,
    /// which is always the home of the server.
    pub env: BTreeMap<String, String>,
    /// A directory of programs with names of the form `<agent>-acp`. They take precedence over
    /// catalog entries with the same name.
    pub launchers_dir: Option<PathBuf>,
    /// Directories with programs that launchers start. They are visible in the sandboxes of
    /// launchers.
    pub launcher_toolchains: Vec<PathBuf>,
    /// Where agents are installed.
    pub install_dir: Option<AgentInstallDir>,
    /// Whether the first message to an agent may install the agent.
    pub install_policy: InstallPolicy,
}

/// How a message to an agent that is not installed is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstallPolicy {
    /// The agent is installed first.
    #[default]
    OnDemand,
    /// The message is refused.
    Preinstalled,
}

/// The result of resolving a name.
#[derive(Clone, Debug)]
pub enum AgentLookupResult {
    Ready(Box<AgentLaunchPlan>),
    /// The agent has a package that is not installed.
    Installable(Box<AgentCatalogEntry>),
    /// The agent is known, but its program is missing.
    NotInstalled {
        why: String,
    },
    /// The agent's program exists, but cannot be run.
    Unusable {
        why: String,
    },
    Unknown,
}

/// An agent that can be started.
#[derive(Clone, Debug)]
pub struct AgentLaunchPlan {
    pub entry: AgentCatalogEntry,
    pub launch_options: AgentLaunchOptions,
    /// Login files of the operator, to copy into the agent's private home.
    pub login_files: Vec<LoginFile>,
    /// The problem of an agent that needs a credential and has none. `None` if there is no such
    /// problem.
    pub missing_credential: Option<ReadinessProblem>,
}

impl AgentResolver {
    /// The id of the agent with this name or alias. `None` if the name is unknown.
    pub fn find_agent_id(&self, name: &str) -> Option<String> {
        if self.launcher(name).is_some() {
            return Some(name.to_owned());
        }
        self.catalog.find(name).map(|entry| entry.id.clone())
    }

    /// Resolves an agent by name.
    pub async fn find_agent(&self, name: &str) -> AgentLookupResult {
        let launcher = self.launcher(name);
        let entry = match (&launcher, self.catalog.find(name)) {
            (Some(launcher), known) => match self.launched_by(launcher, name, known) {
                Ok(entry) => entry,
                Err(why) => return AgentLookupResult::Unusable { why },
            },
            (None, Some(entry)) if entry.package.is_some() => match self.placed(entry) {
                Ok(entry) => entry,
                Err(missing @ ReadinessProblem::UnsupportedPlatform { .. }) => {
                    return AgentLookupResult::NotInstalled { why: missing.to_string() };
                }
                Err(_) => return AgentLookupResult::Installable(Box::new(entry.clone())),
            },
            (None, Some(entry)) => entry.clone(),
            (None, None) => return AgentLookupResult::Unknown,
        };
        if let Some(why) = missing_program(&entry) {
            return AgentLookupResult::NotInstalled { why };
        }
        let mut given = agent_readiness::given(entry, &self.host);
        for (name, value) in &self.env {
            given.entry.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let missing_credential = agent_readiness::missing_credential(&given.entry, &self.host);
        let setup = AgentLaunchOptions {
            own_executable: self.own_executable.clone(),
            credentials: given.credentials,
            ..AgentLaunchOptions::default()
        };
        AgentLookupResult::Ready(Box::new(AgentLaunchPlan {
            entry: given.entry,
            launch_options: setup,
            login_files: given.login_files,
            missing_credential,
        }))
    }

    /// Whether the agent's program exists.
    pub fn is_installed(&self, entry: &AgentCatalogEntry) -> bool {
        if self.launcher(&entry.id).is_some() {
            return true;
        }
        match entry.package {
            Some(_) => self.placed(entry).is_ok(),
            None => {
                missing_program(entry).is_none()
                    && agent_readiness::missing_program(entry, &self.host).is_none()
            }
        }
    }

    /// Whether the agent has a credential or login, or does not need one.
    pub fn has_credential(&self, entry: &AgentCatalogEntry) -> bool {
        entry.credentials.is_empty()
            || entry.needs_credential == Some(false)
            || agent_readiness::has_credential(entry, &self.host)
    }

    /// The installed package of an agent. `None` if it is not installed.
    pub fn find_installed(&self, entry: &AgentCatalogEntry) -> Option<InstalledAgent> {
        self.install_dir.as_ref()?.find_installed(entry)
    }

    /// The path of the program that starts the agent, if it is known.
    pub fn program_path(&self, entry: &AgentCatalogEntry) -> Option<PathBuf> {
        if let Some(launcher) = self.launcher(&entry.id) {
            return Some(launcher);
        }
        let program = match entry.package {
            Some(_) => self.placed(entry).ok()?.argv.first()?.clone(),
            None => entry.argv.first()?.clone(),
        };
        if program == crate::catalog::OWN_EXECUTABLE_PLACEHOLDER {
            return self.own_executable.clone();
        }
        Some(PathBuf::from(program))
    }

    /// The catalog entry of an installed package, with the paths of the installation instead of
    /// placeholders.
    fn placed(&self, entry: &AgentCatalogEntry) -> Result<AgentCatalogEntry, ReadinessProblem> {
        let not_installed = || ReadinessProblem::NotInstalled {
            id: entry.id.clone(),
            version: entry.package.as_ref().map(|it| it.version.clone()).unwrap_or_default(),
        };
        let directory = self.install_dir.as_ref().ok_or_else(not_installed)?;
        if let Some(missing) = agent_readiness::missing_package(entry, directory) {
            return Err(missing);
        }
        agent_readiness::resolve_installed_entry(entry, directory).ok_or_else(not_installed)
    }

    /// Names of agents that have a program in the launcher directory.
    pub fn agents_with_launcher_program(&self) -> Vec<String> {
        let Some(directory) = &self.launchers_dir else { return Vec::new() };
        let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let agents = names.filter_map(|name| name.strip_suffix(SUFFIX).map(str::to_owned));
        let mut agents: Vec<String> = agents.filter(|name| self.launcher(name).is_some()).collect();
        agents.sort();
        agents
    }

    pub(super) fn launcher(&self, name: &str) -> Option<PathBuf> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(fits) {
            return None;
        }
        let path = self.launchers_dir.as_ref()?.join(format!("{name}{SUFFIX}"));
        path.is_file().then_some(path)
    }

    /// The entry for a launcher: the catalog entry with the launcher as its program, and with the
    /// files that must be visible in the sandbox.
    ///
    /// # Errors
    ///
    /// Returns why the launcher cannot be run.
    fn launched_by(
        &self,
        launcher: &Path,
        name: &str,
        known: Option<&AgentCatalogEntry>,
    ) -> Result<AgentCatalogEntry, String> {
        let shown = launcher.display();
        let unusable = |why: std::io::Error| format!("its launcher {shown} cannot be used: {why}");
        let target = launcher.canonicalize().map_err(unusable)?;
        let mode = target.metadata().map_err(unusable)?.permissions().mode();
        if mode & 0o111 == 0 {
            return Err(format!("its launcher {shown} is not executable: run chmod +x on it"));
        }
        let interpreter = interpreter(&target).map_err(unusable)?;
        if let Some(missing) = interpreter.as_ref().filter(|path| !path.is_file()) {
            let missing = missing.display();
            return Err(format!(
                "its launcher {shown} names the interpreter {missing}, which does not exist"
            ));
        }
        let mut toolchains = self.launcher_toolchains.clone();
        // If the launcher is a link, its target may be anywhere. Make only the target itself
        // visible, not the directory around it.
        toolchains.extend([launcher.to_owned(), target]);
        if let Some(interpreter) = interpreter {
            toolchains.extend(interpreter.canonicalize());
            toolchains.push(interpreter);
        }
        toolchains.retain(|path| path.exists() && !agent_readiness::is_system(path));
        toolchains.dedup();
        let argv = vec![launcher.to_string_lossy().into_owned()];
        // If the name is an alias in the catalog, the launcher is a different program than the
        // catalog's agent. So the catalog entry is not used.
        let entry = match known.filter(|entry| entry.id == name) {
            Some(entry) => entry.clone(),
            None => AgentCatalogEntry { id: name.to_owned(), ..AgentCatalogEntry::default() },
        };
        toolchains.extend_from_slice(&entry.toolchains);
        Ok(AgentCatalogEntry { argv, toolchains, ..entry })
    }
}

const SUFFIX: &str = "-acp";
/// Number of bytes that the kernel reads of a script to find its interpreter.
const INTERPRETER_LINE: u64 = 256;

/// The interpreter in the first line of a script. `None` for other programs.
fn interpreter(program: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut start = Vec::new();
    std::fs::File::open(program)?.take(INTERPRETER_LINE).read_to_end(&mut start)?;
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(named) = line.strip_prefix(b"#!") else { return Ok(None) };
    let path = named.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next();
    Ok(path.filter(|path| !path.is_empty()).map(|path| PathBuf::from(OsStr::from_bytes(path))))
}

/// Why the entry's program cannot be started, as far as this can be checked outside the sandbox.
/// `None` if no problem is found.
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
        AgentResolver { own_executable: Some("/opt/ab".into()), ..AgentResolver::default() }
    }

    async fn argv(source: &AgentResolver, name: &str) -> Vec<String> {
        match source.find_agent(name).await {
            AgentLookupResult::Ready(agent) => agent.entry.argv,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn names_are_those_of_the_catalog() {
        let mut source = source();
        assert_eq!(source.find_agent_id("mock").as_deref(), Some("scripted"));
        assert_eq!(argv(&source, "mock").await[1..], ["agent", "script"]);
        assert!(matches!(source.find_agent("no-such").await, AgentLookupResult::Unknown));
        let scripted = source.catalog.find("mock").unwrap().clone();
        let gone = AgentCatalogEntry {
            id: "gone".into(),
            aliases: Vec::new(),
            argv: vec!["/no/such/program".into()],
            ..scripted
        };
        source.catalog.add_or_change(gone).unwrap();
        match source.find_agent("gone").await {
            AgentLookupResult::NotInstalled { why } => assert!(why.contains("/no/such/program")),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn launchers_win_over_the_catalog() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("mock-acp");
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut source = source();
        source.launchers_dir = Some(directory.path().to_owned());
        assert_eq!(argv(&source, "mock").await, [program.to_str().unwrap()]);
        assert_eq!(source.find_agent_id("mock").as_deref(), Some("mock"));
        assert_eq!(source.agents_with_launcher_program(), ["mock"]);
        assert_eq!(argv(&source, "scripted").await[1..], ["agent", "script"]);
        assert!(matches!(source.find_agent("../mock").await, AgentLookupResult::Unknown));
    }

    #[tokio::test]
    async fn launcher_that_cannot_run_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("own-acp");
        let mut source = source();
        source.launchers_dir = Some(directory.path().to_owned());
        for (text, mode, says) in [
            ("#!/bin/sh\n", 0o644, "is not executable: run chmod +x on it"),
            (
                "#!/no/such/sh -e\n",
                0o755,
                "names the interpreter /no/such/sh, which does not exist",
            ),
            ("#! /no/such/sh", 0o755, "names the interpreter /no/such/sh, which does not exist"),
        ] {
            std::fs::write(&program, text).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
            match source.find_agent("own").await {
                AgentLookupResult::Unusable { why } => assert!(why.ends_with(says), "{why}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn sandbox_shows_a_launcher_what_it_needs() {
        let keep = tempfile::tempdir().unwrap();
        let place = keep.path().canonicalize().unwrap();
        let (directory, other) = (place.join("agent_processes"), place.join("other"));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        let interpreter = other.join("sh");
        std::os::unix::fs::symlink("/bin/sh", &interpreter).unwrap();
        let target = other.join("program");
        std::fs::write(&target, format!("#!{} -e\n", interpreter.display())).unwrap();
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o755)).unwrap();
        let launcher = directory.join("own-acp");
        std::os::unix::fs::symlink(&target, &launcher).unwrap();
        let mut source = source();
        source.launchers_dir = Some(directory);
        source.launcher_toolchains = vec![place.clone()];
        match source.find_agent("own").await {
            AgentLookupResult::Ready(plan) => {
                assert_eq!(plan.entry.toolchains, [place, launcher, target, interpreter]);
            }
            other => panic!("{other:?}"),
        }
    }
}
