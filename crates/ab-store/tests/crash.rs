//! A process that is killed while it writes loses nothing that it was told is stored.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use ab_store::{DataDir, EventLogScope, Store};

use crate::fixture::{line, stored};

/// Names the data directory for the child.
const DIRECTORY: &str = "AB_STORE_CRASH_DIRECTORY";

/// The child: writes events for ever and prints the number of each one that is stored. It does nothing when it is
/// run as an ordinary test.
#[tokio::test]
async fn write_until_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let data = DataDir::open(directory).expect("lock");
    let store = Store::open(data).await.expect("open");
    let session = stored(&store, "a").await;
    for number in 1_u64.. {
        store
            .append_events(session, vec![line(&number.to_string()), line("pair")])
            .await
            .expect("append");
        println!("stored {number}");
    }
}

#[tokio::test]
async fn killed_writer_loses_no_stored_event() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "--nocapture", "crash::write_until_killed"])
        .env(DIRECTORY, &data)
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the child");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let mut stored = 0_u64;
    for text in output.lines() {
        let text = text.expect("a line");
        if let Some(number) = text.split_once("stored ").and_then(|(_, it)| it.parse().ok()) {
            stored = number;
        }
        if stored == 100 {
            child.kill().expect("kill -9");
            break;
        }
    }
    child.wait().expect("the child's end");
    let store = Store::open(DataDir::open(&data).expect("lock")).await.expect("open");
    let mut records = Vec::new();
    loop {
        let after = records.len() as u64;
        let more = store.event_records(EventLogScope::All, after, 1000).await.expect("read");
        if more.is_empty() {
            break;
        }
        records.extend(more);
    }
    let places = records.iter().map(|record| (record.position, record.seq));
    assert!(places.eq((1..=records.len() as u64).map(|place| (place, place))), "a gap");
    assert_eq!(records.len() % 2, 1, "half of a transaction");
    assert!(records.len() as u64 > 2 * stored, "{} records, {stored} stored", records.len());
}
