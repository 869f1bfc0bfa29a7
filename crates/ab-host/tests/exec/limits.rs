//! Hard limits: memory, processes, time of the processor, sizes, and what we ourselves keep.

use std::time::Duration;

use ab_core::process::{Command, ExecLimits, ExecRequest, ExitCause};
use ab_core::{ExecOptions, ExecOutput, Isolation, PolicyControlKind, PolicyControlStrength};
use ab_host::{LocalExecSettings, OutputSpoolLimits};
use ab_testkit::commands::{COMMAND_TIMEOUT, read_to_exit};
use ab_testkit::host;

use super::{Fixture, MODES, WALLS};

async fn run(fixture: &Fixture, line: &str, limits: ExecLimits) -> ExecOutput {
    let options = ExecOptions { limits, timeout: Some(COMMAND_TIMEOUT), ..ExecOptions::default() };
    fixture.backend.exec_allowing_failure(Command::Shell(line.to_owned()), options).await.unwrap()
}

/// Whether a control group sees to a limit of all processes together; if not, the test says so.
async fn proven(fixture: &Fixture, subject: PolicyControlKind) -> bool {
    let policy = fixture.backend.effective_policy().await.unwrap();
    let control = policy.control(subject).unwrap();
    if control.mechanism == "a control group" {
        // Only walls keep a command from leaving its group.
        let walled = WALLS.iter().any(|wall| policy.isolation == Some(*wall));
        assert_eq!(control.strength == PolicyControlStrength::Enforced, walled, "{control:?}");
        return true;
    }
    host::report_skip(subject.as_str(), &control.in_force);
    false
}

/// Bytes that this process has in memory at most so far.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_gibibyte_of_output_is_counted_and_let_go() {
    const TOTAL: u64 = 1 << 30;
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        let before = peak();
        let options = ExecOptions { max_output_bytes: 1000, ..ExecOptions::default() };
        let line = format!("yes | head -c {TOTAL}");
        let output = fixture.backend.exec_with(&line, options).await.unwrap();
        assert_eq!((output.stdout.total_bytes, output.stdout.bytes.len()), (TOTAL, 1000));
        // Other tests of this process have their share in it.
        assert!(peak() - before < 512 << 20, "memory grew by {}", peak() - before);
        fixture.leave().await;
    }
}

/// The processes of the sandbox do not count.
#[tokio::test]
async fn one_process_is_enough_for_a_command() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        if !proven(&fixture, PolicyControlKind::ProcessCount).await {
            return;
        }
        let limits = ExecLimits { processes: Some(1), ..ExecLimits::default() };
        let output = run(&fixture, "echo ran", limits).await;
        assert_eq!((output.exit.code, output.stdout.bytes.as_ref()), (Some(0), &b"ran\n"[..]));
        let output = run(&fixture, "exec /bin/sh -c '/bin/true; exit 0'", limits).await;
        assert_ne!(output.exit.code, Some(0), "{isolation}: a second process was started");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn a_file_size_that_the_sandbox_exceeds_is_refused() {
    let fixture = Fixture::behind(Isolation::Bwrap);
    let limits = ExecLimits { file_size: Some(1), ..ExecLimits::default() };
    let options = ExecOptions { limits, ..ExecOptions::default() };
    let refused = fixture.backend.exec_with("true", options).await.unwrap_err();
    assert!(refused.message().contains("at least 4096"), "{refused}");
    fixture.leave().await;
}

#[tokio::test]
async fn a_memory_limit_with_which_nothing_starts_is_refused() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        let limits = ExecLimits { memory: Some(5), ..ExecLimits::default() };
        let options = ExecOptions { limits, ..ExecOptions::default() };
        let refused = fixture.backend.exec_with("true", options).await.unwrap_err();
        assert!(refused.message().contains("limit is 5 bytes, but "), "{isolation}: {refused}");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn a_limit_of_open_files_with_which_nothing_starts_is_refused() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        let least = if isolation == Isolation::Bwrap { 16 } else { 4 };
        let limits = |files| ExecLimits { open_files: Some(files), ..ExecLimits::default() };
        for files in [1, least - 1] {
            let options = ExecOptions { limits: limits(files), ..ExecOptions::default() };
            let refused = fixture.backend.exec_with("true", options).await.unwrap_err();
            let says = format!("open files is {files}, but ");
            assert!(refused.message().contains(&says), "{isolation}: {refused}");
            assert!(refused.message().contains(&format!("at least {least}")), "{refused}");
        }
        let output = run(&fixture, "true", limits(least)).await;
        assert_eq!(output.exit.code, Some(0), "{isolation}: {output:?}");
        // More than this process may have open is no limit.
        let output = run(&fixture, "echo $(($(ulimit -n) > 100))", limits(u64::MAX / 2)).await;
        assert_eq!(output.stdout.bytes.as_ref(), b"1\n", "{isolation}: {output:?}");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn a_fork_bomb_stays_small() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        if !proven(&fixture, PolicyControlKind::ProcessCount).await {
            return;
        }
        let limits = ExecLimits { processes: Some(32), ..ExecLimits::default() };
        // A shell would try again and again.
        let line = "perl -e 'for (1..200) { my $p = fork; die \"refused\" unless defined $p; \
                    if (!$p) { sleep 1000; exit } }'";
        let output = run(&fixture, line, limits).await;
        assert!(output.stderr.display_text().contains("refused"), "{isolation}: {output:?}");
        assert!(run(&fixture, "true", limits).await.exit.success());
        fixture.leave().await;
    }
}

#[tokio::test]
async fn a_memory_hog_is_ended_and_told_of() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        if !proven(&fixture, PolicyControlKind::Memory).await {
            return;
        }
        let limits = ExecLimits { memory: Some(64 << 20), ..ExecLimits::default() };
        let line = "x=$(yes | head -c 300000000); echo ${#x}";
        let output = run(&fixture, line, limits).await;
        assert_eq!(output.exit.cause, ExitCause::MemoryLimit, "{isolation}: {output:?}");
        assert_eq!(output.stdout.display_text(), "", "it had all it asked for");
        assert!(run(&fixture, "true", limits).await.exit.success());
        fixture.leave().await;
    }
}

#[tokio::test]
async fn each_process_has_its_limits() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        let limits = ExecLimits { file_size: Some(1_000_000), ..ExecLimits::default() };
        let output = run(&fixture, "yes | head -c 3000000 > big", limits).await;
        assert_eq!(output.exit.cause, ExitCause::FileSizeLimit, "{isolation}: {output:?}");
        assert_eq!(fixture.backend.stat("big").await.unwrap().size, 1_000_000);

        let limits = ExecLimits { open_files: Some(32), ..ExecLimits::default() };
        assert_eq!(run(&fixture, "ulimit -n", limits).await.stdout_text(), "32\n", "{isolation}");

        let limits = ExecLimits { cpu: Some(Duration::from_secs(1)), ..ExecLimits::default() };
        // The second one ignores the signal that the kernel sends at the limit.
        for line in ["while :; do :; done", "trap '' XCPU; while :; do :; done"] {
            let output = run(&fixture, line, limits).await;
            assert!(!output.exit.success(), "{isolation}: {line}: {output:?}");
            assert_eq!(output.exit.cause, ExitCause::CpuLimit, "{isolation}: {line}: {output:?}");
        }
        fixture.leave().await;
    }
}

#[tokio::test]
async fn the_signal_of_a_limit_is_not_taken_for_a_limit_that_is_not_set() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        let limits = ExecLimits { cpu: Some(Duration::from_hours(1)), ..ExecLimits::default() };
        for (line, limits) in [
            ("kill -XCPU $$", ExecLimits::default()),
            ("kill -XFSZ $$", ExecLimits::default()),
            ("kill -KILL $$", limits),
        ] {
            let output = run(&fixture, line, limits).await;
            assert!(!output.exit.success(), "{isolation}: {line}: {output:?}");
            assert_eq!(output.exit.cause, ExitCause::Exited, "{isolation}: {line}: {output:?}");
        }
        fixture.leave().await;
    }
}

#[tokio::test]
async fn a_command_cannot_raise_its_limits() {
    for isolation in MODES {
        let limits = ExecLimits { open_files: Some(64), ..ExecLimits::default() };
        let fixture = Fixture::bounded(isolation, limits);
        let more = ExecLimits { open_files: Some(1024), ..ExecLimits::default() };
        assert_eq!(run(&fixture, "ulimit -n", more).await.stdout_text(), "64\n");
        if WALLS.contains(&isolation) {
            let output = run(&fixture, "ulimit -n 1024", ExecLimits::default()).await;
            assert!(!output.exit.success(), "{isolation}: it was raised");
        }
        fixture.leave().await;
    }
}

#[tokio::test]
async fn what_a_spool_cannot_keep_is_told() {
    let spool = OutputSpoolLimits { memory_bytes: 64 * 1024, disk_bytes: 256 * 1024 };
    let fixture =
        Fixture::new(LocalExecSettings { output_spool: spool, ..LocalExecSettings::default() });
    let request = ExecRequest::shell("yes | head -c 5000000");
    let mut process = fixture.backend.spawn_detached(request).await.unwrap();
    process.wait().await.unwrap();
    let mut late = fixture.backend.attach(&process.id, 0).await.unwrap();
    let (pieces, _) = read_to_exit(&mut late).await;
    let kept: u64 = pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
    let lost: u64 = pieces.iter().map(|piece| piece.lost_bytes_before).sum();
    assert_eq!(kept + lost, 5_000_000);
    assert!(kept > 64 * 1024 && kept <= 320 * 1024, "{kept}");
    fixture.leave().await;
}

#[tokio::test]
async fn limits_leave_no_group_behind() {
    let limits = ExecLimits { processes: Some(64), ..ExecLimits::default() };
    let fixture = Fixture::bounded(Isolation::None, limits);
    let groups = run(&fixture, "cat /usr/../proc/self/cgroup", limits).await.stdout_text();
    let own = groups.lines().find_map(|line| line.split(':').nth(2)).unwrap_or_default();
    assert!(!own.is_empty(), "{groups}");
    let mut made = 0;
    for place in groups.lines().filter_map(|line| line.split(':').nth(2)) {
        let name = place.rsplit('/').next().unwrap_or_default();
        if !name.starts_with("agent-backend") {
            continue;
        }
        made += 1;
        for hierarchy in ["", "/pids", "/memory", "/unified"] {
            let path = format!("/sys/fs/cgroup{hierarchy}{place}");
            assert!(!std::path::Path::new(&path).exists(), "{path} was left");
        }
    }
    assert!(made > 0, "the command was in no group: {groups}");
    fixture.leave().await;
}
