//! Sources that cannot be used, are large, or are hostile.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::ground::{Ground, git, task};

/// History of the large source in MiB: what the suite has time for, and what `cargo xtask soak history` makes.
const HISTORY: usize = 24;
const LONG_HISTORY: usize = 300;

#[test]
fn unusable_sources_end_the_session_with_a_reason_that_names_the_field() {
    let ground = Ground::new();
    let at = |name: &str| ground.stage.outside(name);
    for name in ["plain", "empty"] {
        fs::create_dir(at(name)).unwrap();
    }
    git(&at("empty"), &["init", "-q"]);
    let server = ground.start(&[]);
    for (source, says) in [
        (at("missing"), "No such file"),
        (at("plain"), "not a git repository"),
        (at("empty"), "is empty"),
        (ground.stage.path("README.md"), "not a directory"),
        (ground.data(), "overlap"),
    ] {
        let id = server.create(&source, "Work");
        let (session, story) = server.ended(&id);
        story.assert_whole(&server, &id);
        let reason = (&session["status"], &session["endReason"]);
        assert_eq!(reason, (&json!("failed"), &json!("provision")), "{session:#}");
        let detail = session["endDetail"].as_str().unwrap();
        assert!(detail.contains("repo.url") && detail.contains(says), "{detail}");
    }
    for branch in ["with space", "a..b", "-rf", "a~1", "refs/heads/", "a.lock", ""] {
        let mut task = task(&ground.source(), "Work");
        task["repo"]["branch"] = branch.into();
        let answer = server.ask("POST", "/api/v1/tasks", &task.to_string());
        let is_named = answer.status == 400 && answer.json()["errors"]["repo.branch"].is_array();
        assert!(is_named, "{branch:?}: {answer:?}");
    }
    server.end();
}

#[test]
fn a_bare_source_gets_its_branch() {
    if !Ground::can_run() {
        return;
    }
    let ground = Ground::new();
    let bare = ground.stage.outside("bare.git");
    ground.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let server = ground.start(&[]);
    let id = server.create(&bare, "Work");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    let branch = story.find("delivery").unwrap()["branch"].as_str().unwrap();
    assert!(git(&bare, &["show", &format!("{branch}:NOTES.md")]).contains("Work"));
    server.end();
}

/// A program that leaves a mark where it runs.
fn canary(ground: &Ground) -> (PathBuf, PathBuf) {
    let (program, mark) = (ground.stage.outside("canary.sh"), ground.stage.outside("canary.ran"));
    fs::write(&program, format!("#!/bin/sh\necho $0 $* >>{}\ncat\n", mark.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (program, mark)
}

#[test]
fn nothing_of_a_hostile_source_runs_outside_the_sandbox() {
    if !Ground::can_run() {
        return;
    }
    let ground = Ground::new();
    let (program, mark) = canary(&ground);
    let shown = program.to_str().unwrap();
    let source = ground.source();
    fs::write(source.join(".gitattributes"), "* filter=evil diff=evil merge=evil\n").unwrap();
    let submodule = format!("[submodule \"x\"]\n\tpath = x\n\turl = ext::{shown}\n");
    fs::write(source.join(".gitmodules"), submodule).unwrap();
    symlink("/etc/passwd", source.join("out")).unwrap();
    symlink(ground.data().join("token"), source.join("token")).unwrap();
    ground.git(&["add", "."]);
    ground.git(&["commit", "-q", "-m", "Hostile"]);
    for name in [
        "core.fsmonitor",
        "core.sshCommand",
        "core.alternateRefsCommand",
        "core.pager",
        "core.editor",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
        "diff.external",
        "merge.evil.driver",
        "uploadpack.packObjectsHook",
        "credential.helper",
        "gpg.program",
        "receive.procReceiveRefs",
    ] {
        ground.git(&["config", name, shown]);
    }
    ground.git(&["config", "protocol.ext.allow", "always"]);
    ground.git(&["config", "submodule.recurse", "true"]);
    fs::create_dir_all(source.join(".git/hooks")).unwrap();
    for hook in [
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "pre-receive",
        "update",
        "post-update",
        "post-receive",
        "fsmonitor-watchman",
    ] {
        fs::copy(&program, source.join(".git/hooks").join(hook)).unwrap();
    }
    // The canary sings when git is used without care.
    fs::write(source.join("README.md"), "# A project\nmine\n").unwrap();
    let careless = std::process::Command::new("git").arg("status").current_dir(&source).output();
    careless.unwrap();
    assert!(mark.exists(), "the canary cannot sing");
    fs::remove_file(&mark).unwrap();

    let server = ground.start(&[]);
    let id = server.create(&source, "Work");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "");
    assert!(diff.body.contains("+++ b/NOTES.md"), "{diff:?}");
    let ran = fs::read_to_string(&mark).unwrap_or_default();
    assert_eq!(ran, "", "something of the source ran");
    server.delete(&id);
    server.end();
    assert!(!mark.exists());
}

/// Packs a repository without compression, so that git is fast with it.
pub(super) fn repack(source: &Path) {
    git(source, &["-c", "pack.compression=0", "repack", "-a", "-d", "-q", "--window=0"]);
}

/// Adds commits with content that cannot be compressed.
fn add_history(source: &Path, mebibytes: usize) {
    let mut random = fs::File::open("/dev/urandom").unwrap();
    let mut block = vec![0; 4 * 1024 * 1024];
    for number in 0..mebibytes.div_ceil(4) {
        random.read_exact(&mut block).unwrap();
        fs::write(source.join("blob.bin"), &block).unwrap();
        git(source, &["-c", "core.compression=0", "add", "blob.bin"]);
        git(source, &["commit", "-q", "-m", &format!("Blob {number}")]);
    }
    git(source, &["rm", "-q", "blob.bin"]);
    git(source, &["commit", "-q", "-m", "Small again"]);
    repack(source);
}

fn size(path: &Path) -> u64 {
    if path.is_dir() {
        return path.read_dir().unwrap().flatten().map(|entry| size(&entry.path())).sum();
    }
    path.symlink_metadata().map_or(0, |found| found.len())
}

#[test]
fn a_second_task_on_a_large_history_transfers_nothing() {
    if !Ground::can_run() {
        return;
    }
    let is_long = std::env::var_os("AB_SOAK_SECONDS").is_some();
    let mebibytes = if is_long { LONG_HISTORY } else { HISTORY };
    let bytes = mebibytes as u64 * 1024 * 1024;
    let ground = Ground::new();
    ground.git(&["stash", "-q"]);
    add_history(&ground.source(), mebibytes);
    let server = ground.start(&[]);
    let sessions = ground.data().join("sessions");
    let mut cached = 0;
    for round in 0..2 {
        let mut task = task(&ground.source(), "Work");
        task["keepOpen"] = json!(true);
        let started = std::time::Instant::now();
        let id = server.create_from(&task);
        server.event(&id, |event| event["status"] == "running");
        eprintln!(
            "task {round} on {mebibytes} MiB of history: ready after {:?}",
            started.elapsed()
        );
        assert!(size(&sessions.join("workspaces")) < bytes / 8, "the workspace copied history");
        let cache = size(&sessions.join("cache"));
        assert!(cache >= bytes, "{cache} bytes in the cache");
        assert!(round == 0 || cache == cached, "{cache} bytes after {cached}");
        cached = cache;
        server.delete(&id);
    }
    server.end();
}
