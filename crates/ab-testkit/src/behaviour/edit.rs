//! Edits: all or nothing, unique by default, line ends kept, no lost updates.

use ab_core::{Backend, Edit, EditOptions, ErrorKind};

use crate::crowd;
use crate::expect::{assert_content, expect_error_on_path, without_access_time};

fn plain() -> EditOptions {
    EditOptions::default()
}

/// Several edits are applied one after the other, each to the result of the previous edit.
pub async fn several_build_on_each_other(backend: &Backend) {
    backend.write("file", "one two three\n").await.unwrap();
    let edits = [Edit::new("two", "2"), Edit::new("one 2", "1 and 2"), Edit::new("three", "3")];
    let edited = backend.edit("file", &edits, plain()).await.unwrap();
    assert_eq!(edited.replacement_count, 3);
    assert_content(backend, "file", "1 and 2 3\n").await;
    let stat = backend.stat("file").await.unwrap();
    assert_eq!(edited.stat.map(without_access_time), Some(without_access_time(stat)));
}

/// If one edit fails, none is applied.
pub async fn all_or_nothing(backend: &Backend) {
    let before = backend.write("file", "one two three\n").await.unwrap();
    let edits = [Edit::new("one", "1"), Edit::new("four", "4"), Edit::new("two", "2")];
    expect_error_on_path(
        backend.edit("file", &edits, plain()).await,
        ErrorKind::TextNotFound,
        "file",
    );
    assert_content(backend, "file", "one two three\n").await;
    assert_eq!(backend.stat("file").await.unwrap().version, before.version);
}

/// Text that occurs more than once is `TextNotUnique`, and the error counts the occurrences.
pub async fn must_be_unique(backend: &Backend) {
    backend.write("file", "same\nother\nsame\nsame\n").await.unwrap();
    let result = backend.edit("file", &[Edit::new("same", "new")], plain()).await;
    let error = expect_error_on_path(result, ErrorKind::TextNotUnique, "file");
    assert!(error.message().contains("3 times"), "{error}");
    assert_content(backend, "file", "same\nother\nsame\nsame\n").await;
}

/// `replace_all` replaces every occurrence and counts them.
pub async fn all_occurrences(backend: &Backend) {
    backend.write("file", "aa b aa b aa").await.unwrap();
    let edits = [Edit::new("aa", "c").replace_all()];
    assert_eq!(backend.edit("file", &edits, plain()).await.unwrap().replacement_count, 3);
    assert_content(backend, "file", "c b c b c").await;
}

/// `replace_first` replaces the first occurrence.
pub async fn first_occurrence(backend: &Backend) {
    backend.write("file", "aa b aa").await.unwrap();
    let edits = [Edit::new("aa", "c").replace_first()];
    assert_eq!(backend.edit("file", &edits, plain()).await.unwrap().replacement_count, 1);
    assert_content(backend, "file", "c b aa").await;
}

/// Text that does not occur is `TextNotFound`; the error quotes it, and the file does not change.
pub async fn missing_text_is_no_match(backend: &Backend) {
    let before = backend.write("file", "something else").await.unwrap();
    let edits = [Edit::new("not in here", "x")];
    let error = expect_error_on_path(
        backend.edit("file", &edits, plain()).await,
        ErrorKind::TextNotFound,
        "file",
    );
    assert!(error.message().contains("not in here"), "{error}");
    assert_eq!(backend.stat("file").await.unwrap().version, before.version);
}

/// The file keeps its line ends, whatever line ends the edit has.
pub async fn keeps_crlf(backend: &Backend) {
    backend.write("file", "one\r\ntwo\r\nthree\r\n").await.unwrap();
    let edits = [Edit::new("one\ntwo\n", "1\n1.5\n2\n")];
    backend.edit("file", &edits, plain()).await.unwrap();
    assert_content(backend, "file", "1\r\n1.5\r\n2\r\nthree\r\n").await;
    backend.write("unix", "one\ntwo\n").await.unwrap();
    backend.edit("unix", &[Edit::new("one\r\n", "1\r\n")], plain()).await.unwrap();
    assert_content(backend, "unix", "1\ntwo\n").await;
}

/// `$&`, `$1` and backslashes are ordinary text.
pub async fn dollars_are_text(backend: &Backend) {
    backend.write("file", "price: $& (.*) \\1").await.unwrap();
    let edits = [Edit::new("$& (.*) \\1", "$1 ${2} $0 \\0 $&$`$'")];
    backend.edit("file", &edits, plain()).await.unwrap();
    assert_content(backend, "file", "price: $1 ${2} $0 \\0 $&$`$'").await;
}

/// The result shows the change as a diff that names the file.
pub async fn gives_a_diff(backend: &Backend) {
    backend.write("dir/file", "one\ntwo\nthree\n").await.unwrap();
    let edits = [Edit::new("two", "2")];
    let edited = backend.edit("dir/file", &edits, plain()).await.unwrap();
    let expect = "--- dir/file\n+++ dir/file\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
    assert_eq!(edited.diff, expect);
}

/// A dry run returns the same diff and changes nothing.
pub async fn dry_run_changes_nothing(backend: &Backend) {
    let before = backend.write("file", "one\ntwo\n").await.unwrap();
    let edits = [Edit::new("two", "2")];
    let dry = EditOptions { dry_run: true, ..plain() };
    let tried = backend.edit("file", &edits, dry).await.unwrap();
    assert_eq!((tried.replacement_count, &tried.stat), (1, &None));
    assert_eq!(backend.stat("file").await.unwrap().version, before.version);
    assert_content(backend, "file", "one\ntwo\n").await;
    let done = backend.edit("file", &edits, plain()).await.unwrap();
    assert_eq!(done.diff, tried.diff);
    expect_error_on_path(backend.edit("file", &edits, dry).await, ErrorKind::TextNotFound, "file");
}

/// An outdated version is `Conflict`.
pub async fn stale_version_is_a_conflict(backend: &Backend) {
    let stale = backend.write("file", "one").await.unwrap().version;
    let current = backend.write("file", "one").await.unwrap().version;
    let edits = [Edit::new("one", "1")];
    let expecting = |version| EditOptions { expected_version: Some(version), ..plain() };
    let result = backend.edit("file", &edits, expecting(stale)).await;
    expect_error_on_path(result, ErrorKind::Conflict, "file");
    assert_content(backend, "file", "one").await;
    backend.edit("file", &edits, expecting(current)).await.unwrap();
    assert_content(backend, "file", "1").await;
}

/// A file that is not UTF-8 is refused and does not change.
pub async fn binary_is_refused(backend: &Backend) {
    backend.write("file", b"text \xff text").await.unwrap();
    let result = backend.edit("file", &[Edit::new("text", "x").replace_all()], plain()).await;
    expect_error_on_path(result, ErrorKind::Invalid, "file");
    assert_eq!(backend.read("file").await.unwrap(), b"text \xff text".as_slice());
}

/// Invalid edits are refused: no edits, empty text, no change.
pub async fn senseless_edits_are_refused(backend: &Backend) {
    backend.write("file", "text").await.unwrap();
    let senseless = [vec![], vec![Edit::new("", "x")], vec![Edit::new("text", "text")]];
    for edits in senseless {
        expect_error_on_path(
            backend.edit("file", &edits, plain()).await,
            ErrorKind::Invalid,
            "file",
        );
    }
    assert_content(backend, "file", "text").await;
}

/// A missing file is `NotFound`, a directory is `IsADirectory`.
pub async fn needs_a_file(backend: &Backend) {
    backend.write("dir/file", "text").await.unwrap();
    let edits = [Edit::new("text", "x")];
    expect_error_on_path(
        backend.edit("missing", &edits, plain()).await,
        ErrorKind::NotFound,
        "missing",
    );
    expect_error_on_path(
        backend.edit("dir", &edits, plain()).await,
        ErrorKind::IsADirectory,
        "dir",
    );
}

/// Concurrent edits of different lines are all in the file afterwards.
pub async fn concurrent_edits_lose_nothing(backend: &Backend) {
    const EDITORS: usize = 8;
    const ROUNDS: usize = 5;
    let text: String = (0..EDITORS).map(|number| format!("line {number}: 0\n")).collect();
    backend.write("file", text).await.unwrap();
    crowd::run_on_threads(EDITORS, |number| {
        let backend = backend.clone();
        async move {
            for round in 0..ROUNDS {
                let old = format!("line {number}: {round}\n");
                let new = format!("line {number}: {}\n", round + 1);
                backend.edit("file", &[Edit::new(old, new)], plain()).await.unwrap();
            }
        }
    })
    .await;
    let expect: String = (0..EDITORS).map(|number| format!("line {number}: {ROUNDS}\n")).collect();
    assert_content(backend, "file", &expect).await;
}
