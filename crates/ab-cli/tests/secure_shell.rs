//! The daemon's SSH, by OpenSSH's own programs: through `ssh-proxy`, and on a port of its own.

mod logins;
mod transfers;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use ab_testkit::host::report_skip;

use crate::daemon::Daemon;
use crate::stage::{BINARY, Ran, Stage, run};

const TOKEN: &str = "t0ken";

fn client(program: &str, stage: &Stage) -> Command {
    let mut command = stage.command(program);
    command.args(["-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"]);
    let hosts = format!("UserKnownHostsFile={}", stage.outside("known_hosts").display());
    command.args(["-o", &hosts]);
    command.env("AGENT_BACKEND_AUTH_TOKEN", TOKEN);
    command
}

fn through_proxy(program: &str, stage: &Stage, daemon: &Daemon) -> Command {
    let mut command = client(program, stage);
    let proxy = format!("ProxyCommand='{BINARY}' ssh-proxy ws://{}/ssh", daemon.address);
    command.args(["-o", &proxy]);
    command
}

fn ssh(stage: &Stage, daemon: &Daemon, line: &str) -> Ran {
    let mut command = through_proxy("ssh", stage, daemon);
    command.args(["workspace", line]);
    run(command, b"")
}

fn guarded(stage: &Stage) -> Daemon {
    Daemon::start(stage, &["--rootDir", ".", "--auth-token", TOKEN])
}

#[test]
fn plain_ssh_runs_commands_through_the_proxy() {
    let stage = Stage::with(&[("a.txt", "hello\n")]);
    let daemon = guarded(&stage);
    let ran = ssh(&stage, &daemon, "cat a.txt; echo oops >&2; exit 7");
    assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (7, "hello\n", "oops\n"));
    // The same rules as everywhere.
    let refused = ssh(&stage, &daemon, "sudo ls");
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("sudo"), "{}", refused.err);
    // What published clients put before every command.
    let root = stage.root();
    let line = format!("HOME='{0}' cd \"{0}\" && cat a.txt", root.display());
    let ran = ssh(&stage, &daemon, &line);
    assert_eq!((ran.code, ran.text().as_str()), (0, "hello\n"), "{}", ran.err);
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn plain_sftp_moves_files_through_the_proxy() {
    let stage = Stage::with(&[("a.txt", "hello\n")]);
    let daemon = guarded(&stage);
    let (there, back) = (stage.outside("there"), stage.outside("back"));
    let large = vec![7_u8; 3 << 20];
    fs::write(&there, &large).unwrap();
    let batch = format!("put {} deep.bin\nget deep.bin {}\nls\n", there.display(), back.display());
    let mut command = through_proxy("sftp", &stage, &daemon);
    command.args(["-b", "-", "workspace"]);
    let ran = run(command, batch.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(fs::read(back).unwrap() == large);
    assert_eq!(fs::read(stage.path("deep.bin")).unwrap().len(), large.len());
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn a_wrong_token_is_told() {
    let stage = Stage::new();
    let daemon = guarded(&stage);
    let mut command = stage.command(BINARY);
    command.args(["ssh-proxy", &format!("ws://{}/ssh", daemon.address)]);
    let ran = run(command, b"");
    ran.expect_error(3, "the daemon requires a token");
    let file = stage.outside("token");
    fs::write(&file, "wrong\n").unwrap();
    let mut command = stage.command(BINARY);
    command.arg("ssh-proxy").arg("--token-file").arg(&file);
    command.arg(format!("ws://{}/ssh", daemon.address));
    run(command, b"").expect_error(3, "the daemon refused the token");
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn what_is_no_daemon_is_told() {
    let stage = Stage::new();
    stage.run(&["ssh-proxy", "nonsense"]).expect_error(2, "not a WebSocket URL");
    stage.run(&["ssh-proxy", "http://127.0.0.1:1/ssh"]).expect_error(2, "not a WebSocket URL");
    stage
        .run(&["ssh-proxy", "ws://127.0.0.1:1/ssh"])
        .expect_error(4, "cannot reach 127.0.0.1:1: connection refused");
    let off = Daemon::start(&stage, &["--rootDir", ".", "--disable-ssh-ws"]);
    assert!(!off.notice.contains("SSH"), "{}", off.notice);
    let url = format!("ws://{}/ssh", off.address);
    stage.run(&["ssh-proxy", &url]).expect_error(4, "404");
    assert_eq!(off.end().0, 0);
}

#[test]
fn the_host_key_is_kept_and_private() {
    let stage = Stage::new();
    let fingerprint = |daemon: &Daemon| {
        let shown = daemon.notice.split("SHA256:").nth(1).unwrap();
        shown.split([',', '\n']).next().unwrap().to_owned()
    };
    let first = Daemon::start(&stage, &["--rootDir", "."]);
    let kept = fingerprint(&first);
    assert_eq!(first.end().0, 0);
    let mode = fs::metadata(stage.outside("host_key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = Daemon::start(&stage, &["--rootDir", "."]);
    assert_eq!(fingerprint(&second), kept);
    assert_eq!(second.end().0, 0);
}

#[test]
fn the_host_key_of_another_user_is_in_their_state_directory() {
    const NOBODY: u32 = 65534;
    let stage = Stage::new();
    let state = stage.outside("state");
    fs::create_dir(&state).unwrap();
    for place in [&stage.outside("."), &stage.root(), &state] {
        if std::os::unix::fs::chown(place, Some(NOBODY), Some(NOBODY)).is_err() {
            return report_skip("a daemon of another user", "it takes root to become one");
        }
    }
    let fingerprint = || {
        let mut command = stage.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", BINARY, "daemon"]);
        command.args(["--rootDir", ".", "--host", "localhost", "--port", "0"]);
        let daemon = Daemon::spawn({
            command.env("XDG_STATE_HOME", &state);
            command
        });
        let shown = daemon.notice.split("SHA256:").nth(1).unwrap();
        let shown = shown.split([',', '\n']).next().unwrap().to_owned();
        assert_eq!(daemon.end().0, 0);
        shown
    };
    let first = fingerprint();
    let key = state.join("agent-backend/ssh_host_ed25519_key");
    assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fingerprint(), first);
}

#[test]
fn a_host_key_that_is_there_and_cannot_be_used_is_told_and_not_replaced() {
    let stage = Stage::new();
    let start = || {
        // One that serves all the same, or waits for ever, ends by itself and with another code.
        let mut command = stage.command("timeout");
        command.args(["-s", "KILL", "60", BINARY, "daemon", "--rootDir", ".", "--port", "0"]);
        command.arg("--ssh-host-key").arg(stage.outside("host_key"));
        run(command, b"")
    };
    let path = stage.outside("host_key");
    assert_eq!(Daemon::start(&stage, &["--rootDir", "."]).end().0, 0);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let open = start();
    open.expect_error(1, "host_key: other users can read it");
    assert!(open.err.contains("chmod 600"), "{}", open.err);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(Daemon::start(&stage, &["--rootDir", "."]).end().0, 0);

    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(&path).status().unwrap().success());
    start().expect_error(1, "host_key: it is not a regular file");
}

#[test]
fn a_host_key_that_cannot_be_written_is_made_for_once() {
    let stage = Stage::with(&[("file", "")]);
    let mut command = stage.command(BINARY);
    command.args(["daemon", "--rootDir", ".", "--port", "0", "--ssh-host-key", "file/key"]);
    let daemon = Daemon::spawn(command);
    assert!(daemon.warnings.contains("changes with the next start"), "{}", daemon.warnings);
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn a_daemon_that_ends_takes_connections_and_their_commands_along() {
    let stage = Stage::new();
    let flags = ["--rootDir", ".", "--auth-token", TOKEN, "--isolation", "none", "--safety", "off"];
    let daemon = Daemon::start(&stage, &flags);
    let mut command = through_proxy("ssh", &stage, &daemon);
    command.args(["workspace", "echo $$ > pid; sleep 1000"]);
    let mut held = command.stdin(std::process::Stdio::null()).spawn().unwrap();
    let pid = loop {
        let said = fs::read_to_string(stage.path("pid")).unwrap_or_default();
        if said.ends_with('\n') {
            break said.trim().to_owned();
        }
        std::thread::yield_now();
    };
    assert_eq!(daemon.end().0, 0);
    assert_eq!(held.wait().unwrap().code(), Some(255));
    let place = std::path::PathBuf::from(format!("/proc/{pid}"));
    while place.exists() {
        std::thread::yield_now();
    }
}
