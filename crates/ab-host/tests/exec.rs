//! Commands of the local driver: what is special to walls on this host.

mod ends;
mod isolation;
mod layout;
mod limits;
mod programs;
mod restrictions;

use std::path::Path;

use ab_core::process::{ExecLimits, Process};
use ab_core::{Backend, Isolation};
use ab_host::{LocalDriver, LocalDriverOptions, LocalExecSettings};
use ab_testkit::commands::COMMAND_TIMEOUT;

/// A workspace with a temporary directory of its own.
struct Fixture {
    backend: Backend,
    workspace: tempfile::TempDir,
    temporary: tempfile::TempDir,
}

impl Fixture {
    fn new(settings: LocalExecSettings) -> Fixture {
        let workspace = tempfile::tempdir().unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let screen = Some(ab_policy::check_command_paths as ab_core::CommandLineCheck);
        let exec = LocalExecSettings {
            temporary_dir: temporary.path().to_owned(),
            command_line_check: screen,
            ..settings
        };
        let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
        let backend = Backend::new(LocalDriver::open(workspace.path(), options).unwrap());
        Fixture { backend, workspace, temporary }
    }

    fn behind(isolation: Isolation) -> Fixture {
        Fixture::new(LocalExecSettings { isolation, ..LocalExecSettings::default() })
    }

    fn bounded(isolation: Isolation, limits: ExecLimits) -> Fixture {
        Fixture::new(LocalExecSettings { isolation, limits, ..LocalExecSettings::default() })
    }

    /// Destroys the backend, after which nothing of it may be left on the host.
    async fn leave(self) {
        self.backend.destroy().await.unwrap();
        let left: Vec<_> = self.temporary.path().read_dir().unwrap().collect();
        assert!(left.is_empty(), "left in the temporary directory: {left:?}");
    }
}

const WALLS: [Isolation; 2] = [Isolation::Bwrap, Isolation::Landlock];
const MODES: [Isolation; 4] =
    [Isolation::Bwrap, Isolation::Landlock, Isolation::Software, Isolation::None];

/// What marks every process of a command: it is in the environment of all that it starts.
async fn mark(backend: &Backend) -> String {
    let said = ab_testkit::commands::exec_stdout_text(backend, "echo $AGENT_BACKEND_PROCESS").await;
    let (incarnation, _) = said.trim().split_once('-').unwrap();
    format!("AGENT_BACKEND_PROCESS={incarnation}-")
}

/// Processes of this host that carry a mark.
fn marked(mark: &str) -> Vec<String> {
    let carries = |pid: &Path| {
        let environment = std::fs::read(pid.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
    };
    let processes = Path::new("/proc").read_dir().unwrap().flatten().map(|entry| entry.path());
    processes.filter(|pid| carries(pid)).map(|pid| pid.display().to_string()).collect()
}

/// Waits for what must come by itself, within bounds.
async fn comes(what: impl Fn() -> bool) {
    let watched = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(COMMAND_TIMEOUT, watched).await.expect("it never came");
}

async fn output(process: &mut Process) -> String {
    ab_testkit::commands::output_text(&ab_testkit::commands::read_to_exit(process).await.0)
}
