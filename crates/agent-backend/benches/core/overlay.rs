//! How long an overlay takes to be ready, and whether the size of what lies below matters.

use std::path::Path;

use agent_backend::LocalWorkspaceConfig;

use crate::measure::{ROUNDS, Row, millis};

pub(crate) async fn run() {
    let directory = tempfile::tempdir().unwrap();
    let (small, large) = (directory.path().join("small"), directory.path().join("large"));
    plant(&small, 100);
    plant(&large, 10_000);
    println!("an overlay over 10,000 files; peer: the same over 100 files");
    Row::head();
    let (mut ready, mut change) = (Row::new(), Row::new());
    for round in 0..ROUNDS {
        let ours = times(directory.path(), &large, round).await;
        let peer = times(directory.path(), &small, round + ROUNDS).await;
        ready.ours.push(ours.ready);
        ready.peer.push(peer.ready);
        change.ours.push(ours.change);
        change.peer.push(peer.change);
    }
    ready.print("made; first stat, read and list", "ms", "at most 1.5, under 2 ms");
    change.print("first change, and read again", "ms", "at most 1.5");
}

fn plant(root: &Path, files: usize) {
    for n in 0..files {
        let directory = root.join(format!("directory{}", n / 100));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("file{}", n % 100)), "lower").unwrap();
    }
}

/// In milliseconds.
struct Times {
    /// Until a new overlay has answered the first stat, read and list.
    ready: f64,
    /// A file of the lower layer written, which makes its directory in the upper one, and read.
    change: f64,
}

async fn times(directory: &Path, lower: &Path, round: usize) -> Times {
    let upper = directory.join(format!("upper{round}"));
    std::fs::create_dir(&upper).unwrap();
    let lower = agent_backend::local_with(LocalWorkspaceConfig::new(lower)).unwrap();
    let upper = agent_backend::local_with(LocalWorkspaceConfig::new(upper)).unwrap();
    let (ready, overlaid) = millis(async {
        let overlaid = lower.overlay(&upper).unwrap();
        let view = overlaid.backend();
        assert_eq!(view.stat("directory0/file0").await.unwrap().size, 5);
        assert_eq!(view.read("directory0/file1").await.unwrap(), "lower");
        assert_eq!(view.readdir("directory0").await.unwrap().len(), 100);
        overlaid
    })
    .await;
    let view = overlaid.backend();
    let (change, ()) = millis(async {
        view.write("directory0/file0", "upper").await.unwrap();
        assert_eq!(view.read("directory0/file0").await.unwrap(), "upper");
        assert_eq!(view.read("directory0/file1").await.unwrap(), "lower");
    })
    .await;
    Times { ready, change }
}
