//! Uploaded directories and attachments: from the command line to the agent and back, over kills and a full disk.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::disk::on_small_disk;
use super::fixture::{Fixture, Server, git};
use super::http::Answer;
use crate::outliving::comes;
use crate::stage::{BINARY, Ran, run};

/// Reads the attachment that the prompt names, and tries to change it.
const READER: &str = r#"
[[turn]]
steps = [
    { run = """cat > prompt.txt <<'END'
{prompt}
END""" },
    { run = """sed -n 's/^- \\(.*\\) (.*/\\1/p' prompt.txt > paths.txt
while IFS= read -r path; do cat "$path"; done < paths.txt > seen.txt""" },
    { run = """while IFS= read -r path; do
if echo x >> "$path"; then echo changed; else echo refused; fi; done < paths.txt >> seen.txt
rm prompt.txt paths.txt""" },
    { edit = { path = "README.md", old = "mine", new = "ours" } },
]
"#;

fn client(fixture: &Fixture, arguments: &[&str]) -> Ran {
    let mut command = fixture.stage.command(BINARY);
    command.args(arguments).arg("--data-dir").arg(fixture.data());
    run(command, b"")
}

/// The files of uploads that the server keeps.
fn kept(data: &Path) -> usize {
    data.join("uploads").read_dir().map_or(0, Iterator::count)
}

fn announce(server: &Server, kind: &str, size: usize) -> Value {
    let body = json!({ "kind": kind, "name": "some.txt", "size": size });
    let made = server.ask("POST", "/api/v1/uploads", &body.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    made.json()
}

/// Sends a piece to the signed address, without a token.
fn send(server: &Server, upload: &Value, offset: usize, content: &str) -> Answer {
    let url = upload["uploadUrl"].as_str().unwrap();
    let offset = offset.to_string();
    server.try_ask("PATCH", url, &[("upload-offset", &offset)], content).unwrap()
}

/// A task on an uploaded file, with the same key each time.
fn create(server: &Server, upload: &Value, source: &Path) -> Option<String> {
    let mut headers = server.operator();
    headers.push(("idempotency-key", "once"));
    let task = json!({
        "prompt": "Read it", "repo": { "url": source }, "agent": { "type": "reader" },
        "attachments": [{ "uploadId": upload["id"] }],
    });
    let made = server.try_ask("POST", "/api/v1/tasks", &headers, &task.to_string()).ok()?;
    assert_eq!(made.status, 201, "{made:?}");
    Some(made.json()["id"].as_str().unwrap().to_owned())
}

#[test]
fn directory_is_uploaded_and_the_patch_applies_to_it() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::with_agents(&[("reader", READER.to_owned())], "");
    fs::write(fixture.stage.path(".gitignore"), "*.log\n").unwrap();
    fs::write(fixture.stage.path("noise.log"), "not sent\n").unwrap();
    fs::write(fixture.stage.path("new.txt"), "untracked\n").unwrap();
    let attached = fixture.stage.outside("crash report.txt");
    fs::write(&attached, "it crashed here\n").unwrap();
    let server = fixture.start(&[]);
    let attached = attached.to_str().unwrap();
    let arguments = ["task", "Look", "--upload", ".", "--attach", attached, "--agent", "reader"];
    let ran = client(&fixture, &arguments);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let id = ran.text().trim().to_owned();
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
    assert_eq!(session["repo"]["mode"], "upload", "{session:#}");
    assert_eq!(session["task"]["attachments"][0]["name"], "crash report.txt", "{session:#}");
    assert!(story.says("The workspace has the files of the upload"), "{story:#?}");
    assert_eq!(story.find("prompt").unwrap()["prompt"], "Look", "{story:#?}");
    // The files of the uploads are gone, and so is the workspace.
    comes("the end of the uploads", || kept(&fixture.data()) == 0);
    comes("the end of the workspace", || fixture.workspaces() == 0);
    let diff = client(&fixture, &["session", "diff", &id]).text();
    assert!(!diff.contains("noise.log") && !diff.contains("new.txt"), "{diff}");
    let patch = fixture.stage.outside("work.patch");
    fs::write(&patch, &diff).unwrap();
    git(&fixture.source(), &["apply", patch.to_str().unwrap()]);
    assert_eq!(fixture.stage.text("README.md"), "# A project\nours\n");
    assert_eq!(fixture.stage.text("seen.txt"), "it crashed here\nrefused\n");

    // Without git everything that no .gitignore names is sent.
    let plain = fixture.stage.outside("plain");
    fs::create_dir(&plain).unwrap();
    for name in ["reader.toml", "README.md", ".gitignore"] {
        fs::copy(fixture.stage.path(name), plain.join(name)).unwrap();
    }
    fs::write(plain.join("README.md"), "mine\n").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", plain.join("out")).unwrap();
    let directory = plain.to_str().unwrap();
    let arguments = ["task", "Look", "--upload", directory, "--attach", attached];
    let ran = client(&fixture, &[&arguments[..], &["--agent", "reader", "--json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let id = ran.value()["sessionId"].as_str().unwrap().to_owned();
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");

    // What cannot be sent, or makes no task, leaves nothing.
    for (arguments, says) in [
        (&["--upload", "README.md"][..], "is not a directory"),
        (&["--upload", "missing"], "missing"),
        (&["--attach", "."], "is not a file"),
        (&["--attach", "missing"], "missing"),
        (&["--upload", ".", "--delivery", "branch"], "--delivery must be \"patch\""),
        (&["--upload", ".", "--agent", "nobody"], "is unknown; known agents:"),
        (&["--upload", ".", "--repo", "."], "cannot be used with"),
    ] {
        let ran = client(&fixture, &[&["task", "Look"], arguments].concat());
        assert!(ran.code != 0 && ran.err.contains(says), "{arguments:?}: {}", ran.err);
    }
    comes("the end of the uploads", || kept(&fixture.data()) == 0);
    assert_eq!(server.get("/api/v1/uploads")["items"][0]["status"], "used");
    let pid = server.pid();
    server.end();
    fixture.assert_nothing_left(&[pid]);
}

#[test]
fn upload_continues_after_a_kill_and_its_task_survives_kills() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::with_agents(&[("reader", READER.to_owned())], "");
    fixture.git(&["commit", "-q", "-a", "-m", "Mine"]);
    let server = fixture.start(&[]);
    let mut servers = vec![server.pid()];
    let upload = announce(&server, "file", 10);
    assert_eq!(send(&server, &upload, 0, "0123").status, 200);
    server.signal(Signal::KILL);
    server.died();
    // A file that a kill left between its row and its removal.
    fs::write(fixture.data().join("uploads/upload-stray"), "stray").unwrap();

    let server = fixture.start(&["--crash-at", "cleanup-stored"]);
    servers.push(server.pid());
    comes("the end of the stray file", || kept(&fixture.data()) == 1);
    // The address that was signed before the kill still works.
    let url = upload["uploadUrl"].as_str().unwrap();
    assert_eq!(server.try_ask("GET", url, &[], "").unwrap().json()["offset"], 4);
    assert_eq!(send(&server, &upload, 0, "0123").status, 409);
    assert_eq!(send(&server, &upload, 4, "456789").json()["status"], "complete");
    create(&server, &upload, &fixture.source());
    server.died();

    // Killed again with the workspace made, and the upload not released.
    let server = fixture.spawn(&["--crash-at", "workspace-made"]);
    servers.push(server.pid());
    server.died();
    let server = fixture.start(&[]);
    servers.push(server.pid());
    let id = create(&server, &upload, &fixture.source()).unwrap();
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
    let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "").body;
    assert!(diff.contains("+0123456789") && diff.contains("refused"), "{diff}");
    comes("the end of the uploads", || kept(&fixture.data()) == 0);
    comes("the end of the workspace", || fixture.workspaces() == 0);
    server.end();
    fixture.assert_nothing_left(&servers);
}

#[test]
fn backup_has_an_upload_that_no_task_has_used() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::with_agents(&[("reader", READER.to_owned())], "");
    fixture.git(&["commit", "-q", "-a", "-m", "Mine"]);
    let server = fixture.start(&[]);
    let upload = announce(&server, "file", 10);
    assert_eq!(send(&server, &upload, 0, "0123456789").json()["status"], "complete");
    let backup = fixture.stage.outside("backup");
    let made = client(&fixture, &["backup", backup.to_str().unwrap()]);
    assert_eq!(made.code, 0, "{}", made.err);
    server.end();
    fs::remove_dir_all(fixture.data()).unwrap();
    let restored = client(&fixture, &["restore", backup.to_str().unwrap()]);
    assert_eq!(restored.code, 0, "{}", restored.err);
    let server = fixture.start(&[]);
    let id = create(&server, &upload, &fixture.source()).unwrap();
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
    let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "").body;
    assert!(diff.contains("+0123456789"), "{diff}");
    server.end();
}

#[test]
fn mounts_full_disk_during_an_upload_is_told_and_makes_room_again() {
    let fixture = Fixture::new();
    let Some(server) = on_small_disk(&fixture) else { return };
    let piece = "x".repeat(16 << 20);
    let large = announce(&server, "file", 48 << 20);
    assert_eq!(send(&server, &large, 0, &piece).status, 200);
    let full = send(&server, &large, piece.len(), &piece);
    assert_eq!(full.status, 507, "{full:?}");
    let detail = full.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("disk"), "{detail}");
    let path = format!("/api/v1/uploads/{}", large["id"].as_str().unwrap());
    let offset = server.get(&path)["offset"].as_u64().unwrap();
    assert!(offset >= piece.len() as u64, "{offset}");
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    assert_eq!(kept(&server.data), 0);
    let small = announce(&server, "file", 16 << 20);
    assert_eq!(send(&server, &small, 0, &piece).json()["status"], "complete");
    server.end();
}

#[test]
fn hostile_archives_are_refused_before_they_make_a_workspace() {
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    // A header that leads out, a device, and bytes that are no archive.
    let header = |name: &str, kind: char| {
        let mut block = vec![0_u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..107].copy_from_slice(b"0000777");
        block[124..135].copy_from_slice(b"00000000000");
        block[148..156].fill(b' ');
        block[156] = kind as u8;
        block[257..263].copy_from_slice(b"ustar\0");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        String::from_utf8(block).unwrap()
    };
    let end = "\0".repeat(1024);
    for (content, says) in [
        (header("../out", '0') + &end, "leads out"),
        (header("/etc/passwd", '0') + &end, "leads out"),
        (header("device", '3') + &end, "device or FIFO"),
        (header("fifo", '6') + &end, "device or FIFO"),
        (header("cut", '0'), "cut off"),
        ("PK\u{3}\u{4}".repeat(300), "invalid number"),
    ] {
        let upload = announce(&server, "tar", content.len());
        let refused = send(&server, &upload, 0, &content);
        assert_eq!(refused.status, 422, "{says}: {refused:?}");
        let told = refused.json()["errors"]["content"][0].as_str().unwrap().to_owned();
        assert!(told.contains(says), "{says}: {told}");
        let task = json!({
            "prompt": "Work", "agent": { "type": "scripted" },
            "repo": { "mode": "upload", "uploadId": upload["id"] },
        });
        let refused = server.ask("POST", "/api/v1/tasks", &task.to_string());
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.json()["errors"]["repo.uploadId"].is_array(), "{refused:?}");
    }
    server.end();
}
