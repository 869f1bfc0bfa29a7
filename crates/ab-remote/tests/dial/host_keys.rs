//! Hosts that show the right key and the wrong one, by each way of telling.

use std::fs;

use ab_remote::client::{
    Credential, HostKeyCheck, HostPort, KnownHosts, RemoteClientSettings, RemoteEndpoint,
    SshEndpoint,
};
use ab_remote::{
    HostKey, SshAccess, SshListenerOptions, SshServer, SshUsers, serve_ssh_on_listener,
};
use tokio::net::TcpListener;

use super::{denied, reached};
use crate::stage::{Stage, within};

fn at(stage: &Stage, check: HostKeyCheck) -> RemoteClientSettings {
    let mut ssh = SshEndpoint::new("agent", "127.0.0.1");
    ssh.host = HostPort::new("127.0.0.1", stage.address.port());
    ssh.credentials = vec![Credential::Password("correct horse".into())];
    ssh.host_key = check;
    RemoteClientSettings::new(RemoteEndpoint::Ssh(ssh))
}

fn pin(key: &HostKey) -> HostKeyCheck {
    HostKeyCheck::Pin(key.fingerprint().parse().unwrap())
}

#[tokio::test]
async fn the_right_key_by_each_check() {
    let stage = Stage::new().await;
    let known = stage.directory.path().join("keys/known");
    let text = fs::read_to_string(&known).unwrap();
    for check in [
        HostKeyCheck::KnownHosts(KnownHosts::from_files([known])),
        HostKeyCheck::KnownHosts(KnownHosts::from_text(text)),
        pin(&stage.server.settings().host_key),
        HostKeyCheck::TrustOnFirstUse(stage.here("store")),
        HostKeyCheck::TrustOnFirstUse(stage.here("store")),
        HostKeyCheck::Unchecked,
    ] {
        reached(&at(&stage, check)).await;
    }
    stage.end().await;
}

#[tokio::test]
async fn the_wrong_key_by_each_check() {
    let stage = Stage::new().await;
    let other = HostKey::generate_ephemeral("another").unwrap();
    let known_as = format!("[127.0.0.1]:{}", stage.address.port());
    let wrong = format!("{known_as} {}\n", other.public_key());
    let store = stage.here("store");
    fs::write(&store, &wrong).unwrap();
    let shown = stage.server.settings().host_key.fingerprint();
    let revoked = format!("@revoked * {}\n", stage.server.settings().host_key.public_key());
    for (check, what) in [
        (HostKeyCheck::KnownHosts(KnownHosts::default()), "is not known"),
        (HostKeyCheck::KnownHosts(KnownHosts::from_text(wrong)), "has changed"),
        (HostKeyCheck::KnownHosts(KnownHosts::from_text(revoked)), "is revoked"),
        (pin(&other), "is not the pinned one"),
        (HostKeyCheck::TrustOnFirstUse(store), "has changed"),
    ] {
        let said = denied(&at(&stage, check)).await;
        assert!(said.starts_with("the host key of 127.0.0.1:"), "{said}");
        assert!(said.contains(what) && said.contains(&shown), "{said}");
    }
    // What is said about an unknown key is enough to make it known.
    let said = denied(&at(&stage, HostKeyCheck::KnownHosts(KnownHosts::default()))).await;
    let line = said[said.find(&known_as).unwrap()..].trim_end_matches(']');
    reached(&at(&stage, HostKeyCheck::KnownHosts(KnownHosts::from_text(line)))).await;
    stage.end().await;
}

#[tokio::test]
async fn a_key_that_changes_after_the_first_use() {
    let stage = Stage::new().await;
    let (store, address) = (stage.here("store"), stage.address);
    let settings = at(&stage, HostKeyCheck::TrustOnFirstUse(store.clone()));
    let kept = tempfile::tempdir().unwrap();
    let kept = kept.path().join("store");
    reached(&settings).await;
    fs::copy(&store, &kept).unwrap();
    stage.end().await;

    // Another server at the same address, with another key.
    let mut users = SshUsers::new();
    users.add_password("agent", "correct horse").unwrap();
    let key = HostKey::generate_ephemeral("another").unwrap();
    let options = ab_remote::SshServerSettings::new(key, SshAccess::Users(users));
    let server = SshServer::new(agent_backend::memory(), options);
    let listener = TcpListener::bind(address).await.unwrap();
    let listening = tokio::spawn(serve_ssh_on_listener(
        listener,
        server.clone(),
        SshListenerOptions::default(),
    ));
    let mut settings = settings;
    let RemoteEndpoint::Ssh(ssh) = &mut settings.endpoint else { panic!() };
    ssh.host_key = HostKeyCheck::TrustOnFirstUse(kept.clone());
    let said = denied(&settings).await;
    assert!(said.contains("has changed") && said.contains("ssh-keygen -R"), "{said}");
    let asked = std::process::Command::new("ssh-keygen")
        .args(["-R", &format!("[127.0.0.1]:{}", address.port()), "-f"])
        .arg(&kept)
        .output();
    assert!(asked.unwrap().status.success());
    reached(&settings).await;
    within(server.shut_down()).await;
    within(listening).await.unwrap().unwrap();
}
