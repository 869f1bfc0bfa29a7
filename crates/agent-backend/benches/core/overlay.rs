//! How long an overlay takes to be ready, and whether the size of what lies below matters.

use std::path::Path;

use agent_backend::LocalConfig;

use crate::measure::{ROUNDS, Row, millis};

pub(crate) async fn run() {
    let directory = tempfile::tempdir().unwrap();
    let (small, large) = (directory.path().join("small"), directory.path().join("large"));
    plant(&small, 100);
    plant(&large, 10_000);
    println!("an overlay made, written to and read through; peer: the same over 100 files");
    Row::head();
    let mut row = Row::new();
    for round in 0..ROUNDS {
        row.ours.push(ready(directory.path(), &large, round).await);
        row.peer.push(ready(directory.path(), &small, round + ROUNDS).await);
    }
    row.print("overlay over 10,000 files", "ms", "at most 1.5, under 2 ms");
}

fn plant(root: &Path, files: usize) {
    for n in 0..files {
        let directory = root.join(format!("directory{}", n / 100));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("file{}", n % 100)), "lower").unwrap();
    }
}

/// Milliseconds until the first write and reads through a new overlay are done.
async fn ready(directory: &Path, lower: &Path, round: usize) -> f64 {
    let upper = directory.join(format!("upper{round}"));
    std::fs::create_dir(&upper).unwrap();
    let lower = agent_backend::local_with(LocalConfig::new(lower)).unwrap();
    let upper = agent_backend::local_with(LocalConfig::new(upper)).unwrap();
    let (time, ()) = millis(async {
        let overlaid = lower.overlay(&upper).unwrap();
        let view = overlaid.backend();
        view.write("directory0/file0", "upper").await.unwrap();
        assert_eq!(view.read("directory0/file0").await.unwrap(), "upper");
        assert_eq!(view.read("directory0/file1").await.unwrap(), "lower");
    })
    .await;
    time
}
