//! Commands in a mounted tree: where they run, and whose they are.

use std::time::SystemTime;

use ab_core::process::{ExecRequest, ProcessId, ProcessInfo};
use ab_core::{Backend, BackendKind, ErrorKind, Verb};
use ab_testkit::expect::expect_error;
use ab_testkit::{RecordingDriver, ScriptedCommand};

use super::{memory, recorded, scope};

#[tokio::test]
async fn commands_run_in_the_part_that_owns_their_directory() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("srv/mnt", &other).unwrap();
    driver.script_next_command(ScriptedCommand::exits(0).stdout("from the mount"));
    let cwd = view.parse_path("srv/mnt/work").unwrap();
    let process = view.spawn(ExecRequest { cwd, ..ExecRequest::shell("here") }).await.unwrap();
    assert_eq!(process.id.as_str(), "srv/mnt:process-1");
    assert_eq!(driver.last_exec().path.as_deref(), Some("work"));
    view.exec("there").await.unwrap();
    let seen = base_driver.last_exec();
    assert_eq!((seen.path.as_deref(), seen.command.as_deref()), (Some("."), Some("there")));
    scope(&view, "srv/mnt/room").exec("inside").await.unwrap();
    let seen = driver.last_exec();
    assert_eq!((seen.path.as_deref(), seen.scope_root.as_deref()), (Some("room"), Some("room")));
}

#[tokio::test]
async fn a_part_without_commands_says_so_in_the_name_of_the_whole() {
    let (driver, base) = recorded();
    let view = base.mount("mnt", &memory()).unwrap();
    assert!(view.info().capabilities.exec, "as the base does");
    let cwd = view.parse_path("mnt").unwrap();
    let spawned = view.spawn(ExecRequest { cwd, ..ExecRequest::shell("x") }).await;
    let error = expect_error(spawned, ErrorKind::Unsupported);
    assert_eq!(error.backend_kind(), Some(BackendKind::Mounts));
    assert_eq!(driver.recorded_calls(), []);
    let view = memory().mount("mnt", &memory()).unwrap();
    expect_error(view.exec("x").await, ErrorKind::Unsupported);
    expect_error(view.detached_processes().await, ErrorKind::Unsupported);
    expect_error(view.attach(&ProcessId::new("1"), 0).await, ErrorKind::Unsupported);
}

fn process(id: &str, root: &Backend, cwd: &str) -> ProcessInfo {
    ProcessInfo {
        id: ProcessId::new(id),
        command: format!("run {id}"),
        cwd: root.parse_path(cwd).unwrap(),
        started: SystemTime::UNIX_EPOCH,
        exit: None,
    }
}

#[tokio::test]
async fn processes_of_all_parts_have_ids_of_their_own() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("mnt", &other).unwrap();
    base_driver.set_processes(vec![
        process("1", &base, "."),
        process("mnt:1", &base, "dir"),
        process("2", &base, "mnt/covered"),
    ]);
    driver.set_processes(vec![process("1", &other, "."), process("2", &other, "work")]);
    let shown: Vec<(String, String)> = view
        .detached_processes()
        .await
        .unwrap()
        .iter()
        .map(|process| (process.id.to_string(), process.cwd.to_string()))
        .collect();
    let expect = [("1", "."), (".:mnt:1", "dir"), ("mnt:1", "mnt"), ("mnt:2", "mnt/work")]
        .map(|(id, cwd)| (id.to_owned(), cwd.to_owned()));
    assert_eq!(shown, expect);

    let attached = |driver: &RecordingDriver| {
        driver.recorded_calls().iter().filter(|seen| seen.verb == Verb::Attach).count()
    };
    for (id, in_base, in_mount) in [("1", 1, 0), (".:mnt:1", 2, 0), ("mnt:1", 2, 1)] {
        let process = view.attach(&ProcessId::new(id), 0).await.unwrap();
        assert!(process.id.as_str().ends_with(":process-1") || in_mount == 0, "{}", process.id);
        assert_eq!((attached(&base_driver), attached(&driver)), (in_base, in_mount), "{id}");
    }
    expect_error(view.attach(&ProcessId::new("elsewhere:1"), 0).await, ErrorKind::NotFound);
    let inside = scope(&view, "mnt/work");
    let own: Vec<String> =
        inside.detached_processes().await.unwrap().iter().map(|p| p.id.to_string()).collect();
    assert_eq!(own, ["mnt:2"]);
    inside.attach(&ProcessId::new("mnt:2"), 0).await.unwrap();
    expect_error(inside.attach(&ProcessId::new("mnt:1"), 0).await, ErrorKind::NotFound);
}
