//! What is in force is what was asked for, or the command is refused; and every surface says the same
//! about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use ab_testkit::host::report_skip;
use serde_json::{Value, json};

use crate::escapes::{MODES, stands};
use crate::mcp::Session;
use crate::stage::{BINARY, Ran, Stage, run};

/// The isolation that `auto` ends in on this host.
fn strongest(stage: &Stage) -> Value {
    stage.json(&["exec", "--explain", "--json"])["isolation"].clone()
}

/// Runs a shell that does something before it becomes `exec --json -- true`.
fn after(stage: &Stage, before: &str) -> Ran {
    let mut shell = stage.command("/bin/sh");
    // bash would wait for seconds before it tries to fork again.
    shell.args(["-c", &format!("{before}; exec '{BINARY}' exec --shell sh --json -- true")]);
    // Where nothing can be started there is no answer either.
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = shell.output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: output.stdout,
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Either it fails, or it runs behind the strongest walls. Says whether it ran.
#[track_caller]
fn expect_strongest(ran: &Ran, strongest: &Value, short_of: &str) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(&ran.out) else {
        assert_ne!(ran.code, 0, "short of {short_of}: {ran:?}");
        return false;
    };
    assert_eq!(&value["isolation"], strongest, "short of {short_of}");
    true
}

/// As in most containers: few processes, with small numbers, which are also those of processes in the
/// sandbox, and a `/proc` that shows only them.
#[test]
fn bwrap_stands_where_few_processes_are_seen() {
    if !stands("bwrap") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return report_skip("a command in a new pid namespace", "only root may mount its /proc");
    }
    let stage = Stage::new();
    let script = format!(
        "mount -t proc proc /proc; for i in 1 2 3 4 5 6; do \
         '{BINARY}' exec --isolation bwrap -- echo ran || exit; done"
    );
    let mut command = stage.command("unshare");
    command.args(["--mount", "--pid", "--fork", "/bin/sh", "-c", &script]);
    let ran = run(command, b"");
    assert_eq!((ran.code, &*ran.text()), (0, "ran\n".repeat(6).as_str()), "{}", ran.err);
}

#[test]
fn a_host_that_is_short_of_files_gives_no_weaker_walls() {
    let stage = Stage::new();
    let strongest = strongest(&stage);
    let (mut ran, mut failed) = (0, 0);
    for files in (3..120).step_by(3) {
        let outcome = after(&stage, &format!("ulimit -n {files}"));
        if expect_strongest(&outcome, &strongest, &format!("{files} files")) {
            ran += 1;
        } else {
            failed += 1;
        }
    }
    assert!(ran > 0 && failed > 0, "{ran} ran, {failed} failed");
}

/// A control group for a number of processes, gone with its owner.
struct FewProcesses(PathBuf);

impl FewProcesses {
    fn new() -> Option<FewProcesses> {
        let name = format!("ab-test-{}", std::process::id());
        for top in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
            let group = Path::new(top).join(&name);
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = FewProcesses(group);
            if fs::write(group.0.join("pids.max"), "100").is_ok() {
                return Some(group);
            }
        }
        None
    }
}

impl Drop for FewProcesses {
    fn drop(&mut self) {
        // What was killed in it may take a moment to go.
        while fs::remove_dir(&self.0).is_err_and(|error| error.raw_os_error() == Some(16)) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_host_that_is_short_of_processes_gives_no_weaker_walls() {
    let Some(group) = FewProcesses::new() else {
        return report_skip("a full group of processes", "no group for processes can be made");
    };
    let stage = Stage::new();
    let strongest = strongest(&stage);
    let (mut ran, mut failed) = (0, 0);
    // One by one at first: a single number decides whether the walls or only their proof lack a process.
    for count in (1..=24).chain((25..=40).step_by(3)) {
        fs::write(group.0.join("pids.max"), count.to_string()).unwrap();
        let enter = format!("echo $$ > {}/cgroup.procs", group.0.display());
        let outcome = after(&stage, &enter);
        if expect_strongest(&outcome, &strongest, &format!("{count} processes")) {
            ran += 1;
        } else {
            failed += 1;
        }
    }
    assert!(ran > 0 && failed > 0, "{ran} ran, {failed} failed");
}

#[test]
fn what_is_asked_for_by_name_is_enforced_refused_or_accepted() {
    let stage = Stage::with(&[("secret", "s"), ("kept", "k")]);
    let wishes: [(&str, &[&str]); 3] = [
        ("network", &["--network", "none"]),
        ("hide", &["--hide", "secret"]),
        ("read-only", &["--read-only", "kept"]),
    ];
    for mode in MODES.into_iter().filter(|mode| stands(mode)) {
        for (name, flags) in wishes {
            let enforced = mode == "bwrap" || (mode == "landlock" && name == "network");
            let common = ["exec", "--profile", "off", "--isolation", mode];
            let with = |more: &[&str]| stage.run(&[&common[..], flags, more].concat());
            // What is explained is what happens.
            for last in [&["--", "true"][..], &["--explain"]] {
                let ran = with(last);
                if enforced {
                    assert_eq!(ran.code, 0, "{mode} {name} {last:?}: {}", ran.err);
                } else {
                    ran.expect_error(125, &format!("--accept-unenforced {name}"));
                }
                let accepted = [&["--accept-unenforced", name][..], last].concat();
                let ran = with(&accepted);
                assert_eq!(ran.code, 0, "{mode} {name} {last:?}: {}", ran.err);
            }
            let mut server = vec!["--profile", "off", "--isolation", mode];
            server.extend(flags);
            let mut session = Session::start(&stage, &server);
            let answer = session.call("exec", json!({ "command": "true" }));
            assert_eq!(answer["isError"] == true, !enforced, "{mode} {name}: {answer}");
            session.end();
        }
        // A default is not a request.
        let ran = stage.run(&["exec", "--profile", "off", "--isolation", mode, "--", "true"]);
        assert_eq!(ran.code, 0, "{mode}: {}", ran.err);
    }
}

/// The flags for a limit, where no group can be made: in a mount namespace without control groups.
#[test]
fn a_limit_that_no_group_can_be_made_for_is_refused_or_accepted() {
    let stage = Stage::new();
    let without_groups = |flags: &str| {
        let mut shell = stage.command("unshare");
        let line = format!(
            "mount -t tmpfs none /sys/fs/cgroup && exec '{BINARY}' exec --profile off --isolation \
             none {flags} --quiet -- 'echo ran'"
        );
        shell.args(["-m", "/bin/sh", "-c", &line]);
        run(shell, b"")
    };
    let mut mount = stage.command("unshare");
    mount.args(["-m", "mount", "-t", "tmpfs", "none", "/sys/fs/cgroup"]);
    let mounted = run(mount, b"");
    if mounted.code != 0 {
        return report_skip("a host without control groups", mounted.err.trim());
    }
    let plain = without_groups("");
    assert_eq!((plain.code, plain.text().as_str()), (0, "ran\n"), "{}", plain.err);
    for (flag, name) in [("--memory 1G", "memory"), ("--processes 99", "processes")] {
        without_groups(flag).expect_error(125, &format!("--accept-unenforced {name}"));
        let accepted = without_groups(&format!("{flag} --accept-unenforced {name}"));
        assert_eq!((accepted.code, accepted.text().as_str()), (0, "ran\n"), "{}", accepted.err);
    }
    let both = "--memory 1G --processes 99";
    without_groups(both).expect_error(125, "--accept-unenforced memory,processes");
    let one = format!("{both} --accept-unenforced memory");
    without_groups(&one).expect_error(125, "--accept-unenforced processes");
    let accepted = without_groups(&format!("{both} --accept-unenforced memory,processes"));
    assert_eq!(accepted.text(), "ran\n", "{}", accepted.err);
}

#[test]
fn one_line_says_which_isolation_is_in_force() {
    let stage = Stage::new();
    for mode in MODES.into_iter().filter(|mode| stands(mode)) {
        let with = |flags: &[&str]| {
            let common = ["exec", "--profile", "off", "--isolation", mode];
            stage.run(&[&common[..], flags, &["--", "echo ran"]].concat())
        };
        let what = match mode {
            "bwrap" => "commands run in a bwrap sandbox",
            "landlock" => "commands run in a landlock sandbox, which is weaker than bwrap",
            "software" => {
                "commands run without a sandbox: only the paths in a command line are checked"
            }
            _ => "commands run without isolation",
        };
        let line = format!("note: {what}");
        let plain = with(&[]);
        assert_eq!(plain.text(), "ran\n", "{mode}: {}", plain.err);
        match mode {
            "bwrap" => assert_eq!(plain.err, ""),
            _ => assert!(plain.err.starts_with(&line) && plain.err.lines().count() == 1),
        }
        let told = with(&["-v"]).err;
        assert!(told.starts_with(&line) && told.lines().count() == 1, "{mode}: {told}");
        assert_eq!(with(&["--quiet"]).err, "", "{mode}");
        assert_eq!(with(&["--json"]).err, "", "{mode}");
        let mut session = Session::begin(&stage, &["mcp", "--isolation", mode]);
        // By then it has been found out.
        session.call("exec", json!({ "command": "true" }));
        let said = session.end();
        assert_eq!(said.matches(what).count(), 1, "{said}");
        let mut session = Session::start(&stage, &["--isolation", mode]);
        session.call("exec", json!({ "command": "true" }));
        assert_eq!(session.end(), "");
    }
}

/// With and without bwrap, and whatever `PATH` says: doctor, explain and a command agree.
#[test]
fn doctor_and_explain_agree_with_what_happens() {
    let stage = Stage::new();
    let agree = |before: &str| -> Option<String> {
        let said = |flags: &str| {
            let mut shell = stage.command("unshare");
            let line = format!("{before} exec '{BINARY}' {flags}");
            shell.args(["-m", "/bin/sh", "-c", &line]);
            run(shell, b"")
        };
        let ran = said("exec --json -- true");
        if ran.code != 0 {
            report_skip("doctor on another host", ran.err.trim());
            return None;
        }
        let (doctor, explained) = (said("doctor --json").value(), said("exec --explain --json"));
        let isolation = ran.value()["isolation"].clone();
        assert_eq!(doctor["isolation"], isolation, "{before}");
        assert_eq!(doctor["in_force"], explained.value(), "{before}");
        assert_eq!(doctor["in_force"]["isolation"], isolation, "{before}");
        let summary = doctor["summary"].as_str().unwrap().to_owned();
        let named = match isolation.as_str().unwrap() {
            "bwrap" => "with bwrap",
            "landlock" => "by landlock",
            _ => "not isolated",
        };
        assert!(summary.contains(named), "{before}: {summary}");
        Some(isolation.as_str().unwrap().to_owned())
    };
    agree("");
    let no_bwrap = "for f in /usr/bin/bwrap /usr/local/bin/bwrap; do \
                    [ -e $f ] && mount --bind /dev/null $f; done;";
    if let Some(isolation) = agree(no_bwrap) {
        assert_ne!(isolation, "bwrap");
    }
    // A bwrap that commands do not get.
    let elsewhere = "mkdir -p bin && cp /usr/bin/bwrap bin/bwrap && export PATH=$PWD/bin:$PATH;";
    agree(&format!("{elsewhere} {no_bwrap}"));
}
