//! A disk that is full while a workspace is made, and in the middle of a run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture::{Fixture, Server, git};
use super::sources::repack;
use super::spaces::{fixture, operations, space};
use crate::outliving::comes;
use crate::stage::BINARY;

/// Room for the database and small workspaces, not for the large source.
const SIZE: &str = "24m";

/// A server in mounts of its own, whose data directory is a small disk; `None` where that cannot be.
pub(super) fn on_small_disk(fixture: &Fixture) -> Option<Server> {
    fs::create_dir(fixture.data()).unwrap();
    let data = fixture.data().display().to_string();
    let script = "mount -t tmpfs -o size=$1,mode=700 none \"$2\" && shift && \
                  exec \"$2\" serve --port 0 --data-dir \"$1\"";
    let probe = Command::new("unshare").args(["-m", "true"]).output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        ab_testkit::host::report_skip("a full disk", &format!("unshare -m: {probe:?}"));
        return None;
    }
    let mut command = fixture.stage.command("unshare");
    command.args(["-m", "sh", "-c", script, "sh", SIZE, &data, BINARY]);
    // Otherwise the server would refuse the tasks that fill the disk.
    command.env("AGENT_BACKEND_RETENTION_FREE_SPACE", "0");
    if fixture.config().exists() {
        command.env("AGENT_BACKEND_CONFIG", fixture.config());
    }
    let mut server = Server::spawn(command, PathBuf::new());
    server.data = PathBuf::from(format!("/proc/{}/root{data}", server.pid()));
    server.read_notice();
    Some(server)
}

#[test]
fn mounts_full_disk_while_provisioning_ends_the_session_and_nothing_else() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let large = fixture.stage.outside("large");
    fixture.git(&["clone", "-q", ".", large.to_str().unwrap()]);
    let mut blob = Command::new("dd");
    blob.args(["if=/dev/urandom", "of=blob", "bs=1M", "count=40"]).current_dir(&large);
    assert!(blob.output().unwrap().status.success());
    git(&large, &["-c", "core.compression=0", "add", "blob"]);
    git(&large, &["commit", "-q", "-m", "Large"]);
    repack(&large);
    let Some(server) = on_small_disk(&fixture) else { return };
    let workspaces = || server.data.join("sessions/workspaces").read_dir().unwrap().count();

    let id = server.create(&large, "Work");
    let (session, story) = server.ended(&id);
    story.assert_whole(&server, &id);
    assert_eq!(session["status"], "failed", "{session:#}");
    assert_eq!(session["endReason"], "provision", "{session:#}");
    let detail = session["endDetail"].as_str().unwrap();
    assert!(detail.to_lowercase().contains("no space left"), "{detail}");
    server.delete(&id);
    comes("the end of the workspace", || workspaces() == 0);

    // There is room for a small one.
    let id = server.create(&fixture.source(), "Work");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    comes("the end of the workspace", || workspaces() == 0);
    assert_eq!(fixture.branches().len(), 1);
    server.end();
}

#[test]
fn mounts_full_disk_in_a_turn_loses_no_entry_of_the_audit() {
    if !Fixture::can_run() {
        return;
    }
    let fill = "head -c 60000000 /dev/zero > ~/big";
    let filler = format!(
        "[[turn]]\nsteps = [{{ run = \"{fill}\" }}, {{ say = \"full\\n\" }}, {{ hang = \"until_cancelled\" }}]\n\
         [[turn]]\nsteps = [{{ say = \"went on\\n\" }}]"
    );
    let fixture = Fixture::with_agents(&[("filler", filler)], "");
    let Some(server) = on_small_disk(&fixture) else { return };
    let id = server.create_with(&fixture, "filler");
    comes("a full disk", || server.said().contains("cannot store the audit yet"));
    assert_eq!(server.get("/api/v1/sessions")["total"], 1, "requests are answered meanwhile");
    let mut find = Command::new("find");
    find.arg(server.data.join("sessions")).args(["-name", "big", "-delete"]);
    assert!(find.status().unwrap().success());
    let filled = || {
        let audit = server.get(&format!("/api/v1/sessions/{id}/audit"));
        let entries = audit["items"].as_array().unwrap().clone();
        entries.iter().any(|entry| entry["subject"].as_str().is_some_and(|it| it.contains(fill)))
    };
    comes("the audit of the command", filled);
    server.delete(&id);
    let (_, story) = server.ended(&id);
    story.assert_whole(&server, &id);
    // The server goes on.
    let id = server.create(&fixture.source(), "Work");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    server.end();
}

#[test]
fn mounts_full_disk_in_a_run_loses_nothing_and_the_server_goes_on() {
    let fixture = fixture();
    let Some(server) = on_small_disk(&fixture) else { return };
    let no_network = json!({ "network": { "enabled": false } });
    let id = space(&server, &json!({ "policy": "permissive", "policyOverrides": no_network }));
    let runs = format!("/v1/spaces/{id}/runs");
    let files = format!("/v1/spaces/{id}/files");
    // A message that does not fit is refused as a whole.
    let content = "x".repeat(9 << 20);
    let large = (0..3).map(
        |number| json!({ "type": "createFile", "path": format!("{number}"), "content": content }),
    );
    let large: Vec<Value> = large.collect();
    let refused = server.ask("POST", &runs, &operations(json!(large)));
    assert_eq!(refused.status, 507, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "DISK_FULL", "{refused:?}");
    assert_eq!(server.get(&runs)["data"], json!([]));
    assert_eq!(server.get(&files)["data"], json!([]));
    // It takes no room afterwards.
    let fits = server.ask("PUT", &format!("{files}/fits"), &"x".repeat(16 << 20));
    assert_eq!(fits.status, 200, "{fits:?}");
    assert_eq!(server.ask("DELETE", &format!("{files}/fits"), "").status, 204);

    // A command fills the disk; what follows cannot be stored.
    let fill = "head -c 60000000 /dev/zero > big";
    let mut all = vec![
        json!({ "type": "createFile", "id": "first", "path": "first", "content": "kept" }),
        json!({ "type": "shell", "id": "fill", "command": fill }),
    ];
    all.extend((0..300).map(
        |number| json!({ "type": "createFile", "path": format!("d/{number}"), "content": "x".repeat(5000) }),
    ));
    let count = all.len();
    let answer = server.ask("POST", &runs, &operations(json!(all)));
    assert_eq!(answer.status, 507, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "DISK_FULL", "{answer:?}");
    // The server answers, and room is made with it.
    let listed = server.get(&runs);
    let run = listed["data"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(server.ask("GET", &format!("{files}/first"), "").body, "kept");
    assert_eq!(server.ask("DELETE", &format!("{files}/big"), "").status, 204);
    let stream = server.ask("GET", &format!("/v1/runs/{run}/stream"), "");
    assert!(stream.body.contains("event: complete"), "{}", stream.body.len());
    let shown = server.get(&format!("/v1/runs/{run}"))["data"].clone();
    assert_eq!(shown["status"], "completed");
    let events = shown["events"].as_array().unwrap();
    assert_eq!(events.len(), count, "one event for each operation");
    assert_eq!((&events[0]["success"], &events[1]["success"]), (&json!(true), &json!(false)));
    let stderr = events[1]["stderr"].as_str().unwrap();
    assert!(stderr.contains("No space left"), "{stderr}");
    // The log and the files agree, and every failure says why.
    let mut failed = 0;
    for event in &events[2..] {
        let path = event["path"].as_str().unwrap();
        let status = server.ask("GET", &format!("{files}/{path}"), "").status;
        if event["success"] == true {
            assert_eq!(status, 200, "{event}");
        } else {
            failed += 1;
            assert_eq!(status, 404, "{event}");
            let why = event["error"].as_str().unwrap();
            assert!(
                why.contains("disk is full") || why.to_lowercase().contains("no space left"),
                "{event}"
            );
        }
    }
    assert!(failed > 0, "the disk was not full");
    let after = operations(json!([{ "type": "createFile", "path": "after", "content": "x" }]));
    let answer = server.ask("POST", &runs, &after);
    assert_eq!(answer.json()["data"]["events"][0]["success"], true, "{answer:?}");
    server.end();
}

/// Mounts with a small disk that outlive the servers in them.
pub(super) struct SmallDisk {
    holder: Child,
    data: PathBuf,
}

impl SmallDisk {
    /// `None` where there can be none.
    pub(super) fn mount(fixture: &Fixture) -> Option<SmallDisk> {
        fs::create_dir(fixture.data()).unwrap();
        let script = "mount -t tmpfs -o size=$1,mode=700 none \"$2\" && echo mounted && \
                      exec sleep 1000";
        let mut holder = Command::new("unshare");
        holder.args(["-m", "sh", "-c", script, "sh", SIZE]).arg(fixture.data());
        let holder = holder.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut disk = SmallDisk { holder, data: fixture.data() };
        let mut line = String::new();
        BufReader::new(disk.holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "mounted\n" {
            ab_testkit::host::report_skip("a full disk", "unshare -m cannot mount");
            return None;
        }
        Some(disk)
    }

    /// A path of the disk, as this process sees it.
    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let root = format!("/proc/{}/root{}", self.holder.id(), self.data.display());
        Path::new(&root).join(path)
    }

    /// A server that may end before it is ready.
    fn spawn(&self, fixture: &Fixture) -> Server {
        let mut command = fixture.stage.command("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-m", BINARY]);
        command.args(["serve", "--port", "0", "--data-dir"]).arg(&self.data);
        // Otherwise the server would refuse the tasks that fill the disk.
        command.env("AGENT_BACKEND_RETENTION_FREE_SPACE", "0");
        if fixture.config().exists() {
            command.env("AGENT_BACKEND_CONFIG", fixture.config());
        }
        Server::spawn(command, self.path(""))
    }

    pub(super) fn start(&self, fixture: &Fixture) -> Server {
        let mut server = self.spawn(fixture);
        server.read_notice();
        server
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // It has ended already if nothing could be mounted.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// When the server is killed.
#[derive(Clone, Copy, Debug)]
enum KillAt {
    /// A command fills the disk.
    Filling,
    /// The disk is full, and the caller was told.
    Full,
}

/// After the restart the log, the files and the run agree, and nothing ran twice.
fn killed_on_a_full_disk(moment: KillAt) {
    let fixture = fixture();
    let Some(disk) = SmallDisk::mount(&fixture) else { return };
    let server = disk.start(&fixture);
    let no_network = json!({ "network": { "enabled": false } });
    let id = space(&server, &json!({ "policy": "permissive", "policyOverrides": no_network }));
    let files = disk.path("spaces").join(&id).join("files");
    let fill = "head -c 60000000 /dev/zero > big; echo filled";
    let mut all = vec![
        json!({ "type": "shell", "id": "before", "command": "echo x >> log" }),
        json!({ "type": "shell", "id": "fill", "command": fill }),
    ];
    let content = "x".repeat(5000);
    all.extend((0..300).map(|number| {
        let (id, path) = (format!("c{number}"), format!("d/{number}"));
        json!({ "type": "createFile", "id": id, "path": path, "content": content })
    }));
    all.push(json!({ "type": "shell", "id": "after", "command": "echo y >> log" }));
    let (count, body) = (all.len(), operations(json!(all)));
    let runs = format!("/v1/spaces/{id}/runs");
    thread::scope(|threads| {
        let asked = threads.spawn(|| server.try_ask("POST", &runs, &server.operator(), &body).ok());
        match moment {
            KillAt::Filling => comes("the large file", || {
                fs::metadata(files.join("big")).is_ok_and(|big| big.len() > 1 << 20)
            }),
            KillAt::Full => {
                while !asked.is_finished() {
                    thread::yield_now();
                }
            }
        }
        server.signal(Signal::KILL);
        let answer = asked.join().unwrap();
        if matches!(moment, KillAt::Full) {
            assert_eq!(answer.map(|answer| answer.status), Some(507));
        }
    });
    server.died();

    // What the server does while there is no room must lose nothing either.
    let mut server = disk.spawn(&fixture);
    comes("a start, or its refusal", || {
        let said = server.said();
        said.contains("  try ") || said.contains("error:")
    });
    server.signal(Signal::KILL);
    server.wait();
    drop(server);
    fs::remove_file(files.join("big")).unwrap();

    let server = disk.start(&fixture);
    let listed = server.get(&runs);
    let run = listed["data"][0]["id"].as_str().unwrap().to_owned();
    let stream = server.ask("GET", &format!("/v1/runs/{run}/stream"), "");
    assert!(stream.body.contains("event: complete"), "{moment:?}: {}", stream.body);
    let shown = server.get(&format!("/v1/runs/{run}"))["data"].clone();
    assert_eq!(shown["status"], "completed", "{moment:?}: {shown:#}");
    let mut events = BTreeMap::new();
    for event in shown["events"].as_array().unwrap() {
        let id = event["operationId"].as_str().unwrap().to_owned();
        assert!(events.insert(id, event.clone()).is_none(), "{moment:?}: two of {event}");
    }
    assert_eq!(events.len(), count, "{moment:?}: one event for each operation");
    let log = fs::read_to_string(files.join("log")).unwrap();
    for (id, line) in [("before", "x"), ("after", "y")] {
        let times = log.lines().filter(|it| *it == line).count();
        match &events[id] {
            event if event["success"] == true => assert_eq!(times, 1, "{moment:?}: {event}"),
            event => assert!(times <= 1, "{moment:?}: it ran twice: {event}"),
        }
    }
    for number in 0..300 {
        let event = &events[&format!("c{number}")];
        let found = fs::read_to_string(files.join(format!("d/{number}"))).ok();
        if event["success"] == true {
            assert_eq!(found.as_deref(), Some(content.as_str()), "{moment:?}: {event}");
        } else if !event["error"].as_str().unwrap().contains("interrupted") {
            assert_eq!(found, None, "{moment:?}: {event}");
        }
    }
    assert_eq!(events["before"]["success"], true, "{moment:?}");
    // A server that starts on the full disk may have performed it there.
    let after = &events["after"];
    let found_no_room = after.to_string().contains("No space left on device");
    assert!(after["success"] == true || found_no_room, "{moment:?}: {after:#}");
    // Space for the next run, and nothing of the old one goes on.
    let next = operations(json!([{ "type": "createFile", "path": "next", "content": "x" }]));
    let answer = server.ask("POST", &runs, &next);
    assert_eq!(answer.json()["data"]["events"][0]["success"], true, "{answer:?}");
    server.end();
}

#[test]
fn mounts_kill_while_a_run_fills_the_disk_is_survived() {
    killed_on_a_full_disk(KillAt::Filling);
}

#[test]
fn mounts_kill_on_a_full_disk_in_a_run_is_survived() {
    killed_on_a_full_disk(KillAt::Full);
}
