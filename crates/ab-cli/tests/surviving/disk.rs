//! A disk that is full while a workspace is made.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::ground::{Ground, Server, git};
use super::sources::repack;
use crate::outliving::comes;
use crate::stage::BINARY;

/// Room for the database and small workspaces, not for the large source.
const SIZE: &str = "24m";

/// A server in mounts of its own, whose data directory is a small disk; `None` where that cannot be.
fn on_small_disk(ground: &Ground) -> Option<Server> {
    fs::create_dir(ground.data()).unwrap();
    let data = ground.data().display().to_string();
    let script = "mount -t tmpfs -o size=$1,mode=700 none \"$2\" && shift && \
                  exec \"$2\" serve --port 0 --data-dir \"$1\"";
    let probe = Command::new("unshare").args(["-m", "true"]).output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        ab_testkit::host::report_skip("a full disk", &format!("unshare -m: {probe:?}"));
        return None;
    }
    let mut command = ground.stage.command("unshare");
    command.args(["-m", "sh", "-c", script, "sh", SIZE, &data, BINARY]);
    let mut server = Server::spawn(command, PathBuf::new());
    server.data = PathBuf::from(format!("/proc/{}/root{data}", server.pid()));
    server.read_notice();
    Some(server)
}

#[test]
fn mounts_full_disk_while_provisioning_ends_the_session_and_nothing_else() {
    if !Ground::can_run() {
        return;
    }
    let ground = Ground::new();
    let large = ground.stage.outside("large");
    ground.git(&["clone", "-q", ".", large.to_str().unwrap()]);
    let mut blob = Command::new("dd");
    blob.args(["if=/dev/urandom", "of=blob", "bs=1M", "count=40"]).current_dir(&large);
    assert!(blob.output().unwrap().status.success());
    git(&large, &["-c", "core.compression=0", "add", "blob"]);
    git(&large, &["commit", "-q", "-m", "Large"]);
    repack(&large);
    let Some(server) = on_small_disk(&ground) else { return };
    let workspaces = || server.data.join("sessions/workspaces").read_dir().unwrap().count();

    let id = server.create(&large, "Work");
    let (session, story) = server.ended(&id);
    story.assert_whole(&server, &id);
    assert_eq!(session["status"], "failed", "{session:#}");
    assert_eq!(session["endReason"], "provision", "{session:#}");
    let detail = session["endDetail"].as_str().unwrap();
    assert!(detail.contains("No space left"), "{detail}");
    server.delete(&id);
    comes("the end of the workspace", || workspaces() == 0);

    // There is room for a small one.
    let id = server.create(&ground.source(), "Work");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    comes("the end of the workspace", || workspaces() == 0);
    assert_eq!(ground.branches().len(), 1);
    server.end();
}
