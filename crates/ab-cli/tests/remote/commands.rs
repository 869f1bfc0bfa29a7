//! Commands over there: how they end, what they are told, and what ends them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use serde_json::json;

use super::{Far, WAYS, Way, without_limits};
use crate::stage::Stage;

/// Without walls and rules, so that a test can look at the very process.
pub(super) fn bare(stage: &Stage) -> Far {
    Far::start_with(stage, &["--isolation", "none", "--safety", "off"])
}

/// A command whose first line of output has come, and that line.
pub(super) fn begun(far: &Far, stage: &Stage, way: Way, line: &str) -> (Child, String) {
    let mut command = far.prepared(stage, way, &["exec", "--", line]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    (child, first.trim().to_owned())
}

pub(super) fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

pub(super) fn wait_until_gone(pid: &str) {
    let place = std::path::PathBuf::from(format!("/proc/{pid}"));
    while place.exists() {
        std::thread::yield_now();
    }
}

#[test]
fn a_command_ends_as_it_does_here() {
    let stage = Stage::with(&[("a.txt", "hello\n"), ("in/b.txt", "inside\n")]);
    let far = Far::start(&stage);
    for way in WAYS {
        let ran = far.run(&stage, way, &["exec", "--", "cat a.txt; echo oops >&2; exit 7"]);
        assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (7, "hello\n", "oops\n"));
        let ran = far.run_with(&stage, way, &["exec", "-i", "--", "tr a-z A-Z"], b"shout\n");
        assert_eq!((ran.code, ran.text().as_str()), (0, "SHOUT\n"), "{}", ran.err);
        // Without a flag for input, too.
        let ran = far.run_with(&stage, way, &["exec", "--", "tr a-z A-Z"], b"shout\n");
        assert_eq!((ran.code, ran.text().as_str()), (0, "SHOUT\n"), "{}", ran.err);
        for (words, code) in [
            (&["exec", "--", "no-such-program"][..], 127),
            (&["exec", "--", "no-such-program", "word"], 127),
            (&["exec", "--", "./a.txt"], 126),
            (&["exec", "--", "./a.txt", "word"], 126),
        ] {
            let ran = far.run(&stage, way, words);
            assert_eq!(ran.code, code, "{words:?}: {}", ran.err);
        }
        // Where both go to one file, the order is that of the command.
        let both = std::fs::File::create(stage.outside("both")).unwrap();
        let lines = "for n in 1 2 3 4; do echo out $n; echo err $n >&2; done";
        let mut command = far.prepared(&stage, way, &["exec", "--quiet", "--", lines]);
        command.stdin(Stdio::null()).stdout(both.try_clone().unwrap()).stderr(both);
        assert!(command.status().unwrap().success());
        let expect: String = (1..=4).map(|n| format!("out {n}\nerr {n}\n")).collect();
        assert_eq!(std::fs::read_to_string(stage.outside("both")).unwrap(), expect);
        let words =
            ["exec", "--cwd", "in", "--env", "K=v w", "--", "sh", "-c", "cat b.txt; echo $K"];
        assert_eq!(far.out(&stage, way, &words), "inside\nv w\n");
        let ran = far.run(&stage, way, &["exec", "--", "kill -9 $$"]);
        assert_eq!(ran.code, 137, "{}", ran.err);
        let ran = far.run(&stage, way, &["exec", "--timeout", "300ms", "--", "cat <&-; sleep 100"]);
        assert_eq!(ran.code, 124, "{}", ran.err);
        let ran = far.run(&stage, way, &["exec", "--json", "--", "echo out; exit 3"]);
        assert_eq!(ran.code, 3);
        let value = ran.value();
        assert_eq!((&value["stdout"]["text"], &value["exit_code"]), (&json!("out\n"), &json!(3)));
        // The rules are the daemon's.
        let refused = far.run(&stage, way, &["exec", "--", "sudo ls"]);
        refused.expect_error(126, "sudo");
        let ran = far.run(&stage, way, &["exec", "--max-output", "3", "--", "echo hello"]);
        assert_eq!((ran.code, ran.text().as_str()), (0, "hel"));
        let explained = far.run(&stage, way, &["exec", "--explain", "--json"]).value();
        let here = stage.json(&["exec", "--explain", "--json"]);
        assert_eq!(without_limits(explained), without_limits(here));
    }
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn an_interrupt_reaches_the_command() {
    let stage = Stage::new();
    let far = bare(&stage);
    for way in WAYS {
        let line = "trap 'echo caught; exit 9' INT; echo $$; while :; do sleep 0.05; done";
        let (mut child, pid) = begun(&far, &stage, way, line);
        signal(&child, rustix::process::Signal::INT);
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(9), "caught\n"));
        wait_until_gone(&pid);
    }
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_client_that_is_killed_takes_its_command_along() {
    let stage = Stage::new();
    let far = bare(&stage);
    for way in WAYS {
        let (mut child, pid) = begun(&far, &stage, way, "echo $$; sleep 1000");
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_gone(&pid);
    }
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_daemon_that_is_killed_is_told() {
    for way in WAYS {
        let stage = Stage::new();
        let far = bare(&stage);
        let (mut child, pid) = begun(&far, &stage, way, "echo $$; sleep 1000");
        // Killed, without a goodbye.
        drop(far.daemon);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(125), "{said}");
        assert!(said.contains("the connection was lost while the command ran"), "{said}");
        assert!(said.contains("--detach"), "{said}");
        // Without walls nothing ends it; we do.
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

#[test]
fn a_command_can_be_left_running_and_followed_later() {
    let stage = Stage::new();
    let far = bare(&stage);
    for way in WAYS {
        let line = "echo one; until [ -e go ]; do sleep 0.05; done; echo two; echo err >&2; exit 5";
        let id = far.out(&stage, way, &["exec", "--detach", "--", line]);
        let id = id.trim();
        // The client is gone, and it runs.
        std::fs::write(stage.path("go"), "").unwrap();
        for _ in 0..2 {
            let ran = far.run(&stage, way, &["exec", "--attach", id]);
            let told = (ran.code, ran.text(), ran.err);
            assert_eq!(told, (5, "one\ntwo\nerr\n".to_owned(), String::new()));
        }
        let ran = far.run(&stage, way, &["exec", "--attach", id, "--from", "4"]);
        assert_eq!((ran.code, ran.text().as_str()), (5, "two\nerr\n"));
        far.run(&stage, way, &["exec", "--attach", "no-such"])
            .expect_error(125, "there is no job 'no-such'");
        let json = far.run(&stage, way, &["exec", "--detach", "--json", "--", "true"]).value();
        assert!(json["id"].is_string());
        std::fs::remove_file(stage.path("go")).unwrap();
    }
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn output_that_was_not_kept_is_told() {
    let stage = Stage::new();
    let far = bare(&stage);
    // Somewhat more than is kept, and nobody reads it in time.
    let (written, name) = (80_000_000_u64, "done");
    for (end, code) in [("true", 125), ("exit 7", 7)] {
        let line = format!("head -c {written} /dev/zero; echo > {name}; {end}");
        let id = far.out(&stage, Way::Socket, &["exec", "--detach", "--", &line]);
        while !stage.path(name).exists() {
            std::thread::yield_now();
        }
        let ran = far.run(&stage, Way::Socket, &["exec", "--attach", id.trim()]);
        assert_eq!(ran.code, code, "{}", ran.err);
        let (_, told) = ran.err.split_once("note: ").unwrap_or_else(|| panic!("{}", ran.err));
        let (missing, _) = told.split_once(" bytes of output are missing").unwrap();
        let missing: u64 = missing.parse().unwrap();
        assert!(missing > 0);
        assert_eq!(ran.out.len() as u64 + missing, written);
        std::fs::remove_file(stage.path(name)).unwrap();
    }
    assert_eq!(far.daemon.end().0, 0);
}
