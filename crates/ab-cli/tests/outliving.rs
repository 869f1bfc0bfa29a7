//! What a command leaves behind: processes that hide, bombs, and what a killed parent leaves.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};

use ab_testkit::host::cannot_run;

use crate::escapes::stands;
use crate::stage::{BINARY, Stage};

/// Grandchildren that leave their group and session in every way there is, each waiting at a pipe
/// that nobody opens. They say that they are there by writing to `alive`.
const HIDERS: &str = "mkfifo never; for how in 'setsid' 'nohup' 'setsid nohup' 'env -i /usr/bin/setsid'; do \
     ($how /bin/sh -c 'exec 9>>alive; echo x >&9; read x < never' </dev/null >/dev/null 2>&1 &) ; done; \
     while [ $(wc -l < alive 2>/dev/null || echo 0) -lt 4 ]; do :; done; echo there;";

/// How many processes have the file open, whatever name it has where they are.
fn held(stage: &Stage, name: &str) -> usize {
    let file = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let wanted = file(&stage.path(name));
    let handles = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read_dir(entry.path().join("fd")).ok()
    });
    handles.flatten().flatten().filter(|handle| file(&handle.path()) == wanted).count()
}

/// The kernel ends a namespace after the last to wait for it has been told.
fn wait_until_gone(stage: &Stage, name: &str) {
    while held(stage, name) > 0 {
        std::thread::yield_now();
    }
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
            cannot_run("bombs", "no control group can be made");
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
