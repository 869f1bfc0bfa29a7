//! Reads: whole files, ranges, text, lines, pieces, batches.

use ab_core::LineRange;
use ab_core::backend::LineWindow;
use ab_core::options::{ByteRange, ReadOptions};
use ab_core::{Backend, ErrorKind};

use crate::expect::{expect_error, expect_error_on_path, without_access_time};

/// Any bytes come back unchanged.
pub async fn returns_what_was_written(backend: &Backend) {
    let every_byte: Vec<u8> = (0..=u8::MAX).cycle().take(70_000).collect();
    let files: [(&str, &[u8]); 4] = [
        ("text.txt", "grüße\r\nund mehr".as_bytes()),
        ("nul", b"\0\0\0"),
        ("not-utf8", b"\xff\xfe\xc3("),
        ("deep/down/binary", &every_byte),
    ];
    for (path, bytes) in files {
        backend.write(path, bytes).await.unwrap();
        assert_eq!(backend.read(path).await.unwrap(), bytes, "{path:?}");
    }
}

/// An empty file has no bytes and is not missing.
pub async fn empty_file(backend: &Backend) {
    backend.write("empty", "").await.unwrap();
    let content = backend.read_with("empty", ReadOptions::default()).await.unwrap();
    assert_eq!((content.bytes.len(), content.stat.size), (0, 0));
    assert!(backend.exists("empty").await.unwrap());
}

/// A range returns exactly its bytes.
pub async fn range(backend: &Backend) {
    backend.write("digits", "0123456789").await.unwrap();
    for (start, length, expect) in [(0, 10, "0123456789"), (0, 1, "0"), (3, 4, "3456"), (4, 0, "")]
    {
        let content = part(backend, "digits", start, length).await;
        assert_eq!(content, expect, "{length} bytes from {start}");
    }
}

/// A range is cut at the end of the file, without an error.
pub async fn range_past_the_end_is_cut(backend: &Backend) {
    backend.write("digits", "0123456789").await.unwrap();
    for (start, length, expect) in
        [(7, 100, "789"), (10, 1, ""), (1000, 5, ""), (5, u64::MAX, "56789"), (u64::MAX, 1, "")]
    {
        let content = part(backend, "digits", start, length).await;
        assert_eq!(content, expect, "{length} bytes from {start}");
    }
}

async fn part(backend: &Backend, path: &str, start: u64, length: u64) -> String {
    let options =
        ReadOptions { range: Some(ByteRange { start, length }), ..ReadOptions::default() };
    let content = backend.read_with(path, options).await.unwrap();
    assert_eq!(content.stat.size, 10, "the stat of a part is that of the whole file");
    String::from_utf8(content.bytes.into()).unwrap()
}

/// A missing file is `NotFound`.
pub async fn missing_is_not_found(backend: &Backend) {
    backend.write("dir/there", "x").await.unwrap();
    expect_error_on_path(backend.read("missing").await, ErrorKind::NotFound, "missing");
    expect_error_on_path(backend.read("dir/missing").await, ErrorKind::NotFound, "dir/missing");
    expect_error_on_path(backend.read("no/such/dir").await, ErrorKind::NotFound, "no/such/dir");
    expect_error_on_path(backend.read_text("missing").await, ErrorKind::NotFound, "missing");
}

/// A path through a file is `NotADirectory`.
pub async fn below_a_file_is_not_a_directory(backend: &Backend) {
    backend.write("file", "x").await.unwrap();
    expect_error_on_path(backend.read("file/below").await, ErrorKind::NotADirectory, "file/below");
}

/// A directory is `IsADirectory`.
pub async fn a_directory_is_refused(backend: &Backend) {
    backend.write("dir/file", "x").await.unwrap();
    expect_error_on_path(backend.read("dir").await, ErrorKind::IsADirectory, "dir");
    expect_error_on_path(backend.read(".").await, ErrorKind::IsADirectory, ".");
}

/// More than the limit is `TooLarge`, never silently cut.
pub async fn over_the_limit_is_refused(backend: &Backend) {
    backend.write("digits", "0123456789").await.unwrap();
    let at_most = |limit| ReadOptions { range: None, max_bytes: limit };
    expect_error_on_path(
        backend.read_with("digits", at_most(9)).await,
        ErrorKind::TooLarge,
        "digits",
    );
    let whole = backend.read_with("digits", at_most(10)).await.unwrap();
    assert_eq!(whole.bytes, "0123456789");

    let part = |length| ReadOptions { range: Some(ByteRange { start: 2, length }), max_bytes: 4 };
    expect_error_on_path(backend.read_with("digits", part(5)).await, ErrorKind::TooLarge, "digits");
    assert_eq!(backend.read_with("digits", part(4)).await.unwrap().bytes, "2345");
}

/// The returned stat belongs to the bytes.
pub async fn carries_the_version(backend: &Backend) {
    for text in ["first", "the second"] {
        let written = backend.write("file", text).await.unwrap();
        let content = backend.read_with("file", ReadOptions::default()).await.unwrap();
        assert_eq!(content.bytes, text);
        assert_eq!(without_access_time(content.stat), without_access_time(written));
    }
}

/// Text is returned as written. A file that is not UTF-8 is refused, and the error names it.
pub async fn text_must_be_utf8(backend: &Backend) {
    backend.write("text", "schön\n").await.unwrap();
    assert_eq!(backend.read_text("text").await.unwrap(), "schön\n");
    backend.write("noise", b"ab\xff").await.unwrap();
    expect_error_on_path(backend.read_text("noise").await, ErrorKind::Invalid, "noise");
    assert_eq!(backend.read("noise").await.unwrap(), b"ab\xff".as_slice());
}

/// A batch has its results in the order of the request, one for each file.
pub async fn many_keep_their_order(backend: &Backend) {
    let names: Vec<String> = (0..50).map(|number| format!("batch/{number:02}")).collect();
    for name in names.iter().filter(|name| !name.ends_with('7')) {
        backend.write(name, name).await.unwrap();
    }
    let asked: Vec<&str> = names.iter().rev().map(String::as_str).chain(["../out"]).collect();
    let answers = backend.read_many(&asked).await;
    assert_eq!(answers.len(), asked.len());
    for (name, answer) in asked.into_iter().zip(answers) {
        match name {
            "../out" => drop(expect_error_on_path(answer, ErrorKind::PathEscape, name)),
            name if name.ends_with('7') => {
                drop(expect_error_on_path(answer, ErrorKind::NotFound, name))
            }
            name => assert_eq!(answer.unwrap(), name),
        }
    }
    assert!(backend.read_many::<&str>(&[]).await.is_empty());
}

/// A line window says which lines it has and where to continue.
pub async fn lines_come_in_windows(backend: &Backend) {
    backend.write("log", "one\ntwo\r\nthree\nfour").await.unwrap();
    let window = |offset, limit| {
        backend.read_lines("log", LineRange { skip_lines: offset, max_lines: limit })
    };
    assert_eq!(
        window(1, 2).await.unwrap(),
        LineWindow {
            text: "two\r\nthree\n".to_owned(),
            first_line: 2,
            last_line: 3,
            total_lines: None,
            next_offset: Some(3),
        }
    );
    assert_eq!(
        window(3, 10).await.unwrap(),
        LineWindow {
            text: "four".to_owned(),
            first_line: 4,
            last_line: 4,
            total_lines: Some(4),
            next_offset: None,
        }
    );
    assert_eq!(
        window(9, 1).await.unwrap(),
        LineWindow {
            text: String::new(),
            first_line: 0,
            last_line: 0,
            total_lines: Some(4),
            next_offset: None,
        }
    );
}

/// Reading lines fails like reading the whole file.
pub async fn lines_fail_like_the_whole(backend: &Backend) {
    let some = LineRange::default();
    expect_error_on_path(backend.read_lines("missing", some).await, ErrorKind::NotFound, "missing");
    expect_error(backend.read_lines(".", some).await, ErrorKind::IsADirectory);
    backend.write("noise", b"fine\n\xff\xff\nfine\n").await.unwrap();
    expect_error_on_path(backend.read_lines("noise", some).await, ErrorKind::Invalid, "noise");
    let first =
        backend.read_lines("noise", LineRange { skip_lines: 0, max_lines: 1 }).await.unwrap();
    assert_eq!(first.text, "fine\n");
}

/// The pieces of a large file add up to its content.
pub async fn pieces_add_up(backend: &Backend) {
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(1_000_001).collect();
    backend.write("large", large.as_slice()).await.unwrap();
    let mut chunks = backend.read_chunks("large").await.unwrap();
    assert_eq!(chunks.file_size(), Some(1_000_001));
    let (mut together, mut pieces) = (Vec::new(), 0);
    while let Some(piece) = chunks.next().await.unwrap() {
        together.extend_from_slice(&piece);
        pieces += 1;
    }
    assert!(together == large, "the pieces differ from the whole");
    assert!(pieces > 1, "a large file came in one piece");
    assert_eq!(chunks.next().await.unwrap(), None);
}
