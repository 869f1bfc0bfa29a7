//! OpenSSH's server as a fixture: unchanged, as the user of the tests, with its own keys and configuration.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::host::{prepare_sshd, report_skip};

/// Where Debian installs the server.
pub const SSHD: &str = "/usr/sbin/sshd";

/// A server on loopback: one process of OpenSSH for each connection. All processes end when this
/// value is dropped.
#[derive(Debug)]
pub struct Sshd {
    keys: TempDir,
    /// An empty directory for the workspace of the test.
    pub workspace: TempDir,
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Child>>>,
    _listening: AbortOnDropHandle<()>,
}

impl Sshd {
    /// Starts a server that accepts one key. `None`, with a report, if OpenSSH is not installed.
    pub async fn start() -> Option<Self> {
        Self::with("", &[SSHD]).await
    }

    /// Like [`start`](Self::start), but with settings that take precedence, and with the command
    /// that starts the server.
    pub async fn with(settings: &str, program: &[&str]) -> Option<Self> {
        let keygen = Command::new("ssh-keygen").arg("-?").stderr(Stdio::null()).status();
        if prepare_sshd().is_none() || keygen.is_err() {
            report_skip("OpenSSH's server", "it is not installed");
            return None;
        }
        let (keys, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = keys.path().to_str().unwrap();
        for name in ["host_key", "user_key"] {
            let path = keys.path().join(name);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path)
                .status();
            assert!(made.unwrap().success());
        }
        fs::copy(keys.path().join("user_key.pub"), keys.path().join("authorized")).unwrap();
        let config = format!(
            "{settings}HostKey {at}/host_key\nAuthorizedKeysFile {at}/authorized\nStrictModes no\n\
             UsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n\
             Subsystem sftp internal-sftp\nLogLevel ERROR\nPrintMotd no\n"
        );
        fs::write(keys.path().join("config"), config).unwrap();
        let mut check = Command::new(SSHD);
        let check = check.arg("-t").arg("-f").arg(keys.path().join("config")).output().unwrap();
        if !check.status.success() {
            report_skip("OpenSSH's server", &String::from_utf8_lossy(&check.stderr));
            return None;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<Mutex<Vec<Child>>>::default();
        let mut words: Vec<OsString> = program.iter().map(OsString::from).collect();
        words.extend(["-i".into(), "-f".into(), keys.path().join("config").into()]);
        let listening = tokio::spawn(accept(listener, words, connections.clone()));
        let listening = AbortOnDropHandle::new(listening);
        Some(Self { keys, workspace, address, connections, _listening: listening })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name of the user who may log in: the user of the tests.
    pub fn user(&self) -> String {
        let user = Command::new("id").arg("-un").output().unwrap();
        String::from_utf8(user.stdout).unwrap().trim().to_owned()
    }

    /// The private key of the user.
    pub fn user_key(&self) -> String {
        fs::read_to_string(self.keys.path().join("user_key")).unwrap()
    }

    /// Kills the servers of all connections, as if their machine went away.
    pub fn cut(&self) {
        for mut child in self.connections.lock().unwrap().drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn accept(listener: TcpListener, words: Vec<OsString>, connections: Arc<Mutex<Vec<Child>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        let socket = OwnedFd::from(stream);
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(socket.try_clone().unwrap())
            .stdout(socket)
            .stderr(Stdio::null())
            .spawn();
        connections.lock().unwrap().push(child.unwrap());
    }
}
