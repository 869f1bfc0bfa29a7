//! Our own extended request, as a client of ours sends it, and as nobody should.

use ab_core::metadata::{Listing, Stat};
use ab_core::options::{ListOptions, StatOptions, WriteOptions};
use ab_core::{Backend, Effect, Kind, PathRules, WsPath};
use ab_remote::sftp::extended::{Extended, NAMES};
use ab_remote::sftp::packet::Fields;
use ab_remote::wire::call::{Body, Call, CallNumber, Part, Welcome};
use ab_remote::wire::{self, Wire};
use bytes::Bytes;

use crate::client::{EXTENDED_REPLY, Packet, Sftp, connect, open_server, string};

async fn ask(sftp: &mut Sftp, call: Call) -> Packet {
    let (name, body) = Extended::Call(Box::new(call)).encode();
    sftp.extended(name, &body).await
}

/// The answer, or the error that a status tells of.
async fn answer<T: Wire>(sftp: &mut Sftp, call: Call) -> Result<T, ab_core::Error> {
    let packet = ask(sftp, call).await;
    if packet.kind == EXTENDED_REPLY {
        return Ok(wire::decode(packet.body).unwrap());
    }
    let mut fields = packet.fields();
    fields.u32().unwrap();
    text(&mut fields);
    assert_eq!(text(&mut fields), "en");
    Err(wire::decode(fields.string().unwrap()).unwrap())
}

fn text(fields: &mut Fields) -> String {
    String::from_utf8(fields.string().unwrap().to_vec()).unwrap()
}

fn path(text: &str) -> WsPath {
    PathRules::lenient().parse(text).unwrap()
}

async fn filled() -> Backend {
    let backend = agent_backend::memory();
    for (path, content) in [("a", "one\n"), ("d/b", "two\nTWO\n"), ("d/e/c", "three\n")] {
        backend.write(path, content).await.unwrap();
    }
    backend
}

#[tokio::test]
async fn the_greeting_names_them_all() {
    let server = open_server(filled().await);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::silent(&handle).await;
    sftp.raw(&[0, 0, 0, 5, 1, 0, 0, 0, 3]).await;
    let version = sftp.receive().await.unwrap();
    let mut fields = version.fields();
    let mut told = Vec::new();
    while !fields.is_empty() {
        told.push((text(&mut fields), text(&mut fields)));
    }
    let names: Vec<_> =
        NAMES.iter().map(|(name, version)| (name.to_string(), version.to_string())).collect();
    assert_eq!(told, names);
}

#[tokio::test]
async fn a_tree_is_one_round_trip() {
    let server = open_server(filled().await);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    for (depth, limit, expect) in [
        (usize::MAX, 100, &["a", "d", "d/b", "d/e", "d/e/c"][..]),
        (1, 100, &["a", "d"]),
        (usize::MAX, 2, &["a", "d"]),
    ] {
        let options = ListOptions { depth, limit, ..ListOptions::default() };
        let call = Call::List { path: WsPath::root(), options };
        let part: Part = answer(&mut sftp, call).await.unwrap();
        assert_eq!(part.more, None);
        let listing: Listing = wire::decode(part.bytes).unwrap();
        let paths: Vec<&str> = listing.entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, expect);
        assert_eq!(listing.truncated.is_some(), limit == 2);
    }
}

#[tokio::test]
async fn a_long_answer_comes_in_parts() {
    let backend = agent_backend::memory();
    for number in 0..3000 {
        let name = format!("{:0>250}/{number:0>250}/{number}", number % 7);
        backend.write(&name, "").await.unwrap();
    }
    let server = open_server(backend);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let options = ListOptions { depth: usize::MAX, ..ListOptions::default() };
    let call = Call::List { path: WsPath::root(), options };
    let mut part: Part = answer(&mut sftp, call).await.unwrap();
    let mut whole = part.bytes.to_vec();
    let mut parts = 1;
    while let Some(handle) = part.more {
        part = answer(&mut sftp, Call::More { handle }).await.unwrap();
        whole.extend_from_slice(&part.bytes);
        parts += 1;
        if part.more.is_none() {
            // It is used up.
            assert_eq!(ask(&mut sftp, Call::More { handle }).await.status(), 4);
        }
    }
    assert!(parts > 2, "{parts}");
    let listing: Listing = wire::decode(Bytes::from(whole)).unwrap();
    assert_eq!(listing.entries.len(), 3000 * 2 + 7);
}

#[tokio::test]
async fn failures_are_exact_after_a_hello() {
    let server = open_server(filled().await);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    // Before, a status is what everybody gets.
    let mut fields = sftp.ask(17, &string(b"none")).await.fields();
    fields.u32().unwrap();
    text(&mut fields);
    text(&mut fields);
    assert!(fields.is_empty());
    let welcome: Welcome = answer(&mut sftp, Call::Hello { connection: 7 }).await.unwrap();
    assert_eq!(welcome.info.kind, ab_core::BackendKind::Memory);
    for (name, kind, code) in
        [("none", Kind::NotFound, "KEY_NOT_FOUND"), ("a/below", Kind::NotADirectory, "READ_FAILED")]
    {
        let call = Call::Stat { path: path(name), options: StatOptions::default() };
        let error = answer::<Stat>(&mut sftp, call).await.unwrap_err();
        assert_eq!((error.kind(), error.code().as_str()), (kind, code));
        assert_eq!(error.path(), Some(name));
        // SFTP's own requests tell it too.
        let mut fields = sftp.ask(17, &string(name.as_bytes())).await.fields();
        fields.u32().unwrap();
        text(&mut fields);
        text(&mut fields);
        let error: ab_core::Error = wire::decode(fields.string().unwrap()).unwrap();
        assert_eq!(error.kind(), kind);
    }
    let again = ask(&mut sftp, Call::Hello { connection: 8 }).await;
    assert_eq!(again.status(), 4);
}

#[tokio::test]
async fn fences_hold_on_this_side() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("inner")).unwrap();
    std::fs::write(directory.path().join("secret"), "s").unwrap();
    std::os::unix::fs::symlink("../secret", directory.path().join("inner/link")).unwrap();
    let server = open_server(agent_backend::local(directory.path()).unwrap());
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    answer::<Welcome>(&mut sftp, Call::Hello { connection: 1 }).await.unwrap();
    let free = path("inner/link");
    let fenced = path("inner").fenced().join(&path("link"));
    let stat = |path| Call::Stat { path, options: StatOptions::default() };
    assert!(answer::<Stat>(&mut sftp, stat(free)).await.is_ok());
    let error = answer::<Stat>(&mut sftp, stat(fenced)).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (Kind::Escape, Some("link")));
}

#[tokio::test]
async fn what_became_of_a_call_is_told_on_another_connection() {
    let server = open_server(filled().await);
    let (handle, _serving) = connect(&server).await;
    let mut first = Sftp::new(&handle).await;
    answer::<Welcome>(&mut first, Call::Hello { connection: 1 }).await.unwrap();
    let write = |name: &str| Call::Write {
        path: path(name),
        body: Body::Here(Bytes::from_static(b"x")),
        options: WriteOptions::default(),
    };
    let done = ask(&mut first, write("new")).await;
    let failed = ask(&mut first, write("a/below")).await;
    let (other, _served) = connect(&server).await;
    let mut second = Sftp::new(&other).await;
    answer::<Welcome>(&mut second, Call::Hello { connection: 2 }).await.unwrap();
    for (connection, request, expect) in [
        (1, done.id, Effect::Applied),
        (1, failed.id, Effect::NotApplied),
        (1, 1000, Effect::NotApplied),
        (3, done.id, Effect::Unknown),
    ] {
        let call = Call::Outcome(CallNumber { connection, request });
        assert_eq!(answer::<Effect>(&mut second, call).await.unwrap(), expect);
    }
    // The first connection was ended, so that nothing is done on it after that was said.
    assert_eq!(first.ended().await, Some(0));
}

#[tokio::test]
async fn a_content_is_staged_and_written_as_a_whole() {
    let backend = filled().await;
    let server = open_server(backend.clone());
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    answer::<Welcome>(&mut sftp, Call::Hello { connection: 1 }).await.unwrap();
    let too_much = Call::Stage { size: ab_remote::sftp::MAX_CONTENT + 1 };
    assert_eq!(answer::<u32>(&mut sftp, too_much).await.unwrap_err().kind(), Kind::TooLarge);
    let number: u32 = answer(&mut sftp, Call::Stage { size: 6 }).await.unwrap();
    let staged = number.to_be_bytes();
    assert_eq!(sftp.write(&staged, 3, b"def").await, 0);
    assert_eq!(sftp.write(&staged, 0, b"abc").await, 0);
    assert_eq!(sftp.write(&staged, 4, b"xyz").await, 4);
    assert_eq!(sftp.write(&staged, u64::MAX, b"x").await, 4);
    let write = || Call::Write {
        path: path("staged"),
        body: Body::Staged(number),
        options: WriteOptions::default(),
    };
    assert_eq!(answer::<Stat>(&mut sftp, write()).await.unwrap().size, 6);
    assert_eq!(backend.read("staged").await.unwrap(), "abcdef");
    // It is used up.
    assert_eq!(ask(&mut sftp, write()).await.status(), 4);
}
