//! Nothing outlives its command: cancelled, out of time, dropped or destroyed.

use std::time::Duration;

use ab_core::process::{Command, ExecLimits, ExecRequest, ExitCause, ProcessLifetime};
use ab_core::{ErrorKind, ExecOptions, Isolation};
use ab_host::LocalExecSettings;
use ab_testkit::commands::{
    exec_stdout_text, lock_holding_script, piped_stdin_request, read_until, wait_until_lock_is_free,
};
use ab_testkit::expect::expect_error;

use super::{Fixture, MODES, comes, mark, marked, output};

/// Ways to leave the group of a command.
const RUNAWAYS: [&str; 4] = [
    "setsid sleep 1000 & echo ready; wait",
    "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo ready; sleep 1000",
    "nohup setsid sleep 1000 >nohup.out 2>&1 & echo ready; sleep 1000",
    "setsid env -i sleep 1000 & echo ready; sleep 1000",
];

/// Those that guarantee it: a namespace, or a control group.
fn guaranteed() -> Vec<Fixture> {
    let limits = ExecLimits { processes: Some(64), ..ExecLimits::default() };
    vec![
        Fixture::behind(Isolation::Bwrap),
        Fixture::bounded(Isolation::Bwrap, limits),
        Fixture::bounded(Isolation::Landlock, limits),
        Fixture::bounded(Isolation::None, limits),
    ]
}

#[tokio::test]
async fn runaways_end_when_their_command_is_dropped() {
    for fixture in guaranteed() {
        for line in RUNAWAYS {
            let request = ExecRequest::shell(lock_holding_script(line));
            let mut process = fixture.backend.spawn(request).await.unwrap();
            read_until(&mut process, "ready").await;
            drop(process);
            wait_until_lock_is_free(&fixture.backend).await;
        }
        fixture.leave().await;
    }
}

/// A bwrap that is killed while it still makes its namespace leaves nobody behind that waits for it.
#[tokio::test]
async fn a_command_may_be_dropped_at_any_moment_of_its_start() {
    let fixture = Fixture::behind(Isolation::Bwrap);
    let mark = mark(&fixture.backend).await;
    for round in 0..100 {
        let request =
            ExecRequest { stdin: ab_core::process::StdinMode::Piped, ..ExecRequest::shell("cat") };
        let process = fixture.backend.spawn(request).await.unwrap();
        tokio::time::sleep(Duration::from_micros(round * 40)).await;
        drop(process);
    }
    comes(|| marked(&mark).is_empty()).await;
    fixture.leave().await;
}

/// Whose task is gone runs no longer, and nobody waits for more of its output.
#[test]
fn a_detached_command_ends_with_the_runtime_that_it_was_started_on() {
    let fixture = Fixture::behind(Isolation::None);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let id = first.block_on(async {
        let lifetime = ProcessLifetime::Detached;
        let request = ExecRequest { lifetime, ..ExecRequest::shell("echo ready; sleep 1000") };
        let mut process = fixture.backend.spawn(request).await.unwrap();
        read_until(&mut process, "ready").await;
        assert_eq!(fixture.backend.detached_processes().await.unwrap()[0].exit, None);
        process.id.clone()
    });
    drop(first);
    runtime().block_on(async {
        let listed = fixture.backend.detached_processes().await.unwrap();
        assert_eq!(listed[0].exit.as_ref().unwrap().cause, ExitCause::DroppedByCaller);
        let mut process = fixture.backend.attach(&id, 0).await.unwrap();
        while process.output.recv().await.is_some() {}
        fixture.leave().await;
    });
}

#[tokio::test]
async fn runaways_end_with_their_command() {
    for fixture in guaranteed() {
        let line = lock_holding_script(
            "(setsid sleep 1000 &) ; (nohup env -i setsid sleep 1000 &) ; echo done",
        );
        assert_eq!(exec_stdout_text(&fixture.backend, &line).await, "done\n");
        wait_until_lock_is_free(&fixture.backend).await;
        fixture.leave().await;
    }
}

#[tokio::test]
async fn runaways_end_when_time_is_up() {
    for fixture in guaranteed() {
        let timeout = Some(Duration::from_millis(1500));
        let options = ExecOptions { timeout, ..ExecOptions::default() };
        let line = lock_holding_script("setsid env -i sleep 1000 & echo ready; sleep 1000");
        let error =
            expect_error(fixture.backend.exec_with(&line, options).await, ErrorKind::Timeout);
        assert_eq!(error.exec_output().unwrap().stdout.display_text(), "ready\n");
        wait_until_lock_is_free(&fixture.backend).await;
        fixture.leave().await;
    }
}

/// They say that they are ready themselves: while a program is being executed its mark cannot be read.
const MARKED: [&str; 3] = [
    "setsid sh -c 'echo ready; read x < never' & wait",
    "(setsid sh -c '(read x < never) & echo ready; read x < never' &) ; sleep 1000",
    "nohup setsid sh -c 'echo ready; read x < never' & sleep 1000",
];

#[tokio::test]
async fn marked_ones_are_found_without_namespace_or_group() {
    for isolation in [Isolation::Landlock, Isolation::Software, Isolation::None] {
        let fixture = Fixture::behind(isolation);
        exec_stdout_text(&fixture.backend, "mkfifo never").await;
        for line in MARKED {
            let mut process =
                fixture.backend.spawn(ExecRequest::shell(lock_holding_script(line))).await.unwrap();
            read_until(&mut process, "ready").await;
            drop(process);
            wait_until_lock_is_free(&fixture.backend).await;
        }
        fixture.leave().await;
    }
}

#[tokio::test]
async fn destroy_leaves_no_process() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        let mark = mark(&fixture.backend).await;
        let mut process = fixture
            .backend
            .spawn_detached(piped_stdin_request("echo ready; sleep 1000"))
            .await
            .unwrap();
        read_until(&mut process, "ready").await;
        // While a shell becomes its last command, its mark cannot be read.
        comes(|| !marked(&mark).is_empty()).await;
        fixture.leave().await;
        assert_eq!(process.wait().await.unwrap().cause, ExitCause::DroppedByCaller);
        comes(|| marked(&mark).is_empty()).await;
    }
}

#[tokio::test]
async fn a_child_may_close_its_channels_and_live() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        let line = "echo out; exec >&- 2>&-; read -r x; echo $x > said; exit 4";
        let mut process = fixture.backend.spawn(piped_stdin_request(line)).await.unwrap();
        assert_eq!(process.output.recv().await.unwrap().bytes, "out\n");
        ab_testkit::commands::write_stdin(&process, "on\n").await;
        assert_eq!(process.wait().await.unwrap().code, Some(4), "{isolation}");
        assert_eq!(fixture.backend.read_text("said").await.unwrap(), "on\n");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn the_workspace_may_be_removed_under_a_process() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        let line = "echo ready; read -r x; echo $x";
        let mut process = fixture.backend.spawn(piped_stdin_request(line)).await.unwrap();
        read_until(&mut process, "ready").await;
        std::fs::remove_dir_all(fixture.workspace.path()).unwrap();
        ab_testkit::commands::write_stdin(&process, "on\n").await;
        assert_eq!(output(&mut process).await, "on\n");
        let command = Command::Shell("true".to_owned());
        let gone = fixture.backend.exec_allowing_failure(command, ExecOptions::default()).await;
        assert!(gone.is_err(), "{isolation}: {gone:?}");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn the_time_of_the_settings_holds_against_a_longer_one() {
    let limits =
        ExecLimits { wall_time: Some(Duration::from_millis(500)), ..ExecLimits::default() };
    let fixture = Fixture::new(LocalExecSettings { limits, ..LocalExecSettings::default() });
    let timeout = Some(Duration::from_secs(1000));
    let options = ExecOptions { timeout, ..ExecOptions::default() };
    expect_error(fixture.backend.exec_with("sleep 1000", options).await, ErrorKind::Timeout);
    fixture.leave().await;
}
