//! OpenSSH's own server, as Debian has it: one process for every connection, run by whoever runs
//! the tests, with keys and configuration in a directory of its own.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use ab_core::Backend;
use ab_remote::client::{
    ClientSettings, Credential, HostKeyCheck, HostPort, ReconnectPolicy, RemoteEndpoint,
    SecretText, SshEndpoint,
};
use ab_testkit::host::{prepare_sshd, report_skip};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::world::connected;
use crate::stage::has;

pub(crate) const PROGRAM: &str = "/usr/sbin/sshd";

pub(crate) struct Sshd {
    keys: TempDir,
    pub(crate) workspace: TempDir,
    address: SocketAddr,
    listening: JoinHandle<()>,
    connections: Arc<Mutex<Vec<Child>>>,
}

impl Sshd {
    /// Nothing, and a word about it, where there is no such server.
    pub(crate) async fn start() -> Option<Self> {
        Self::with("", &[PROGRAM]).await
    }

    /// One with other settings, which come first and so count, started by these words.
    pub(crate) async fn with(settings: &str, program: &[&str]) -> Option<Self> {
        if prepare_sshd().is_none() || !has("ssh-keygen") {
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
        let mut check = Command::new(PROGRAM);
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
        Some(Self { keys, workspace, address, listening, connections })
    }

    pub(crate) fn settings(&self) -> ClientSettings {
        let user = Command::new("id").arg("-un").output().unwrap();
        let user = String::from_utf8(user.stdout).unwrap();
        let mut ssh = SshEndpoint::new(user.trim(), "127.0.0.1");
        ssh.host = HostPort::new("127.0.0.1", self.address.port());
        let key = fs::read_to_string(self.keys.path().join("user_key")).unwrap();
        ssh.credentials = vec![Credential::Key { text: SecretText::from(key), passphrase: None }];
        ssh.host_key = HostKeyCheck::Unchecked;
        let root = Some(self.workspace.path().to_str().unwrap().to_owned());
        let reconnection = ReconnectPolicy {
            initial_delay: std::time::Duration::from_millis(10),
            ..ReconnectPolicy::default()
        };
        ClientSettings { root, reconnection, ..ClientSettings::new(RemoteEndpoint::Ssh(ssh)) }
    }

    pub(crate) async fn backend(&self) -> Backend {
        connected(self.settings()).await
    }

    /// Kills the servers of all connections, as if their machine went away.
    pub(crate) fn cut(&self) {
        for mut child in self.connections.lock().unwrap().drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.listening.abort();
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
