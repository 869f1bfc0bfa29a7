//! Sources that cannot be used, are large, or are hostile.

use std::fs;
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::fixture::{Fixture, git, task};
use crate::outliving::comes;

/// History of the large source in MiB.
const HISTORY: usize = 300;

#[test]
fn unusable_sources_are_refused_by_the_name_of_their_field() {
    let fixture = Fixture::new();
    let at = |name: &str| fixture.stage.outside(name);
    for name in ["empty", "taken"] {
        fs::create_dir(at(name)).unwrap();
        git(&at(name), &["init", "-q"]);
    }
    git(&at("taken"), &["commit", "-q", "--allow-empty", "-m", "Start"]);
    git(&at("taken"), &["branch", "work"]);
    fs::create_dir(at("taken").join("below")).unwrap();
    let server = fixture.start(&[]);
    for (source, says) in [
        (at("missing"), "no such file"),
        (at("empty"), "has no commit"),
        (at("taken").join("below"), "is not the top directory"),
        (fixture.stage.path("README.md"), "not a directory"),
        (fixture.data(), "contains the data directory"),
    ] {
        let answer = server.ask("POST", "/api/v1/tasks", &task(&source, "Work").to_string());
        let told = answer.json()["errors"]["repo.url"][0].as_str().map(str::to_owned);
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(told.is_some_and(|told| told.contains(says)), "{says}: {answer:?}");
    }
    for (field, name, says) in [
        ("/repo/branch", "work/one", "the source has the branch work"),
        ("/delivery/targetBranch", "gone", "no branch gone"),
    ] {
        let mut task = task(&at("taken"), "Work");
        task["delivery"] = json!({});
        let (place, key) = field.rsplit_once('/').unwrap();
        task.pointer_mut(place).unwrap()[key] = name.into();
        let answer = server.ask("POST", "/api/v1/tasks", &task.to_string());
        let field = field.trim_start_matches('/').replace('/', ".");
        let told = answer.json()["errors"][&field][0].as_str().map(str::to_owned);
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(told.is_some_and(|told| told.contains(says)), "{says}: {answer:?}");
    }
    for branch in ["with space", "a..b", "-rf", "a~1", "refs/heads/", "a.lock", ""] {
        let mut task = task(&fixture.source(), "Work");
        task["repo"]["branch"] = branch.into();
        let answer = server.ask("POST", "/api/v1/tasks", &task.to_string());
        let is_named = answer.status == 400 && answer.json()["errors"]["repo.branch"].is_array();
        assert!(is_named, "{branch:?}: {answer:?}");
    }
    server.end();
}

#[test]
fn task_starts_at_its_commit_and_makes_its_branch() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let first = fixture.git(&["rev-parse", "HEAD"]);
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "Second"]);
    let server = fixture.start(&[]);
    let mut task = task(&fixture.source(), "Work");
    task["repo"]["commit"] = first.trim().into();
    task["repo"]["branch"] = "from/first".into();
    let id = server.create_from(&task);
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    assert_eq!(session["vcs"]["baseCommit"], first.trim());
    assert_eq!(fixture.branches(), ["from/first"]);
    assert_eq!(fixture.git(&["rev-parse", "from/first^"]), first);
    server.end();
}

#[test]
fn a_source_with_a_detached_head_gets_its_branch() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let head = fixture.git(&["rev-parse", "HEAD"]);
    fixture.git(&["checkout", "-q", "--detach"]);
    let server = fixture.start(&[]);
    let mut task = task(&fixture.source(), "Work");
    task["repo"]["branch"] = "asked/for".into();
    let id = server.create_from(&task);
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    assert_eq!(session["vcs"]["baseCommit"], head.trim());
    assert_eq!(session["vcs"]["deliveredBranch"], "asked/for");
    let delivered = fixture.git(&["rev-parse", "asked/for"]);
    assert_eq!(session["vcs"]["deliveredCommit"], delivered.trim());
    assert_eq!(fixture.git(&["rev-parse", "asked/for~1"]), head);
    server.end();
}

#[test]
fn task_starts_at_the_commit_that_it_names() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let first = fixture.git(&["rev-parse", "HEAD"]).trim().to_owned();
    fs::write(fixture.stage.path("later.txt"), "later\n").unwrap();
    fixture.git(&["add", "later.txt"]);
    fixture.git(&["commit", "-q", "-m", "Later"]);
    // No branch leads to this commit but `side`, which the task does not name.
    let aside = fixture.git(&["commit-tree", "HEAD^{tree}", "-p", &first, "-m", "Aside"]);
    let aside = aside.trim();
    fixture.git(&["branch", "side", aside]);
    let server = fixture.start(&[]);
    let start_at = |commit: &str| {
        let mut task = task(&fixture.source(), "Work");
        task["repo"]["commit"] = commit.into();
        server.ended(&server.create_from(&task)).0
    };
    for (commit, has_later) in [(first.as_str(), false), (aside, true)] {
        let session = start_at(commit);
        assert_eq!(session["status"], "completed", "{session:#}");
        assert_eq!(session["vcs"]["baseCommit"], commit);
        let branch = session["vcs"]["deliveredBranch"].as_str().unwrap();
        assert_eq!(fixture.git(&["rev-parse", &format!("{branch}~1")]).trim(), commit);
        let files = fixture.git(&["ls-tree", "--name-only", branch]);
        assert_eq!(files.contains("later.txt"), has_later, "{files}");
    }
    let missing = "d".repeat(40);
    let session = start_at(&missing);
    assert_eq!(session["status"], "failed", "{session:#}");
    let detail = session["endDetail"].as_str().unwrap();
    assert!(detail.contains(&format!("the source has no commit {missing}")), "{detail}");
    fixture.assert_source_untouched();
    server.end();
}

#[test]
fn a_directory_without_git_becomes_a_copy_and_gets_a_patch() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let plain = fixture.stage.outside("plain");
    fs::create_dir_all(plain.join("docs")).unwrap();
    fs::write(plain.join("docs/guide.md"), "A guide\n").unwrap();
    fs::write(plain.join("logo.bin"), [0, 1, 2, 255]).unwrap();
    let server = fixture.start(&[]);
    let listed = server.get("/api/v1/executors");
    assert_eq!(listed["items"][0]["snapshotCapabilities"], json!(["git", "copy"]));
    let mut asked = task(&plain, "Work");
    let refused = server.ask("POST", "/api/v1/tasks", &asked.to_string());
    assert_eq!(refused.status, 422, "{refused:?}");
    let told = refused.json()["errors"]["delivery.mode"][0].as_str().unwrap().to_owned();
    assert!(told.contains("must be \"patch\""), "{told}");
    asked["delivery"] = json!({ "mode": "patch" });
    asked["repo"]["branch"] = "some".into();
    let refused = server.ask("POST", "/api/v1/tasks", &asked.to_string());
    assert!(refused.json()["errors"]["repo.branch"].is_array(), "{refused:?}");
    asked["repo"].as_object_mut().unwrap().remove("branch");
    let id = server.create_from(&asked);
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    assert_eq!(session["workspace"]["snapshotProvider"], "copy");
    assert_eq!(session["vcs"]["baseCommit"], json!(null));
    story.assert_whole(&server, &id);
    assert!(!plain.join("NOTES.md").exists() && !plain.join(".git").exists());
    comes("the end of the workspace", || fixture.workspaces() == 0);
    let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "").body;
    let (patch, check) = (fixture.stage.outside("work.patch"), fixture.stage.outside("check"));
    fs::write(&patch, &diff).unwrap();
    fs::create_dir(&check).unwrap();
    git(&check, &["apply", patch.to_str().unwrap()]);
    assert!(fs::read_to_string(check.join("NOTES.md")).unwrap().contains("Work"), "{diff}");
    assert!(!diff.contains("logo.bin"), "{diff}");

    // A copy of a repository has its uncommitted files too.
    let mut asked = task(&fixture.source(), "Work");
    asked["workspace"] = json!({ "snapshotPreference": ["zfs", "copy", "git"] });
    asked["delivery"] = json!({ "mode": "patch" });
    let id = server.create_from(&asked);
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    assert_eq!(session["workspace"]["snapshotProvider"], "copy");
    let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "").body;
    assert!(diff.contains("+++ b/NOTES.md") && !diff.contains("README.md"), "{diff}");
    asked["repo"]["url"] = "https://example.invalid/a.git".into();
    let refused = server.ask("POST", "/api/v1/tasks", &asked.to_string());
    assert!(refused.json()["errors"]["workspace.snapshotPreference"].is_array(), "{refused:?}");
    server.end();
    fixture.assert_source_untouched();
}

#[test]
fn a_bare_source_gets_its_branch() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let bare = fixture.stage.outside("bare.git");
    fixture.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let server = fixture.start(&[]);
    let id = server.create(&bare, "Work");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    let branch = story.find("delivery").unwrap()["branch"].as_str().unwrap();
    assert!(git(&bare, &["show", &format!("{branch}:NOTES.md")]).contains("Work"));
    server.end();
}

/// A program that leaves a mark where it runs.
fn canary(fixture: &Fixture) -> (PathBuf, PathBuf) {
    let (program, mark) = (fixture.stage.outside("canary.sh"), fixture.stage.outside("canary.ran"));
    fs::write(&program, format!("#!/bin/sh\necho $0 $* >>{}\ncat\n", mark.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (program, mark)
}

#[test]
fn nothing_of_a_hostile_source_runs_outside_the_sandbox() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let (program, mark) = canary(&fixture);
    let shown = program.to_str().unwrap();
    let source = fixture.source();
    fs::write(source.join(".gitattributes"), "* filter=evil diff=evil merge=evil\n").unwrap();
    let submodule = format!("[submodule \"x\"]\n\tpath = x\n\turl = ext::{shown}\n");
    fs::write(source.join(".gitmodules"), submodule).unwrap();
    symlink("/etc/passwd", source.join("out")).unwrap();
    symlink(fixture.data().join("token"), source.join("token")).unwrap();
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "-q", "-m", "Hostile"]);
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
        fixture.git(&["config", name, shown]);
    }
    fixture.git(&["config", "protocol.ext.allow", "always"]);
    fixture.git(&["config", "submodule.recurse", "true"]);
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
    let careless = Command::new("git").arg("status").current_dir(&source).output();
    careless.unwrap();
    assert!(mark.exists(), "the canary cannot sing");
    fs::remove_file(&mark).unwrap();

    let server = fixture.start(&[]);
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

/// Adds commits with content that cannot be compressed, as one pack.
fn add_history(source: &Path, mebibytes: usize) {
    let mut command = Command::new("git");
    command.current_dir(source).args(["-c", "core.compression=0", "fast-import", "--quiet"]);
    let mut import = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stream = BufWriter::new(import.stdin.take().unwrap());
    let mut random = fs::File::open("/dev/urandom").unwrap();
    let mut block = vec![0; 4 * 1024 * 1024];
    let committer = "committer Ada <ada@example.com> 1700000000 +0000\n";
    for number in 0..mebibytes.div_ceil(4) {
        random.read_exact(&mut block).unwrap();
        let from = if number == 0 { "from refs/heads/main^0\n" } else { "" };
        let head = format!(
            "commit refs/heads/main\n{committer}data 4\nBlob\n{from}M 644 inline blob.bin\ndata {}\n",
            block.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&block).unwrap();
        stream.write_all(b"\n").unwrap();
    }
    let end = format!("commit refs/heads/main\n{committer}data 5\nSmall\nD blob.bin\n");
    stream.write_all(end.as_bytes()).unwrap();
    stream.into_inner().unwrap().flush().unwrap();
    assert!(import.wait().unwrap().success());
}

fn size(path: &Path) -> u64 {
    if path.is_dir() {
        return path.read_dir().unwrap().flatten().map(|entry| size(&entry.path())).sum();
    }
    path.symlink_metadata().map_or(0, |found| found.len())
}

#[test]
fn a_second_task_on_a_large_history_transfers_nothing() {
    if !Fixture::can_run() {
        return;
    }
    let bytes = HISTORY as u64 * 1024 * 1024;
    let fixture = Fixture::new();
    fixture.git(&["stash", "-q"]);
    add_history(&fixture.source(), HISTORY);
    let server = fixture.start(&[]);
    let sessions = fixture.data().join("sessions");
    let mut cached = 0;
    for round in 0..2 {
        let mut task = task(&fixture.source(), "Work");
        task["keepOpen"] = json!(true);
        let started = std::time::Instant::now();
        let id = server.create_from(&task);
        server.event(&id, |event| event["status"] == "running");
        eprintln!("task {round} on {HISTORY} MiB of history: ready after {:?}", started.elapsed());
        assert!(size(&sessions.join("workspaces")) < bytes / 8, "the workspace copied history");
        let cache = size(&sessions.join("cache"));
        assert!(cache >= bytes, "{cache} bytes in the cache");
        assert!(round == 0 || cache == cached, "{cache} bytes after {cached}");
        cached = cache;
        server.delete(&id);
    }
    server.end();
}
