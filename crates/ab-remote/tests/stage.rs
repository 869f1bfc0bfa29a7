//! A workspace, a server on a port of its own, and OpenSSH's programs pointed at it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_core::Backend;
use ab_remote::{
    HostKey, SshAccess, SshConnectionEnd, SshListenerOptions, SshServer, SshServerSettings,
    SshUsers, serve_ssh_on_listener,
};
use agent_backend::LocalWorkspaceConfig;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// How long a program may take before the test is given up.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Stage {
    pub(crate) directory: TempDir,
    pub(crate) backend: Backend,
    pub(crate) server: SshServer,
    pub(crate) address: SocketAddr,
    /// How connections ended, in that order.
    pub(crate) ended: Arc<Mutex<Vec<SshConnectionEnd>>>,
    listening: JoinHandle<std::io::Result<()>>,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}, |_| {}).await
    }

    pub(crate) async fn with(
        local: impl FnOnce(&mut LocalWorkspaceConfig),
        settings: impl FnOnce(&mut SshServerSettings),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["ws", "keys", "here"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mut config = LocalWorkspaceConfig::new(directory.path().join("ws"));
        local(&mut config);
        let backend = agent_backend::local_with(config).unwrap();
        Self::over(directory, backend, settings).await
    }

    pub(crate) async fn over(
        directory: TempDir,
        backend: Backend,
        adjust: impl FnOnce(&mut SshServerSettings),
    ) -> Self {
        let keys = directory.path().join("keys");
        let made = std::process::Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(keys.join("client"))
            .status();
        assert!(made.unwrap().success());
        let mut users = SshUsers::new();
        let public = fs::read_to_string(keys.join("client.pub")).unwrap();
        assert_eq!(users.add_authorized_keys("agent", &public), Ok(1));
        users.add_password("agent", "correct horse").unwrap();
        let host_key = HostKey::load_or_create(&keys.join("host")).unwrap();
        let mut settings = SshServerSettings::new(host_key, SshAccess::Users(users));
        adjust(&mut settings);
        let public = settings.host_key.public_key();
        let server = SshServer::new(backend.clone(), settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let known = format!("[127.0.0.1]:{} {public}\n", address.port());
        fs::write(keys.join("known"), known).unwrap();
        let ended = Arc::<Mutex<Vec<SshConnectionEnd>>>::default();
        let heard = ended.clone();
        let options = SshListenerOptions {
            on_connection_end: Arc::new(move |_, how| heard.lock().unwrap().push(how.clone())),
            ..SshListenerOptions::default()
        };
        let listening = tokio::spawn(serve_ssh_on_listener(listener, server.clone(), options));
        Self { directory, backend, server, address, ended, listening }
    }

    /// A path in the workspace, on the disk.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join("ws").join(below)
    }

    /// A path outside of it, for what clients have.
    pub(crate) fn here(&self, below: &str) -> PathBuf {
        self.directory.path().join("here").join(below)
    }

    /// The options that every program of OpenSSH is given.
    pub(crate) fn options(&self) -> Vec<String> {
        let keys = self.directory.path().join("keys");
        let mut options = vec!["-F".to_owned(), "none".to_owned()];
        for option in [
            format!("UserKnownHostsFile={}", keys.join("known").display()),
            format!("IdentityFile={}", keys.join("client").display()),
            "GlobalKnownHostsFile=none".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
            "StrictHostKeyChecking=yes".to_owned(),
            "BatchMode=yes".to_owned(),
            "LogLevel=ERROR".to_owned(),
            format!("Port={}", self.address.port()),
        ] {
            options.extend(["-o".to_owned(), option]);
        }
        options
    }

    /// One of OpenSSH's programs, with its options and no input.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.args(self.options()).current_dir(self.here("")).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// `ssh` with a command.
    pub(crate) async fn ssh(&self, line: &str) -> Output {
        finish(self.program("ssh").args(["agent@127.0.0.1", line])).await
    }

    /// `sftp` with a batch of commands, which must all succeed.
    pub(crate) async fn sftp(&self, batch: &str) -> String {
        let output = self.sftp_with(&[], batch).await;
        assert!(output.status.success(), "{batch}\n{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) async fn sftp_with(&self, more: &[&str], batch: &str) -> Output {
        let mut command = self.program("sftp");
        command.args(more).args(["-b", "-", "agent@127.0.0.1"]);
        fed(&mut command, batch.as_bytes()).await
    }

    /// Ends the server; everything must end with it.
    pub(crate) async fn end(self) {
        within(self.server.shut_down()).await;
        within(self.listening).await.unwrap().unwrap();
        assert_eq!(self.server.connection_count(), 0);
        within(self.backend.destroy()).await.unwrap();
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("took too long")
}

pub(crate) async fn finish(command: &mut Command) -> Output {
    within(command.output()).await.unwrap()
}

/// Runs a program with input.
pub(crate) async fn fed(command: &mut Command, input: &[u8]) -> Output {
    within(patiently_fed(command, input)).await
}

/// The same for one that may take long.
pub(crate) async fn patiently_fed(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeding = async move {
        // A program that ends early does not want the rest.
        let _ = stdin.write_all(input).await;
    };
    let (_, output) = tokio::join!(feeding, child.wait_with_output());
    output.unwrap()
}

/// A program that goes on while the test does something else.
pub(crate) fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).spawn().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Whether a program is to be found.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| Path::new(&directory).join(program).is_file())
}
