//! Writes: modes, expected versions, odd names, concurrent writers.

use ab_core::backend::WriteContent;
use ab_core::options::{RemoveOptions, WriteMode, WriteOptions};
use ab_core::{Backend, ErrorKind, FileKind, FileVersion};

use crate::crowd;
use crate::expect::{
    assert_all_different, assert_content, assert_missing, expect_error_on_path, list_tree,
    without_access_time,
};

fn in_mode(mode: WriteMode) -> WriteOptions {
    WriteOptions { mode, ..WriteOptions::default() }
}

fn expecting(version: FileVersion) -> WriteOptions {
    WriteOptions { expected_version: Some(version), ..WriteOptions::default() }
}

/// Missing directories are created.
pub async fn creates_parents(backend: &Backend) {
    backend.write("a/b/c/file", "deep").await.unwrap();
    assert_content(backend, "a/b/c/file", "deep").await;
    let expect = [
        ("a".to_owned(), FileKind::Dir),
        ("a/b".to_owned(), FileKind::Dir),
        ("a/b/c".to_owned(), FileKind::Dir),
        ("a/b/c/file".to_owned(), FileKind::File),
    ];
    assert_eq!(list_tree(backend).await, expect);
}

/// The old content is gone.
pub async fn replaces_content(backend: &Backend) {
    for text in ["a long first text", "short", ""] {
        let written = backend.write("file", text).await.unwrap();
        assert_eq!((written.kind, written.size), (FileKind::File, text.len() as u64));
        assert_eq!(
            without_access_time(backend.stat("file").await.unwrap()),
            without_access_time(written)
        );
        assert_content(backend, "file", text).await;
    }
}

/// `CreateNew` on an existing path is `AlreadyExists`.
pub async fn create_new_refuses_existing(backend: &Backend) {
    backend.write_with("file", "first", in_mode(WriteMode::CreateNew)).await.unwrap();
    let again = backend.write_with("file", "second", in_mode(WriteMode::CreateNew)).await;
    expect_error_on_path(again, ErrorKind::AlreadyExists, "file");
    assert_content(backend, "file", "first").await;
}

/// `Replace` on a missing path is `NotFound`.
pub async fn replace_needs_existing(backend: &Backend) {
    let replace = in_mode(WriteMode::Replace);
    expect_error_on_path(
        backend.write_with("file", "x", replace).await,
        ErrorKind::NotFound,
        "file",
    );
    expect_error_on_path(
        backend.write_with("no/dir/f", "x", replace).await,
        ErrorKind::NotFound,
        "no/dir/f",
    );
    assert_eq!(list_tree(backend).await, [], "a refused write left something behind");
    backend.write("file", "old").await.unwrap();
    backend.write_with("file", "new", replace).await.unwrap();
    assert_content(backend, "file", "new").await;
}

/// `CreateIfMissing` leaves an existing file unchanged and returns its stat.
pub async fn create_if_missing_keeps_existing(backend: &Backend) {
    let mode = in_mode(WriteMode::CreateIfMissing);
    let made = backend.write_with("file", "first", mode).await.unwrap();
    let kept = backend.write_with("file", "second", mode).await.unwrap();
    assert_eq!(without_access_time(made), without_access_time(kept));
    assert_content(backend, "file", "first").await;
}

/// Another version, or a missing file, is `Conflict`.
pub async fn expected_version_is_checked(backend: &Backend) {
    let first = backend.write("file", "first").await.unwrap().version;
    let second = backend.write_with("file", "second", expecting(first)).await.unwrap().version;
    let stale = backend.write_with("file", "lost", expecting(first)).await;
    expect_error_on_path(stale, ErrorKind::Conflict, "file");
    assert_content(backend, "file", "second").await;

    let absent = backend.write_with("other", "lost", expecting(second)).await;
    expect_error_on_path(absent, ErrorKind::Conflict, "other");
    assert_missing(backend, "other").await;

    backend.write_with("file", "third", expecting(second)).await.unwrap();
    assert_content(backend, "file", "third").await;
}

/// A directory is `IsADirectory` in every mode that accepts an existing file.
pub async fn onto_a_directory_is_refused(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    for mode in [WriteMode::CreateOrReplace, WriteMode::Replace, WriteMode::CreateIfMissing] {
        let result = backend.write_with("dir", "x", in_mode(mode)).await;
        expect_error_on_path(result, ErrorKind::IsADirectory, "dir");
    }
    let new = backend.write_with("dir", "x", in_mode(WriteMode::CreateNew)).await.unwrap_err();
    assert!(matches!(new.kind(), ErrorKind::IsADirectory | ErrorKind::AlreadyExists), "{new:?}");
    assert_content(backend, "dir/file", "kept").await;
}

/// A parent that is a file is `NotADirectory`.
pub async fn through_a_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    for path in ["file/below", "file/far/below"] {
        expect_error_on_path(backend.write(path, "x").await, ErrorKind::NotADirectory, path);
    }
    assert_content(backend, "file", "kept").await;
}

/// The root is a directory, so writing to it is `IsADirectory`.
pub async fn the_root_is_refused(backend: &Backend) {
    for root in [".", "/", "./", "a/.."] {
        expect_error_on_path(backend.write(root, "x").await, ErrorKind::IsADirectory, ".");
    }
    assert_eq!(list_tree(backend).await, []);
}

/// Quotes, spaces, `$(…)` and newlines have no special meaning.
pub async fn odd_names_are_only_names(backend: &Backend) {
    let mut names = vec![
        " leading and trailing ",
        "quote's and \"double\"",
        "$(touch hacked) `id` ${HOME}",
        "new\nline",
        "tab\tand\rreturn",
        "*?[a-z]{b,c}",
        "-rf",
        "~",
        "back\\slash",
        "; rm -rf . && echo | cat > x",
        "%2e%2e%2f",
        "...",
        "trailing.",
        "gr\u{fc}\u{df}e \u{1f980} \u{202e}olleh",
        "#hash",
        "C:drive",
    ];
    for name in &names {
        backend.write(name, *name).await.unwrap();
        backend.write(&format!("in {name}/{name}"), *name).await.unwrap();
    }
    for name in &names {
        assert_content(backend, name, name).await;
        assert_content(backend, &format!("in {name}/{name}"), name).await;
        assert_eq!(backend.readdir(&format!("in {name}")).await.unwrap(), [*name]);
        backend.rm(&format!("in {name}/{name}"), RemoveOptions::default()).await.unwrap();
        backend.rm(&format!("in {name}"), recursive_and_missing()).await.unwrap();
    }
    names.sort_unstable();
    assert_eq!(backend.readdir(".").await.unwrap(), names);
}

/// Where directories are implied by files, removing the last file also removes its directory.
fn recursive_and_missing() -> RemoveOptions {
    RemoveOptions::recursive().missing_ok()
}

/// The last writer wins, with its whole content.
pub async fn concurrent_writers_leave_one_whole_content(backend: &Backend) {
    let content = |number: usize| vec![b'a' + number as u8; 100_000 + number];
    let writers = crowd::run_on_threads(8, |number| {
        let backend = backend.clone();
        async move {
            for _ in 0..5 {
                backend.write("contested", content(number)).await.unwrap();
                let seen = backend.read("contested").await.unwrap();
                let writer = usize::from(seen[0] - b'a');
                assert!(seen == content(writer), "a reader saw half a write");
            }
        }
    });
    writers.await;
    let last = backend.read("contested").await.unwrap();
    assert!(last == content(usize::from(last[0] - b'a')), "what remained is a mixture");
    assert_eq!(backend.readdir(".").await.unwrap(), ["contested"]);
}

/// One writer per version succeeds.
pub async fn concurrent_conditional_writers_lose_nothing(backend: &Backend) {
    const WRITERS: usize = 8;
    let mut version = backend.write("contested", "nobody").await.unwrap().version;
    let mut versions = vec![version];
    for _ in 0..10 {
        let answers = crowd::run_on_threads(WRITERS, |number| {
            let backend = backend.clone();
            async move {
                let text = number.to_string();
                backend.write_with("contested", text, expecting(version)).await
            }
        })
        .await;
        let mut winner = None;
        for (number, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(stat) => {
                    assert_eq!(winner, None, "two writers replaced the same version");
                    winner = Some(number);
                    version = stat.version;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
            }
        }
        let winner = winner.expect("nobody got through").to_string();
        assert_content(backend, "contested", &winner).await;
        versions.push(version);
    }
    assert_all_different(&versions);
}

/// A batch has its results in the order of the request, one for each file.
pub async fn many_keep_their_order(backend: &Backend) {
    backend.write("file", "in the way").await.unwrap();
    let names: Vec<String> = (0..50).map(|number| format!("batch/{number:02}")).collect();
    let mut files: Vec<(&str, WriteContent)> =
        names.iter().map(|name| (name.as_str(), name.into())).collect();
    files.insert(20, ("file/below", "x".into()));
    files.insert(30, ("../out", "x".into()));
    let answers = backend.write_many(files.clone()).await;
    assert_eq!(answers.len(), files.len());
    for ((name, body), answer) in files.into_iter().zip(answers) {
        match name {
            "file/below" => drop(expect_error_on_path(answer, ErrorKind::NotADirectory, name)),
            "../out" => drop(expect_error_on_path(answer, ErrorKind::PathEscape, name)),
            name => {
                assert_eq!(answer.unwrap().size, body.0.len() as u64);
                assert_content(backend, name, name).await;
            }
        }
    }
    assert_eq!(backend.readdir("batch").await.unwrap().len(), names.len());
}
