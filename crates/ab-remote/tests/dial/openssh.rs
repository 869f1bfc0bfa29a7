//! OpenSSH's own server, where there is one.
//!
//! It is started for every connection, as from inetd, so that the port is ours to choose.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ab_remote::client::{
    Credential, HostKeyCheck, HostPort, KnownHosts, RemoteClientSettings, RemoteEndpoint,
    SecretText, SshEndpoint,
};
use ab_testkit::host::{prepare_sshd, report_skip};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{denied, reached};

struct Sshd {
    directory: TempDir,
    port: u16,
    user: String,
    listening: JoinHandle<()>,
}

impl Sshd {
    /// Nothing where there is no server that could be started, which is said.
    async fn start() -> Option<Self> {
        let Some(program) = prepare_sshd() else {
            report_skip("OpenSSH's server", "it is not installed");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for kind in ["ed25519", "rsa"] {
            keygen(&path(kind), kind);
        }
        keygen(&path("client"), "ed25519");
        fs::copy(path("client.pub"), path("authorized")).unwrap();
        let config = format!(
            "HostKey {}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPidFile none\nSubsystem sftp internal-sftp\n",
            path("ed25519").display(),
            path("rsa").display(),
            path("authorized").display(),
        );
        fs::write(path("config"), config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = path("config");
        let listening = tokio::spawn(async move {
            let mut serving = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                let stream = stream.into_std().unwrap();
                stream.set_nonblocking(false).unwrap();
                let both = OwnedFd::from(stream);
                let mut sshd = tokio::process::Command::new(&program);
                sshd.arg("-i").arg("-f").arg(&config).kill_on_drop(true);
                sshd.stdin(both.try_clone().unwrap()).stdout(both).stderr(Stdio::null());
                serving.push(sshd.spawn().unwrap());
            }
        });
        let user = Command::new("id").arg("-un").output().unwrap();
        let user = String::from_utf8(user.stdout).unwrap().trim().to_owned();
        Some(Self { directory, port, user, listening })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn settings(&self, key: &str, host_key: HostKeyCheck) -> RemoteClientSettings {
        let mut ssh = SshEndpoint::new(&self.user, "127.0.0.1");
        ssh.host = HostPort::new("127.0.0.1", self.port);
        let text = SecretText::from(fs::read_to_string(self.path(key)).unwrap());
        ssh.credentials = vec![Credential::Key { text, passphrase: None }];
        ssh.host_key = host_key;
        RemoteClientSettings::new(RemoteEndpoint::Ssh(ssh))
    }

    /// A known host by one of its keys.
    fn known_by(&self, kind: &str) -> HostKeyCheck {
        let public = fs::read_to_string(self.path(kind).with_extension("pub")).unwrap();
        let line = format!("[127.0.0.1]:{} {public}", self.port);
        HostKeyCheck::KnownHosts(KnownHosts::from_text(line))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn keygen(path: &Path, kind: &str) {
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", kind, "-N", "", "-f"]).arg(path).status();
    assert!(made.unwrap().success());
}

#[tokio::test]
async fn openssh_lets_us_in_by_a_key_and_is_known_by_any_of_its_own() {
    let Some(sshd) = Sshd::start().await else { return };
    for kind in ["ed25519", "rsa"] {
        reached(&sshd.settings("client", sshd.known_by(kind))).await;
    }
    let store = HostKeyCheck::TrustOnFirstUse(sshd.path("store"));
    reached(&sshd.settings("client", store.clone())).await;
    reached(&sshd.settings("client", store)).await;
    let said = denied(&sshd.settings("client", sshd.known_by("client"))).await;
    assert!(said.contains("has changed"), "{said}");
}

#[tokio::test]
async fn openssh_refuses_a_key_that_it_does_not_know() {
    let Some(sshd) = Sshd::start().await else { return };
    let said = denied(&sshd.settings("rsa", HostKeyCheck::Unchecked)).await;
    assert!(said.contains(&format!("refused the login of '{}' with the key", sshd.user)), "{said}");
    // More than it takes in one connection.
    let mut settings = sshd.settings("rsa", HostKeyCheck::Unchecked);
    if let RemoteEndpoint::Ssh(ssh) = &mut settings.endpoint {
        ssh.credentials = vec![ssh.credentials[0].clone(); 12];
    }
    let said = denied(&settings).await;
    assert!(said.contains("Too many authentication failures"), "{said}");
}
