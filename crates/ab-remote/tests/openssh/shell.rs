//! `ssh`: commands, terminals, input, signals, ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ab_core::ExecOptions;
use agent_backend::{Isolation, LocalWorkspaceConfig};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use tokio::time::timeout;

use crate::stage::{Stage, TIMEOUT, fed, finish, start, text, within};

/// Holds a lock for as long as the command lives, and says so.
pub(crate) const HOLD: &str = "exec 9>lock; flock 9; echo started; exec sleep 1000";

/// Waits until nobody holds the lock of [`HOLD`].
pub(crate) async fn released(stage: &Stage) {
    let options = ExecOptions { timeout: Some(Duration::from_secs(30)), ..ExecOptions::default() };
    stage.backend.exec_with("exec 9>lock; flock 9", options).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_and_end_as_they_do() {
    let stage = Stage::new().await;
    let output = stage.ssh("echo out; echo err >&2; exit 7").await;
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n", "err\n"));
    assert!(stage.ssh("true").await.status.success());
    assert_eq!(stage.ssh("false").await.status.code(), Some(1));
    assert_eq!(stage.ssh("no-such-program-here").await.status.code(), Some(127));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_told_from_a_status() {
    // Inside bubblewrap a command that was killed is told as a status, by bubblewrap.
    let none = |config: &mut LocalWorkspaceConfig| config.options.exec.isolation = Isolation::None;
    let stage = Stage::with(none, |_| {}).await;
    let mut loud = stage.program("ssh");
    loud.args(["-v", "agent@127.0.0.1", "kill -TERM $$"]);
    let output = finish(&mut loud).await;
    // OpenSSH makes 255 of every signal.
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(text(&output.stderr).contains("rtype exit-signal"), "{output:?}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_at_home_in_the_workspace() {
    let stage = Stage::new().await;
    let output = stage.ssh("test \"$HOME\" = \"$PWD\" && touch made && cd && pwd && ls").await;
    assert!(output.status.success(), "{output:?}");
    assert!(stage.path("made").exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_published_clients_send_passes() {
    let stage = Stage::new().await;
    let root = stage.backend.info().root_aliases[0].clone();
    for line in [
        format!("HOME='{root}' K='v' cd \"{root}\" && echo ok"),
        format!("cd {root} && HOME={root} K=v echo ok"),
        format!("HOME='{root}' cd \"{root}\" && mkdir -p \"{root}/a/b\" && echo ok"),
        format!("cd {root} && HOME={root} touch {root}/a/f && test -e {root}/a/f && echo ok"),
        format!("HOME='{root}' cd \"{root}\" && rm -r -f \"{root}/a\" && echo ok"),
    ] {
        let output = stage.ssh(&line).await;
        assert_eq!(text(&output.stdout), "ok\n", "{line}: {output:?}");
    }
    assert!(!stage.path("a").exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_holds() {
    let stage = Stage::new().await;
    let output = stage.ssh("sudo ls").await;
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    assert!(text(&output.stderr).contains("sudo"), "{output:?}");
    let output = stage.ssh("ls; rm -rf /").await;
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_arrives_and_ends() {
    let stage = Stage::new().await;
    let mine: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let output = fed(stage.program("ssh").args(["agent@127.0.0.1", "cat"]), &mine).await;
    assert!(output.status.success(), "{:?}", text(&output.stderr));
    assert!(output.stdout == mine, "{} of {} bytes", output.stdout.len(), mine.len());
    // A command that reads nothing does not mind.
    let output = fed(stage.program("ssh").args(["agent@127.0.0.1", "exec true"]), &mine).await;
    assert!(output.status.success(), "{output:?}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_one() {
    let stage = Stage::new().await;
    let mut command = stage.program("ssh");
    command.args(["-tt", "agent@127.0.0.1", "tty >/dev/null && stty size && echo $TERM; exit 3"]);
    command.env("TERM", "vt220");
    let output = finish(&mut command).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(text(&output.stdout), "24 80\r\nvt220\r\n");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_reads_what_is_typed() {
    let stage = Stage::new().await;
    let mut command = stage.program("ssh");
    let output = fed(command.arg("agent@127.0.0.1"), b"echo a$((1 + 1))\nexit 5\n").await;
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(text(&output.stdout), "a2\n");

    let mut child = start(stage.program("ssh").args(["-tt", "agent@127.0.0.1"]));
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    // Each answer is one that the terminal's echo of the question does not have.
    for (said, answer) in [
        (&b"PS1=\"pr\"'ompt> '; stty -echo; echo b$((2 + 2))\n"[..], "prompt> "),
        (b"sh -c 'echo r$((3 + 3)); exec cat'\n", "r6"),
        (b"line\n", "line"),
        (b"\x03", "prompt> "),
        (b"echo code $?; exit 6\n", "code 130"),
    ] {
        seen.clear();
        within(stdin.write_all(said)).await.unwrap();
        while !seen.contains(answer) {
            let length = timeout(TIMEOUT, stdout.read(&mut buffer)).await;
            let length = length.unwrap_or_else(|_| panic!("only {seen:?}")).unwrap();
            assert_ne!(length, 0, "{seen:?}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    }
    assert_eq!(within(child.wait()).await.unwrap().code(), Some(6), "{seen:?}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ends_may_ask_whether_the_other_is_there() {
    let often = |settings: &mut ab_remote::SshServerSettings| {
        settings.keepalive = Some(Duration::from_millis(200))
    };
    let stage = Stage::with(|_| {}, often).await;
    let mut command = stage.program("ssh");
    command.args(["-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1"]);
    let output = finish(command.args(["agent@127.0.0.1", "sleep 2.5; echo there"])).await;
    assert_eq!(text(&output.stdout), "there\n", "{output:?}");
    stage.end().await;
}

/// What `ssh` prints, with two variables, for a command in this isolation; nothing where the host lacks it.
async fn with_variables(isolation: Isolation) -> Option<std::process::Output> {
    let configure = |config: &mut LocalWorkspaceConfig| config.options.exec.isolation = isolation;
    let stage = Stage::with(configure, |_| {}).await;
    let stands = stage.backend.effective_policy().await;
    if let Err(lacking) = stands {
        ab_testkit::host::report_skip("variables over SSH", &lacking.to_string());
        stage.end().await;
        return None;
    }
    let mut command = stage.program("ssh");
    command.args(["-o", "SetEnv=GREETING=hello PYTHONPATH=src AGENT_BACKEND_X=1"]);
    command.args(["agent@127.0.0.1", "echo $GREETING $PYTHONPATH $AGENT_BACKEND_X."]);
    let output = finish(&mut command).await;
    stage.end().await;
    Some(output)
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_that_load_code_are_passed_behind_walls() {
    for isolation in [Isolation::Bwrap, Isolation::Landlock] {
        let Some(output) = with_variables(isolation).await else { continue };
        assert_eq!(text(&output.stdout), "hello src .\n", "{isolation:?}: {output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_that_load_code_stop_the_command_without_walls() {
    for isolation in [Isolation::Software, Isolation::None] {
        let output = with_variables(isolation).await.unwrap();
        assert_eq!(text(&output.stdout), "", "{isolation:?}: {output:?}");
        assert_ne!(output.status.code(), Some(0), "{isolation:?}: {output:?}");
        assert!(text(&output.stderr).contains("PYTHONPATH"), "{isolation:?}: {output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_takes_its_command_along() {
    let stage = Stage::new().await;
    // The second one also sends more than its command will ever read.
    for endless in [false, true] {
        let mut child = start(stage.program("ssh").args(["agent@127.0.0.1", HOLD]));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("started"));
        let mut stdin = child.stdin.take().unwrap();
        if endless {
            // More than all windows and buffers on the way: the rest must wait, and does.
            let flood = async { stdin.write_all(&vec![0; 64 * 1024 * 1024]).await };
            let stuck = tokio::time::timeout(Duration::from_secs(3), flood).await;
            assert!(stuck.is_err(), "all of the input went somewhere");
        }
        child.start_kill().unwrap();
        within(child.wait()).await.unwrap();
        released(&stage).await;
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutting_down_ends_what_runs() {
    let stage = Stage::new().await;
    let mut child = start(stage.program("ssh").args(["agent@127.0.0.1", HOLD]));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("started"));
    assert_eq!(stage.server.connection_count(), 1);
    within(stage.server.shut_down()).await;
    assert_eq!(stage.server.connection_count(), 0);
    assert_eq!(within(child.wait()).await.unwrap().code(), Some(255));
    released(&stage).await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_share_a_connection() {
    let stage = Stage::new().await;
    let socket = stage.directory.path().join("c");
    let control = format!("ControlPath={}", socket.display());
    let mut master = stage.program("ssh");
    // It listens for the others before it runs a command of its own.
    master.args(["-M", "-o", &control, "agent@127.0.0.1", HOLD]);
    let mut master = start(&mut master);
    let mut lines = BufReader::new(master.stdout.take().unwrap()).lines();
    assert_eq!(within(lines.next_line()).await.unwrap().as_deref(), Some("started"));
    assert!(socket.exists());
    let sessions = (0..20).map(|number| {
        let mut command = stage.program("ssh");
        command
            .args(["-o", &control, "agent@127.0.0.1"])
            .arg(format!("echo {number}; exit {number}"));
        async move {
            let output = finish(&mut command).await;
            assert_eq!(output.status.code(), Some(number), "{output:?}");
            assert_eq!(text(&output.stdout), format!("{number}\n"));
        }
    });
    futures_util::future::join_all(sessions).await;
    assert_eq!(stage.server.connection_count(), 1);
    master.start_kill().unwrap();
    within(master.wait()).await.unwrap();
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_kept_out() {
    let stage = Stage::new().await;
    let mut stranger = stage.program("ssh");
    let output = finish(stranger.args(["stranger@127.0.0.1", "true"])).await;
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("Permission denied"), "{output:?}");
    let other = stage.directory.path().join("keys/other");
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f"])
        .arg(&other)
        .status();
    assert!(made.unwrap().success());
    let mut wrong = stage.program("ssh");
    // The first of an option that is given twice counts.
    let options = stage.options().into_iter().map(|word| {
        if word.starts_with("IdentityFile=") {
            return format!("IdentityFile={}", other.display());
        }
        word
    });
    let mut wrong_key = tokio::process::Command::new("ssh");
    wrong_key.args(options).args(["agent@127.0.0.1", "true"]);
    let output = finish(&mut wrong_key).await;
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(finish(wrong.args(["agent@127.0.0.1", "true"])).await.status.success());
    assert!(!fs::read_dir(stage.path("")).unwrap().any(|_| true));
    stage.end().await;
}

/// A program that asks for a password, as ssh has them: right the third time.
const ASKED: &str = r#"#!/bin/sh
echo x >> "$0.times"
if test "$(wc -l < "$0.times")" -lt 3; then echo wrong; else echo 'correct horse'; fi
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_password_may_be_mistyped() {
    let stage = Stage::with(|_| {}, |settings| settings.refused_login_delay = Duration::ZERO).await;
    let asking = stage.here("ask");
    fs::write(&asking, ASKED).unwrap();
    fs::set_permissions(&asking, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = tokio::process::Command::new("ssh");
    let options = stage.options().into_iter();
    command.args(options.map(|word| word.replace("BatchMode=yes", "PubkeyAuthentication=no")));
    command.env("SSH_ASKPASS", &asking).env("SSH_ASKPASS_REQUIRE", "force");
    let output = finish(command.args(["agent@127.0.0.1", "echo in"])).await;
    assert_eq!(text(&output.stdout), "in\n", "{output:?}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rsa_keys_of_users_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("rsa");
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f"])
        .arg(&key)
        .status();
    assert!(made.unwrap().success());
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let stage = Stage::with(
        |_| {},
        |settings| {
            let mut users = ab_remote::SshUsers::new();
            users.add_authorized_keys("ada", &public).unwrap();
            settings.access = ab_remote::SshAccess::Users(users);
        },
    )
    .await;
    let options = stage.options().into_iter().map(|word| {
        if word.starts_with("IdentityFile=") {
            return format!("IdentityFile={}", key.display());
        }
        word
    });
    let mut command = tokio::process::Command::new("ssh");
    let output = finish(command.args(options).args(["ada@127.0.0.1", "true"])).await;
    assert!(output.status.success(), "{output:?}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarding_is_refused() {
    let stage = Stage::new().await;
    let mut command = stage.program("ssh");
    command.args(["-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:1"]);
    let output = finish(command.args(["agent@127.0.0.1", "true"])).await;
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    let mut command = stage.program("ssh");
    let output = finish(command.args(["-W", "127.0.0.1:1", "agent@127.0.0.1"])).await;
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(text(&output.stderr).contains("forwarding failed"), "{output:?}");
    stage.end().await;
}
