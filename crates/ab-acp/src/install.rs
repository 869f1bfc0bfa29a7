//! Installs agents from npm into the data directory.
//!
//! The machine's npm downloads the packages. The settings of npm contain the registry, credentials,
//! proxies and certificates. Our own lock file determines which packages are installed. The lock
//! file pins every package with its integrity hash and does not name a host. Scripts of packages
//! are not run.

mod lock;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::process::Command;

use self::lock::{lock_file, lock_for_platform, manifest};
use crate::agent_readiness::{HostEnvironment, filled, npm_platform};
use crate::catalog::AgentCatalogEntry;

/// The name of the file that the installer writes last. If a directory does not contain this file,
/// its installation is incomplete.
const STAMP: &str = "installed.json";
/// The name of the lock file. The lock is held during an installation.
const LOCK: &str = "lock";
/// Prefix of the names of directories of unfinished installations.
const NEW: &str = ".new-";
/// The time between two attempts to take the lock.
const PACE: Duration = Duration::from_millis(200);
/// Maximum number of bytes of npm's output that an error quotes.
const QUOTED: usize = 2000;
/// The name under which Node.js is installed if the machine's version is too old.
const NODE: &str = "node";
const NODE_VERSION: &str = "22.23.3";

/// The directory with the installed agents. Each is in `<id>/<version>`.
#[derive(Clone, Debug)]
pub struct AgentInstallDir {
    path: PathBuf,
}

/// An agent that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledAgent {
    pub path: PathBuf,
    pub version: String,
    /// The Node.js that runs the agent, if the agent needs Node.js.
    pub node: Option<PathBuf>,
}

/// The result of a request to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallResult {
    pub agent: InstalledAgent,
    /// Whether the agent was already installed, so that nothing was done.
    pub already_installed: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stamp {
    version: String,
    node: Option<PathBuf>,
}

/// Whether an agent that is already installed is installed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reinstall {
    Yes,
    No,
}

/// The progress of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallStep {
    /// Waits for another process that is installing an agent.
    WaitingForOtherInstall,
    Fetching {
        package: String,
        version: String,
        megabytes: u32,
    },
}

/// Why an agent was not installed. No files are left from a failed installation.
#[derive(Debug)]
pub enum InstallError {
    /// The catalog has no package for this agent.
    NoPackage {
        id: String,
        get: Option<String>,
    },
    UnsupportedPlatform {
        id: String,
        platform: String,
    },
    NoNpm,
    RegistryUnreachable {
        said: String,
    },
    RegistryRefused {
        said: String,
    },
    IntegrityMismatch {
        said: String,
    },
    DiskFull {
        said: String,
    },
    NpmFailed {
        said: String,
    },
    /// The packages do not contain the program that the catalog names.
    Incomplete {
        missing: PathBuf,
    },
    Io {
        act: String,
        error: io::Error,
    },
}

impl std::fmt::Display for InstallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            InstallError::NoPackage { id, get: Some(get) } => {
                write!(f, "agent {id:?} cannot be installed by agent-backend; to install it: {get}")
            }
            InstallError::NoPackage { id, get: None } => {
                write!(f, "agent {id:?} needs no installation")
            }
            InstallError::UnsupportedPlatform { id, platform } => {
                write!(f, "agent {id:?} is not published for {platform}")
            }
            InstallError::NoNpm => f.write_str(
                "npm was not found: install Node.js 20 or newer with npm (Debian: apt install nodejs npm)",
            ),
            InstallError::RegistryUnreachable { said } => {
                write!(f, "the registry that npm is configured for cannot be reached: {said}")
            }
            InstallError::RegistryRefused { said } => write!(f, "the registry refused the package: {said}"),
            InstallError::IntegrityMismatch { said } => {
                write!(f, "the registry sent a different package than the pinned one: {said}")
            }
            InstallError::DiskFull { said } => write!(f, "the disk is full: {said}"),
            InstallError::NpmFailed { said } => write!(f, "npm failed: {said}"),
            InstallError::Incomplete { missing } => {
                write!(f, "the installed package does not contain {}", missing.display())
            }
            InstallError::Io { act, error } => write!(f, "cannot {act}: {error}"),
        }
    }
}

impl std::error::Error for InstallError {}

impl InstallError {
    /// The output of npm, if it ran.
    pub fn npm_output(&self) -> Option<&str> {
        match self {
            InstallError::RegistryUnreachable { said }
            | InstallError::RegistryRefused { said }
            | InstallError::IntegrityMismatch { said }
            | InstallError::DiskFull { said }
            | InstallError::NpmFailed { said } => Some(said),
            InstallError::NoPackage { .. }
            | InstallError::UnsupportedPlatform { .. }
            | InstallError::NoNpm
            | InstallError::Incomplete { .. }
            | InstallError::Io { .. } => None,
        }
    }
}

impl AgentInstallDir {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Finds the agent in its pinned version. `None` if it is not completely installed.
    pub fn find_installed(&self, entry: &AgentCatalogEntry) -> Option<InstalledAgent> {
        let version = &entry.package.as_ref()?.version;
        self.stamped(&entry.id, version)
    }

    fn stamped(&self, id: &str, version: &str) -> Option<InstalledAgent> {
        let path = self.path.join(id).join(version);
        let stamp = fs::read_to_string(path.join(STAMP)).ok()?;
        let stamp: Stamp = serde_json::from_str(&stamp).ok()?;
        (stamp.version == version).then_some(InstalledAgent {
            path,
            version: stamp.version,
            node: stamp.node,
        })
    }

    /// Installs an agent. Only one installation runs at a time, also among several processes.
    /// Dropping the future ends npm.
    ///
    /// # Errors
    ///
    /// Fails if the agent cannot be installed. No files of the failed installation are left, and an
    /// earlier installation is kept.
    pub async fn install(
        &self,
        entry: &AgentCatalogEntry,
        host: &HostEnvironment,
        reinstall: Reinstall,
        progress: &mut (dyn FnMut(InstallStep) + Send),
    ) -> Result<InstallResult, InstallError> {
        let id = entry.id.clone();
        let (Some(package), Some(lock)) = (&entry.package, lock_file(&id)) else {
            return Err(InstallError::NoPackage { id, get: entry.get.clone() });
        };
        let platform = npm_platform();
        if !package.platforms.is_empty() && !package.platforms.contains(&platform) {
            return Err(InstallError::UnsupportedPlatform { id, platform });
        }
        // Create the data directory as private. The installation may be the first to use it, and
        // `serve` refuses a data directory that other users can enter.
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private.create(&self.path).map_err(failing(&self.path, "make"))?;
        let _held = self.lock(progress).await?;
        self.clear()?;
        let is_whole =
            |present: &InstalledAgent| present.node.as_ref().is_none_or(|it| it.is_file());
        let present = self.find_installed(entry).filter(is_whole);
        if let Some(present) = present.filter(|_| reinstall == Reinstall::No) {
            return Ok(InstallResult { agent: present, already_installed: true });
        }
        let npm = host.program("npm").ok_or(InstallError::NoNpm)?;
        let node = match entry.node {
            Some(lowest) => Some(self.node(lowest, &npm, host, progress).await?),
            None => None,
        };
        progress(InstallStep::Fetching {
            package: package.name.clone(),
            version: package.version.clone(),
            megabytes: package.megabytes,
        });
        let wanted = Wanted { id: &entry.id, version: &package.version, lock, node };
        let filling = self.fill(&wanted, &npm, host, |path, node| {
            // The agent's program, or the script that Node.js runs.
            let started = entry.argv.iter().take(2).find(|argument| argument.contains("{agent}"));
            started.map(|argument| PathBuf::from(filled(argument, path, node)))
        });
        Ok(InstallResult { agent: filling.await?, already_installed: false })
    }

    /// Returns the machine's Node.js if it is new enough. Otherwise installs one.
    async fn node(
        &self,
        lowest: u32,
        npm: &Path,
        host: &HostEnvironment,
        progress: &mut (dyn FnMut(InstallStep) + Send),
    ) -> Result<PathBuf, InstallError> {
        if let Some(found) = host.program(NODE)
            && let Some((major, path)) = probe_node(&found, host).await
            && major >= lowest
        {
            return Ok(path);
        }
        let program =
            |path: &Path| path.join(filled("node_modules/node-{platform}/bin/node", path, None));
        if let Some(present) = self.stamped(NODE, NODE_VERSION) {
            return Ok(program(&present.path));
        }
        let Some(lock) = lock_file(NODE) else { return Err(InstallError::NoNpm) };
        progress(InstallStep::Fetching {
            package: NODE.to_owned(),
            version: NODE_VERSION.to_owned(),
            megabytes: 45,
        });
        let wanted = Wanted { id: NODE, version: NODE_VERSION, lock, node: None };
        let made = self.fill(&wanted, npm, host, |path, _| Some(program(path))).await?;
        Ok(program(&made.path))
    }

    /// Runs npm in a new directory and renames the directory to its final name.
    async fn fill(
        &self,
        wanted: &Wanted<'_>,
        npm: &Path,
        host: &HostEnvironment,
        started: impl Fn(&Path, Option<&Path>) -> Option<PathBuf>,
    ) -> Result<InstalledAgent, InstallError> {
        let new = NewDirectory::make(self.path.join(format!("{NEW}{}", wanted.id)))?;
        let write = |name: &str, text: String| {
            let path = new.path.join(name);
            fs::write(&path, text).map_err(failing(&path, "write"))
        };
        let lock = lock_for_platform(wanted.lock, &npm_platform());
        write("package.json", manifest(&lock))?;
        write("package-lock.json", lock.to_string())?;
        run_npm(npm, &new.path, host).await?;
        let node = wanted.node.as_deref();
        if let Some(missing) = started(&new.path, node).filter(|path| !path.is_file()) {
            return Err(InstallError::Incomplete { missing });
        }
        let stamp = Stamp { version: wanted.version.to_owned(), node: wanted.node.clone() };
        write(STAMP, json!(stamp).to_string())?;
        let path = self.path.join(wanted.id).join(wanted.version);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(failing(&path, "remove"))?;
        }
        fs::create_dir_all(self.path.join(wanted.id)).map_err(failing(&path, "make"))?;
        fs::rename(&new.path, &path).map_err(failing(&path, "make"))?;
        Ok(InstalledAgent { path, version: stamp.version, node: stamp.node })
    }

    /// Waits for the lock, so that no other process installs an agent at the same time.
    async fn lock(
        &self,
        progress: &mut (dyn FnMut(InstallStep) + Send),
    ) -> Result<File, InstallError> {
        let path = self.path.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(failing(&path, "open"))?;
        let mut is_told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(error)) => return Err(failing(&path, "lock")(error)),
            }
            if !is_told {
                progress(InstallStep::WaitingForOtherInstall);
                is_told = true;
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// Removes directories of installations whose processes were killed. The caller must hold the
    /// lock.
    fn clear(&self) -> Result<(), InstallError> {
        let entries = self.path.read_dir().map_err(failing(&self.path, "read"))?;
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(NEW) {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(failing(&path, "remove"))?;
            }
        }
        Ok(())
    }
}

/// What to install: a package of an agent, or Node.js.
struct Wanted<'a> {
    id: &'a str,
    version: &'a str,
    lock: &'a str,
    node: Option<PathBuf>,
}

/// A directory that is removed on drop unless it was renamed.
struct NewDirectory {
    path: PathBuf,
}

impl NewDirectory {
    fn make(path: PathBuf) -> Result<Self, InstallError> {
        fs::create_dir(&path).map_err(failing(&path, "make"))?;
        Ok(Self { path })
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // If the removal fails, the next installation removes the directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}

async fn run_npm(npm: &Path, directory: &Path, host: &HostEnvironment) -> Result<(), InstallError> {
    let output = Command::new(npm)
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .args(["--no-update-notifier", "--loglevel", "error", "--fetch-retries", "2"])
        .args(["--fetch-retry-mintimeout", "1000", "--fetch-retry-maxtimeout", "5000"])
        .current_dir(directory)
        .env_clear()
        .envs(&host.variables)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let output = output.map_err(failing(npm, "run"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(npm_error(&said, &output.status.to_string()))
}

/// The prefixes of an error line of npm: the first is used since version 10, the second by earlier
/// versions.
const NPM_ERROR_PREFIXES: [&str; 2] = ["npm error", "npm ERR!"];

/// Classifies a failure of npm.
fn npm_error(said: &str, status: &str) -> InstallError {
    let error_line =
        |line| NPM_ERROR_PREFIXES.iter().find_map(|prefix| str::strip_prefix(line, prefix));
    let lines: Vec<&str> = { said.lines() }
        .filter_map(error_line)
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.contains("A complete log"))
        .collect();
    let code = lines.iter().find_map(|line| line.strip_prefix("code "));
    let mut words: Vec<&str> = lines.iter().copied().filter(|line| !is_detail(line)).collect();
    words.dedup();
    let mut said = if words.is_empty() { status.to_owned() } else { words.join("; ") };
    said.truncate(said.floor_char_boundary(QUOTED));
    match code.unwrap_or_default() {
        "EINTEGRITY" => InstallError::IntegrityMismatch { said },
        "ENOSPC" | "EDQUOT" => InstallError::DiskFull { said },
        "E401" | "E403" | "E404" | "ETARGET" | "ENEEDAUTH" => {
            InstallError::RegistryRefused { said }
        }
        "ENOTFOUND" | "EAI_AGAIN" | "ECONNREFUSED" | "ECONNRESET" | "ETIMEDOUT"
        | "ERR_SOCKET_TIMEOUT" | "EIDLETIMEOUT" | "EHOSTUNREACH" | "ENETUNREACH" => {
            InstallError::RegistryUnreachable { said }
        }
        _ => InstallError::NpmFailed { said },
    }
}

/// Whether a line of npm's error is useless to a user. This is the case for a line of a stack
/// trace, and for a member of the error object that npm prints after the stack trace.
fn is_detail(line: &str) -> bool {
    const FIELDS: [&str; 11] = [
        "code ",
        "errno ",
        "syscall ",
        "code:",
        "errno:",
        "syscall:",
        "type:",
        "address:",
        "port:",
        "hostname:",
        "[cause]:",
    ];
    // A line of a stack trace names a file, a line and a column.
    let is_frame = line.starts_with("at ") && line.contains(':');
    is_frame
        || matches!(line, "{" | "}" | "},")
        || FIELDS.iter().any(|field| line.starts_with(field))
}

/// Runs a Node.js to get its major version and its real path. The real path is needed because the
/// program in the search path may be a shim of a version manager, which starts another program.
async fn probe_node(node: &Path, host: &HostEnvironment) -> Option<(u32, PathBuf)> {
    let output = Command::new(node)
        .args(["-p", "process.version + ' ' + process.execPath"])
        .env_clear()
        .envs(&host.variables)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    // A shim may print a notice first, so use the last line.
    let (version, path) = said.trim_end().lines().last()?.split_once(' ')?;
    let major = version.strip_prefix('v')?.split('.').next()?.parse().ok()?;
    Some((major, Path::new(path).canonicalize().ok()?))
}

fn failing(path: &Path, act: &str) -> impl Fn(io::Error) -> InstallError + use<> {
    let act = format!("{act} {}", path.display());
    move |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            InstallError::DiskFull { said: act.clone() }
        }
        _ => InstallError::Io { act: act.clone(), error },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::Value;

    use super::lock::LOCKS;
    use super::*;
    use crate::catalog::AgentCatalog;

    /// A temporary installation directory, and a search path on which npm is a shell script.
    struct Machine {
        keep: tempfile::TempDir,
        host: HostEnvironment,
        agents: AgentInstallDir,
    }

    /// The npm script of the tests: creates the files that npm would create for goose.
    const FILLS: &str = "mkdir -p node_modules/@aaif/goose-binary-linux-x64/bin
echo x >> \"$COUNT\"; echo x > node_modules/@aaif/goose-binary-linux-x64/bin/goose";

    impl Machine {
        fn with_npm(script: &str) -> Machine {
            let keep = tempfile::tempdir().unwrap();
            let npm = keep.path().join("npm");
            fs::write(&npm, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&npm, fs::Permissions::from_mode(0o755)).unwrap();
            let count = keep.path().join("count").to_str().unwrap().to_owned();
            let path = format!("{}:/usr/bin:/bin", keep.path().display());
            let variables = [("PATH", path), ("COUNT", count)];
            let variables = variables.map(|(name, value)| (name.into(), value.into()));
            let agents = AgentInstallDir::new(keep.path().join("agents"));
            Machine { host: HostEnvironment::new(variables), agents, keep }
        }

        async fn install(&self, again: Reinstall) -> Result<InstalledAgent, InstallError> {
            let catalog = AgentCatalog::default();
            let mut entry = catalog.find("goose").unwrap().clone();
            entry.package.as_mut().unwrap().platforms.clear();
            let installed = self.agents.install(&entry, &self.host, again, &mut |_| {}).await;
            Ok(installed?.agent)
        }

        fn names(&self) -> Vec<String> {
            let entries = self.keep.path().join("agents").read_dir().unwrap().flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            names.filter(|name| name != LOCK).collect()
        }

        fn runs(&self) -> usize {
            fs::read_to_string(self.keep.path().join("count")).unwrap().lines().count()
        }
    }

    #[tokio::test]
    async fn two_installations_at_once_are_one() {
        let machine = Machine::with_npm(FILLS);
        let (one, other) =
            tokio::join!(machine.install(Reinstall::No), machine.install(Reinstall::No));
        assert_eq!(one.unwrap(), other.unwrap());
        assert_eq!((machine.runs(), machine.names()), (1, vec!["goose".to_owned()]));
        machine.install(Reinstall::Yes).await.unwrap();
        assert_eq!(machine.runs(), 2);
    }

    #[tokio::test]
    async fn failed_installation_leaves_nothing_and_says_why() {
        for (script, expect) in [
            (
                "echo 'npm error code EINTEGRITY' >&2; echo 'npm error sha512-a wanted' >&2; exit 1",
                "different package than the pinned one: sha512-a wanted",
            ),
            (
                "echo 'npm error code ENOSPC' >&2; echo 'npm error write' >&2; exit 1",
                "the disk is full",
            ),
            ("echo 'npm error code ECONNREFUSED' >&2; exit 1", "cannot be reached: exit status: 1"),
            ("echo 'npm error code E404' >&2; exit 1", "refused the package"),
            (
                "{ echo 'npm error code EACCES'; echo 'npm error errno EACCES'; \
                 echo 'npm error Error: no access to the cache'; echo 'npm error     at open (node:fs:1:2)'; \
                 echo 'npm error     at async run (/npm/lib/cli.js:3:4) {'; echo \"npm error   errno: 'EACCES',\"; \
                 echo \"npm error   syscall: 'open'\"; echo 'npm error }'; } >&2; exit 1",
                "npm failed: Error: no access to the cache",
            ),
            ("echo 'npm ERR! code ECONNREFUSED' >&2; exit 1", "cannot be reached"),
            ("echo oops >&2; exit 3", "npm failed: exit status: 3"),
            ("exit 0", "the installed package does not contain "),
        ] {
            let machine = Machine::with_npm(script);
            let error = machine.install(Reinstall::No).await.unwrap_err().to_string();
            assert!(error.contains(expect), "{script}: {error}");
            assert!(!error.contains("at open") && !error.contains("errno"), "{error}");
            assert!(machine.names().is_empty(), "{script}: {:?}", machine.names());
        }
        let mut machine = Machine::with_npm(FILLS);
        machine.host.search_path.clear();
        let error = machine.install(Reinstall::No).await.unwrap_err().to_string();
        assert!(error.contains("npm was not found"), "{error}");
    }

    #[tokio::test]
    async fn half_of_an_installation_is_none() {
        let machine = Machine::with_npm(FILLS);
        let made = machine.install(Reinstall::No).await.unwrap();
        fs::remove_file(made.path.join(STAMP)).unwrap();
        let left = machine.keep.path().join("agents").join(format!("{NEW}goose"));
        fs::create_dir(&left).unwrap();
        assert_eq!(machine.install(Reinstall::No).await.unwrap(), made);
        assert_eq!((machine.runs(), left.exists()), (2, false));
        fs::write(made.path.join(STAMP), "{").unwrap();
        machine.install(Reinstall::No).await.unwrap();
        assert_eq!(machine.runs(), 3);
    }

    #[tokio::test]
    async fn failed_attempt_keeps_the_earlier_installation() {
        let machine = Machine::with_npm(FILLS);
        let made = machine.install(Reinstall::No).await.unwrap();
        fs::write(machine.keep.path().join("npm"), "#!/bin/sh\nexit 1\n").unwrap();
        machine.install(Reinstall::Yes).await.unwrap_err();
        assert!(made.path.join(STAMP).is_file());
    }

    /// The npm of this machine, or `None` if it is not installed.
    fn real_npm() -> Option<PathBuf> {
        let found = HostEnvironment::new(std::env::vars_os()).program("npm");
        if found.is_none() {
            ab_testkit::host::report_skip("npm", "it is not installed");
        }
        found
    }

    /// Installs an agent that is a package for the platform, with the npm of this machine and this
    /// registry, and returns the error.
    async fn error_with_registry(npm: &Path, registry: &str) -> InstallError {
        let keep = tempfile::tempdir().unwrap();
        let home = keep.path().join("home");
        fs::create_dir(&home).unwrap();
        let variables = [
            ("PATH", std::env::var("PATH").unwrap()),
            ("HOME", home.to_str().unwrap().to_owned()),
            ("npm_config_registry", registry.to_owned()),
            ("npm_config_cache", home.join("cache").to_str().unwrap().to_owned()),
        ];
        let host = HostEnvironment::new(variables.map(|(name, value)| (name.into(), value.into())));
        let agents = AgentInstallDir::new(keep.path());
        let lock = lock_file("copilot").unwrap();
        let wanted = Wanted { id: "copilot", version: "1", lock, node: None };
        let program = |path: &Path, _: Option<&Path>| Some(path.join("program"));
        agents.fill(&wanted, npm, &host, program).await.unwrap_err()
    }

    #[tokio::test]
    async fn unreachable_registry_is_named_as_the_cause() {
        let Some(npm) = real_npm() else { return };
        // A port at which no server listens.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let registry = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = error_with_registry(&npm, &registry).await;
        assert!(matches!(error, InstallError::RegistryUnreachable { .. }), "{error}");
    }

    /// Answers one request as a registry whose packages have another content than the locks say.
    fn serve_other_content(mut connection: std::net::TcpStream, registry: &str) -> io::Result<()> {
        let mut lines = io::BufRead::lines(io::BufReader::new(connection.try_clone()?));
        let first = lines.next().transpose()?.unwrap_or_default();
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let path = first.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
        let name = path.replace("%2f", "/");
        let body = if name.ends_with(".tgz") {
            "another content".to_owned()
        } else {
            let locked = format!("node_modules/{name}");
            let locks = LOCKS.iter().map(|(_, lock)| serde_json::from_str::<Value>(lock).unwrap());
            let versions = locks.filter_map(|lock| {
                let version = lock["packages"][&locked]["version"].as_str()?.to_owned();
                let dist = json!({ "tarball": format!("{registry}/{name}.tgz") });
                Some((version.clone(), json!({ "name": name, "version": version, "dist": dist })))
            });
            let versions: serde_json::Map<String, Value> = versions.collect();
            json!({ "name": name, "dist-tags": {}, "versions": versions }).to_string()
        };
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
        io::Write::write_all(
            &mut connection,
            format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes(),
        )
    }

    #[tokio::test]
    async fn package_with_another_content_is_named_as_the_cause() {
        let Some(npm) = real_npm() else { return };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let registry = format!("http://{}", listener.local_addr().unwrap());
        let served = registry.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // npm reports a connection that fails.
                let _ = serve_other_content(connection, &served);
            }
        });
        let error = error_with_registry(&npm, &registry).await;
        assert!(matches!(error, InstallError::IntegrityMismatch { .. }), "{error}");
    }
}
