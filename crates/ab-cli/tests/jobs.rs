//! `job`: background commands are listed, watched and ended, here and on a daemon.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::daemon::Daemon;
use crate::outliving::comes;
use crate::stage::{BINARY, Ran, Stage, run};

/// Says a line, waits for a file, says another.
const WAITS: &str =
    "echo one; until [ -e go ]; do sleep 0.02; done; echo two; echo err >&2; exit 5";

/// A place of its own for the jobs of a test. Jobs that still run are ended with it.
struct Jobs {
    stage: Stage,
}

impl Jobs {
    fn new() -> Jobs {
        Jobs { stage: Stage::new() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.stage.command(BINARY);
        command.env("XDG_STATE_HOME", self.stage.outside("state")).args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        run(self.command(words), b"")
    }

    #[track_caller]
    fn start(&self, line: &str) -> String {
        let ran = self.run(&["exec", "--quiet", "--detach", line]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        ran.text().trim().to_owned()
    }

    fn listed(&self) -> Vec<Value> {
        self.run(&["job", "list", "--json"]).value().as_array().unwrap().clone()
    }

    fn status(&self, id: &str) -> String {
        let jobs = self.listed();
        let job = jobs.iter().find(|job| job["id"] == id);
        job.map(|job| job["status"].as_str().unwrap().to_owned()).unwrap_or_default()
    }

    fn go_on(&self) {
        std::fs::write(self.stage.path("go"), "").unwrap();
    }

    /// A watcher that has shown the first line.
    fn watching(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "one\n");
        child
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in self.listed() {
            if job["status"] == "running" {
                self.run(&["job", "kill", "-s", "KILL", job["id"].as_str().unwrap()]);
            }
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

#[test]
fn a_background_command_is_found_again_and_read() {
    let jobs = Jobs::new();
    let id = jobs.start(WAITS);
    assert_eq!(jobs.status(&id), "running");
    // The client is gone and the ID is lost: the list has it.
    let table = jobs.run(&["job", "list"]);
    let place = jobs.stage.root().canonicalize().unwrap().display().to_string();
    let row = table.text();
    assert!(row.starts_with(&format!("{id}  running  ")), "{row}");
    assert!(row.contains(&place) && row.contains("  echo one; until "), "{row}");
    let mut so_far = jobs.run(&["job", "logs", &id]);
    while so_far.text().is_empty() {
        so_far = jobs.run(&["job", "logs", &id]);
    }
    assert_eq!((so_far.code, so_far.text().as_str()), (0, "one\n"));
    jobs.go_on();
    let ran = jobs.run(&["job", "attach", &id]);
    assert_eq!((ran.code, ran.text(), ran.err), (5, "one\ntwo\nerr\n".into(), "".into()));
    // After its end the same is there, for logs with an exit code of its own.
    let ran = jobs.run(&["exec", "--attach", &id, "--from", "4"]);
    assert_eq!((ran.code, ran.text().as_str()), (5, "two\nerr\n"));
    for words in [&["job", "logs", &id[..3]][..], &["job", "logs", "-f", &id]] {
        let ran = jobs.run(words);
        assert_eq!((ran.code, ran.text(), ran.err), (0, "one\ntwo\nerr\n".into(), "".into()));
    }
    let value = jobs.run(&["job", "logs", "--json", &id]).value();
    assert_eq!(
        (&value["stdout"]["text"], &value["stderr"]["bytes"]),
        (&"one\ntwo\nerr\n".into(), &0.into())
    );
    let job = &jobs.listed()[0];
    assert_eq!((&job["status"], &job["exit_code"]), (&"ended".into(), &5.into()));
}

#[test]
fn the_limit_that_ended_a_job_is_named() {
    let jobs = Jobs::new();
    let busy = ["exec", "--quiet", "--detach", "--cpu", "1s", "while :; do :; done"];
    let id = jobs.run(&busy).text().trim().to_owned();
    let ran = jobs.run(&["job", "attach", &id]);
    let note = "note: the command was ended by its limit of CPU time\n";
    assert_eq!((ran.code, ran.err.as_str()), (152, note));
    let row = jobs.run(&["job", "list"]).text();
    assert!(row.starts_with(&format!("{id}  out of CPU time  ")), "{row}");
    assert_eq!(jobs.listed()[0]["cause"], "cpu");
}

#[test]
fn output_of_a_job_keeps_its_order() {
    let jobs = Jobs::new();
    let line = "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done; exit 3";
    let id = jobs.start(line);
    let expect: String = (1..=9).map(|i| format!("o{i}\ne{i}\n")).collect();
    let ran = jobs.run(&["job", "attach", &id]);
    assert_eq!((ran.code, ran.text(), ran.err.as_str()), (3, expect.clone(), ""));
    assert_eq!(jobs.run(&["job", "logs", &id]).text(), expect);
    let ran = jobs.run(&["job", "attach", "--json", &id]);
    assert_eq!(ran.code, 3);
    let value = ran.value();
    assert_eq!(value["stdout"]["text"], expect.as_str());
    assert_eq!((&value["status"], &value["exit_code"]), (&"ended".into(), &3.into()));
}

#[test]
fn wait_exits_with_the_code_of_the_job() {
    let jobs = Jobs::new();
    let id = jobs.start(WAITS);
    let ran = jobs.run(&["job", "wait", "--timeout", "10ms", &id]);
    let told = format!("error: job {id} did not end within 10ms\nhint: the job keeps running\n");
    assert_eq!((ran.code, ran.text(), ran.err), (125, String::new(), told));
    let mut waiting = jobs.command(&["job", "wait", &id]);
    let waiting = waiting.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = waiting.spawn().unwrap();
    jobs.go_on();
    let output = waiting.wait_with_output().unwrap();
    let said = (output.stdout.as_slice(), output.stderr.as_slice());
    assert_eq!((output.status.code(), said), (Some(5), (&b""[..], &b""[..])));
    // It has already ended.
    let ran = jobs.run(&["job", "wait", &id[..3], "--json"]);
    let value = ran.value();
    assert_eq!((ran.code, &value["id"], &value["exit_code"]), (5, &id.into(), &5.into()));
    assert_eq!(jobs.run(&["job", "wait", &jobs.start("true")]).code, 0);
    let id = jobs.run(&["exec", "-q", "--detach", "--timeout", "1s", "sleep 1000"]).text();
    let ran = jobs.run(&["job", "wait", id.trim()]);
    let note = "note: the command was ended by its time limit\n";
    assert_eq!((ran.code, ran.err.as_str()), (124, note));
    jobs.run(&["job", "wait", "nonsense"]).expect_error(125, "there is no job 'nonsense'");
}

#[test]
fn waiting_is_interrupted_without_the_job() {
    let jobs = Jobs::new();
    let id = jobs.start(WAITS);
    let mut waiting = jobs.command(&["job", "wait", &id]);
    waiting.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let waiting = waiting.spawn().unwrap();
    comes("its handler of signals", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", waiting.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        // SIGINT is number 2.
        u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
    });
    kill_process(pid(&waiting), Signal::INT).unwrap();
    let output = waiting.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.starts_with("note: the job keeps running"), "{said}");
    assert_eq!(jobs.status(&id), "running");
}

#[test]
fn watching_never_kills() {
    let jobs = Jobs::new();
    let id = jobs.start(WAITS);
    for words in
        [&["job", "attach", &id][..], &["job", "logs", "-f", &id], &["exec", "--attach", &id]]
    {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let child = jobs.watching(words);
            kill_process(pid(&child), signal).unwrap();
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
            let note = format!(
                "note: the job keeps running; to watch it again: agent-backend job attach {id}\n"
            );
            assert_eq!(said, note, "{words:?}");
            assert_eq!(jobs.status(&id), "running", "{words:?}");
        }
        // A terminal that is closed.
        let mut child = jobs.watching(words);
        kill_process(pid(&child), Signal::HUP).unwrap();
        child.wait().unwrap();
        assert_eq!(jobs.status(&id), "running", "{words:?}");
    }
    jobs.go_on();
    assert_eq!(jobs.run(&["job", "attach", &id]).code, 5);
}

#[test]
fn a_background_command_survives_its_terminal() {
    let jobs = Jobs::new();
    let state = jobs.stage.outside("state").display().to_string();
    let line = format!("XDG_STATE_HOME='{state}' '{BINARY}' exec --quiet --detach '{WAITS}'");
    let mut command = jobs.stage.command("script");
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).env("SHELL", "/bin/sh");
    let ran = run(command, b"");
    let id = ran.text().trim().to_owned();
    assert_eq!(jobs.status(&id), "running", "{id}: {}", ran.err);
    jobs.go_on();
    assert_eq!(jobs.run(&["job", "attach", &id]).code, 5);
}

#[test]
fn a_job_is_ended_by_its_id() {
    let jobs = Jobs::new();
    let (first, second) = (jobs.start("exec sleep 1000"), jobs.start("trap '' TERM; sleep 1000"));
    let ran = jobs.run(&["job", "kill", &first]);
    assert_eq!((ran.code, ran.text(), ran.err), (0, format!("{first}\n"), String::new()));
    let ran = jobs.run(&["job", "attach", &first]);
    assert_eq!(ran.code, 143, "{}", ran.err);
    let ran = jobs.run(&["job", "kill", "--signal", "SIGKILL", &second]);
    assert_eq!((ran.code, ran.text()), (0, format!("{second}\n")));
    assert_eq!(jobs.run(&["job", "attach", &second]).code, 137);
    let ran = jobs.run(&["job", "kill", &first]);
    // A sandbox may pass the signal on as an exit code.
    let told = ["signal 15", "exited 143"]
        .map(|how| format!("error: job {first} has already ended ({how})\n"));
    assert!(ran.code == 1 && told.contains(&ran.err), "{}", ran.err);
}

#[test]
fn what_cannot_be_done_is_told_in_full() {
    let jobs = Jobs::new();
    for (words, code, told) in [
        (
            &["job", "logs", "nonsense"][..],
            1,
            "error: there is no job 'nonsense'\nhint: list the jobs: agent-backend job list\n",
        ),
        (
            &["job", "attach", "nonsense"],
            125,
            "error: there is no job 'nonsense'\nhint: list the jobs: agent-backend job list\n",
        ),
        (
            &["exec", "--detach", "no-such-program", "x"],
            127,
            "error: exec: no program 'no-such-program' on the path\nhint: is it installed? commands can use programs in the system directories and in the toolchains that `agent-backend doctor` lists\n",
        ),
        (
            &["exec", "--detach", "rm -rf /"],
            126,
            "error: exec: refused: it removes files outside the workspace (rule \
             destructive.remove-outside)\nhint: remove only files inside the workspace, by a relative \
             path\n",
        ),
        (&["job", "list"], 0, "note: there are no background commands; exec --detach starts one\n"),
        (
            &["job", "kill", "-s", "STOP", "x"],
            2,
            "error: invalid value 'STOP' for '--signal <SIGNAL>': unknown signal 'STOP': use TERM, KILL, \
             INT, HUP, QUIT, USR1 or USR2\n\nFor more information, try '--help'.\n",
        ),
    ] {
        let ran = jobs.run(words);
        assert_eq!(
            (ran.code, ran.text(), ran.err.as_str()),
            (code, String::new(), told),
            "{words:?}"
        );
    }
}

/// The holder can be killed with the command; the job is known as lost, and its output is kept.
#[test]
fn a_job_whose_holder_was_killed_is_lost() {
    let jobs = Jobs::new();
    let id = jobs.start("echo one; exec sleep 1000");
    comes("its output", || jobs.run(&["job", "logs", &id]).text() == "one\n");
    let record = jobs.stage.outside(&format!("state/agent-backend/jobs/{id}.json"));
    let record: Value = serde_json::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
    let holder = i32::try_from(record["holder"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(holder).unwrap(), Signal::KILL).unwrap();
    comes("the loss", || jobs.status(&id) == "lost");
    let ran = jobs.run(&["job", "attach", &id]);
    assert_eq!((ran.code, ran.text().as_str()), (125, "one\n"));
    let told = format!(
        "error: the end of job {id} is unknown: the process that ran it was killed\nhint: read its output: \
         agent-backend job logs ID\n"
    );
    assert_eq!(ran.err, told);
}

#[test]
fn jobs_of_a_daemon_are_listed_watched_and_ended() {
    let jobs = Jobs::new();
    let daemon = Daemon::start(&jobs.stage, &["--rootDir", "."]);
    let url = format!("ws://{}/ssh", daemon.address);
    let there = |words: &[&str]| {
        let (job, rest) = words.split_at(1);
        jobs.run(&[job, &["--remote", &url], rest].concat())
    };
    let id = there(&["exec", "--detach", WAITS]).text().trim().to_owned();
    let listed = there(&["job", "list", "--json"]).value();
    assert_eq!((&listed[0]["id"], &listed[0]["status"]), (&id.as_str().into(), &"running".into()));
    comes("its output", || there(&["job", "logs", &id]).text() == "one\n");
    // Watching does not end it.
    let child = jobs.watching(&["job", "--remote", &url, "attach", &id]);
    kill_process(pid(&child), Signal::INT).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    jobs.go_on();
    let ran = there(&["job", "attach", &id]);
    assert_eq!((ran.code, ran.text(), ran.err), (5, "one\ntwo\nerr\n".into(), "".into()));
    let ran = there(&["job", "logs", "-f", &id]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "one\ntwo\nerr\n"));
    let ran = there(&["job", "wait", &id]);
    assert_eq!((ran.code, ran.text(), ran.err), (5, "".into(), "".into()));
    let third = there(&["exec", "--detach", "sleep 0.2; echo late; exit 3"]);
    assert_eq!(there(&["job", "wait", third.text().trim()]).code, 3);
    let second = there(&["exec", "--detach", "exec sleep 1000"]).text().trim().to_owned();
    assert_eq!(there(&["job", "kill", &second]).text(), format!("{second}\n"));
    assert_eq!(there(&["job", "list", "--json"]).value()[0]["status"], "ended");
    assert_eq!(there(&["job", "wait", &second]).code, 143);
    there(&["job", "logs", "9-nonsense"]).expect_error(1, "there is no job '9-nonsense'");
    // Those of this machine are others.
    assert_eq!(jobs.listed().len(), 0);
    assert_eq!(daemon.end().0, 0);
}
