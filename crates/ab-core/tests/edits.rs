//! Edits that meet: with writers in between, an edit starts again, and gives up only for a reason.

use ab_core::options::RemoveOptions;
use ab_core::{Backend, Edit, EditOptions, Error, ErrorCode, ErrorKind, Verb};
use ab_testkit::RecordingDriver;
use ab_testkit::expect::{assert_content, expect_error, expect_error_on_path};
use futures_util::future::{join, join_all};

fn conflict() -> Error {
    Error::new(ErrorCode::Conflict, ErrorKind::Conflict, "somebody was faster")
}

/// A backend over a driver that lets others go first at every call, and a file of `lines` lines.
async fn world(lines: usize) -> (RecordingDriver, Backend) {
    let driver = RecordingDriver::new();
    let backend = Backend::new(driver.clone());
    let text: String = (0..lines).map(|line| format!("line {line}: old\n")).collect();
    backend.write("file", text).await.unwrap();
    driver.yield_on_each_call();
    (driver, backend)
}

fn edit(line: usize) -> Edit {
    Edit::new(format!("line {line}: old"), format!("line {line}: new"))
}

#[tokio::test]
async fn edits_that_meet_lose_nothing() {
    let (driver, backend) = world(8).await;
    let edits = join_all((0..8).map(|line| {
        let backend = &backend;
        async move { backend.edit("file", &[edit(line)], EditOptions::default()).await }
    }));
    for edited in edits.await {
        assert_eq!(edited.unwrap().replacement_count, 1);
    }
    let expect: String = (0..8).map(|line| format!("line {line}: new\n")).collect();
    assert_content(&backend, "file", &expect).await;
    let writes = driver.call_count(Verb::Write, "file");
    assert!(writes > 9, "nobody met: {writes} writes");
}

#[tokio::test]
async fn an_edit_that_no_longer_fits_fails() {
    let (_, backend) = world(1).await;
    let edits = [edit(0)];
    let same = || backend.edit("file", &edits, EditOptions::default());
    let answers = join_all([same(), same()]).await;
    let failed: Vec<ErrorKind> =
        answers.into_iter().filter_map(|answer| Some(answer.err()?.kind())).collect();
    assert_eq!(failed, [ErrorKind::TextNotFound], "the second found its text gone");
    assert_content(&backend, "file", "line 0: new\n").await;
}

#[tokio::test]
async fn an_edit_with_an_expected_version_does_not_start_again() {
    let (driver, backend) = world(1).await;
    let version = backend.stat("file").await.unwrap().version;
    driver.fail_next(Verb::Write, conflict());
    let options = EditOptions { expected_version: Some(version), ..EditOptions::default() };
    expect_error(backend.edit("file", &[edit(0)], options).await, ErrorKind::Conflict);
    assert_content(&backend, "file", "line 0: old\n").await;
}

#[tokio::test]
async fn an_edit_gives_up_when_it_never_gets_through() {
    let (driver, backend) = world(1).await;
    for _ in 0..10_000 {
        driver.fail_next(Verb::Write, conflict());
    }
    expect_error(
        backend.edit("file", &[edit(0)], EditOptions::default()).await,
        ErrorKind::Conflict,
    );
    assert!(driver.call_count(Verb::Write, "file") < 10_000);
}

#[tokio::test]
async fn other_failures_are_final() {
    let (driver, backend) = world(1).await;
    let full = Error::new(ErrorCode::WriteFailed, ErrorKind::NoSpace, "full").with_path("file");
    driver.fail_next(Verb::Write, full);
    let result = backend.edit("file", &[edit(0)], EditOptions::default()).await;
    expect_error_on_path(result, ErrorKind::NoSpace, "file");
    assert_eq!(driver.call_count(Verb::Read, "file"), 1);
    assert_content(&backend, "file", "line 0: old\n").await;
}

#[tokio::test]
async fn a_file_that_vanishes_is_not_made_again() {
    let (driver, backend) = world(1).await;
    let removal = backend.rm("file", RemoveOptions::default());
    let edits = [edit(0)];
    let editing = backend.edit("file", &edits, EditOptions::default());
    let (removed, edited) = join(removal, editing).await;
    removed.unwrap();
    expect_error(edited, ErrorKind::NotFound);
    assert!(!backend.exists("file").await.unwrap());
    assert!(driver.call_count(Verb::Read, "file") >= 1);
}
