//! Through `ssh-proxy`: `scp`, `rsync` and `sshfs`, and all of it inside TLS.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ab_testkit::host;

use super::{TOKEN, guarded};
use crate::daemon::Daemon;
use crate::stage::{BINARY, Stage, run};

/// Settings for OpenSSH's programs, by which `workspace` is the daemon.
fn settings(stage: &Stage, url: &str) -> PathBuf {
    let path = stage.outside("ssh_config");
    let hosts = stage.outside("known_hosts");
    let text = format!(
        "Host workspace\n  ProxyCommand '{BINARY}' ssh-proxy {url}\n  BatchMode yes\n  \
         StrictHostKeyChecking no\n  UserKnownHostsFile {}\n  LogLevel ERROR\n",
        hosts.display()
    );
    fs::write(&path, text).unwrap();
    path
}

/// A program beside the workspace, that has the token.
fn beside(stage: &Stage, program: &str) -> Command {
    let mut command = stage.command(program);
    command.current_dir(stage.outside("")).env("AGENT_BACKEND_AUTH_TOKEN", TOKEN);
    command
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// A daemon, settings to reach it, and a small tree beside its workspace.
fn stage() -> (Stage, Daemon, PathBuf) {
    let stage = Stage::new();
    let daemon = guarded(&stage);
    let config = settings(&stage, &format!("ws://{}/ssh", daemon.address));
    fs::create_dir_all(stage.outside("tree/deep")).unwrap();
    fs::write(stage.outside("tree/deep/large"), vec![7; 3 << 20]).unwrap();
    fs::write(stage.outside("tree/a b"), "spaced\n").unwrap();
    (stage, daemon, config)
}

#[track_caller]
fn same_tree(stage: &Stage, place: &str) {
    let place = stage.outside(place);
    assert!(fs::read(place.join("deep/large")).unwrap() == vec![7; 3 << 20]);
    assert_eq!(fs::read_to_string(place.join("a b")).unwrap(), "spaced\n");
}

#[test]
fn scp_copies_trees_both_ways_through_the_proxy() {
    let (stage, daemon, config) = stage();
    for (from, to) in [("tree", "workspace:there"), ("workspace:there", "back")] {
        let mut command = beside(&stage, "scp");
        command.arg("-F").arg(&config).args(["-qr", from, to]);
        let ran = run(command, b"");
        assert_eq!(ran.code, 0, "{from} {to}: {}", ran.err);
    }
    same_tree(&stage, "workspace/there");
    same_tree(&stage, "back");
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn rsync_copies_trees_both_ways_through_the_proxy() {
    if !has("rsync") {
        host::report_skip("rsync through ssh-proxy", "there is no rsync");
        return;
    }
    let (stage, daemon, config) = stage();
    let shell = format!("ssh -F {}", config.display());
    for (from, to) in [("tree/", "workspace:there/"), ("workspace:there/", "back/")] {
        let mut command = beside(&stage, "rsync");
        command.args(["-rlpt", "--delete", "-e", &shell, from, to]);
        let ran = run(command, b"");
        assert_eq!(ran.code, 0, "{from} {to}: {}", ran.err);
    }
    same_tree(&stage, "workspace/there");
    same_tree(&stage, "back");
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn sshfs_mounts_through_the_proxy() {
    if !has("sshfs") || !has("unshare") || fs::File::open("/dev/fuse").is_err() {
        host::report_skip("sshfs through ssh-proxy", "there is no sshfs, no unshare or no FUSE");
        return;
    }
    let (stage, daemon, config) = stage();
    fs::create_dir(stage.outside("mnt")).unwrap();
    let script = "set -e; sshfs -o ssh_command=\"$0\" workspace: mnt; cp -r tree mnt/there; \
        cmp tree/deep/large mnt/there/deep/large; mv mnt/there/deep mnt/there/moved; \
        mv mnt/there/moved mnt/there/deep; fusermount3 -u mnt";
    let mut command = beside(&stage, "unshare");
    command.args(["-m", "sh", "-c", script, &format!("ssh -F {}", config.display())]);
    let ran = run(command, b"");
    if ran.err.contains("unshare failed") {
        host::report_skip("sshfs through ssh-proxy", "no mount namespace can be made");
        return;
    }
    assert_eq!(ran.code, 0, "{}", ran.err);
    same_tree(&stage, "workspace/there");
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn ssh_goes_through_the_proxy_inside_tls() {
    let stage = Stage::with(&[("a.txt", "hello\n")]);
    let written = |name: &str, text: String| {
        let path = stage.outside(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = written("cert.pem", made.cert.pem());
    let key = written("key.pem", made.signing_key.serialize_pem());
    let foreign = written("other.pem", other.cert.pem());
    let encrypted = ["--auth-token", TOKEN, "--tls-cert", &certificate, "--tls-key", &key];
    let daemon = Daemon::start(&stage, &[&["--rootDir", "."], &encrypted[..]].concat());
    let url = format!("wss://{}/ssh", daemon.address);
    let config = settings(&stage, &url);

    let mut command = beside(&stage, "ssh");
    command.arg("-F").arg(&config).args(["workspace", "cat a.txt; exit 7"]);
    command.env("SSL_CERT_FILE", &certificate);
    let ran = run(command, b"");
    assert_eq!((ran.code, ran.text().as_str()), (7, "hello\n"), "{}", ran.err);

    // Who is trusted is not guessed, and the token is looked at inside.
    let mut command = beside(&stage, BINARY);
    command.args(["ssh-proxy", &url]).env("SSL_CERT_FILE", &foreign);
    run(command, b"").expect_error(3, "the certificate of 127.0.0.1");
    let mut command = beside(&stage, BINARY);
    command.args(["fs", "ls", "--remote", &url]).env("SSL_CERT_FILE", &foreign);
    let ran = run(command, b"");
    ran.expect_error(3, "the certificate of 127.0.0.1");
    assert!(ran.err.contains("SSL_CERT_FILE") && !ran.err.contains("token"), "{}", ran.err);
    let mut command = beside(&stage, BINARY);
    command.args(["ssh-proxy", &url]).env("SSL_CERT_FILE", &certificate);
    command.env("AGENT_BACKEND_AUTH_TOKEN", "wrong");
    run(command, b"").expect_error(3, "the daemon refused the token");
    assert_eq!(daemon.end().0, 0);
}
