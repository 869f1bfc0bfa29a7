//! Who may log in on the port of plain SSH: by password, by key, by key alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{TOKEN, client};
use crate::daemon::Daemon;
use crate::stage::{Ran, Stage, run};

/// A key of its own: where it is, and its public half.
fn key(stage: &Stage) -> (PathBuf, String) {
    let key = stage.outside("id");
    let mut made = Command::new("ssh-keygen");
    made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
    assert!(made.status().unwrap().success());
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    (key, public)
}

fn serving(stage: &Stage, more: &[&str]) -> Daemon {
    let flags = ["--rootDir", ".", "--conventional-ssh", "--ssh-port", "0", "--safety", "off"];
    Daemon::start(stage, &[&flags, more].concat())
}

fn port(daemon: &Daemon) -> String {
    let address = daemon.notice.split(" and on ").nth(1).unwrap().split(' ').next().unwrap();
    address.rsplit(':').next().unwrap().to_owned()
}

fn by_key(stage: &Stage, daemon: &Daemon, user: &str, key: Option<&Path>, line: &str) -> Ran {
    let mut command = client("ssh", stage);
    command.args(["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-p", &port(daemon)]);
    if let Some(key) = key {
        command.arg("-i").arg(key);
    }
    command.args([&format!("{user}@127.0.0.1"), line]);
    run(command, b"")
}

fn by_password(stage: &Stage, daemon: &Daemon, user: &str, password: &str) -> Ran {
    // ssh asks a program where there is no terminal.
    let says = stage.outside("says");
    fs::write(&says, format!("#!/bin/sh\necho '{password}'\n")).unwrap();
    fs::set_permissions(&says, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = client("ssh", stage);
    command.args(["-o", "PreferredAuthentications=password", "-o", "NumberOfPasswordPrompts=1"]);
    command.args(["-p", &port(daemon), &format!("{user}@127.0.0.1"), "echo in"]);
    command.env("SSH_ASKPASS", &says).env("SSH_ASKPASS_REQUIRE", "force");
    run(command, b"")
}

#[test]
fn ssh_has_a_port_of_its_own_for_those_who_may() {
    let stage = Stage::with(&[("in/a.txt", "inside\n"), ("b.txt", "outside\n")]);
    let (key, public) = key(&stage);
    let users = ["--ssh-users", "ada:secret,bob:pa:ss", "--ssh-public-key", &public];
    let more = [&["--scopePath", "in", "--auth-token", TOKEN], &users[..]].concat();
    let daemon = serving(&stage, &more);
    let by_key =
        |user: &str, key: Option<&Path>, line: &str| by_key(&stage, &daemon, user, key, line);
    let ran = by_key("ada", Some(&key), "cat a.txt; ls -a ..");
    assert!(ran.text().starts_with("inside\n") && !ran.text().contains("b.txt"), "{}", ran.text());
    assert_eq!(by_key("ada", None, "true").code, 255);
    assert_eq!(by_key("bob", Some(&key), "true").code, 255);
    assert_eq!(by_key("root", Some(&key), "true").code, 255);
    assert_eq!(by_password(&stage, &daemon, "ada", "secret").text(), "in\n");
    assert_eq!(by_password(&stage, &daemon, "bob", "pa:ss").text(), "in\n");
    assert_eq!(by_password(&stage, &daemon, "bob", "pa").code, 255);
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn where_a_key_is_given_the_known_password_is_none() {
    let stage = Stage::new();
    let (key, public) = key(&stage);
    let keys = stage.outside("authorized_keys");
    fs::write(&keys, format!("# mine\n{public}")).unwrap();
    let keys = keys.to_str().unwrap();
    let by_file = ["--ssh-authorized-keys", keys];
    let anywhere = ["--host", "0.0.0.0", "--no-auth", "--ssh-public-key", &public];
    let named = ["--ssh-users", "ada", "--ssh-public-key", &public];
    for (flags, user) in [(&by_file[..], "root"), (&anywhere, "root"), (&named, "ada")] {
        let daemon = serving(&stage, flags);
        let ran = by_key(&stage, &daemon, user, Some(&key), "echo in");
        assert_eq!((ran.code, ran.text().as_str()), (0, "in\n"), "{flags:?}: {}", ran.err);
        let ran = by_password(&stage, &daemon, user, "agents");
        assert_eq!((ran.code, ran.text().as_str()), (255, ""), "{flags:?}");
        assert!(ran.err.contains("Permission denied (publickey)"), "{flags:?}: {}", ran.err);
        assert_eq!(daemon.end().0, 0);
    }
    // Without one, clients that know it from before are let in on this host.
    let daemon = serving(&stage, &[]);
    let told = " (root logs in with the published password 'agents') ";
    assert!(daemon.notice.contains(told), "{}", daemon.notice);
    assert_eq!(by_password(&stage, &daemon, "root", "agents").text(), "in\n");
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn where_a_token_is_set_the_known_password_is_none() {
    let stage = Stage::new();
    let token = ["--auth-token", TOKEN];
    let anywhere = ["--host", "0.0.0.0", "--auth-token", TOKEN];
    for flags in [&token[..], &anywhere] {
        let daemon = serving(&stage, flags);
        assert!(daemon.notice.contains(" (root logs in with the token) "), "{}", daemon.notice);
        let ran = by_password(&stage, &daemon, "root", "agents");
        assert_eq!((ran.code, ran.text().as_str()), (255, ""), "{flags:?}");
        let ran = by_password(&stage, &daemon, "root", TOKEN);
        assert_eq!(ran.text(), "in\n", "{flags:?}: {}", ran.err);
        assert_eq!(daemon.end().0, 0);
    }
    // The operator may ask for it by name.
    let daemon = serving(&stage, &[&token[..], &["--ssh-users", "root:agents"]].concat());
    assert!(daemon.notice.contains(" (root logs in) "), "{}", daemon.notice);
    assert_eq!(by_password(&stage, &daemon, "root", "agents").text(), "in\n");
    assert_eq!(daemon.end().0, 0);
}
