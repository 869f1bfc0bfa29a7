//! Resolves the name of an agent to a command on this machine. If the agent cannot be started,
//! returns the reason.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::catalog::{AgentCatalog, AgentCatalogEntry};
use crate::install::AgentInstallDir;

/// The directories of the system's programs. They are visible in every sandbox.
const SYSTEM: [&str; 3] = ["/usr", "/bin", "/sbin"];

/// The parts of this machine that agents may use.
#[derive(Clone, Default)]
pub struct HostEnvironment {
    /// Variables of the server.
    pub variables: BTreeMap<String, String>,
    /// The directories in which programs are searched.
    pub search_path: Vec<PathBuf>,
    /// The operator's home directory, which contains the login files.
    pub home: Option<PathBuf>,
    /// The directories of programs that are visible in sandboxes, in addition to the system's.
    /// `None` if agents run without a sandbox.
    pub sandbox_path: Option<Vec<PathBuf>>,
}

impl HostEnvironment {
    /// Reads the environment. Variables that are not UTF-8 are ignored. The server's own variables
    /// are ignored too, because one of them contains its token.
    pub fn new(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let text = |(name, value): (OsString, OsString)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            (!name.starts_with(ab_core::environment::RESERVED_ENV_PREFIX)).then_some((name, value))
        };
        let variables: BTreeMap<String, String> =
            environment.into_iter().filter_map(text).collect();
        let path = variables.get("PATH").map(std::env::split_paths);
        let path = path.into_iter().flatten().filter(|entry| entry.is_absolute()).collect();
        let home = variables.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        Self { variables, search_path: path, home, sandbox_path: None }
    }

    /// Finds a program in the search path.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        self.search_path.iter().map(|directory| directory.join(name)).find(|path| path.is_file())
    }

    /// The path of a program that is not visible in sandboxes. `None` if the program is visible
    /// there or does not exist.
    fn hidden_program(&self, name: &str) -> Option<PathBuf> {
        let shown = self.sandbox_path.as_ref()?;
        let is_shown = |path: &PathBuf| {
            let directory = path.parent();
            is_system(path) || shown.iter().any(|shown| Some(shown.as_path()) == directory)
        };
        let places = self.search_path.iter().chain(shown).map(|directory| directory.join(name));
        let mut found = places.filter(|path| path.is_file());
        let first = found.next()?;
        (!is_shown(&first) && !found.any(|path| is_shown(&path))).then_some(first)
    }

    fn variable(&self, name: &str) -> Option<&String> {
        self.variables.get(name).filter(|value| !value.is_empty())
    }
}

/// Values of variables are not printed, because they may be secrets.
impl fmt::Debug for HostEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostEnvironment")
            .field("variables", &self.variables.keys())
            .field("path", &self.search_path)
            .field("home", &self.home)
            .finish()
    }
}

/// An agent that can be started: its catalog entry with all placeholders replaced, and its
/// credentials.
#[derive(Clone)]
pub struct AgentReadyToLaunch {
    /// The resolved entry. `argv` is complete. `env` contains the inherited variables. `toolchains`
    /// contains the directories that must be visible in the sandbox.
    pub entry: AgentCatalogEntry,
    /// Values of credentials, by the name of the variable.
    pub credentials: BTreeMap<String, String>,
    pub login_files: Vec<LoginFile>,
}

/// Values of credentials are not printed.
impl fmt::Debug for AgentReadyToLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentReadyToLaunch")
            .field("id", &self.entry.id)
            .field("argv", &self.entry.argv)
            .field("credentials", &self.credentials.keys())
            .field("login_files", &self.login_files)
            .finish_non_exhaustive()
    }
}

/// A file that contains a login of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginFile {
    pub source: PathBuf,
    /// The path of the copy, relative to the session's home.
    pub path: String,
}

/// Why an agent cannot be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadinessProblem {
    UnknownAgent {
        name: String,
        known: Vec<String>,
    },
    UnsupportedPlatform {
        id: String,
        platform: String,
    },
    NotInstalled {
        id: String,
        version: String,
    },
    /// npm, which installs agents, is not in the search path.
    NpmNotFound {
        id: String,
    },
    /// The Node.js that was used to install the agent no longer exists.
    NodeMissing {
        id: String,
        node: PathBuf,
    },
    ProgramNotFound {
        id: String,
        program: String,
        get: String,
    },
    /// The directory of the agent's program is not visible in sandboxes.
    ProgramNotVisibleInSandbox {
        id: String,
        program: PathBuf,
        /// The directory that the agent's entry must list as a toolchain.
        toolchain: PathBuf,
    },
    CredentialMissing {
        id: String,
        variables: Vec<String>,
        login_files: Vec<String>,
    },
}

impl fmt::Display for ReadinessProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

impl ReadinessProblem {
    /// Describes the problem and what the user can do about it. Appends `flags` to the commands in
    /// the text, with a space before each flag.
    pub fn message(&self, flags: &str) -> String {
        std::fmt::from_fn(|f| self.write(f, flags)).to_string()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, flags: &str) -> fmt::Result {
        match self {
            ReadinessProblem::UnknownAgent { name, known } => {
                write!(f, "unknown agent {name:?}; known agents: {}", known.join(", "))
            }
            ReadinessProblem::UnsupportedPlatform { id, platform } => {
                write!(f, "agent {id:?} is not published for {platform}")
            }
            ReadinessProblem::NotInstalled { id, version } => write!(
                f,
                "agent {id:?} {version} is not installed: run `agent-backend agent install {id}{flags}`"
            ),
            ReadinessProblem::NpmNotFound { id } => write!(
                f,
                "agent {id:?} cannot be installed: npm was not found; install Node.js and npm"
            ),
            ReadinessProblem::NodeMissing { id, node } => write!(
                f,
                "agent {id:?}: the Node.js at {} no longer exists: run `agent-backend agent install {id} --again{flags}`",
                node.display()
            ),
            ReadinessProblem::ProgramNotFound { id, program, get } => {
                write!(
                    f,
                    "agent {id:?}: the program {program:?} was not found; to install it: {get}"
                )
            }
            ReadinessProblem::ProgramNotVisibleInSandbox { id, program, toolchain } => write!(
                f,
                "agent {id:?}: sandboxes do not show its program {}: add \"toolchains = [{toolchain:?}]\" to \
                 [[agents]] with id = {id:?} in the configuration file",
                program.display()
            ),
            ReadinessProblem::CredentialMissing { id, variables, login_files } => {
                write!(f, "agent {id:?} has no credential: set {}", variables.join(" or "))?;
                match login_files.first() {
                    Some(file) => write!(f, ", or log in so that ~/{file} exists"),
                    None => Ok(()),
                }
            }
        }
    }

    /// Describes what the user can do about the problem, in one line and without the agent's name.
    /// Used for tables that show the name in another column. Appends `flags` as
    /// [`ReadinessProblem::message`] does.
    pub fn short_remedy(&self, flags: &str) -> String {
        match self {
            ReadinessProblem::UnknownAgent { .. } => "unknown agent".to_owned(),
            ReadinessProblem::UnsupportedPlatform { platform, .. } => {
                format!("not published for {platform}")
            }
            ReadinessProblem::NotInstalled { id, .. } => {
                format!("not installed: agent-backend agent install {id}{flags}")
            }
            ReadinessProblem::NpmNotFound { .. } => "no npm: install Node.js and npm".to_owned(),
            ReadinessProblem::NodeMissing { id, .. } => {
                format!(
                    "its Node.js no longer exists: agent-backend agent install {id} --again{flags}"
                )
            }
            ReadinessProblem::ProgramNotFound { get, .. } => format!("not found: {get}"),
            ReadinessProblem::ProgramNotVisibleInSandbox { toolchain, .. } => {
                format!("hidden from sandboxes: toolchains = [{toolchain:?}]")
            }
            ReadinessProblem::CredentialMissing { id, variables, .. } => match variables.as_slice()
            {
                [only] => format!("no key: set {only}"),
                [first, ..] => {
                    format!("no key: set {first}, or see `agent-backend agent show {id}{flags}`")
                }
                [] => format!("no login: see `agent-backend agent show {id}{flags}`"),
            },
        }
    }
}

impl std::error::Error for ReadinessProblem {}

/// The name of this platform in npm packages.
pub(crate) fn npm_platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}-{arch}", std::env::consts::OS)
}

/// Resolves the agent with this id or alias.
///
/// # Errors
///
/// Returns the first problem that prevents a start.
pub fn resolve_agent(
    catalog: &AgentCatalog,
    name: &str,
    directory: &AgentInstallDir,
    host: &HostEnvironment,
) -> Result<AgentReadyToLaunch, ReadinessProblem> {
    let Some(entry) = catalog.find(name) else {
        let known = catalog.entries().iter().map(|entry| entry.id.clone()).collect();
        return Err(ReadinessProblem::UnknownAgent { name: name.to_owned(), known });
    };
    if let Some(missing) = readiness_problems(entry, directory, host).into_iter().next() {
        return Err(missing);
    }
    Ok(given(resolve_installed_entry(entry, directory).unwrap_or_else(|| entry.clone()), host))
}

/// Reads from this machine the inherited variables, the credentials and the login files that the
/// entry names.
pub(crate) fn given(mut entry: AgentCatalogEntry, host: &HostEnvironment) -> AgentReadyToLaunch {
    for name in &entry.inherit {
        if let Some(value) = host.variable(name) {
            entry.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    let credential = |name: &String| Some((name.clone(), host.variable(name)?.clone()));
    let credentials = entry.credentials.iter().filter_map(credential).collect();
    AgentReadyToLaunch { login_files: existing_login_files(&entry, host), entry, credentials }
}

/// The entry of an installed agent with all placeholders replaced and with the directories that
/// must be visible in the sandbox. `None` if the agent is not installed.
pub(crate) fn resolve_installed_entry(
    entry: &AgentCatalogEntry,
    directory: &AgentInstallDir,
) -> Option<AgentCatalogEntry> {
    let installed = directory.find_installed(entry)?;
    let mut placed = entry.clone();
    let node = installed.node.as_deref();
    for argument in &mut placed.argv {
        *argument = filled(argument, &installed.path, node);
    }
    let bin = node.and_then(Path::parent).filter(|bin| !is_system(bin)).map(Path::to_owned);
    placed.toolchains.push(installed.path.clone());
    placed.toolchains.extend(bin);
    Some(placed)
}

/// All reasons why an agent cannot be started.
pub fn readiness_problems(
    entry: &AgentCatalogEntry,
    directory: &AgentInstallDir,
    host: &HostEnvironment,
) -> Vec<ReadinessProblem> {
    let program = match entry.package {
        Some(_) => missing_package(entry, directory),
        None => missing_program(entry, host),
    };
    let npm = match &program {
        Some(ReadinessProblem::NotInstalled { id, .. }) if host.program("npm").is_none() => {
            Some(ReadinessProblem::NpmNotFound { id: id.clone() })
        }
        _ => None,
    };
    program.into_iter().chain(npm).chain(missing_credential(entry, host)).collect()
}

/// Why the package of an agent cannot be used.
pub(crate) fn missing_package(
    entry: &AgentCatalogEntry,
    directory: &AgentInstallDir,
) -> Option<ReadinessProblem> {
    let (package, platform) = (entry.package.as_ref()?, npm_platform());
    let id = entry.id.clone();
    if !package.platforms.is_empty() && !package.platforms.contains(&platform) {
        return Some(ReadinessProblem::UnsupportedPlatform { id, platform });
    }
    let Some(installed) = directory.find_installed(entry) else {
        return Some(ReadinessProblem::NotInstalled { id, version: package.version.clone() });
    };
    let gone = installed.node.filter(|node| !node.is_file())?;
    Some(ReadinessProblem::NodeMissing { id, node: gone })
}

/// The problem with a program that the operator must install, if it is not in the search path.
pub(crate) fn missing_program(
    entry: &AgentCatalogEntry,
    host: &HostEnvironment,
) -> Option<ReadinessProblem> {
    let get = entry.get.as_ref()?;
    let program = entry.argv.first().cloned().unwrap_or_default();
    let shown = |directory: &PathBuf| {
        directory.join(&program).is_file() || directory.join("bin").join(&program).is_file()
    };
    if entry.toolchains.iter().any(shown) {
        return None;
    }
    if let Some(hidden) = host.hidden_program(&program) {
        let toolchain = installation_of(&hidden, host).to_owned();
        let id = entry.id.clone();
        return Some(ReadinessProblem::ProgramNotVisibleInSandbox {
            id,
            program: hidden,
            toolchain,
        });
    }
    if host.program(&program).is_some() {
        return None;
    }
    Some(ReadinessProblem::ProgramNotFound { id: entry.id.clone(), program, get: get.clone() })
}

/// The problem of an agent that needs a credential and has none. `None` if the agent has a
/// credential or needs none.
pub(crate) fn missing_credential(
    entry: &AgentCatalogEntry,
    host: &HostEnvironment,
) -> Option<ReadinessProblem> {
    if entry.needs_credential != Some(true) || has_credential(entry, host) {
        return None;
    }
    Some(ReadinessProblem::CredentialMissing {
        id: entry.id.clone(),
        variables: entry.credentials.clone(),
        login_files: entry.login_files.clone(),
    })
}

/// Whether a credential of the agent exists on this machine, as a variable or a login file.
pub(crate) fn has_credential(entry: &AgentCatalogEntry, host: &HostEnvironment) -> bool {
    entry.credentials.iter().any(|name| host.variable(name).is_some())
        || !existing_login_files(entry, host).is_empty()
}

/// The login files of an agent that exist in the operator's home.
pub fn existing_login_files(entry: &AgentCatalogEntry, host: &HostEnvironment) -> Vec<LoginFile> {
    let Some(home) = &host.home else { return Vec::new() };
    let found = entry.login_files.iter().map(|path| (home.join(path), path));
    found
        .filter(|(source, _)| fs::metadata(source).is_ok_and(|file| file.is_file()))
        .map(|(source, path)| LoginFile { source, path: path.clone() })
        .collect()
}

/// Replaces the placeholders (`{agent}`, `{node}` and `{platform}`) in an argument.
pub(crate) fn filled(argument: &str, agent: &Path, node: Option<&Path>) -> String {
    let node = node.map(|node| node.to_string_lossy().into_owned());
    argument
        .replace("{agent}", &agent.to_string_lossy())
        .replace("{node}", node.as_deref().unwrap_or("node"))
        .replace("{platform}", &npm_platform())
}

/// The directory that contains an installation: the directory of the program, or its parent if the
/// program is in `bin`. The parent is not used if it is the home directory or the root, because
/// each of these contains more than one installation.
fn installation_of<'a>(program: &'a Path, host: &HostEnvironment) -> &'a Path {
    let directory = program.parent().unwrap_or(program);
    let above = directory.parent().filter(|above| {
        let is_installation = above.parent().is_some() && Some(*above) != host.home.as_deref();
        directory.ends_with("bin") && is_installation
    });
    above.unwrap_or(directory)
}

/// Whether the path is visible in every sandbox.
pub(crate) fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(variables: &[(&str, &str)], home: &Path) -> HostEnvironment {
        let variables: BTreeMap<String, String> =
            variables.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        HostEnvironment { variables, home: Some(home.to_owned()), ..HostEnvironment::default() }
    }

    /// A catalog with one agent, which needs a key but no installation.
    fn catalog() -> AgentCatalog {
        let mut catalog = AgentCatalog::default();
        let entry = AgentCatalogEntry {
            id: "own".into(),
            argv: vec!["own".into()],
            inherit: vec!["MODEL".into(), "UNSET".into()],
            credentials: vec!["KEY_A".into(), "KEY_B".into()],
            login_files: vec![".own/login.json".into()],
            needs_credential: Some(true),
            ..AgentCatalogEntry::default()
        };
        catalog.add_or_change(entry).unwrap();
        catalog
    }

    #[test]
    fn missing_credential_is_named_before_the_launch() {
        let keep = tempfile::tempdir().unwrap();
        let directory = AgentInstallDir::new(keep.path().join("agents"));
        let why = |variables: &[(&str, &str)]| {
            resolve_agent(&catalog(), "own", &directory, &host(variables, keep.path()))
        };
        let error = why(&[("KEY_A", "")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "agent \"own\" has no credential: set KEY_A or KEY_B, or log in so that ~/.own/login.json exists"
        );
        let ready = why(&[("KEY_B", "b"), ("MODEL", "m"), ("OTHER", "o")]).unwrap();
        assert_eq!(ready.credentials, BTreeMap::from([("KEY_B".into(), "b".into())]));
        assert_eq!(ready.entry.env, BTreeMap::from([("MODEL".into(), "m".into())]));
        assert!(!format!("{ready:?}").contains("\"b\""));
        fs::create_dir(keep.path().join(".own")).unwrap();
        fs::write(keep.path().join(".own/login.json"), "{}").unwrap();
        let files = why(&[]).unwrap().login_files;
        assert_eq!(files[0].path, ".own/login.json");
    }

    #[test]
    fn unknown_and_absent_agents_say_what_to_do() {
        let keep = tempfile::tempdir().unwrap();
        let directory = AgentInstallDir::new(keep.path().join("agents"));
        let why = |name: &str| {
            let host = host(&[("OPENAI_API_KEY", "k"), ("GEMINI_API_KEY", "k")], keep.path());
            resolve_agent(&catalog(), name, &directory, &host).unwrap_err().to_string()
        };
        let unknown = why("nobody");
        assert!(
            unknown.contains("unknown agent \"nobody\"; known agents: scripted, claude"),
            "{unknown}"
        );
        let absent = why("gemini");
        assert!(absent.contains("run `agent-backend agent install gemini`"), "{absent}");
        let program = why("pi");
        assert!(
            program.contains("\"pi-acp\" was not found; to install it: npm install"),
            "{program}"
        );
    }
    #[test]
    fn program_that_sandboxes_do_not_show_is_not_ready() {
        let keep = tempfile::tempdir().unwrap();
        let bin = keep.path().join("opt/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join("pi-acp"), "").unwrap();
        let directory = AgentInstallDir::new(keep.path().join("agents"));
        let catalog = AgentCatalog::default();
        let mut pi = catalog.find("pi").unwrap().clone();
        let mut host = host(&[("OPENAI_API_KEY", "k")], keep.path());
        host.search_path = vec![bin.clone()];
        let why = |entry: &AgentCatalogEntry, host: &HostEnvironment| {
            let problems = readiness_problems(entry, &directory, host);
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(why(&pi, &host), "");
        host.sandbox_path = Some(vec![keep.path().join("other")]);
        let (program, toolchain) = (bin.join("pi-acp"), keep.path().join("opt"));
        let says = format!(
            "agent \"pi\": sandboxes do not show its program {}: add \"toolchains = [{toolchain:?}]\"",
            program.display()
        );
        assert!(why(&pi, &host).starts_with(&says), "{}", why(&pi, &host));
        pi.toolchains = vec![toolchain];
        assert_eq!(why(&pi, &host), "");
        pi.toolchains.clear();
        host.sandbox_path = Some(vec![bin]);
        assert_eq!(why(&pi, &host), "");
    }
}
