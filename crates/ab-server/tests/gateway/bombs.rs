//! Archives that are small and ask for much, and uploads above the limit.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ab_server::HttpAccessPolicy;
use serde_json::json;

use super::files::{end, tar, upload};
use super::fixture::Fixture;
use crate::caller::{Got, head, send};

const MIB: usize = 1024 * 1024;

async fn limited(max_upload: usize) -> Fixture {
    let limit = u64::try_from(max_upload).unwrap();
    Fixture::with_max_upload(Some(limit), HttpAccessPolicy::default(), |_| {}).await
}

/// An extended header of the next entry. Records that have no end are only claimed.
fn pax(records: &str, claimed: usize) -> String {
    let whole = tar("x", b'x', "", records);
    with_size(&whole, &format!("{claimed:011o}"))
}

/// An archive whose first header has another size, as 11 octal digits.
fn with_size(archive: &str, size: &str) -> String {
    let mut bytes = archive.as_bytes().to_vec();
    bytes[124..135].copy_from_slice(size.as_bytes());
    bytes[148..156].fill(b' ');
    let sum: u32 = bytes[..512].iter().map(|byte| u32::from(*byte)).sum();
    bytes[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    String::from_utf8(bytes).unwrap()
}

fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let digits = (1..).find(|digits| (rest.len() + digits).to_string().len() == *digits).unwrap();
    format!("{}{rest}", rest.len() + digits)
}

/// An extended header with one record.
fn tar_record(key: &str, value: &str) -> String {
    let record = record(key, value);
    pax(&record, record.len())
}

/// The size of all files below a directory, and their number.
fn used(directory: &Path) -> (u64, usize) {
    let mut sum = (0, 0);
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.path().symlink_metadata().unwrap();
        let (size, number) =
            if metadata.is_dir() { used(&entry.path()) } else { (metadata.len(), 1) };
        sum = (sum.0 + size, sum.1 + number);
    }
    sum
}

#[track_caller]
fn is_refused(got: &Got, status: u16, says: &str) {
    assert_eq!(got.status, status, "{says}: {got:?}");
    assert_eq!(got.header("content-type"), Some("application/problem+json"));
    let problem = got.json();
    assert!(problem["detail"].as_str().unwrap().contains(says), "{says}: {problem}");
}

#[tokio::test]
async fn archives_that_claim_more_than_they_have_are_refused() {
    let fixture = Fixture::start().await;
    let began = Instant::now();
    for (archive, says) in [
        (with_size(&tar("huge", b'0', "", "hello"), "77777777777"), "cut off"),
        (tar_record("size", "18446744073709551615") + &tar("huge", b'0', "", ""), "cut off"),
        (tar_record("size", "99999999999999999999999") + &tar("huge", b'0', "", ""), "size"),
        (pax("", 1 << 30), "an extended header has 1073741824 bytes, more than 65536"),
        (with_size(&tar("name", b'L', "", ""), "77777777777"), "an extended header has"),
        (with_size(&tar("all", b'g', "", ""), "77777777777"), "cut off"),
        (tar_record("GNU.sparse.realsize", "1099511627776") + &tar("s", b'0', "", ""), "sparse"),
        (tar("sparse", b'S', "", ""), "sparse"),
        ("\u{1f}\u{8b}".to_owned(), "tar archive"),
    ] {
        is_refused(&upload(&fixture, "in", &archive).await, 400, says);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(used(&fixture.root), (0, 0), "nothing of it was kept");
}

/// An entry without content copies the file that it links to: an upload of 1 MiB would become 100 MiB.
#[tokio::test]
async fn hard_links_cannot_multiply_an_archive() {
    let fixture = limited(2 * MIB).await;
    let links: Vec<String> = (0..100).map(|n| tar(&format!("l{n}"), b'1', "large", "")).collect();
    let archive = tar("large", b'0', "", &"x".repeat(MIB)) + &links.concat() + &end();
    let got = upload(&fixture, "in", &archive).await;
    is_refused(&got, 413, "the hard links of the archive copy too many bytes");
    let (size, number) = used(&fixture.root);
    assert_eq!((size, number), (3 * MIB as u64, 3), "the file and two copies fit");
    // As many as fit are copied.
    let archive = tar("small", b'0', "", "hello") + &tar("again", b'1', "small", "") + &end();
    assert_eq!(upload(&fixture, "in", &archive).await.status, 200);
    assert_eq!(fs::read_to_string(fixture.root.join("in/again")).unwrap(), "hello");
}

#[tokio::test]
async fn names_are_bounded_in_length_and_depth() {
    let fixture = Fixture::start().await;
    let deep = "d/".repeat(3000);
    let archive = tar_record("path", &deep) + &tar("x", b'0', "", "") + &end();
    is_refused(&upload(&fixture, "in", &archive).await, 400, "longer than 4095 bytes");
    let long = tar_record("path", &"n".repeat(256)) + &tar("x", b'0', "", "") + &end();
    is_refused(&upload(&fixture, "in", &long).await, 400, "longer than 255 bytes");
    assert_eq!(used(&fixture.root), (0, 0));
}

#[tokio::test]
async fn uploads_above_the_limit_are_refused_and_leave_nothing() {
    let fixture = limited(MIB).await;
    let put = async |length: usize, chunked: bool| {
        let path = "/v1/fs/file?path=file";
        let body = "x".repeat(length);
        if !chunked {
            return send(fixture.address(), &head("PUT", path, &[]), &body).await;
        }
        let head = head("PUT", path, &[("transfer-encoding", "chunked")]);
        send_chunked(&fixture, &head, &body).await
    };
    for chunked in [false, true] {
        let got = put(2 * MIB, chunked).await;
        is_refused(&got, 413, "the upload has more than 1048576 bytes");
        assert_eq!(got.json()["type"], "urn:sandbox-agent:error:too_large");
        assert_eq!(used(&fixture.root), (0, 0));
    }
    // The limit itself is allowed, and a refused upload keeps the old file.
    assert_eq!(put(MIB, false).await.json()["bytesWritten"], MIB);
    assert_eq!(put(MIB + 1, true).await.status, 413);
    assert_eq!(used(&fixture.root), (MIB as u64, 1));

    let archive =
        tar("whole", b'0', "", "1") + &tar("cut", b'0', "", &"x".repeat(2 * MIB)) + &end();
    is_refused(&upload(&fixture, "in", &archive).await, 413, "the upload has more than");
    assert_eq!(fs::read_to_string(fixture.root.join("in/whole")).unwrap(), "1");
    assert!(!fixture.root.join("in/cut").exists());
    assert_eq!(used(&fixture.root), (MIB as u64 + 1, 2));
    let stat = fixture.ask("GET", "/v1/fs/stat?path=file", "").await.json();
    assert_eq!(stat["size"], json!(MIB));
}

/// Sends a body in chunks, so that its length is not known before.
async fn send_chunked(fixture: &Fixture, head: &str, body: &str) -> Got {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(fixture.address()).await.unwrap();
    let head = format!("{head}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in body.as_bytes().chunks(64 * 1024) {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        // The port may refuse before it has read everything.
        if stream.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n").await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    crate::caller::parse(&bytes)
}
