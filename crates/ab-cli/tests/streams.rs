//! Pipes that close, disks that are full, signals that arrive, files that are large.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};

use crate::stage::{BINARY, Stage};

/// Lines that match, and fill a pipe many times.
const MATCHES: usize = 100_000;
const LARGE: u64 = 256 * 1024 * 1024;

fn with_large_file() -> Stage {
    let stage = Stage::new();
    fs::File::create(stage.path("large")).unwrap().set_len(LARGE).unwrap();
    stage
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let stage = with_large_file();
    fs::write(stage.path("matches"), "needle\n".repeat(MATCHES)).unwrap();
    fs::write(stage.path("none"), "").unwrap();
    for arguments in [
        &["fs", "cat", "large"][..],
        &["fs", "grep", "needle", "--limit", "200000"],
        &["fs", "grep", "needle", "--limit", "200000", "--json"],
        &["fs", "diff", "none", "matches", "--bytes", "100000000"],
        &["fs", "cat", "-n", "large"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let mut child = stage
            .command(BINARY)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut byte = [0];
        out.read_exact(&mut byte).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{arguments:?}");
    }
}

#[test]
fn a_hundred_thousand_matches_arrive() {
    let stage = Stage::with(&[("matches", &"needle\n".repeat(MATCHES))]);
    let ran = stage.run(&["fs", "grep", "needle", "--limit", "200000"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let text = ran.text();
    assert_eq!(
        (text.lines().count(), text.lines().last()),
        (MATCHES, Some("matches:100000:needle"))
    );
    let ran = stage.run(&["fs", "grep", "needle"]);
    assert_eq!(ran.text().lines().count(), 10_000);
    assert_eq!(ran.err, "note: stopped after 10000 matches; to see more, raise --limit\n");
}

#[test]
fn a_full_disk_behind_standard_output_is_told() {
    let stage = Stage::with(&[("a", "x")]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = stage.command(BINARY).args(["fs", "cat", "a"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("error: cannot write to standard output: no space left"), "{told}");
}

#[test]
fn a_large_file_is_streamed_with_flat_memory() {
    let stage = with_large_file();
    let mut child =
        stage.command(BINARY).args(["fs", "cat", "large"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut buffer = vec![0; 1024 * 1024];
    let (mut seen, mut peak) = (0, 0);
    loop {
        let count = out.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        if seen < LARGE / 2 && seen + count as u64 >= LARGE / 2 {
            peak = status_number(&child, "VmHWM:");
        }
        seen += count as u64;
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(seen, LARGE);
    assert!(peak > 0 && peak < 64 * 1024, "{peak} kB");
}

#[test]
fn an_interrupt_ends_the_command_and_leaves_nothing() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let stage = Stage::new();
        let mut child = stage
            .command(BINARY)
            .args(["fs", "write", "a"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The command waits for its input, so it is there until we stop it. To wait for a child
        // closes its input, which the command would take for an empty one.
        let input = child.stdin.take();
        while !catches(&child, 2) || !catches(&child, 15) {
            std::thread::yield_now();
        }
        let kill = format!("kill -{signal} {}", child.id());
        let sent = std::process::Command::new("/bin/sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(code));
        drop(input);
        assert!(stage.names(".").is_empty());
    }
}

#[test]
fn standard_input_that_is_closed_writes_an_empty_file() {
    let stage = Stage::new();
    let status = stage.command(BINARY).args(["fs", "write", "a"]).stdin(Stdio::null()).status();
    assert!(status.unwrap().success());
    assert_eq!(stage.text("a"), "");
}

/// Whether the process has a handler for a signal.
pub(crate) fn catches(child: &Child, signal: u32) -> bool {
    let mask = status_line(child, "SigCgt:").unwrap_or_default();
    u64::from_str_radix(&mask, 16).is_ok_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn status_number(child: &Child, key: &str) -> u64 {
    status_line(child, key).unwrap().trim_end_matches(" kB").trim().parse().unwrap()
}

fn status_line(child: &Child, key: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().to_owned())
}
