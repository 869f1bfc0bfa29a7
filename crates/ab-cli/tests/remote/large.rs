//! Files that do not fit into one call: in pieces, never half there, with a word on how far it is.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::{Far, WAYS, Way};
use crate::stage::{BINARY, Stage, run};

/// More than is sent elsewhere at once.
const LARGE: usize = 17 * 1024 * 1024 + 4321;

pub(super) fn large() -> Vec<u8> {
    (0..LARGE).map(|at| (at % 251) as u8).collect()
}

/// What lies beside a file while it is written, once it is there.
pub(super) fn part_of(stage: &Stage, name: &str) -> String {
    let is_it = |part: &String| part.starts_with(&format!(".{name}.")) && part.ends_with(".part");
    loop {
        if let Some(part) = stage.names("").into_iter().find(is_it) {
            return part;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_large_file_goes_there_and_back() {
    let stage = Stage::with(&[("in/old.bin", "old")]);
    fs::set_permissions(stage.path("in/old.bin"), fs::Permissions::from_mode(0o640)).unwrap();
    let far = Far::start(&stage);
    let large = large();
    for way in WAYS {
        let ran = far.run_with(&stage, way, &["fs", "write", "in/old.bin"], &large);
        assert_eq!(
            (ran.code, ran.err),
            (0, format!("note: wrote {LARGE} bytes to 'in/old.bin'\n"))
        );
        assert!(fs::read(stage.path("in/old.bin")).unwrap() == large);
        assert_eq!(stage.names("in"), ["old.bin"]);
        let mode = fs::metadata(stage.path("in/old.bin")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let ran = far.run(&stage, way, &["fs", "cat", "in/old.bin"]);
        assert!(ran.code == 0 && ran.out == large && ran.err.is_empty(), "{}", ran.err);
        let new = ["fs", "write", "in/old.bin", "--create-new"];
        far.run_with(&stage, way, &new, &large).expect_error(1, "in/old.bin");
        assert_eq!(stage.names("in"), ["old.bin"]);
    }
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_large_file_keeps_the_link_that_leads_to_it() {
    let stage = Stage::with(&[("target", "old")]);
    std::os::unix::fs::symlink("target", stage.path("link")).unwrap();
    let far = Far::start(&stage);
    let large = large();
    let ran = far.run_with(&stage, Way::Socket, &["fs", "write", "link"], &large);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(fs::symlink_metadata(stage.path("link")).unwrap().is_symlink());
    assert!(fs::read(stage.path("target")).unwrap() == large);
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn what_is_interrupted_leaves_nothing_behind() {
    let stage = Stage::new();
    let far = Far::start(&stage);
    let mut command = far.prepared(&stage, Way::Socket, &["fs", "write", "big.bin"]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&large()).unwrap();
    // Its other half is awaited for ever.
    part_of(&stage, "big.bin");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(stage.names("").is_empty(), "{:?}", stage.names(""));
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_daemon_that_dies_leaves_the_file_as_it_was_and_says_what_is_left() {
    for way in WAYS {
        let stage = Stage::with(&[("big.bin", "old")]);
        let far = Far::start(&stage);
        let mut command = far.prepared(&stage, way, &["fs", "write", "big.bin"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&large()).unwrap();
        let part = part_of(&stage, "big.bin");
        // Once while pieces are under way, once when all that came is there and more is awaited.
        let whole = (LARGE / 1024 / 1024 * 1024 * 1024) as u64;
        while way == Way::Socket && fs::metadata(stage.path(&part)).unwrap().len() < whole {
            std::thread::yield_now();
        }
        // Killed, without a goodbye. More input is awaited, and none comes: it does not take that
        // to notice, nor does anybody wait for a daemon that does not come back.
        drop(far.daemon);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(4), "{said}");
        let (error, hint) = said.split_once("\nhint: ").unwrap();
        assert!(error.starts_with("error: write 'big.bin': "), "{said}");
        assert!(!error.contains(".part"), "{said}");
        let expect =
            format!("'big.bin' was not changed; '{part}' may remain: remove it with fs rm\n");
        assert_eq!(hint, expect);
        drop(input);
        // What is left is in nobody's way when it is written again.
        let stale = fs::read(stage.path(&part)).unwrap();
        let far = Far::start(&stage);
        let ran = far.run_with(&stage, way, &["fs", "write", "big.bin"], &large());
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(stage.names(""), [part.clone(), "big.bin".to_owned()]);
        assert!(fs::read(stage.path("big.bin")).unwrap() == large());
        assert!(fs::read(stage.path(&part)).unwrap() == stale);
        assert_eq!(far.out(&stage, way, &["fs", "rm", &part]), "");
        assert_eq!(stage.names(""), ["big.bin"]);
        assert_eq!(far.daemon.end().0, 0);
    }
}

#[test]
fn a_large_file_that_may_not_be_there_is_refused_by_its_own_name() {
    let stage = Stage::with(&[("old.bin", "old"), ("file", "")]);
    let far = Far::start(&stage);
    let large = large();
    let words = ["fs", "write", "old.bin", "--create-new"];
    let ran = far.run_with(&stage, Way::Socket, &words, &large);
    ran.expect_error(1, "write 'old.bin': ");
    assert!(
        ran.err.contains("hint: 'old.bin' was not changed; choose another path"),
        "{}",
        ran.err
    );
    assert!(!ran.err.contains(".part"), "{}", ran.err);
    let ran = far.run_with(&stage, Way::Socket, &["fs", "write", "file/below"], &large);
    assert!(ran.code == 1 && !ran.err.contains(".part"), "{}", ran.err);
    assert_eq!(stage.names(""), ["file", "old.bin"]);
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn here_too_a_file_may_be_larger_than_one_call() {
    let stage = Stage::new();
    let length = 256 * 1024 * 1024 + 5;
    let source = stage.outside("sparse");
    File::create(&source).unwrap().set_len(length).unwrap();
    let mut command = stage.command(BINARY);
    command.args(["fs", "write", "big.bin"]).stdin(File::open(&source).unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stage.names(""), ["big.bin"]);
    assert_eq!(fs::metadata(stage.path("big.bin")).unwrap().len(), length);
}

#[test]
fn a_person_who_waits_is_told_how_far_it_is() {
    let stage = Stage::new();
    let far = Far::start(&stage);
    let watched = |quiet: &str| {
        let token = stage.outside("token");
        // Progress is a matter of time: nothing is said of a transfer that takes less than a second.
        let line = format!(
            "(head -c 18000000 /dev/zero; sleep 1.2; head -c 18000000 /dev/zero) | \
             '{BINARY}' fs write big {quiet} --remote {} --token-file '{}'",
            far.socket,
            token.display()
        );
        let mut command = stage.command("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]);
        command.env("TERM", "xterm").env("SHELL", "/bin/sh").env("NO_COLOR", "1");
        let ran = run(command, b"");
        assert_eq!(ran.code, 0, "{}", ran.text());
        ran.text()
    };
    let told = watched("");
    assert!(told.contains("MiB/s") && told.contains("wrote 36000000 bytes"), "{told:?}");
    let told = watched("--quiet");
    assert_eq!(told, "");
    assert_eq!(far.daemon.end().0, 0);
}
