//! OpenSSH's own programs, unchanged.

use std::fs;

use crate::stage::{Stage, text};

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_and_end_as_they_do() {
    let stage = Stage::new().await;
    let output = stage.ssh("echo out; echo err >&2; exit 7").await;
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n", "err\n"));
    assert!(stage.ssh("true").await.status.success());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_and_go() {
    let stage = Stage::new().await;
    fs::write(stage.path("there"), "from the workspace").unwrap();
    fs::write(stage.here("mine"), "from the client").unwrap();
    stage.sftp("get there\nput mine sub/mine\nls -l\n").await;
    assert_eq!(fs::read_to_string(stage.here("there")).unwrap(), "from the workspace");
    assert_eq!(fs::read_to_string(stage.path("sub/mine")).unwrap(), "from the client");
    stage.end().await;
}
