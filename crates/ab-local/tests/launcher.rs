//! What the launcher starts, how it is talked to, and that it ends.

use std::path::Path;

use ab_core::process::{ExecLimits, ExitCause, StdinMode};
use ab_core::{ErrorKind, Isolation};
use ab_local::{LocalWorkspace, LocalWorkspaceConfig, ProgramLaunchRequest};
use ab_testkit::commands::COMMAND_TIMEOUT;
use ab_testkit::host::report_skip;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

const MODES: [Isolation; 4] =
    [Isolation::Bwrap, Isolation::Landlock, Isolation::Software, Isolation::None];

struct Fixture {
    workspace: LocalWorkspace,
    root: tempfile::TempDir,
    _temporary: tempfile::TempDir,
}

/// A workspace with this isolation; nothing where the host cannot have it.
async fn fixture(isolation: Isolation, limits: ExecLimits) -> Option<Fixture> {
    let (root, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut config = LocalWorkspaceConfig::new(root.path());
    config.options.exec.isolation = isolation;
    config.options.exec.limits = limits;
    config.options.exec.temporary_dir = temporary.path().to_owned();
    let workspace = ab_local::open_local_workspace(config).unwrap();
    if let Err(error) = workspace.backend.effective_policy().await {
        report_skip(&format!("isolation {isolation}"), &error.to_string());
        return None;
    }
    Some(Fixture { workspace, root, _temporary: temporary })
}

fn shell(line: &str) -> ProgramLaunchRequest {
    ProgramLaunchRequest::new(["/bin/sh", "-c", line])
}

/// Whether a process on this host has `text` among its arguments.
fn runs(text: &str) -> bool {
    let processes = Path::new("/proc").read_dir().unwrap().flatten();
    processes.map(|entry| entry.path().join("cmdline")).any(|file| {
        let words = std::fs::read(file).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == text.as_bytes())
    })
}

#[tokio::test]
async fn lines_go_in_and_come_out() {
    for isolation in MODES {
        let Some(fixture) = fixture(isolation, ExecLimits::default()).await else { continue };
        let echo = "echo ready >&2; while read -r line; do echo \"got $line\"; done; exit 3";
        let launch = ProgramLaunchRequest { stdin: StdinMode::Piped, ..shell(echo) };
        let mut launched = fixture.workspace.launcher.start(launch).await.unwrap();
        let mut stdin = launched.stdin.take().unwrap();
        let mut lines = BufReader::new(launched.stdout.take().unwrap()).lines();
        for line in ["one", "two"] {
            stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            let answer = lines.next_line().await.unwrap();
            assert_eq!(answer, Some(format!("got {line}")), "{isolation}");
        }
        drop(stdin);
        assert_eq!(lines.next_line().await.unwrap(), None);
        let mut said = String::new();
        launched.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "ready\n");
        let exit = launched.wait().await.unwrap();
        assert_eq!((exit.code, exit.cause), (Some(3), ExitCause::Exited), "{isolation}");
    }
}

#[tokio::test]
async fn closed_output_ends_although_the_program_goes_on() {
    for isolation in MODES {
        let Some(fixture) = fixture(isolation, ExecLimits::default()).await else { continue };
        let launch = ProgramLaunchRequest {
            stdin: StdinMode::Piped,
            ..shell("echo said; exec >&-; read -r line")
        };
        let mut launched = fixture.workspace.launcher.start(launch).await.unwrap();
        let mut said = String::new();
        let mut stdout = launched.stdout.take().unwrap();
        let reading = tokio::time::timeout(COMMAND_TIMEOUT, stdout.read_to_string(&mut said));
        reading.await.unwrap_or_else(|_| panic!("{isolation}: no end")).unwrap();
        assert_eq!(said, "said\n", "{isolation}");
        let mut ending = launched.exit_receiver().clone();
        tokio::select! {
            biased;
            exit = ending.wait() => panic!("{isolation}: it ended: {exit:?}"),
            () = std::future::ready(()) => {}
        }
        launched.stdin.take().unwrap().write_all(b"go\n").await.unwrap();
        assert_eq!(launched.wait().await.unwrap().code, Some(0), "{isolation}");
    }
}

#[tokio::test]
async fn the_command_policy_judges_callers_and_not_the_operator() {
    for isolation in MODES {
        let Some(fixture) = fixture(isolation, ExecLimits::default()).await else { continue };
        let line = "rm -rf *; echo launched";
        let refused = fixture.workspace.backend.exec(line).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::DeniedByPolicy, "{isolation}");
        let launched = fixture.workspace.launcher.start(shell(line)).await.unwrap();
        let output = launched.wait_with_output(1024).await.unwrap();
        assert!(output.stdout.ends_with(b"launched\n"), "{isolation}: {output:?}");
    }
}

#[tokio::test]
async fn variables_are_given_and_ours_are_not_passed_on() {
    for isolation in MODES {
        let Some(fixture) = fixture(isolation, ExecLimits::default()).await else { continue };
        let launch = shell("echo \"$PYTHONPATH|$CARGO_MANIFEST_DIR\"").env("PYTHONPATH", "x");
        let output =
            fixture.workspace.launcher.start(launch).await.unwrap().wait_with_output(99).await;
        assert_eq!(output.unwrap().stdout, "x|\n", "{isolation}");
    }
}

#[tokio::test]
async fn what_is_launched_is_behind_the_same_walls() {
    for isolation in [Isolation::Bwrap, Isolation::Landlock] {
        let Some(fixture) = fixture(isolation, ExecLimits::default()).await else { continue };
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        let line = format!("cat '{}'; echo mine > own", secret.display());
        let output = fixture.workspace.launcher.start(shell(&line)).await.unwrap();
        let output = output.wait_with_output(4096).await.unwrap();
        assert_eq!(output.stdout, "", "{isolation}");
        assert_eq!(std::fs::read_to_string(fixture.root.path().join("own")).unwrap(), "mine\n");
    }
}

#[tokio::test]
async fn limits_of_commands_do_not_end_what_is_launched() {
    let wall = Some(std::time::Duration::from_millis(1));
    let limits = ExecLimits { wall_time: wall, ..ExecLimits::default() };
    let Some(fixture) = fixture(Isolation::None, limits).await else { return };
    let launched = fixture.workspace.launcher.start(shell("sleep 0.05; echo end")).await.unwrap();
    assert_eq!(launched.wait_with_output(99).await.unwrap().stdout, "end\n");
    let own = ProgramLaunchRequest { limits, ..shell("sleep 60") };
    let output =
        fixture.workspace.launcher.start(own).await.unwrap().wait_with_output(99).await.unwrap();
    assert_eq!(output.exit.cause, ExitCause::Timeout);
}

#[tokio::test]
async fn kill_drop_and_destroy_end_the_whole_tree() {
    for (number, isolation) in MODES.into_iter().enumerate() {
        let Some(fixture) = fixture(isolation, ExecLimits::default()).await else { continue };
        for end in ["kill", "drop", "destroy"] {
            // A number that no other process on this host has as an argument.
            let mark = format!("{}{number}{}", std::process::id() + 1_000_000, end.len());
            // Outside a namespace, what left the group is found by its environment, at best.
            let apart = if isolation == Isolation::Bwrap { "setsid " } else { "" };
            let line = format!("{apart}sleep {mark} & sleep {mark} & echo up; wait");
            let mut launched = fixture.workspace.launcher.start(shell(&line)).await.unwrap();
            let mut up = [0; 3];
            launched.stdout.as_mut().unwrap().read_exact(&mut up).await.unwrap();
            gone_or_up(&mark, true).await;
            match end {
                "kill" => {
                    assert_eq!(launched.kill().await.unwrap().cause, ExitCause::DroppedByCaller)
                }
                "drop" => drop(launched),
                _ => {
                    fixture.workspace.backend.destroy().await.unwrap();
                    assert_eq!(launched.wait().await.unwrap().cause, ExitCause::DroppedByCaller);
                    let error = fixture.workspace.launcher.start(shell("true")).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Destroyed);
                }
            }
            gone_or_up(&mark, false).await;
        }
    }
}

/// Without a namespace, processes that left the group are found by their environment.
#[tokio::test]
async fn processes_in_other_sessions_end_with_a_program_that_ends_by_itself() {
    for (number, isolation) in MODES.into_iter().enumerate() {
        let Some(fixture) = fixture(isolation, ExecLimits::default()).await else { continue };
        let mark = format!("{}{number}9", std::process::id() + 1_000_000);
        let line = format!(
            "setsid sleep {mark} & trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done"
        );
        let mut launched = fixture.workspace.launcher.start(shell(&line)).await.unwrap();
        let mut up = [0; 3];
        launched.stdout.as_mut().unwrap().read_exact(&mut up).await.unwrap();
        gone_or_up(&mark, true).await;
        launched.signal(15).await;
        let exit = launched.wait().await.unwrap();
        assert_eq!((exit.code, exit.cause), (Some(3), ExitCause::Exited), "{isolation}");
        gone_or_up(&mark, false).await;
    }
}

async fn gone_or_up(mark: &str, up: bool) {
    let comes = async {
        while runs(mark) != up {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(COMMAND_TIMEOUT, comes).await.expect("it never came");
}

#[tokio::test]
async fn a_dropped_reader_discards_and_a_bound_is_kept() {
    let Some(fixture) = fixture(Isolation::None, ExecLimits::default()).await else { return };
    let start = |line: &'static str| fixture.workspace.launcher.start(shell(line));
    let mut launched = start("head -c 1000000 /dev/zero >&2; echo end").await.unwrap();
    drop(launched.stderr.take());
    let mut said = String::new();
    launched.stdout.take().unwrap().read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "end\n");
    let launched = start("head -c 1000000 /dev/zero; sleep 60").await.unwrap();
    assert_eq!(launched.wait_with_output(1000).await.unwrap_err().kind(), ErrorKind::TooLarge);
    let launched = start("exec >&- 2>&-; sleep 0.05; exit 7").await.unwrap();
    assert_eq!(launched.wait_with_output(10).await.unwrap().exit.code, Some(7));
}

#[tokio::test]
async fn a_launch_without_a_program_is_refused() {
    let Some(fixture) = fixture(Isolation::None, ExecLimits::default()).await else { return };
    let error =
        fixture.workspace.launcher.start(ProgramLaunchRequest::new([""])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let missing = ProgramLaunchRequest::new(["agent-backend-has-no-such-program"]);
    let error = fixture.workspace.launcher.start(missing).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let secret = ProgramLaunchRequest::new(["true"]).env("TOKEN", "s3cret");
    assert!(!format!("{secret:?}").contains("s3cret"));
}
