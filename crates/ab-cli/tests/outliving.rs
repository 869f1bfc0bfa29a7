//! What a command leaves behind: processes that hide, bombs, and what a killed parent leaves.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ab_testkit::host::report_skip;
use serde_json::Value;

use crate::escapes::stands;
use crate::stage::{BINARY, Stage};

/// Grandchildren that leave their group and session in every way there is, each waiting at a pipe
/// that nobody opens. They say that they are there by writing to `alive`.
const HIDERS: &str = "mkfifo never; for how in 'setsid' 'nohup' 'setsid nohup' 'env -i /usr/bin/setsid'; do \
     ($how /bin/sh -c 'exec 9>>alive; echo x >&9; read x < never' </dev/null >/dev/null 2>&1 &) ; done; \
     while [ $(wc -l < alive 2>/dev/null || echo 0) -lt 4 ]; do :; done; echo there;";

/// How many processes have the file open, whatever name it has where they are.
pub(crate) fn held(stage: &Stage, name: &str) -> usize {
    let file = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let wanted = file(&stage.path(name));
    let handles = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read_dir(entry.path().join("fd")).ok()
    });
    handles.flatten().flatten().filter(|handle| file(&handle.path()) == wanted).count()
}

/// Longer than anything here takes on a busy host.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for what comes by itself.
pub(crate) fn comes(what: &str, is_there: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < TIMEOUT, "{what} never came");
        std::thread::yield_now();
    }
}

/// The kernel ends a namespace after the last to wait for it has been told.
fn wait_until_gone(stage: &Stage, name: &str) {
    comes("the end of all of them", || held(stage, name) == 0);
}

/// Control groups that a process has made.
pub(crate) fn groups_of(pid: u32) -> Vec<PathBuf> {
    fn look(directory: &Path, mark: &str, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with("agent-backend-") {
                look(&entry.path(), mark, found);
            } else if name.contains(mark) {
                found.push(entry.path());
            }
        }
    }
    let mut found = Vec::new();
    look(Path::new("/sys/fs/cgroup"), &format!("-{pid}-"), &mut found);
    found
}

/// The watchdog of a process, by its mark.
fn watchdogs_of(pid: u32) -> Vec<u32> {
    let mark = format!("AGENT_BACKEND_PROCESS=watchdog-{pid}");
    let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == mark.as_bytes()).then_some(number)
    });
    processes.collect()
}

/// Whether a limit of processes makes a group here, and something ends it when we are killed.
fn groups_end_with_us(stage: &Stage, mode: &str) -> bool {
    let flags = ["exec", "--profile", "off", "--isolation", mode, "--processes", "64"];
    let policy = stage.json(&[&flags[..], &["--explain", "--json"]].concat());
    let controls = policy["controls"].as_array().unwrap();
    let orphans = controls.iter().find(|it| it["control"] == "orphans").unwrap();
    let mechanism = orphans["mechanism"].as_str().unwrap();
    let grouped = mechanism.contains("control group") && mechanism.contains("watchdog");
    if !grouped {
        report_skip("commands in control groups", orphans["in_force"].as_str().unwrap());
    }
    grouped
}

fn start(stage: &Stage, flags: &[&str], line: &str) -> Child {
    let mut command = stage.command(BINARY);
    command.args(["exec", "--profile", "off"]).args(flags).args(["--", line]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn nothing_outlives_a_command_in_bwrap() {
    if !stands("bwrap") {
        return;
    }
    let stage = Stage::new();
    let out = stage.out(&[
        "exec",
        "--profile",
        "off",
        "--isolation",
        "bwrap",
        "--",
        &format!("{HIDERS} exit 0"),
    ]);
    assert_eq!(out, "there\n");
    wait_until_gone(&stage, "alive");
}

#[test]
fn nothing_outlives_its_time() {
    if !stands("bwrap") {
        return;
    }
    let stage = Stage::new();
    let line = format!("{HIDERS} read x < never");
    let ran = stage.run(&[
        "exec",
        "--profile",
        "off",
        "--isolation",
        "bwrap",
        "--timeout",
        "3s",
        "--",
        &line,
    ]);
    assert_eq!((ran.code, ran.text().as_str()), (124, "there\n"));
    wait_until_gone(&stage, "alive");
}

#[test]
fn nothing_outlives_the_one_that_started_it() {
    if !stands("bwrap") {
        return;
    }
    let stage = Stage::new();
    let line = format!("{HIDERS} read x < never");
    let mut child = start(&stage, &["--isolation", "bwrap"], &line);
    let mut there = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut there).unwrap();
    assert_eq!(&there, b"there\n");
    assert!(held(&stage, "alive") > 0, "the oracle sees them");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(&stage, "alive");
}

/// A missing path that is hidden or read-only has a mount point in the workspace while a command runs.
#[test]
fn no_mount_point_outlives_a_killed_process_group() {
    if !stands("bwrap") {
        return;
    }
    let stage = Stage::with(&[("way/file", "")]);
    for (kills_group, flags) in [
        (true, &["--hide", "missing", "--read-only", "gone", "--hide", "way/to/nothing"][..]),
        (false, &["--hide", "missing/below", "--read-only", "way/a b'$(id)"]),
    ] {
        let mut command = stage.command(BINARY);
        command.args(["exec", "--profile", "off", "--isolation", "bwrap"]).args(flags);
        command.args(["--", "echo there; mkfifo never; read x < never"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.process_group(0);
        let mut child = command.spawn().unwrap();
        let mut there = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut there).unwrap();
        comes("the pipe", || stage.path("never").exists());
        assert!(stage.path("missing").exists(), "the oracle sees them");
        let pid = rustix::process::Pid::from_child(&child);
        if kills_group {
            rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap();
        } else {
            child.kill().unwrap();
        }
        child.wait().unwrap();
        comes("the end of the watchdog", || watchdogs_of(child.id()).is_empty());
        fs::remove_file(stage.path("never")).unwrap();
        assert_eq!(
            (stage.names("."), stage.names("way")),
            (vec!["way".into()], vec!["file".into()])
        );
    }
}

/// Processes with a token among their arguments or in their environment, by their numbers. bwrap and
/// its first process have the former, what the command starts has the latter.
fn marked(token: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| *pid != std::process::id() && carries(*pid, token)).collect()
}

fn carries(pid: u32, token: &str) -> bool {
    let has = |file: &str| {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.windows(token.len()).any(|part| part == token.as_bytes())
    };
    has("cmdline") || has("environ")
}

/// Those below a process that carry a token.
fn marked_below(pid: u32, token: &str) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.flat_map(|thread| {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<u32>>()
    });
    children.map(|it| usize::from(carries(it, token)) + marked_below(it, token)).sum()
}

/// Kills at moments of every phase: before the process exists, while bwrap makes its namespaces and
/// mounts, and when the command runs. What is left of any of them is there at the end.
fn killed_at_any_moment(stage: &Stage, starter: &[&str]) {
    const BY_TIME: u32 = 30;
    const BY_COUNT: usize = 4;
    let token = format!("marked-{}", stage.root().display()).replace('/', "-");
    let line =
        format!(": {token}; echo there; (setsid sleep 100000 &); while :; do sleep 100000; done");
    let variable = format!("MARKED={token}");
    let words = [starter, &[BINARY, "exec", "--profile", "off", "--isolation", "bwrap"]].concat();
    let start = |stdout: Stdio| {
        let mut command = stage.command(words[0]);
        command.args(&words[1..]).args(["--env", &variable, "--", &line]);
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null()).spawn().unwrap()
    };
    let end = |mut child: Child| {
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let begun = Instant::now();
    let mut child = start(Stdio::piped());
    let mut there = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut there).unwrap();
    assert!(marked(&token).len() > 3, "the oracle sees them");
    let whole = begun.elapsed();
    end(child);
    for round in 0..BY_TIME {
        let begun = Instant::now();
        let child = start(Stdio::null());
        while begun.elapsed() < whole * round / (BY_TIME - 5) {
            std::hint::spin_loop();
        }
        end(child);
    }
    for count in (1..=BY_COUNT).flat_map(|count| [count; 5]) {
        // A closed pipe would end what is left at its first word.
        let child = start(Stdio::null());
        let begun = Instant::now();
        while marked_below(child.id(), &token) < count && begun.elapsed() < TIMEOUT {}
        end(child);
    }
    comes("the end of all of them", || marked(&token).is_empty());
}

#[test]
fn nothing_outlives_the_one_that_started_it_at_any_moment() {
    if stands("bwrap") {
        killed_at_any_moment(&Stage::new(), &[]);
    }
}

/// A user who cannot make a pid namespace for bwrap.
#[test]
fn nothing_outlives_another_user_who_started_it_at_any_moment() {
    const NOBODY: u32 = 65534;
    let starter = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let stage = Stage::new();
    let whole = stage.outside(".");
    for place in [&whole, &stage.root()] {
        if std::os::unix::fs::chown(place, Some(NOBODY), Some(NOBODY)).is_err() {
            return report_skip("commands of another user", "it takes root to become one");
        }
    }
    let mut command = stage.command(starter[0]);
    command.args(&starter[1..]).arg(BINARY);
    command.args(["exec", "--profile", "off", "--isolation", "bwrap", "--", "echo ran"]);
    match command.output() {
        Ok(ran) if ran.stdout == b"ran\n" => killed_at_any_moment(&stage, &starter),
        ran => report_skip("commands of another user", &format!("{ran:?}")),
    }
}

#[test]
fn nothing_in_a_group_outlives_the_one_that_started_it() {
    for mode in ["landlock", "software", "none"].into_iter().filter(|mode| stands(mode)) {
        let stage = Stage::new();
        if !groups_end_with_us(&stage, mode) {
            continue;
        }
        let temporary = stage.outside("temporary");
        fs::create_dir(&temporary).unwrap();
        let mut command = stage.command(BINARY);
        command.args(["exec", "--profile", "off", "--isolation", mode, "--processes", "64", "--"]);
        command.arg(format!("{HIDERS} read x < never")).env("TMPDIR", &temporary);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let mut there = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut there).unwrap();
        assert_eq!(&there, b"there\n", "{mode}");
        assert!(held(&stage, "alive") > 0, "the oracle sees them");
        assert!(!groups_of(child.id()).is_empty(), "{mode}: the oracle sees the group");
        assert_eq!(watchdogs_of(child.id()).len(), 1, "{mode}");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 1, "{mode}");
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_gone(&stage, "alive");
        comes("the end of the watchdog", || watchdogs_of(child.id()).is_empty());
        assert_eq!(groups_of(child.id()), Vec::<PathBuf>::new(), "{mode}");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{mode}");
    }
}

#[test]
fn the_watchdog_goes_with_a_process_that_ends_by_itself() {
    let stage = Stage::new();
    if !groups_end_with_us(&stage, "none") {
        return;
    }
    let mut child = start(&stage, &["--isolation", "none", "--processes", "64"], "echo ran");
    let mut said = String::new();
    child.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((said.as_str(), child.wait().unwrap().success()), ("ran\n", true));
    comes("the end of the watchdog", || watchdogs_of(child.id()).is_empty());
    assert_eq!(groups_of(child.id()), Vec::<PathBuf>::new());
    // Where no group is made, nobody is needed.
    let line = "mkfifo never; echo there; read x < never";
    let mut child = start(&stage, &["--isolation", "none"], line);
    let mut there = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut there).unwrap();
    assert!(watchdogs_of(child.id()).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_is_said_of_orphans_is_what_holds() {
    let stage = Stage::new();
    let controls = |mode: &str, limits: &[&str]| {
        let flags = ["exec", "--profile", "off", "--isolation", mode, "--explain", "--json"];
        stage.json(&[&flags[..], limits].concat())["controls"].as_array().unwrap().clone()
    };
    let named = |controls: &[Value], name: &str| {
        controls.iter().find(|it| it["control"] == name).unwrap().clone()
    };
    if !groups_end_with_us(&stage, "none") {
        return;
    }
    let grouped = named(&controls("none", &["--memory", "1G"]), "orphans");
    assert_eq!(grouped["holds"], "advisory", "a command could leave its group: {grouped}");
    let free = named(&controls("none", &[]), "orphans");
    assert!(free["in_force"].as_str().unwrap().starts_with("best effort"), "{free}");
    if stands("landlock") {
        let told = controls("landlock", &["--processes", "64"]);
        // Who can signal others can end the watchdog, and who owns the groups can lock it out.
        let root = rustix::process::geteuid().is_root();
        let expect =
            if root { named(&told, "processes")["holds"].clone() } else { "advisory".into() };
        assert_eq!(named(&told, "orphans")["holds"], expect);
        let free = named(&controls("landlock", &[]), "orphans");
        assert_eq!(free["holds"], "advisory", "{free}");
    }
}

#[test]
fn bombs_are_held_by_their_limits() {
    let stage = Stage::new();
    for mode in ["bwrap", "landlock"].into_iter().filter(|mode| stands(mode)) {
        let policy =
            stage.json(&["exec", "--profile", "off", "--isolation", mode, "--explain", "--json"]);
        let enforced = |control: &str| {
            let controls = policy["controls"].as_array().unwrap();
            controls.iter().any(|it| it["control"] == control && it["holds"] == "enforced")
        };
        if !enforced("process_count") || !enforced("memory") {
            report_skip("bombs", "no control group can be made");
            continue;
        }
        let bomb = "b() { b | b & }; b 2>/dev/null; for n in 1 2 3 4 5 6 7 8 9; do (exec true) || echo held; done 2>/dev/null; echo tried";
        let flags = ["--isolation", mode, "--processes", "32", "--timeout", "20s"];
        let ran = stage.run(&[&["exec", "--profile", "off"], &flags[..], &["--", bomb]].concat());
        assert!(
            [0, 1, 2, 124, 128 + 9, 254].contains(&ran.code),
            "{mode}: {} {}",
            ran.code,
            ran.err
        );
        let hog = "python3 -c 'b = bytearray(512 << 20); print(len(b))'; echo after";
        let ran = stage.run(&[
            "exec",
            "--profile",
            "off",
            "--isolation",
            mode,
            "--memory",
            "64M",
            "--",
            hog,
        ]);
        assert!(!ran.text().contains("536870912"), "{mode}: {}", ran.text());
    }
}
