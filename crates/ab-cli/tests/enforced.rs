//! What is in force is what was asked for, or the command is refused; and every surface says the same
//! about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use ab_testkit::host::report_skip;
use rustix::io::Errno;
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

#[test]
fn too_few_open_files_are_named() {
    let stage = Stage::new();
    for files in [6, 7, 8, 9, 12] {
        let ran = after(&stage, &format!("ulimit -n {files}"));
        assert_eq!(ran.code, 125, "{files}: {}", ran.err);
        assert!(ran.err.contains("oo many open files"), "{files}: {}", ran.err);
        assert!(ran.err.contains("ulimit -n") && !ran.err.contains("bug"), "{files}: {}", ran.err);
    }
}

/// A control group for a number of processes, gone with its owner.
struct FewProcesses(PathBuf);

impl FewProcesses {
    fn new() -> Option<FewProcesses> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Tests of one process run side by side.
        let name = format!("ab-test-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].into_iter().find_map(|top| {
            let group = FewProcesses::below(Path::new(top), &name)?;
            fs::write(group.0.join("pids.max"), "100").is_ok().then_some(group)
        })
    }

    /// In version 1 the top is an ordinary file system: a directory made there is not a group, and a
    /// limit written there is an ordinary file.
    fn below(top: &Path, name: &str) -> Option<FewProcesses> {
        let group = FewProcesses(top.join(name));
        fs::create_dir(&group.0).ok()?;
        group.0.join("cgroup.procs").is_file().then_some(group)
    }
}

impl Drop for FewProcesses {
    fn drop(&mut self) {
        // Killed processes leave a group, and groups of commands the group around them, a moment later.
        let passing = [Errno::BUSY, Errno::NOTEMPTY].map(Errno::raw_os_error);
        while fs::remove_dir(&self.0)
            .is_err_and(|error| error.raw_os_error().is_some_and(|it| passing.contains(&it)))
        {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_plain_directory_is_not_taken_for_a_control_group() {
    let stage = Stage::new();
    assert!(FewProcesses::below(&stage.root(), "group").is_none());
    assert!(stage.names(".").is_empty());
}

#[test]
fn groups_of_one_process_have_names_of_their_own() {
    let Some((one, other)) = FewProcesses::new().zip(FewProcesses::new()) else {
        return report_skip("two groups of processes", "no group for processes can be made");
    };
    assert_ne!(one.0, other.0);
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

/// As a service has them. The group of a command is made below that of the service, or the limit is not enforced.
#[test]
fn a_command_with_a_limit_stays_within_the_limits_around_it() {
    let Some(group) = FewProcesses::new() else {
        return report_skip("a group with a limit", "no group for processes can be made");
    };
    fs::write(group.0.join("pids.max"), "60").unwrap();
    let stage = Stage::new();
    for mode in ["bwrap", "landlock"].into_iter().filter(|mode| stands(mode)) {
        let line = "for i in $(seq 200); do sleep 100 & done; echo all of them";
        let enter = format!("echo $$ > {}/cgroup.procs", group.0.display());
        let mut shell = stage.command("/bin/sh");
        let flags = "--shell sh --profile off --processes 500 --accept-unenforced processes";
        shell.args([
            "-c",
            &format!("{enter}; exec '{BINARY}' exec {flags} --isolation {mode} -- '{line}'"),
        ]);
        let ran = run(shell, b"");
        assert!(ran.err.to_lowercase().contains("fork"), "{mode}: {} {}", ran.text(), ran.err);
        assert!(!ran.text().contains("all of them"), "{mode}");
    }
}

/// A directory for temporary files that is missing, no directory, or full says nothing about walls.
#[test]
fn a_place_for_temporary_files_that_cannot_be_used_gives_no_weaker_walls() {
    let stage = Stage::with(&[("file", "")]);
    let strongest = strongest(&stage);
    for place in ["/nonexistent/place", "file"] {
        let outcome = after(&stage, &format!("export TMPDIR={place}"));
        assert!(!expect_strongest(&outcome, &strongest, place));
        assert!(outcome.err.contains(place) && outcome.err.contains("TMPDIR"), "{}", outcome.err);
    }
    // An empty variable is none.
    assert!(expect_strongest(&after(&stage, "export TMPDIR="), &strongest, "nothing"));
    let full = stage.outside("full");
    fs::create_dir(&full).unwrap();
    let (mut ran, mut failed) = (0, 0);
    for files in 1..=10 {
        let mut shell = stage.command("unshare");
        let line = format!(
            "mount -t tmpfs -o nr_inodes={files} none '{0}' || exit; export TMPDIR='{0}'; \
             exec '{BINARY}' exec --json -- true",
            full.display()
        );
        shell.args(["-m", "/bin/sh", "-c", &line]);
        let outcome = run(shell, b"");
        if outcome.err.contains("mount:") || outcome.err.contains("unshare:") {
            return report_skip("a full directory", outcome.err.trim());
        }
        if expect_strongest(&outcome, &strongest, &format!("{files} files in TMPDIR")) {
            ran += 1;
        } else {
            failed += 1;
        }
    }
    assert!(ran > 0 && failed > 0, "{ran} ran, {failed} failed");
}

/// A filter that answers `ENOSYS` to `landlock_create_ruleset`, which has the same number on every
/// architecture.
fn without_landlock() -> Vec<u8> {
    let steps: [(u16, u8, u8, u32); 4] =
        [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x0005_0026), (0x06, 0, 0, 0x7fff_0000)];
    let bytes = steps.into_iter().flat_map(|(code, yes, no, value)| {
        let [a, b] = code.to_ne_bytes();
        [a, b, yes, no].into_iter().chain(value.to_ne_bytes())
    });
    bytes.collect()
}

/// A host without bwrap and without Landlock, made by bwrap itself.
#[test]
fn a_host_without_walls_ends_in_software_and_says_why() {
    if !stands("bwrap") {
        return;
    }
    let stage = Stage::new();
    let filter = stage.outside("filter");
    fs::write(&filter, without_landlock()).unwrap();
    let on_it = |flags: &str| {
        let mut shell = stage.command("/bin/sh");
        let line = format!(
            "exec bwrap --dev-bind / / --ro-bind /dev/null \"$(command -v bwrap)\" --seccomp 9 \
             '{BINARY}' {flags} 9<'{}'",
            filter.display()
        );
        shell.args(["-c", &line]);
        run(shell, b"")
    };
    let policy = on_it("exec --explain --json").value();
    assert_eq!(policy["isolation"], "software");
    let files = policy["controls"][0]["in_force"].as_str().unwrap();
    for cause in ["bwrap does not work here", "landlock does not work here"] {
        assert!(files.contains(cause), "{files}");
    }
    let doctor = on_it("doctor --json").value();
    assert_eq!(doctor["isolation"], "software", "{doctor}");
    assert_eq!(doctor["in_force"]["controls"][0], policy["controls"][0]);
    let ran = on_it("exec -- echo ran");
    assert_eq!((ran.code, ran.text().as_str()), (0, "ran\n"), "{}", ran.err);
    assert!(ran.err.starts_with("note: commands run without a sandbox"), "{}", ran.err);
    on_it("exec --floor landlock -- echo ran").expect_error(125, "landlock");
    on_it("exec --isolation landlock -- echo ran").expect_error(125, "no Landlock");
    on_it("exec --isolation bwrap -- echo ran").expect_error(125, "no program 'bwrap'");
}

/// Root that may mount nothing: bwrap works all the same, by a user namespace.
#[test]
fn what_takes_mounts_of_our_own_is_said_to_be_weaker_without_them() {
    if !stands("bwrap") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return report_skip("root that may mount nothing", "it takes root");
    }
    let stage = Stage::new();
    let mut command = stage.command("setpriv");
    command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", BINARY]);
    command.args(["exec", "--isolation", "bwrap", "--explain", "--json"]);
    let policy = run(command, b"").value();
    let control = |name: &str| {
        let controls = policy["controls"].as_array().unwrap();
        controls.iter().find(|it| it["control"] == name).unwrap().clone()
    };
    let attributes = control("attributes");
    assert_eq!(attributes["holds"], "advisory", "{attributes}");
    let files = control("files");
    assert_eq!(files["holds"], "enforced", "{files}");
    assert!(files["in_force"].as_str().unwrap().contains("is not limited"), "{files}");
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

#[test]
fn what_is_accepted_as_unenforced_holds_for_files_only() {
    let wishes = [
        ("hide", ["--hide", "secret"], "cat secret"),
        ("read-only", ["--read-only", "kept"], "echo more >> kept"),
    ];
    for mode in MODES.into_iter().filter(|mode| stands(mode)) {
        for (name, flags, line) in wishes {
            let stage = Stage::with(&[("secret", "s"), ("kept", "k")]);
            let accepted = ["--isolation", mode, "--accept-unenforced", name];
            let common = [&["exec", "--profile", "off"][..], &accepted, &flags].concat();
            let ran = stage.run(&[&common[..], &["--", line]].concat());
            // Accepting that something is missing takes nothing away where it is there.
            assert_eq!(ran.code == 0, mode != "bwrap", "{mode} {name}: {}", ran.err);
            let mut session = Session::start(&stage, &[&accepted[..], &flags].concat());
            let read = session.call("read_text_file", json!({ "path": "secret" }));
            assert_eq!(read["isError"] == true, name == "hide", "{mode} {name}: {read}");
            let write = json!({ "path": "kept", "content": "x" });
            let write = session.call("write_file", write);
            assert_eq!(write["isError"] == true, name == "read-only", "{mode} {name}: {write}");
            session.end();
        }
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
        // Local sockets are off there.
        let is_told = summary.contains("MCP servers over HTTP only");
        assert_eq!(is_told, isolation == "landlock", "{before}: {summary}");
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
    // A host on which no command runs.
    let without_tmp = |flags: &[&str]| {
        let mut command = stage.command(BINARY);
        command.env("TMPDIR", "/nonexistent/place").args(flags);
        run(command, b"")
    };
    let doctor = without_tmp(&["doctor", "--json"]).value();
    assert_eq!(doctor["isolation"], Value::Null, "{doctor}");
    let why = doctor["in_force"]["error"].to_string();
    assert!(why.contains("/nonexistent/place"), "{why}");
    for flags in [&["exec", "--explain"][..], &["exec", "--", "true"]] {
        without_tmp(flags).expect_error(125, "/nonexistent/place");
    }
}
