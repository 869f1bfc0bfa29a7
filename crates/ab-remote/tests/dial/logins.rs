//! Users that are let in and users that are not, by each kind of credential.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ab_remote::client::{
    Credential, HostKeyCheck, HostPort, RemoteClientSettings, RemoteEndpoint, SecretText,
    SshEndpoint,
};

use super::{denied, invalid, lost, reached};
use crate::stage::{Stage, has, within};

fn at(stage: &Stage, credentials: Vec<Credential>) -> RemoteClientSettings {
    let mut ssh = SshEndpoint::new("agent", "127.0.0.1");
    ssh.host = HostPort::new("127.0.0.1", stage.address.port());
    ssh.credentials = credentials;
    ssh.host_key = HostKeyCheck::Unchecked;
    RemoteClientSettings::new(RemoteEndpoint::Ssh(ssh))
}

fn password(text: &str) -> Credential {
    Credential::Password(text.into())
}

fn key(path: &Path, passphrase: Option<&str>) -> Credential {
    let text = SecretText::from(fs::read_to_string(path).unwrap());
    Credential::Key { text, passphrase: passphrase.map(SecretText::from) }
}

/// Makes a key of which nobody knows, unless it is made to.
fn keygen(path: &Path, kind: &str, passphrase: &str) {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", kind, "-N", passphrase, "-f"])
        .arg(path)
        .status();
    assert!(made.unwrap().success());
}

#[tokio::test]
async fn passwords() {
    let stage =
        Stage::with(|_| {}, |settings| settings.refused_login_delay = Default::default()).await;
    reached(&at(&stage, vec![password("correct horse")])).await;
    reached(&at(&stage, vec![password("wrong"), password("correct horse")])).await;
    let said = denied(&at(&stage, vec![password("secret")])).await;
    assert!(said.contains("refused the login of 'agent' with a password [it takes"), "{said}");
    let said = denied(&at(&stage, Vec::new())).await;
    assert!(
        said.contains("accepts none of the credentials") && said.contains("publickey"),
        "{said}"
    );
    // So many that the server hangs up.
    let said = denied(&at(&stage, vec![password("secret"); 20])).await;
    assert!(said.contains("login of 'agent'"), "{said}");
    stage.end().await;
}

#[tokio::test]
async fn keys_with_and_without_a_passphrase() {
    let stage = Stage::with(
        |_| {},
        |settings| {
            settings.refused_login_delay = Default::default();
        },
    )
    .await;
    let known = stage.directory.path().join("keys/client");
    reached(&at(&stage, vec![key(&known, None)])).await;

    let locked = stage.here("locked");
    fs::copy(&known, &locked).unwrap();
    let changed = Command::new("ssh-keygen")
        .args(["-q", "-p", "-P", "", "-N", "open sesame", "-f"])
        .arg(&locked)
        .stdout(Stdio::null())
        .status();
    assert!(changed.unwrap().success());
    reached(&at(&stage, vec![key(&locked, Some("open sesame"))])).await;
    let said = invalid(&at(&stage, vec![key(&locked, None)])).await;
    assert!(said.contains("encrypted") && said.contains("no passphrase"), "{said}");
    let said = invalid(&at(&stage, vec![key(&locked, Some("secret"))])).await;
    assert!(said.contains("with this passphrase"), "{said}");
    let none = Credential::Key { text: "secret".into(), passphrase: None };
    assert!(invalid(&at(&stage, vec![none])).await.contains("cannot read the private key"));

    for kind in ["ed25519", "ecdsa", "rsa"] {
        let unknown = stage.here(kind);
        keygen(&unknown, kind, "");
        let said = denied(&at(&stage, vec![key(&unknown, None)])).await;
        assert!(said.contains("with the key SHA256:"), "{said}");
        reached(&at(&stage, vec![key(&unknown, None), key(&known, None)])).await;
    }
    stage.end().await;
}

#[tokio::test]
async fn keys_that_sign_with_rsa() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rsa");
    keygen(&path, "rsa", "");
    let public = fs::read_to_string(path.with_extension("pub")).unwrap();
    let stage = Stage::with(
        |_| {},
        |settings| {
            let mut users = ab_remote::SshUsers::new();
            users.add_authorized_keys("agent", &public).unwrap();
            settings.access = ab_remote::SshAccess::Users(users);
        },
    )
    .await;
    reached(&at(&stage, vec![key(&path, None)])).await;
    stage.end().await;
}

/// An agent of OpenSSH's, which ends with the test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Agent {
    async fn at(socket: &Path) -> Self {
        let agent = Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let agent = Self(agent.unwrap());
        // There is nothing to wait on but the socket itself.
        within(async {
            while !socket.exists() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        agent
    }

    fn add(&self, socket: &Path, key: &Path) {
        let added = Command::new("ssh-add")
            .arg("-q")
            .arg(key)
            .env("SSH_AUTH_SOCK", socket)
            .stderr(Stdio::null())
            .status();
        assert!(added.unwrap().success());
    }
}

#[tokio::test]
async fn an_agent_is_asked() {
    if !has("ssh-agent") || !has("ssh-add") {
        println!("not run: there is no ssh-agent here");
        return;
    }
    let stage =
        Stage::with(|_| {}, |settings| settings.refused_login_delay = Default::default()).await;
    let socket = stage.here("agent");
    let asked = || vec![Credential::SshAgent { socket: socket.clone() }];
    let said = invalid(&at(&stage, asked())).await;
    assert!(said.contains("cannot ask the ssh agent"), "{said}");
    // What else there is, is tried.
    let also = |text| vec![Credential::SshAgent { socket: socket.clone() }, password(text)];
    reached(&at(&stage, also("correct horse"))).await;
    let said = denied(&at(&stage, also("wrong"))).await;
    assert!(said.contains("with a password; cannot ask the ssh agent"), "{said}");

    let agent = Agent::at(&socket).await;
    let said = denied(&at(&stage, asked())).await;
    assert!(said.contains("accepts none of the credentials"), "{said}");
    let unknown = stage.here("unknown");
    keygen(&unknown, "rsa", "");
    agent.add(&socket, &unknown);
    let said = denied(&at(&stage, asked())).await;
    assert!(said.contains("with the agent's key SHA256:"), "{said}");
    agent.add(&socket, &stage.directory.path().join("keys/client"));
    reached(&at(&stage, asked())).await;
    drop(agent);
    stage.end().await;
}

#[tokio::test]
async fn a_server_that_ends_while_we_log_in_is_no_refusal() {
    let stage = Stage::with(
        |_| {},
        |settings| {
            // Longer than the server lives.
            settings.refused_login_delay = std::time::Duration::from_secs(600);
        },
    )
    .await;
    let settings = at(&stage, vec![password("wrong")]);
    let server = stage.server.clone();
    let (said, ()) = tokio::join!(lost(&settings), async {
        while server.connection_count() == 0 {
            tokio::task::yield_now().await;
        }
        server.shut_down().await;
    });
    assert!(said.starts_with("cannot "), "{said}");
    stage.end().await;
}
