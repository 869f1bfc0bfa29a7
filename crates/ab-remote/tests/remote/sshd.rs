//! Reaches OpenSSH's own server.

use ab_core::Backend;
use ab_remote::client::{
    Credential, HostKeyCheck, HostPort, ReconnectPolicy, RemoteClientSettings, RemoteEndpoint,
    SecretText, SshEndpoint,
};
use ab_testkit::sshd::Sshd;

use super::world::connected;

/// Settings that log in to the server and name its workspace.
pub(crate) fn settings(sshd: &Sshd) -> RemoteClientSettings {
    let mut ssh = SshEndpoint::new(sshd.user(), "127.0.0.1");
    ssh.host = HostPort::new("127.0.0.1", sshd.address().port());
    let text = SecretText::from(sshd.user_key());
    ssh.credentials = vec![Credential::Key { text, passphrase: None }];
    ssh.host_key = HostKeyCheck::Unchecked;
    let root = Some(sshd.workspace.path().to_str().unwrap().to_owned());
    let reconnection = ReconnectPolicy {
        initial_delay: std::time::Duration::from_millis(10),
        ..ReconnectPolicy::default()
    };
    RemoteClientSettings {
        root,
        reconnection,
        ..RemoteClientSettings::new(RemoteEndpoint::Ssh(ssh))
    }
}

pub(crate) async fn backend(sshd: &Sshd) -> Backend {
    connected(settings(sshd)).await
}
