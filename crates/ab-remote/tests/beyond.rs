//! Our own extended requests, as a client of ours will send them.

use std::time::Duration;

use ab_core::process::{Command, Stdin};
use ab_core::{Backend, ExecOptions, Kind};
use ab_remote::sftp::extended::{Extended, NAMES, Search, TextAnswer, Wanted, Wish};
use ab_remote::sftp::packet::{Fields, flags};
use bytes::Bytes;

use crate::client::{EXTENDED_REPLY, HANDLE, Packet, Sftp, connect, open_server, string};

async fn ask(sftp: &mut Sftp, request: &Extended) -> Packet {
    let (name, body) = request.encode();
    sftp.extended(name, &body).await
}

fn text(fields: &mut Fields) -> String {
    String::from_utf8(fields.string().unwrap().to_vec()).unwrap()
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
    let list =
        |depth, limit| Extended::List { path: Bytes::from("."), depth, limit, described: true };
    for (request, expect, cut) in [
        (list(u32::MAX, 100), &["a", "d", "d/b", "d/e", "d/e/c"][..], 0),
        (list(1, 100), &["a", "d"], 0),
        (list(u32::MAX, 2), &["a", "d"], 1),
    ] {
        let answer = ask(&mut sftp, &request).await;
        assert_eq!(answer.kind, EXTENDED_REPLY, "{answer:?}");
        let mut fields = answer.fields();
        assert_eq!(fields.u8(), Ok(cut));
        let mut paths = Vec::new();
        for _ in 0..fields.u32().unwrap() {
            paths.push(text(&mut fields));
            let kind = fields.u8().unwrap();
            assert_eq!(fields.u8(), Ok(1));
            assert_eq!(fields.u8(), Ok(kind));
            let size = fields.u64().unwrap();
            assert_eq!(size == 0, kind == 1);
            assert!(fields.u64().unwrap() > 1_000_000_000 || kind == 1);
            fields.u32().unwrap();
            fields.u32().unwrap();
            fields.u64().unwrap();
            fields.u64().unwrap();
        }
        assert_eq!(paths, expect);
        assert_eq!(fields.u32(), Ok(0));
        assert!(fields.is_empty());
    }
}

#[tokio::test]
async fn a_search_is_one_round_trip() {
    let server = open_server(filled().await);
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let search = |what| {
        Extended::Search(Box::new(Search {
            path: Bytes::from("/d"),
            what,
            include: vec![],
            exclude: vec![Bytes::from("e")],
            hidden: false,
            honour_ignore_files: false,
            matches: 10,
            bytes: 10_000,
            milliseconds: 10_000,
        }))
    };
    let lines = search(Wanted::Text {
        pattern: Bytes::from("t.o"),
        regex: true,
        any_case: true,
        over_lines: false,
        before: 0,
        after: 0,
        answer: TextAnswer::Lines,
    });
    let answer = ask(&mut sftp, &lines).await;
    assert_eq!(answer.kind, EXTENDED_REPLY, "{answer:?}");
    let mut fields = answer.fields();
    assert_eq!(
        (fields.u8(), fields.u64(), fields.u64(), fields.u32()),
        (Ok(0), Ok(1), Ok(0), Ok(2))
    );
    for (line, said) in [(1, "two"), (2, "TWO")] {
        assert_eq!((fields.u8(), text(&mut fields).as_str()), (Ok(1), "d/b"));
        assert_eq!((fields.u64(), text(&mut fields).as_str()), (Ok(line), said));
        assert_eq!((fields.u64(), fields.u8()), (Ok(0), Ok(0)));
    }
    assert_eq!(fields.u32(), Ok(0));
    assert!(fields.is_empty());

    let names = search(Wanted::Names { glob: Bytes::from("**/*"), directories: true });
    let mut fields = ask(&mut sftp, &names).await.fields();
    assert_eq!(
        (fields.u8(), fields.u64(), fields.u64(), fields.u32()),
        (Ok(0), Ok(0), Ok(0), Ok(1))
    );
    assert_eq!((fields.u8(), text(&mut fields).as_str(), fields.u8()), (Ok(0), "d/b", Ok(0)));
}

#[tokio::test]
async fn failures_are_exact_for_those_who_ask() {
    let directory = tempfile::tempdir().unwrap();
    let server = open_server(agent_backend::local(directory.path()).unwrap());
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let plain = sftp.ask(17, &string(b"no/such")).await;
    let mut fields = plain.fields();
    assert_eq!((fields.u32(), text(&mut fields).is_empty()), (Ok(2), false));
    assert_eq!((text(&mut fields).as_str(), fields.is_empty()), ("en", true));

    assert_eq!(ask(&mut sftp, &Extended::Errors).await.status(), 0);
    for (path, kind, code, shown) in [
        ("no/such", Kind::NotFound, "READ_FAILED", "no/such"),
        ("../out", Kind::Escape, "PATH_ESCAPE_ATTEMPT", "../out"),
    ] {
        let mut fields = sftp.ask(17, &string(path.as_bytes())).await.fields();
        fields.u32().unwrap();
        text(&mut fields);
        assert_eq!(text(&mut fields), "en");
        assert_eq!(
            (text(&mut fields), text(&mut fields)),
            (kind.as_str().to_owned(), code.to_owned())
        );
        text(&mut fields);
        assert_eq!(text(&mut fields), shown);
        text(&mut fields);
        assert!(fields.is_empty());
    }
    // What is no failure of the workspace has the same fields, empty.
    let mut fields = sftp.ask(4, &string(b"none")).await.fields();
    assert_eq!(fields.u32(), Ok(4));
    for expect in ["no such handle", "en", "", "", "", "", ""] {
        assert_eq!(text(&mut fields), expect);
    }
}

#[tokio::test]
async fn processes_are_listed_and_joined() {
    let directory = tempfile::tempdir().unwrap();
    let backend = agent_backend::local(directory.path()).unwrap();
    let server = open_server(backend.clone());
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let line = "echo ready; read word; echo got $word; read more || echo end; exit 4".to_owned();
    let mut request = backend.request(Command::Shell(line), ExecOptions::default()).unwrap();
    request.stdin = Stdin::Piped;
    let process = backend.start(request).await.unwrap();
    let id = Bytes::from(process.id.as_str().to_owned());

    let mut fields = ask(&mut sftp, &Extended::Processes).await.fields();
    assert_eq!((fields.u8(), fields.u32()), (Ok(0), Ok(1)));
    assert_eq!(fields.string().unwrap(), id);

    let answer = ask(&mut sftp, &Extended::Attach { id: Bytes::from("none"), from: 0 }).await;
    assert_eq!(answer.status(), 2);
    let answer = ask(&mut sftp, &Extended::Attach { id, from: 0 }).await;
    assert_eq!(answer.kind, HANDLE, "{answer:?}");
    let joined = answer.fields().string().unwrap();
    let (mut said, mut sequence) = (String::new(), 0);
    let output = Extended::Output { handle: joined.clone() };
    let mut next = async |sftp: &mut Sftp, said: &mut String| {
        let mut fields = ask(sftp, &output).await.fields();
        if fields.u8() == Ok(1) {
            return Some((fields.u8().unwrap(), fields.u32().unwrap()));
        }
        assert_eq!(fields.u64(), Ok(sequence));
        assert_eq!((fields.u8(), fields.u64()), (Ok(0), Ok(0)));
        let piece = text(&mut fields);
        sequence += piece.len() as u64;
        said.push_str(&piece);
        None
    };
    while !said.contains("ready\n") {
        assert_eq!(next(&mut sftp, &mut said).await, None);
    }
    assert_eq!(sftp.write(&joined, 0, b"hello\n").await, 0);
    while !said.contains("got hello\n") {
        assert_eq!(next(&mut sftp, &mut said).await, None);
    }
    let end = Extended::Control { handle: joined.clone(), wish: Wish::EndInput };
    assert_eq!(ask(&mut sftp, &end).await.status(), 0);
    let exit = loop {
        if let Some(exit) = next(&mut sftp, &mut said).await {
            break exit;
        }
    };
    assert_eq!((said.as_str(), exit), ("ready\ngot hello\nend\n", (0, 4)));
    assert_eq!(sftp.close(&joined).await, 0);

    // Only processes are that.
    let file = sftp.open("file", flags::WRITE | flags::CREATE).await;
    assert_eq!(ask(&mut sftp, &Extended::Output { handle: file }).await.status(), 4);
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn a_request_that_waits_holds_up_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let backend = agent_backend::local(directory.path()).unwrap();
    let server = open_server(backend.clone());
    let (handle, serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let command = Command::Shell("sleep 1000".to_owned());
    let request = backend.request(command, ExecOptions::default()).unwrap();
    let process = backend.start(request).await.unwrap();
    let id = Bytes::from(process.id.as_str().to_owned());
    let joined = ask(&mut sftp, &Extended::Attach { id, from: 0 }).await.fields().string().unwrap();
    let (name, body) = Extended::Output { handle: joined.clone() }.encode();
    let waiting = [string(name.as_bytes()), body.to_vec()].concat();
    let first = sftp.send(200, &waiting).await;
    // A second one at the same time is refused, and other requests are answered.
    let second = sftp.ask(200, &waiting).await;
    assert_eq!(second.status(), 4);
    assert_ne!(second.id, first);
    assert_eq!(ask(&mut sftp, &Extended::Processes).await.kind, EXTENDED_REPLY);
    // Nobody waits at a handle that is closed, nor on a channel whose client is done.
    let closing = sftp.send(4, &string(&joined)).await;
    let mut answers = [sftp.receive().await.unwrap(), sftp.receive().await.unwrap()];
    answers.sort_by_key(|answer| answer.id);
    assert_eq!(answers.each_ref().map(|answer| answer.id), [first, closing]);
    assert_eq!(answers.each_ref().map(Packet::status), [4, 0]);
    let attach = Extended::Attach { id: Bytes::from(process.id.as_str().to_owned()), from: 0 };
    let joined = ask(&mut sftp, &attach).await.fields().string().unwrap();
    let (name, body) = Extended::Output { handle: joined }.encode();
    sftp.send(200, &[string(name.as_bytes()), body.to_vec()].concat()).await;
    sftp.channel.eof().await.unwrap();
    assert_eq!(sftp.receive().await.unwrap().status(), 4);
    assert_eq!(sftp.ended().await, Some(0));
    drop((sftp, handle));
    tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap();
    // It was only watched, so it lives on.
    assert!(backend.processes().await.unwrap()[0].exit.is_none());
    backend.destroy().await.unwrap();
}
