//! Files of any size as streams: what arrives, what a reader sees, and what a failure leaves.

use ab_core::backend::{ReadStreamOptions, SINGLE_CALL_WRITE_LIMIT_BYTES};
use ab_core::line_range::LineRange;
use ab_core::options::{ByteRange, WriteMode, WriteOptions};
use ab_core::{Backend, Error, ErrorCode, ErrorKind, MemoryDriver, Result};
use ab_testkit::RecordingDriver;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};

fn backend() -> Backend {
    Backend::new(MemoryDriver::new())
}

fn large() -> Vec<u8> {
    (0..SINGLE_CALL_WRITE_LIMIT_BYTES * 21 / 8).map(|at| (at % 251) as u8).collect()
}

/// The bytes in pieces of an odd size.
fn stream_of(bytes: &[u8]) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
    let pieces: Vec<_> = bytes.chunks(77_777).map(|it| Ok(Bytes::copy_from_slice(it))).collect();
    stream::iter(pieces)
}

async fn read(backend: &Backend, path: &str, options: ReadStreamOptions) -> Vec<u8> {
    let stream = backend.read_stream(path, options).await.unwrap();
    let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
    pieces.concat()
}

#[tokio::test]
async fn what_is_streamed_in_is_streamed_out() {
    let backend = backend();
    for content in [Vec::new(), b"small".to_vec(), large()] {
        let written =
            backend.write_stream("d/a", stream_of(&content), WriteOptions::default()).await;
        assert_eq!(written.unwrap().size, content.len() as u64);
        assert!(read(&backend, "d/a", ReadStreamOptions::default()).await == content);
    }
    let range = Some(ByteRange { start: 10, length: 2_000_000 });
    let part = read(&backend, "d/a", ReadStreamOptions { range }).await;
    assert!(part == large()[10..2_000_010], "{} bytes", part.len());
    let range = Some(ByteRange { start: large().len() as u64 - 3, length: 100 });
    assert_eq!(
        read(&backend, "d/a", ReadStreamOptions { range }).await,
        large()[large().len() - 3..]
    );
}

#[tokio::test]
async fn a_stream_that_fails_changes_nothing() {
    let backend = backend();
    backend.write("a", "old").await.unwrap();
    let broken = || Err(Error::new(ErrorCode::ReadFailed, ErrorKind::Cancelled, "stopped"));
    for path in ["a", "new"] {
        let stream = stream_of(&large()).chain(stream::iter([broken()]));
        let error = backend.write_stream(path, stream, WriteOptions::default()).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Cancelled, "stopped"));
    }
    assert_eq!(backend.read_text("a").await.unwrap(), "old");
    let listed = backend.list(".", ab_core::options::ListOptions::default()).await.unwrap();
    assert_eq!(listed.entries.len(), 1, "{listed:?}");
}

#[tokio::test]
async fn modes_hold_for_large_content() {
    let backend = backend();
    let write = |path: &'static str, mode| {
        let (backend, options) = (backend.clone(), WriteOptions { mode, ..Default::default() });
        async move { backend.write_stream(path, stream_of(&large()), options).await }
    };
    let kind = |result: Result<ab_core::Stat>| result.unwrap_err().kind();
    assert_eq!(kind(write("a", WriteMode::Replace).await), ErrorKind::NotFound);
    write("a", WriteMode::CreateNew).await.unwrap();
    assert_eq!(kind(write("a", WriteMode::CreateNew).await), ErrorKind::AlreadyExists);
    backend.write("a", "mine").await.unwrap();
    write("a", WriteMode::CreateIfMissing).await.unwrap();
    assert_eq!(backend.read_text("a").await.unwrap(), "mine");
    let version = backend.stat("a").await.unwrap().version;
    write("a", WriteMode::Replace).await.unwrap();
    assert!(read(&backend, "a", ReadStreamOptions::default()).await == large());
    let options = WriteOptions { expected_version: Some(version), ..WriteOptions::default() };
    let refused = backend.write_stream("a", stream_of(&large()), options).await;
    assert_eq!(kind(refused), ErrorKind::Unsupported);
}

#[tokio::test]
async fn lines_at_the_start_of_a_large_file_cost_one_piece() {
    let driver = RecordingDriver::new();
    let backend = Backend::new(driver.clone());
    let line = format!("{}\n", "x".repeat(63));
    backend.write("large", line.repeat(32 * 1024 * 1024 / line.len())).await.unwrap();
    for offset in [0, 100] {
        let before = driver.bytes_read();
        let window = backend
            .read_lines("large", LineRange { skip_lines: offset, max_lines: 10 })
            .await
            .unwrap();
        assert_eq!(window.text, line.repeat(10));
        let read = driver.bytes_read() - before;
        assert!((640..=256 * 1024).contains(&read), "{read} bytes for ten lines");
    }
}
