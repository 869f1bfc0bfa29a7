//! Commands of the local driver, in every isolation that it offers.

use std::time::Duration;

use ab_core::effective::Isolation;
use ab_core::{Backend, ExecOptions};
use ab_host::{ExecSettings, Local, LocalOptions};

pub(crate) fn workspace(settings: ExecSettings) -> (tempfile::TempDir, Backend) {
    let directory = tempfile::tempdir().unwrap();
    let options = LocalOptions { exec: settings, ..LocalOptions::default() };
    let backend = Backend::new(Local::open(directory.path(), options).unwrap());
    (directory, backend)
}

const MODES: [Isolation; 4] =
    [Isolation::Bwrap, Isolation::Landlock, Isolation::Software, Isolation::None];

#[tokio::test]
async fn a_command_runs_in_every_mode() {
    for isolation in MODES {
        let (_directory, backend) =
            workspace(ExecSettings { isolation, ..ExecSettings::default() });
        let output = backend.exec("echo hello; pwd; echo $HOME; id -u; env").await;
        println!("{isolation}: {}", output.unwrap().text());
        let policy = backend.effective_policy().await.unwrap();
        println!("{policy:#?}");
        backend.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn timeouts() {
    for isolation in MODES {
        let (_directory, backend) =
            workspace(ExecSettings { isolation, ..ExecSettings::default() });
        let options =
            ExecOptions { timeout: Some(Duration::from_millis(300)), ..ExecOptions::default() };
        let error = backend.exec_with("echo before; sleep 60", options).await.unwrap_err();
        println!("{error} {:?}", error.output());
    }
}
