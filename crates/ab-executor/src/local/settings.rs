//! The settings that an operator chooses for the sessions of one executor.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ab_acp::catalog::AgentCatalog;
use ab_core::Isolation;
use ab_core::process::ExecLimits;
use ab_host::{ControlGroupLimits, SandboxMount, Toolchain};
use ab_policy::PolicyRuleFile;

use super::DEFAULT_SETUP_TIMEOUT;
use super::audit::AuditSender;

/// How long a command waits for an approval by default. MCP clients end a call after a timeout,
/// which is one minute in the official clients. This wait must be shorter.
pub const DEFAULT_APPROVAL_WAIT_TIMEOUT: Duration = Duration::from_secs(45);

/// The settings of a [`LocalExecutor`](super::LocalExecutor).
#[derive(Clone, Debug)]
pub struct ExecutorSettings {
    /// The server's data directory. The executor keeps everything in `sessions` below it.
    pub data_dir: PathBuf,
    /// The path of the `agent-backend` program. It also contains the scripted agent.
    pub own_executable: PathBuf,
    /// The server's environment. Git finds the operator's settings in this environment. An agent
    /// gets from it the credentials that the agent's catalog entry lists. Empty by default.
    pub environment: Vec<(OsString, OsString)>,
    /// The agents that can be launched.
    pub catalog: AgentCatalog,
    /// Where agents are installed: `agents` in the data directory.
    pub agents_dir: PathBuf,
    /// How sessions are isolated.
    pub isolation: Isolation,
    /// The weakest isolation with which a session may start. Must be at least Landlock, because an
    /// agent with weaker isolation can read the server's token.
    pub minimum_isolation: Isolation,
    /// Programs of this machine that every session may use, such as compilers.
    pub toolchains: Vec<Toolchain>,
    /// Whether a task may ask for an agent without a sandbox.
    pub allow_disabled_runtime: bool,
    /// Whether agents may not share the network of this machine. This is necessary if the server's
    /// port requires no token.
    pub refuses_shared_network: bool,
    /// The address at which agents reach the server, such as `http://127.0.0.1:3001`. Without an
    /// address, agents get no MCP endpoint.
    pub server_url: Option<String>,
    /// Rules for the commands that agents run through their endpoints, beside the built-in ones.
    pub extra_policy_rules: PolicyRuleFile,
    /// Default limits on all processes of a session together.
    pub session_limits: ControlGroupLimits,
    /// How long a command waits for the decision of a person. After this time the caller of the
    /// command is told to try again later.
    pub approval_wait_timeout: Duration,
    /// Shell commands that run in the sandbox of a new session before its agent starts, and before the script of the
    /// repository.
    pub setup_commands: Vec<String>,
    /// How long one setup command may take.
    pub setup_timeout: Duration,
    /// Receives the calls on the endpoints of sessions, which are also logged.
    pub audit: Option<AuditSender>,
    /// Limits of each command that an agent runs through its endpoint.
    pub command_limits: ExecLimits,
    /// Variables of agents and of everything that runs in a session.
    pub variables: BTreeMap<String, String>,
    /// Directories of this machine that are visible in sessions.
    pub mounts: Vec<SandboxMount>,
}

impl ExecutorSettings {
    /// Creates settings with the built-in agents, the strongest isolation, the limits of
    /// [`ControlGroupLimits::default_for_this_host`], and an empty environment.
    pub fn new(data_dir: impl Into<PathBuf>, own_executable: impl Into<PathBuf>) -> Self {
        let data_dir = data_dir.into();
        Self {
            agents_dir: data_dir.join("agents"),
            data_dir,
            own_executable: own_executable.into(),
            environment: Vec::new(),
            catalog: AgentCatalog::default(),
            isolation: Isolation::Auto,
            minimum_isolation: Isolation::Landlock,
            toolchains: Vec::new(),
            allow_disabled_runtime: false,
            refuses_shared_network: false,
            server_url: None,
            extra_policy_rules: PolicyRuleFile::default(),
            session_limits: ControlGroupLimits::default_for_this_host(),
            approval_wait_timeout: DEFAULT_APPROVAL_WAIT_TIMEOUT,
            setup_commands: Vec::new(),
            setup_timeout: DEFAULT_SETUP_TIMEOUT,
            audit: None,
            command_limits: ExecLimits::default(),
            variables: BTreeMap::new(),
            mounts: Vec::new(),
        }
    }

    /// The directory of the uploaded files, which are named by their ids.
    pub(super) fn uploads_dir(&self) -> PathBuf {
        self.data_dir.join("uploads")
    }

    /// The value of a variable of the server.
    pub(super) fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}
