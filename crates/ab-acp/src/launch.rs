//! Starts an agent of the catalog in the sandbox of a workspace.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ab_core::process::{ExecLimits, StdinMode};
use ab_core::{Error, ErrorCode, ErrorKind, Result, WsPath};
use ab_host::Toolchain;
use ab_local::{LaunchedProgram, ProgramLaunchRequest, SandboxProgramLauncher};

use crate::catalog::{AgentCatalogEntry, OWN_EXECUTABLE_PLACEHOLDER};
use crate::client::{AcpClient, AcpClientSettings, AgentEventStream};

/// The parameters of a launch in addition to the catalog entry.
#[derive(Clone, Default)]
pub struct AgentLaunchOptions {
    /// The running `agent-backend` binary, for entries whose program is `{self}`. It must be
    /// visible in the sandbox.
    pub own_executable: Option<PathBuf>,
    /// Credentials by variable name. The agent gets only the credentials that its entry lists.
    pub credentials: BTreeMap<String, String>,
    /// Variables of the session, such as `HOME`. They override the variables of the entry.
    pub env: BTreeMap<String, String>,
    pub limits: ExecLimits,
}

/// Values of credentials and variables are not printed.
impl fmt::Debug for AgentLaunchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLaunchOptions")
            .field("own_binary", &self.own_executable)
            .field("credentials", &self.credentials.keys())
            .field("env", &self.env.keys())
            .field("limits", &self.limits)
            .finish()
    }
}

/// A running agent, before the ACP handshake. Dropping `program` kills the agent and everything
/// that it started.
#[derive(Debug)]
pub struct LaunchedAgent {
    pub client: AcpClient,
    pub events: AgentEventStream,
    /// The agent's process. Its standard error can be read from it.
    pub program: LaunchedProgram,
}

/// Makes a toolchain from a directory or file of an agent's entry. For a directory that contains
/// `bin`, `bin` is added to `PATH`. For any other directory, the directory itself is added.
pub fn toolchain_for_agent_path(path: &Path) -> Toolchain {
    let mut toolchain = Toolchain::from_directory(path);
    if toolchain.program_dirs.is_empty() && !path.is_file() {
        toolchain.program_dirs.push(path.to_owned());
    }
    toolchain
}

/// Starts the agent in the root of the workspace.
///
/// # Errors
/// The same as for [`SandboxProgramLauncher::start`]. Also `Invalid` if the entry needs the path of
/// our own binary and the options do not contain it.
pub async fn launch_agent(
    launcher: &SandboxProgramLauncher,
    entry: &AgentCatalogEntry,
    setup: &AgentLaunchOptions,
) -> Result<LaunchedAgent> {
    let mut launched = launcher.start(request(entry, setup)?).await?;
    let (Some(input), Some(output)) = (launched.stdout.take(), launched.stdin.take()) else {
        let message =
            format!("agent {}: it was started without standard input and output", entry.id);
        return Err(Error::new(ErrorCode::ExecError, ErrorKind::Io, message));
    };
    let settings = AcpClientSettings {
        auth_method: entry.auth_method.clone(),
        ..AcpClientSettings::default()
    };
    let (client, events) = AcpClient::connect(input, output, settings);
    Ok(LaunchedAgent { client, events, program: launched })
}

/// Builds the launch request for an entry.
pub(crate) fn request(
    entry: &AgentCatalogEntry,
    setup: &AgentLaunchOptions,
) -> Result<ProgramLaunchRequest> {
    let mut argv = entry.argv.clone();
    if let Some(program) = argv.first_mut().filter(|program| *program == OWN_EXECUTABLE_PLACEHOLDER)
    {
        let own = setup.own_executable.as_ref().and_then(|path| path.to_str());
        let Some(own) = own else {
            let message = format!("agent {}: the path of agent-backend is unknown", entry.id);
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
        };
        *program = own.to_owned();
    }
    let mut env = entry.env.clone();
    // Only the credentials are read here. The variables in `inherit` became part of `env` when the
    // agent was resolved.
    for name in &entry.credentials {
        if let Some(value) = setup.credentials.get(name) {
            env.insert(name.clone(), value.clone());
        }
    }
    env.extend(setup.env.clone());
    let mut launch = ProgramLaunchRequest::new(argv);
    launch.env = env;
    launch.cwd = WsPath::root();
    launch.stdin = StdinMode::Piped;
    launch.limits = setup.limits;
    Ok(launch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn entry() -> AgentCatalogEntry {
        let catalog = crate::catalog::AgentCatalog::default();
        catalog.find("scripted").unwrap().clone()
    }

    #[test]
    fn own_binary_replaces_its_placeholder() {
        let setup = AgentLaunchOptions {
            own_executable: Some("/opt/ab".into()),
            ..AgentLaunchOptions::default()
        };
        assert_eq!(request(&entry(), &setup).unwrap().argv, ["/opt/ab", "agent", "script"]);
        assert_eq!(
            request(&entry(), &AgentLaunchOptions::default()).unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }

    #[test]
    fn only_listed_credentials_are_passed_on() {
        let entry = AgentCatalogEntry {
            argv: vec!["agent".into()],
            env: map(&[("MODE", "entry"), ("HOME", "entry")]),
            credentials: vec!["KEY_A".into(), "KEY_C".into()],
            ..entry()
        };
        let setup = AgentLaunchOptions {
            credentials: map(&[("KEY_A", "a"), ("KEY_B", "b")]),
            env: map(&[("HOME", "session")]),
            ..AgentLaunchOptions::default()
        };
        let launch = request(&entry, &setup).unwrap();
        assert_eq!(launch.env, map(&[("MODE", "entry"), ("HOME", "session"), ("KEY_A", "a")]));
        assert!(!format!("{setup:?}").contains("\"a\""));
    }
}
