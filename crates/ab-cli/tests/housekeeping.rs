//! What a server keeps and removes, and its backups.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::outliving::comes;
use crate::serve::{Server, client, git, repository, waiting};
use crate::stage::{BINARY, Ran, Stage, run};

/// Starts the server with a table of the configuration.
fn serve(stage: &Stage, retention: &str) -> Server {
    let config = stage.outside("config.toml");
    fs::write(&config, format!("[retention]\n{retention}\n")).unwrap();
    Server::start_with(stage, &["--config", config.to_str().unwrap()])
}

fn ok(stage: &Stage, arguments: &[&str]) -> Ran {
    let ran = client(stage, arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.text(), ran.err);
    ran
}

fn session(stage: &Stage, id: &str) -> Value {
    ok(stage, &["session", "get", id, "--json"]).value()
}

fn stopped(stage: &Stage) -> String {
    let id = waiting(stage);
    ok(stage, &["session", "stop", &id]);
    comes("the end of the session", || session(stage, &id)["status"] == "stopped");
    id
}

fn workspaces(stage: &Stage) -> usize {
    stage.outside("data/sessions/workspaces").read_dir().map_or(0, Iterator::count)
}

fn caches(stage: &Stage) -> usize {
    stage.outside("data/sessions/cache").read_dir().map_or(0, Iterator::count)
}

#[test]
fn ended_work_is_removed_when_its_time_is_over() {
    let stage = repository();
    let server = serve(&stage, "");
    let ended = stopped(&stage);
    let live = waiting(&stage);
    let kept = ok(&stage, &["cleanup", "--json"]).value();
    assert_eq!(
        (&kept["workspaces"], &kept["sessions"]),
        (&Value::Array(vec![]), &0.into()),
        "{kept}"
    );
    assert!(kept["storage"]["workspacesBytes"].as_u64().unwrap() > 0, "{kept}");
    let before = workspaces(&stage);
    assert_eq!(before, 2);
    assert_eq!(server.end().0, 0);

    let server = serve(&stage, "workspaces = \"1ms\"\nsessions = \"forever\"\ncache = \"1ms\"");
    comes("the removal at the start", || workspaces(&stage) == 1);
    comes("the line in the session's log", || {
        ok(&stage, &["session", "logs", &ended])
            .text()
            .contains("The workspace was removed: it is kept")
    });
    let gone = client(&stage, &["session", "continue", &ended]);
    assert!(gone.code != 0 && gone.err.contains("workspace"), "{}", gone.err);
    // The cache is in use by the session at work.
    assert!(caches(&stage) > 0);
    comes("the session is taken up", || session(&stage, &live)["openApprovals"] == 1);
    let again = stopped(&stage);
    let dry = ok(&stage, &["cleanup", "--dry-run", "--json"]).value();
    assert_eq!(
        (&dry["dryRun"], &dry["workspaces"][0]["sessionId"]),
        (&true.into(), &again.as_str().into())
    );
    assert_eq!(workspaces(&stage), 2, "a dry run removes nothing");
    let text = ok(&stage, &["cleanup"]).text();
    assert!(text.contains(&again) && text.contains("removed 1 workspaces, 0 caches"), "{text}");
    assert_eq!(workspaces(&stage), 1);
    ok(&stage, &["session", "cancel", &live]);
    comes("the end of the session", || session(&stage, &live)["status"] == "cancelled");
    comes("the end of its workspace", || workspaces(&stage) == 0);
    let text = ok(&stage, &["cleanup"]).text();
    assert!(text.contains("removed 0 workspaces, 1 caches"), "{text}");
    assert_eq!(caches(&stage), 0);
    assert_eq!(server.end().0, 0);

    let server = serve(&stage, "sessions = \"1ms\"");
    let count = || ok(&stage, &["session", "list", "--json"]).value()["total"].clone();
    comes("the removal of ended sessions", || count() == 0);
    assert_ne!(client(&stage, &["session", "get", &ended]).code, 0);
    // The server goes on as before.
    ok(&stage, &["task", "Once more", "--follow", "--approve", "always"]);
    assert_eq!(server.end().0, 0);
}

#[test]
fn task_without_room_is_refused_and_says_which_setting_is_the_cause() {
    let stage = repository();
    let server = serve(&stage, "disk-limit = \"1K\"\nworkspaces = \"forever\"");
    let id = waiting(&stage);
    let storage = ok(&stage, &["cleanup", "--json"]).value()["storage"].clone();
    assert!(storage["workspacesBytes"].as_u64().unwrap() > 1024, "{storage}");
    assert_eq!(storage["limitBytes"], 1024);
    let refused = client(&stage, &["task", "x"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("retention.disk-limit"), "{}", refused.err);
    assert_eq!(workspaces(&stage), 1, "nothing was made for the refused task");
    ok(&stage, &["session", "cancel", &id]);
    comes("the end of its workspace", || workspaces(&stage) == 0);
    // There is room again, without a wait.
    let id = ok(&stage, &["task", "x", "--json"]).value()["sessionId"].clone();
    ok(&stage, &["session", "cancel", id.as_str().unwrap()]);
    assert_eq!(server.end().0, 0);

    let server = serve(&stage, "free-space = \"1000000G\"");
    let refused = client(&stage, &["task", "x"]);
    assert!(refused.code != 0 && refused.err.contains("retention.free-space"), "{}", refused.err);
    assert_eq!(server.end().0, 0);
}

#[test]
fn limit_on_the_disk_removes_what_ended() {
    let stage = repository();
    let retention =
        "disk-limit = \"1K\"\ngrace = \"1ms\"\nworkspaces = \"forever\"\ncache = \"forever\"";
    let server = serve(&stage, retention);
    let first = stopped(&stage);
    assert!(workspaces(&stage) == 1 && caches(&stage) > 0);
    let report = ok(&stage, &["cleanup", "--json"]).value();
    let removed = &report["workspaces"][0];
    assert_eq!(
        (&removed["sessionId"], &removed["reason"]),
        (&first.clone().into(), &"size".into())
    );
    assert_eq!(report["caches"], Value::Array(vec![]), "the workspace borrowed from it");
    assert_eq!(workspaces(&stage), 0);
    let logs = ok(&stage, &["session", "logs", &first]).text();
    assert!(logs.contains("The workspace was removed: the size limit of the server"), "{logs}");
    let report = ok(&stage, &["cleanup", "--json"]).value();
    assert_eq!(report["caches"][0]["reason"], "size", "{report}");
    assert_eq!(caches(&stage), 0);

    // There is room for the next task.
    let next = waiting(&stage);
    ok(&stage, &["session", "cancel", &next]);
    assert_eq!(server.end().0, 0);
}

/// A command on a data directory that is not the one of the stage.
fn on(stage: &Stage, arguments: &[&str], data: &Path) -> Ran {
    let mut command = stage.command(BINARY);
    command.args(arguments).arg("--data-dir").arg(data);
    run(command, b"")
}

#[test]
fn backup_of_a_running_server_continues_elsewhere() {
    let stage = repository();
    let server = Server::start(&stage);
    let done = ok(&stage, &["task", "First", "--follow", "--approve", "always"]);
    assert!(done.text().contains("completed"), "{}", done.text());
    let id = waiting(&stage);
    let kept = stopped(&stage);
    for (name, data) in [("backup.tar.gz", "restored-1"), ("backup", "restored-2")] {
        let backup = stage.outside(name);
        let backup = backup.to_str().unwrap();
        let made = ok(&stage, &["backup", backup, "--json"]).value();
        assert_eq!((&made["sessions"], &made["workspaces"]), (&3.into(), &2.into()), "{made}");
        assert_eq!(made["problems"], Value::Array(vec![]));
        let mode = fs::metadata(backup).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if name.ends_with("gz") { 0o600 } else { 0o700 });
        let again = client(&stage, &["backup", backup]);
        assert!(again.code != 0 && again.err.contains("exists"), "{}", again.err);

        let data = stage.outside(data);
        let restored = on(&stage, &["restore", backup, "--json"], &data);
        assert_eq!(restored.code, 0, "{}", restored.err);
        assert_eq!(restored.value()["workspaces"], 2);
        let second = on(&stage, &["restore", backup], &data);
        assert!(second.code != 0 && second.err.contains("is not empty"), "{}", second.err);
    }
    let used = client(&stage, &["restore", stage.outside("backup").to_str().unwrap()]);
    assert!(used.code != 0 && used.err.contains("the server at http://"), "{}", used.err);
    server.kill();
    // The old data directory is lost, with everything that the restored workspaces could borrow from.
    let data = stage.outside("data");
    comes("the end of the old directory", || fs::remove_dir_all(&data).is_ok() || !data.exists());
    for (number, data) in ["restored-1", "restored-2"].into_iter().enumerate() {
        let data = stage.outside(data);
        let flags = ["--data-dir", data.to_str().unwrap()];
        let server = Server::start_at(&stage, &flags);
        let shown = on(&stage, &["session", "get", &kept, "--json"], &data).value();
        let path = shown["workspace"]["mountPath"].as_str().unwrap().to_owned();
        assert!(path.starts_with(data.to_str().unwrap()), "{shown}");
        // Git finds the commits in the cache that was restored too.
        let log = git(Path::new(&path), &["-c", "safe.directory=*", "log", "--format=%s"]);
        assert_eq!(log, "Start\n");
        // The work of both is delivered once.
        if number == 0 {
            let next = on(&stage, &["session", "continue", &kept, "--json"], &data);
            assert_eq!(next.code, 0, "{}", next.err);
            for id in [id.as_str(), next.value()["sessionId"].as_str().unwrap()] {
                let events = ["session", "events", id, "--follow", "--approve", "always"];
                let followed = on(&stage, &events, &data);
                let text = followed.text();
                assert!(text.contains("✓ completed"), "{text}\n{}", followed.err);
            }
        }
        assert_eq!(server.end().0, 0);
    }
}

#[test]
fn truncated_backup_is_refused_with_a_reason_and_leaves_nothing() {
    let stage = repository();
    let server = Server::start(&stage);
    stopped(&stage);
    let data = stage.outside("restored");
    let refused = |backup: &Path, reasons: &[&str]| {
        let ran = on(&stage, &["restore", backup.to_str().unwrap()], &data);
        let name = backup.to_str().unwrap();
        assert!(ran.code != 0 && ran.err.contains(name), "{name}: {}", ran.err);
        let has_reason = reasons.iter().any(|reason| ran.err.contains(reason));
        assert!(has_reason, "{name}: none of {reasons:?} in {}", ran.err);
        assert!(!data.exists(), "{name}");
        let names = stage.root().parent().unwrap().read_dir().unwrap().flatten();
        let left = names.filter(|it| it.file_name().to_string_lossy().starts_with(".restored"));
        assert_eq!(left.count(), 0, "{name}");
    };
    let no_archive = ["does not look like a tar archive", "unexpected end of file"];
    let cut_gzip = ["unexpected end of file"];
    // An archive that ends between two of its entries is one for tar.
    let cut_tar = ["Unexpected EOF", "is not a backup", "is incomplete or damaged"];
    for (name, reasons) in [("b.tar.gz", &cut_gzip[..]), ("b.tar", &cut_tar[..])] {
        let whole = stage.outside(name);
        ok(&stage, &["backup", whole.to_str().unwrap()]);
        let bytes = fs::read(&whole).unwrap();
        let cut = stage.outside(&format!("cut-{name}"));
        let block = |share: usize| bytes.len() * share / 10 / 512 * 512;
        for length in [block(2), block(2) + 100, block(5), block(7), block(9)] {
            fs::write(&cut, &bytes[..length]).unwrap();
            refused(&cut, reasons);
        }
        fs::write(&cut, "").unwrap();
        refused(&cut, &[&no_archive[..], &["is not a backup"]].concat());
        fs::write(&cut, "no archive at all\n".repeat(100)).unwrap();
        refused(&cut, &["does not look like a tar archive", "not in gzip format"]);
    }
    // A directory that was not copied completely.
    let whole = stage.outside("directory");
    ok(&stage, &["backup", whole.to_str().unwrap()]);
    let workspaces = whole.join("sessions/workspaces");
    let workspace = workspaces.read_dir().unwrap().flatten().next().unwrap().path();
    let readme = workspace.join("tree/README.md");
    let text = fs::read(&readme).unwrap();
    fs::write(&readme, "").unwrap();
    refused(&whole, &["is incomplete or damaged: it has"]);
    fs::write(&readme, text).unwrap();
    let restored = on(&stage, &["restore", whole.to_str().unwrap()], &data);
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert_eq!(server.end().0, 0);
}

#[test]
fn damaged_or_foreign_backup_is_refused_and_leaves_nothing() {
    let stage = repository();
    let server = Server::start(&stage);
    ok(&stage, &["task", "First", "--follow", "--approve", "always"]);
    let backup = stage.outside("backup");
    ok(&stage, &["backup", backup.to_str().unwrap()]);
    assert_eq!(server.end().0, 0);
    // A stopped server can be backed up too.
    ok(&stage, &["backup", stage.outside("second.tar").to_str().unwrap()]);
    let data = stage.outside("restored");
    let refused = |says: &str| {
        let ran = on(&stage, &["restore", backup.to_str().unwrap()], &data);
        assert_ne!(ran.code, 0);
        assert!(ran.err.contains(says), "no {says:?} in {}", ran.err);
        assert!(!data.exists());
        let names = stage.root().parent().unwrap().read_dir().unwrap().flatten();
        let left = names.filter(|it| it.file_name().to_string_lossy().starts_with(".restored"));
        assert_eq!(left.count(), 0);
    };
    let manifest = fs::read_to_string(backup.join("manifest.json")).unwrap();
    fs::write(backup.join("manifest.json"), manifest.replace("\"format\": 1", "\"format\": 99"))
        .unwrap();
    refused("has format 99");
    fs::write(backup.join("manifest.json"), "{").unwrap();
    refused("manifest.json is invalid");
    fs::remove_file(backup.join("manifest.json")).unwrap();
    refused("is not a backup");
    fs::write(backup.join("manifest.json"), &manifest).unwrap();
    let mut database = fs::read(backup.join("state.db")).unwrap();
    let middle = database.len() / 2;
    database[middle] ^= 0xff;
    fs::write(backup.join("state.db"), database).unwrap();
    refused("is damaged");
    fs::remove_file(backup.join("state.db")).unwrap();
    refused("state.db is missing");
    let missing = on(&stage, &["restore", "/no/such/backup"], &data);
    assert!(missing.code != 0 && missing.err.contains("/no/such/backup"), "{}", missing.err);
    let nothing =
        on(&stage, &["backup", stage.outside("x").to_str().unwrap()], &stage.outside("none"));
    assert!(nothing.code != 0 && nothing.err.contains("--data-dir"), "{}", nothing.err);
}
