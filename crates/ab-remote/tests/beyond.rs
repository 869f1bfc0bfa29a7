//! Our own extended request, as a client of ours sends it, and as nobody should.

use std::sync::Arc;

use ab_core::call::CallOutcome;
use ab_core::effective_policy::EffectivePolicyControl;
use ab_core::guard::{GuardDecision, RefusedPath};
use ab_core::metadata::{Listing, Stat};
use ab_core::options::{ListOptions, StatOptions, WriteOptions};
use ab_core::process::{Command, ExecRequest};
use ab_core::{
    Backend, BackendOptions, ErrorKind, Guard, Guards, LostCallEffect, PathParser, Verb, WsPath,
};
use ab_remote::sftp::extended::{ExtendedRequest, SUPPORTED_EXTENSIONS};
use ab_remote::sftp::packet::SshFieldReader;
use ab_remote::wire::call::{
    RemoteCall, RemoteCallId, RemoteCallReplyPart, RemoteHelloReply, RemoteWriteBody,
};
use ab_remote::wire::frame::{
    PROCESS_SUBSYSTEM, ProcessClientFrame, ProcessServerFrame, encode_frame,
};
use ab_remote::wire::{self, WireCodec};
use agent_backend::MemoryDriverOptions;
use bytes::{Bytes, BytesMut};
use russh::ChannelMsg;
use russh::client::Handle;
use tokio::sync::Semaphore;

use crate::client::{
    EXTENDED, EXTENDED_REPLY, Packet, Sftp, Trusting, connect, open_server, string,
};
use crate::stage::within;

async fn ask(sftp: &mut Sftp, call: RemoteCall) -> Packet {
    let (name, body) = ExtendedRequest::Call(Box::new(call)).encode();
    sftp.extended(name, &body).await
}

/// The answer, or the error that a status tells of.
pub(crate) async fn answer<T: WireCodec>(
    sftp: &mut Sftp,
    call: RemoteCall,
) -> Result<T, ab_core::Error> {
    let packet = ask(sftp, call).await;
    if packet.kind == EXTENDED_REPLY {
        return Ok(wire::decode(packet.body).unwrap());
    }
    let mut fields = packet.fields();
    fields.read_u32().unwrap();
    text(&mut fields);
    assert_eq!(text(&mut fields), "en");
    Err(wire::decode(fields.read_string().unwrap()).unwrap())
}

fn text(fields: &mut SshFieldReader) -> String {
    String::from_utf8(fields.read_string().unwrap().to_vec()).unwrap()
}

fn path(text: &str) -> WsPath {
    PathParser::lenient().parse(text).unwrap()
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
    let names: Vec<_> = SUPPORTED_EXTENSIONS
        .iter()
        .map(|(name, version)| (name.to_string(), version.to_string()))
        .collect();
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
        let options =
            ListOptions { max_depth: depth, max_entries: limit, ..ListOptions::default() };
        let call = RemoteCall::List { path: WsPath::root(), options };
        let part: RemoteCallReplyPart = answer(&mut sftp, call).await.unwrap();
        assert_eq!(part.next_part, None);
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
    let options = ListOptions { max_depth: usize::MAX, ..ListOptions::default() };
    let call = RemoteCall::List { path: WsPath::root(), options };
    let mut part: RemoteCallReplyPart = answer(&mut sftp, call).await.unwrap();
    let mut whole = part.bytes.to_vec();
    let mut parts = 1;
    while let Some(handle) = part.next_part {
        part = answer(&mut sftp, RemoteCall::NextReplyPart { handle }).await.unwrap();
        whole.extend_from_slice(&part.bytes);
        parts += 1;
        if part.next_part.is_none() {
            // It is used up.
            assert_eq!(ask(&mut sftp, RemoteCall::NextReplyPart { handle }).await.status(), 4);
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
    fields.read_u32().unwrap();
    text(&mut fields);
    text(&mut fields);
    assert!(fields.is_empty());
    let welcome: RemoteHelloReply =
        answer(&mut sftp, RemoteCall::Hello { connection: 7 }).await.unwrap();
    assert_eq!(welcome.info.kind, ab_core::BackendKind::Memory);
    for (name, kind, code) in [
        ("none", ErrorKind::NotFound, "KEY_NOT_FOUND"),
        ("a/below", ErrorKind::NotADirectory, "READ_FAILED"),
    ] {
        let call = RemoteCall::Stat { path: path(name), options: StatOptions::default() };
        let error = answer::<Stat>(&mut sftp, call).await.unwrap_err();
        assert_eq!((error.kind(), error.code().as_str()), (kind, code));
        assert_eq!(error.path(), Some(name));
        // SFTP's own requests tell it too.
        let mut fields = sftp.ask(17, &string(name.as_bytes())).await.fields();
        fields.read_u32().unwrap();
        text(&mut fields);
        text(&mut fields);
        let error: ab_core::Error = wire::decode(fields.read_string().unwrap()).unwrap();
        assert_eq!(error.kind(), kind);
    }
    let again = ask(&mut sftp, RemoteCall::Hello { connection: 8 }).await;
    assert_eq!(again.status(), 4);
}

#[tokio::test]
async fn scope_roots_hold_on_this_side() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("inner")).unwrap();
    std::fs::write(directory.path().join("secret"), "s").unwrap();
    std::os::unix::fs::symlink("../secret", directory.path().join("inner/link")).unwrap();
    let server = open_server(agent_backend::local(directory.path()).unwrap());
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    answer::<RemoteHelloReply>(&mut sftp, RemoteCall::Hello { connection: 1 }).await.unwrap();
    let free = path("inner/link");
    let scoped = path("inner").into_scope_root().join(&path("link"));
    let stat = |path| RemoteCall::Stat { path, options: StatOptions::default() };
    assert!(answer::<Stat>(&mut sftp, stat(free)).await.is_ok());
    let error = answer::<Stat>(&mut sftp, stat(scoped)).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::PathEscape, Some("link")));
}

#[tokio::test]
async fn what_became_of_a_call_is_told_on_another_connection() {
    let server = open_server(filled().await);
    let (handle, _serving) = connect(&server).await;
    let mut first = Sftp::new(&handle).await;
    answer::<RemoteHelloReply>(&mut first, RemoteCall::Hello { connection: 1 }).await.unwrap();
    let write = |name: &str| RemoteCall::Write {
        path: path(name),
        body: RemoteWriteBody::Inline(Bytes::from_static(b"x")),
        options: WriteOptions::default(),
    };
    let done = ask(&mut first, write("new")).await;
    let failed = ask(&mut first, write("a/below")).await;
    let (other, _served) = connect(&server).await;
    let mut second = Sftp::new(&other).await;
    answer::<RemoteHelloReply>(&mut second, RemoteCall::Hello { connection: 2 }).await.unwrap();
    for (connection, request, expect) in [
        (1, done.id, LostCallEffect::Applied),
        (1, failed.id, LostCallEffect::NotApplied),
        (1, 1000, LostCallEffect::NotApplied),
        (3, done.id, LostCallEffect::Unknown),
    ] {
        let call = RemoteCall::QueryLostCall(RemoteCallId { connection, request });
        assert_eq!(answer::<LostCallEffect>(&mut second, call).await.unwrap(), expect);
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
    answer::<RemoteHelloReply>(&mut sftp, RemoteCall::Hello { connection: 1 }).await.unwrap();
    let too_much = RemoteCall::StageWrite { size: ab_remote::sftp::MAX_STAGED_WRITE_BYTES + 1 };
    assert_eq!(answer::<u32>(&mut sftp, too_much).await.unwrap_err().kind(), ErrorKind::TooLarge);
    let number: u32 = answer(&mut sftp, RemoteCall::StageWrite { size: 6 }).await.unwrap();
    let staged = number.to_be_bytes();
    assert_eq!(sftp.write(&staged, 3, b"def").await, 0);
    assert_eq!(sftp.write(&staged, 0, b"abc").await, 0);
    assert_eq!(sftp.write(&staged, 4, b"xyz").await, 4);
    assert_eq!(sftp.write(&staged, u64::MAX, b"x").await, 4);
    let write = || RemoteCall::Write {
        path: path("staged"),
        body: RemoteWriteBody::Staged(number),
        options: WriteOptions::default(),
    };
    assert_eq!(answer::<Stat>(&mut sftp, write()).await.unwrap().size, 6);
    assert_eq!(backend.read("staged").await.unwrap(), "abcdef");
    // It is used up.
    assert_eq!(ask(&mut sftp, write()).await.status(), 4);
}

/// The first answer on a channel of its own to a command in the name of a connection.
async fn run(handle: &Handle<Trusting>, connection: u128) -> ProcessServerFrame {
    let mut channel = within(handle.channel_open_session()).await.unwrap();
    channel.request_subsystem(true, PROCESS_SUBSYSTEM).await.unwrap();
    let request = ExecRequest::new(Command::Shell("echo it ran >> ran".to_owned()));
    let call = RemoteCallId { connection, request: 1 };
    let frame = ProcessClientFrame::Exec { call, window_bytes: 1000, request: Box::new(request) };
    channel.data_bytes(encode_frame(&frame)).await.unwrap();
    let mut said = BytesMut::new();
    loop {
        match within(channel.wait()).await.expect("the channel was closed") {
            ChannelMsg::Data { data } => said.extend_from_slice(&data),
            _ => continue,
        }
        let Some(header) = said.first_chunk::<4>() else { continue };
        let whole = 4 + u32::from_be_bytes(*header) as usize;
        if said.len() >= whole {
            return wire::decode(said.freeze().slice(4..whole)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_command_is_run_in_no_other_connection_s_name() {
    let directory = tempfile::tempdir().unwrap();
    let server = open_server(agent_backend::local(directory.path()).unwrap());
    let (handle, _serving) = connect(&server).await;
    let (other, _served) = connect(&server).await;
    let refused = |answer: ProcessServerFrame| match answer {
        ProcessServerFrame::Refused(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().contains("another connection"), "{error}");
        }
        other => panic!("{other:?}"),
    };
    // Nobody has said hello.
    refused(run(&handle, 1).await);
    let (mut first, mut second) = (Sftp::new(&handle).await, Sftp::new(&other).await);
    answer::<RemoteHelloReply>(&mut first, RemoteCall::Hello { connection: 1 }).await.unwrap();
    assert_eq!(ask(&mut second, RemoteCall::Hello { connection: 1 }).await.status(), 4);
    answer::<RemoteHelloReply>(&mut second, RemoteCall::Hello { connection: 2 }).await.unwrap();
    refused(run(&handle, 2).await);
    refused(run(&other, 1).await);
    refused(run(&other, 3).await);
    assert!(!directory.path().join("ran").exists());
    assert!(matches!(run(&handle, 1).await, ProcessServerFrame::Started { .. }));
}

/// Lets no write pass before it is given a permit for it.
#[derive(Debug)]
struct Held(Semaphore);

impl Guard for Held {
    fn before_call<'a>(&'a self, call: &'a ab_core::Call<'a>) -> GuardDecision<'a> {
        match call.verb {
            Verb::Write => GuardDecision::Pending(Box::pin(async {
                self.0.acquire().await.unwrap().forget();
                Ok(())
            })),
            _ => GuardDecision::ALLOW,
        }
    }

    fn check_file_size(&self, _: &ab_core::Call<'_>, _: u64) -> ab_core::Result<()> {
        Ok(())
    }

    fn on_refused_path(&self, _: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<EffectivePolicyControl> {
        None
    }

    fn after_call(&self, _: &ab_core::Call<'_>, _: &CallOutcome<'_>) {}
}

/// Time passes by itself while everybody waits.
#[tokio::test(start_paused = true)]
async fn what_waits_its_turn_does_not_begin_once_its_connection_is_given_up() {
    /// As many as are worked on at a time.
    const TOGETHER: u32 = 64;
    let held = Arc::new(Held(Semaphore::new(0)));
    let guards = Guards { limits: vec![held.clone()], ..Guards::default() };
    let assembly = BackendOptions { guards, ..BackendOptions::default() };
    let backend = agent_backend::memory_with(MemoryDriverOptions::default(), assembly).unwrap();
    let server = open_server(backend.clone());
    let (handle, _serving) = connect(&server).await;
    let mut first = Sftp::new(&handle).await;
    answer::<RemoteHelloReply>(&mut first, RemoteCall::Hello { connection: 1 }).await.unwrap();
    let mut sent = Vec::new();
    for number in 0..TOGETHER + 2 {
        let call = RemoteCall::Write {
            path: path(&number.to_string()),
            body: RemoteWriteBody::Inline(Bytes::from_static(b"x")),
            options: WriteOptions::default(),
        };
        let (name, body) = ExtendedRequest::Call(Box::new(call)).encode();
        sent.push(first.send(EXTENDED, &[&string(name.as_bytes()), &body[..]].concat()).await);
    }
    let (other, _served) = connect(&server).await;
    let mut second = Sftp::new(&other).await;
    answer::<RemoteHelloReply>(&mut second, RemoteCall::Hello { connection: 2 }).await.unwrap();
    let outcome = |request| RemoteCall::QueryLostCall(RemoteCallId { connection: 1, request });
    // Nothing is over, and whoever asks is not kept waiting for that.
    for request in [sent[0], sent[64]] {
        let effect = answer::<LostCallEffect>(&mut second, outcome(request)).await.unwrap();
        assert_eq!(effect, LostCallEffect::Unknown);
    }
    held.0.add_permits(1000);
    for (number, request) in sent.iter().enumerate() {
        let effect = answer::<LostCallEffect>(&mut second, outcome(*request)).await.unwrap();
        let there = backend.exists(&number.to_string()).await.unwrap();
        let began = number < TOGETHER as usize;
        assert_eq!(
            (effect == LostCallEffect::Applied, there),
            (began, began),
            "{number}: {effect:?}"
        );
        assert_ne!(effect, LostCallEffect::Unknown);
    }
}
