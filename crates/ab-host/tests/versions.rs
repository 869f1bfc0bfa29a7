//! Versions: no two states of files share one.

use ab_core::Backend;
use ab_core::options::{FileAccess, FileCreationMode, OpenOptions, RemoveOptions};
use ab_host::{LocalDriver, LocalDriverOptions};

/// Enough for an inode number to be used again within a tick of the clock.
const ROUNDS: usize = 500;

#[tokio::test]
async fn a_file_in_the_place_of_one_that_is_gone_has_its_own() {
    let keep = tempfile::tempdir().unwrap();
    let backend =
        Backend::new(LocalDriver::open(keep.path(), LocalDriverOptions::default()).unwrap());
    let options = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::MustBeNew,
        ..OpenOptions::default()
    };
    for round in 0..ROUNDS {
        let file = backend.open("old", options).await.unwrap();
        backend.rm("old", RemoveOptions::default()).await.unwrap();
        file.set_len(0).await.unwrap();
        let old = file.stat().await.unwrap();
        drop(file);
        let file = backend.open("new", options).await.unwrap();
        let new = file.stat().await.unwrap();
        assert_ne!(old.version, new.version, "round {round}");
        backend.rm("new", RemoveOptions::default()).await.unwrap();
    }
}
