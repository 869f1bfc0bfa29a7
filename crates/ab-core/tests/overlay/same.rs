//! A view is the same wherever its files are: random operations on a workspace whose files lie in
//! the lower layer, and on one that has all of them in the upper layer, are answered alike, also
//! when changes are committed in between.

use ab_core::options::{
    AttributeChanges, ExistingContentHandling, FileAccess, FileCreationMode, OpenOptions,
    OverwriteMode, RemoveDepth, RemoveOptions, RenameOptions, WriteMode, WriteOptions,
};
use ab_core::{Backend, Error, FileKind, OverlayWorkspace, Result};
use ab_testkit::expect::list_tree;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::memory;

#[derive(Clone, Debug)]
enum Operation {
    Write(String, WriteMode),
    Mkdir(String),
    Remove(String, RemoveDepth),
    Rename(String, String, OverwriteMode),
    Patch(String, FileCreationMode, ExistingContentHandling),
    Mode(String, u32),
    /// On the workspace with a lower layer only: nobody may notice.
    Commit,
}

fn path() -> impl Strategy<Value = String> {
    vec(select(vec!["a", "b", "c"]), 1..=3).prop_map(|names| names.join("/"))
}

fn operation() -> impl Strategy<Value = Operation> {
    let modes = vec![WriteMode::CreateOrReplace, WriteMode::CreateNew, WriteMode::Replace];
    let creations =
        vec![FileCreationMode::Never, FileCreationMode::IfMissing, FileCreationMode::MustBeNew];
    let overwrites = vec![OverwriteMode::Refuse, OverwriteMode::Replace];
    prop_oneof![
        6 => (path(), select(modes)).prop_map(|(path, mode)| Operation::Write(path, mode)),
        2 => path().prop_map(Operation::Mkdir),
        5 => (path(), select(vec![RemoveDepth::NonRecursive, RemoveDepth::Recursive]))
            .prop_map(|(path, reach)| Operation::Remove(path, reach)),
        6 => (path(), path(), select(overwrites))
            .prop_map(|(from, to, overwrite)| Operation::Rename(from, to, overwrite)),
        3 => (path(), select(creations), select(vec![ExistingContentHandling::Keep, ExistingContentHandling::Truncate]))
            .prop_map(|(path, create, existing)| Operation::Patch(path, create, existing)),
        2 => (path(), select(vec![0o600, 0o644, 0o755]))
            .prop_map(|(path, mode)| Operation::Mode(path, mode)),
        1 => Just(Operation::Commit),
    ]
}

async fn perform(backend: &Backend, operation: &Operation, text: &str) -> Result<String> {
    match operation {
        Operation::Write(path, mode) => {
            let options = WriteOptions { mode: *mode, ..WriteOptions::default() };
            let stat = backend.write_with(path, text, options).await?;
            Ok(format!("{:?} {:?}", stat.size, stat.mode))
        }
        Operation::Mkdir(path) => backend.mkdir(path).await.map(|()| String::new()),
        Operation::Remove(path, reach) => {
            let options = RemoveOptions { depth: *reach, ..RemoveOptions::default() };
            backend.rm(path, options).await.map(|removed| removed.count.to_string())
        }
        Operation::Rename(from, to, overwrite) => {
            let options = RenameOptions { overwrite: *overwrite };
            backend.rename_with(from, to, options).await.map(|_| String::new())
        }
        Operation::Patch(path, create, existing) => {
            let options = OpenOptions {
                access: FileAccess::ReadWrite,
                create: *create,
                existing: *existing,
                position: ab_core::options::WritePosition::AtOffset,
                permissions: None,
            };
            let file = backend.open(path, options).await?;
            file.write_at(1, Bytes::from(text.to_owned())).await?;
            Ok(file.stat().await?.size.to_string())
        }
        Operation::Mode(path, mode) => {
            let attributes = AttributeChanges { mode: Some(*mode), ..AttributeChanges::default() };
            let stat = backend.set_attributes(path, attributes).await?;
            Ok(format!("{:?} {:?}", stat.kind, stat.mode))
        }
        Operation::Commit => Ok(String::new()),
    }
}

fn answer(result: Result<String>) -> Result<String, String> {
    result.map_err(|error: Error| format!("{:?} on {:?}", error.kind(), error.path()))
}

/// Everything that callers see, times and versions left out.
async fn look(backend: &Backend) -> Vec<String> {
    let mut all = Vec::new();
    for (path, kind) in list_tree(backend).await {
        let mode = backend.stat(&path).await.unwrap().mode;
        let bytes = match kind {
            FileKind::File => backend.read(&path).await.unwrap(),
            FileKind::Dir | FileKind::Symlink | FileKind::Other => Bytes::new(),
        };
        all.push(format!("{path}: {kind}, mode {mode:?}, {bytes:?}"));
    }
    all
}

/// A commit to memory, which has no directories without files and no modes of directories, so
/// everything must be looked at as if the other workspace had lost those too.
async fn commit(overlaid: &OverlayWorkspace, other: &Backend) {
    overlaid.commit().await.unwrap();
    let all = list_tree(other).await;
    for (path, kind) in all.iter().rev() {
        if *kind != FileKind::Dir {
            continue;
        }
        if other.readdir(path).await.unwrap().is_empty() {
            other.rm(path, RemoveOptions::default()).await.unwrap();
        } else {
            let mode = AttributeChanges { mode: Some(0o755), ..AttributeChanges::default() };
            other.set_attributes(path, mode).await.unwrap();
        }
    }
}

async fn run(files: &[String], operations: &[Operation]) {
    let lower = memory();
    let other = memory().overlay(&memory()).unwrap().backend().clone();
    for path in files {
        // A file below a file is refused by both.
        let (one, two) = (lower.write(path, path).await, other.write(path, path).await);
        assert_eq!(one.is_ok(), two.is_ok());
    }
    let overlaid = lower.overlay(&memory()).unwrap();
    let view = overlaid.backend();
    for (number, operation) in operations.iter().enumerate() {
        let text = format!("text {number}");
        let one = answer(perform(view, operation, &text).await);
        let two = answer(perform(&other, operation, &text).await);
        assert_eq!(one, two, "number {number}, {operation:?}");
        if let Operation::Commit = operation {
            commit(&overlaid, &other).await;
            assert_eq!(overlaid.diff().await.unwrap(), [], "number {number}");
        }
        assert_eq!(look(view).await, look(&other).await, "number {number}, {operation:?}");
    }
    commit(&overlaid, &other).await;
    assert_eq!(look(&lower).await, look(&other).await, "after the last commit");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_if_all_files_were_its_own(
        files in vec(path(), 0..8),
        operations in vec(operation(), 1..30),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(&files, &operations));
    }
}
