//! SSH over WebSockets, with tungstenite at the other end where it matters what is on the wire.

use std::cell::RefCell;
use std::io;

use ab_remote::websocket::{MAX_SENT_WEBSOCKET_MESSAGE_BYTES, WebSocketByteStream};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::client::{exec, log_in, open_server};
use crate::stage::within;

/// Room between two ends, so little that most writes are cut.
const NARROW: usize = 1000;
const WIDE: usize = 1 << 20;

/// Two ends of ours.
fn pair(room: usize) -> (WebSocketByteStream<DuplexStream>, WebSocketByteStream<DuplexStream>) {
    let (near, far) = duplex(room);
    (WebSocketByteStream::new_client(near), WebSocketByteStream::new_server(far))
}

/// An end of ours, and tungstenite's at the other.
async fn beside_tungstenite(
    theirs: Role,
    room: usize,
) -> (WebSocketByteStream<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (near, far) = duplex(room);
    let ours = match theirs {
        Role::Client => WebSocketByteStream::new_server(near),
        Role::Server => WebSocketByteStream::new_client(near),
    };
    let config = WebSocketConfig::default().max_frame_size(None).max_message_size(None);
    (ours, WebSocketStream::from_raw_socket(far, theirs, Some(config)).await)
}

fn binary(bytes: &'static [u8]) -> Message {
    Message::Binary(Bytes::from_static(bytes))
}

#[tokio::test]
async fn ssh_speaks_over_messages() {
    for room in [NARROW, WIDE] {
        let directory = tempfile::tempdir().unwrap();
        let backend = agent_backend::local(directory.path()).unwrap();
        let server = open_server(backend.clone());
        let (mine, theirs) = pair(room);
        let serving = {
            let server = server.clone();
            tokio::spawn(async move { server.serve(theirs).await })
        };
        let handle = log_in(mine, russh::client::Config::default()).await;
        assert_eq!(
            exec(&handle, "echo over messages; exit 3").await,
            ("over messages\n".into(), Some(3))
        );
        let (zeros, status) = exec(&handle, "head -c 3000000 /dev/zero").await;
        assert_eq!((zeros.len(), status), (3_000_000, Some(0)));
        drop(handle);
        assert_eq!(within(serving).await.unwrap(), ab_remote::SshConnectionEnd::Closed);
        assert_eq!(server.connection_count(), 0);
        backend.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn messages_are_small_and_what_was_written_is_sent_before_reading() {
    for theirs in [Role::Client, Role::Server] {
        let (mut stream, mut theirs) = beside_tungstenite(theirs, WIDE).await;
        // Nobody flushes here but the read.
        let written = stream.write(&vec![7; MAX_SENT_WEBSOCKET_MESSAGE_BYTES + 5]).await.unwrap();
        assert_eq!(written, MAX_SENT_WEBSOCKET_MESSAGE_BYTES);
        let mut buffer = [0; 4];
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            while read.len() < 6 {
                let length = stream.read(&mut buffer).await.unwrap();
                read.extend_from_slice(&buffer[..length]);
            }
            (read, stream)
        });
        let Message::Binary(sent) = within(theirs.next()).await.unwrap().unwrap() else { panic!() };
        assert_eq!(sent.len(), MAX_SENT_WEBSOCKET_MESSAGE_BYTES);
        let ping = Message::Ping(Bytes::from_static(b"there?"));
        for message in [binary(b"abc"), ping, binary(b""), binary(b"def")] {
            theirs.send(message).await.unwrap();
        }
        let (read, mut stream) = within(reading).await.unwrap();
        assert_eq!(read, b"abcdef");
        let pong = Message::Pong(Bytes::from_static(b"there?"));
        assert_eq!(within(theirs.next()).await.unwrap().unwrap(), pong);
        let goodbye = CloseFrame { code: CloseCode::Normal, reason: "bye".into() };
        theirs.send(Message::Close(Some(goodbye))).await.unwrap();
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
        let farewell = stream.close_frame().unwrap();
        assert_eq!((farewell.code, farewell.reason.as_str()), (Some(1000), "bye"));
        let answer = within(theirs.next()).await.unwrap().unwrap();
        assert!(matches!(answer, Message::Close(Some(frame)) if frame.code == CloseCode::Normal));
        assert_eq!(stream.write_all(b"late").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}

#[tokio::test]
async fn an_end_says_why_it_leaves() {
    for theirs in [Role::Client, Role::Server] {
        let (mut stream, mut theirs) = beside_tungstenite(theirs, WIDE).await;
        stream.write_all(b"before").await.unwrap();
        stream.start_close(4001, "Unauthorized");
        stream.start_close(1000, "only the first counts");
        stream.shutdown().await.unwrap();
        assert_eq!(within(theirs.next()).await.unwrap().unwrap(), binary(b"before"));
        let Message::Close(Some(frame)) = within(theirs.next()).await.unwrap().unwrap() else {
            panic!("no goodbye")
        };
        assert_eq!((u16::from(frame.code), frame.reason.as_str()), (4001, "Unauthorized"));
        // The answer is sent by then, or not at all.
        let _ = within(theirs.flush()).await;
        assert_eq!(within(stream.read(&mut [0; 4])).await.unwrap(), 0);
        assert_eq!(stream.close_frame().unwrap().code, Some(4001));
    }
}

#[tokio::test]
async fn a_peer_that_is_gone_is_the_end() {
    let (mut stream, theirs) = pair(WIDE);
    drop(theirs);
    assert_eq!(stream.read(&mut [0; 4]).await.unwrap(), 0);
    assert_eq!(stream.close_frame(), None);
    assert_eq!(stream.write_all(b"lost").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    stream.shutdown().await.unwrap();
    // In the middle of a message, too.
    let (mut raw, far) = duplex(WIDE);
    let mut stream = WebSocketByteStream::new_client(far);
    raw.write_all(b"\x82\x7e\xff\xffhal").await.unwrap();
    drop(raw);
    let mut read = Vec::new();
    stream.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"hal");
}

#[tokio::test]
async fn what_no_websocket_says_is_refused() {
    // From a server, whose frames have no mask.
    for (bytes, code) in [
        (&b"\x81\x05hello"[..], 1003),
        (b"\x00\x05hello", 1002),
        (b"\x02\x01a\x82\x01b", 1002),
        (b"\x82\x85keysxxxxx", 1002),
        (b"\xc2\x05hello", 1002),
        (b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1002),
        (b"\x89\x7e\x00\x7e", 1002),
        (b"GET / HTTP/1.1\r\n", 1002),
    ] {
        let (mut raw, far) = duplex(WIDE);
        let mut stream = WebSocketByteStream::new_client(far);
        raw.write_all(bytes).await.unwrap();
        let mut read = Vec::new();
        let refused = within(stream.read_to_end(&mut read)).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        // It is over then, and the other end is told why.
        assert_eq!(stream.read(&mut [0; 4]).await.unwrap(), 0);
        let mut theirs = WebSocketStream::from_raw_socket(raw, Role::Server, None).await;
        let Message::Close(Some(frame)) = within(theirs.next()).await.unwrap().unwrap() else {
            panic!("no goodbye")
        };
        assert_eq!(u16::from(frame.code), code, "{bytes:?}");
    }
    let (mut raw, far) = duplex(WIDE);
    raw.write_all(b"\x82\x05hello").await.unwrap();
    let refused = within(WebSocketByteStream::new_server(far).read(&mut [0; 4])).await.unwrap_err();
    assert_eq!(refused.to_string(), "clients mask what they send, and only they do");
}

#[tokio::test]
async fn goodbyes_are_answered_with_what_may_be_sent() {
    for (payload, code) in
        [(&b""[..], 1000), (b"\x03\xe9", 1001), (b"\x03\xee", 1002), (b"\x0f\xa1no", 4001)]
    {
        let (mut raw, far) = duplex(WIDE);
        let mut stream = WebSocketByteStream::new_client(far);
        raw.write_all(&[0x88, payload.len() as u8]).await.unwrap();
        raw.write_all(payload).await.unwrap();
        assert_eq!(within(stream.read(&mut [0; 4])).await.unwrap(), 0);
        let mut theirs = WebSocketStream::from_raw_socket(raw, Role::Server, None).await;
        let Message::Close(Some(frame)) = within(theirs.next()).await.unwrap().unwrap() else {
            panic!("no goodbye")
        };
        assert_eq!(u16::from(frame.code), code, "{payload:?}");
    }
}

#[tokio::test]
async fn a_reader_and_a_writer_may_be_two_tasks() {
    for (ours, theirs) in [pair(NARROW), {
        let (one, two) = pair(NARROW);
        (two, one)
    }] {
        let (mut reader, mut writer) = tokio::io::split(ours);
        let (mut far_reader, mut far_writer) = tokio::io::split(theirs);
        let bytes = vec![7; 300_000];
        let sent = bytes.clone();
        // Each end writes before anybody reads what it writes, and something is always to be read.
        let writing = tokio::spawn(async move {
            writer.write_all(&sent).await.unwrap();
            writer.flush().await.unwrap();
            writer
        });
        let reading = tokio::spawn(async move {
            let mut read = vec![0; 3];
            reader.read_exact(&mut read).await.unwrap();
            (read, reader)
        });
        let mut heard = vec![0; bytes.len()];
        within(far_reader.read_exact(&mut heard)).await.unwrap();
        within(writing).await.unwrap();
        far_writer.write_all(b"end").await.unwrap();
        far_writer.flush().await.unwrap();
        assert_eq!(within(reading).await.unwrap().0, b"end");
        assert!(heard == bytes);
    }
}

#[tokio::test]
async fn a_flood_of_pings_keeps_nothing() {
    let (mut raw, far) = duplex(WIDE);
    let mut stream = WebSocketByteStream::new_client(far);
    for _ in 0..10_000 {
        raw.write_all(b"\x89\x02hi").await.unwrap();
    }
    raw.write_all(b"\x82\x01!").await.unwrap();
    assert_eq!(within(stream.read_u8()).await.unwrap(), b'!');
    drop(stream);
    let mut pongs = Vec::new();
    raw.read_to_end(&mut pongs).await.unwrap();
    // The last of those that came together is answered.
    assert!((1..20).contains(&(pongs.len() / 8)), "{} bytes", pongs.len());
}

#[tokio::test]
async fn shutting_down_says_goodbye_in_both_languages() {
    let server = open_server(agent_backend::memory());
    let (mine, theirs) = pair(WIDE);
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(theirs).await })
    };
    let handle = log_in(mine, russh::client::Config::default()).await;
    within(server.shut_down()).await;
    assert_eq!(within(serving).await.unwrap(), ab_remote::SshConnectionEnd::ShutDown);
    let heard = within(handle).await;
    assert!(heard.is_ok() || matches!(heard, Err(russh::Error::Disconnect)), "{heard:?}");
    assert_eq!(server.serve(pair(WIDE).1).await, ab_remote::SshConnectionEnd::ShutDown);
}

/// A message as some clients send it: in pieces, of which some may be empty.
#[derive(Clone, Debug)]
struct Pieces(Vec<Vec<u8>>);

fn pieces() -> impl Strategy<Value = Vec<Pieces>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        (any::<u8>(), 0..70_000_usize).prop_map(|(byte, length)| vec![byte; length]),
    ];
    let message = proptest::collection::vec(piece, 1..4).prop_map(Pieces);
    proptest::collection::vec(message, 1..5)
}

/// What tungstenite sends arrives, and what is sent arrives at tungstenite, at the same time.
async fn converse(theirs: Role, room: usize, messages: Vec<Pieces>, said: Vec<u8>, step: usize) {
    let (mut ours, theirs) = beside_tungstenite(theirs, room).await;
    let expected: Vec<u8> = messages.iter().flat_map(|Pieces(pieces)| pieces.concat()).collect();
    let (mut to_us, mut from_us) = theirs.split();
    let sending = async {
        for Pieces(pieces) in messages {
            let last = pieces.len() - 1;
            for (number, piece) in pieces.into_iter().enumerate() {
                let kind = if number == 0 { Data::Binary } else { Data::Continue };
                let frame = Frame::message(piece, OpCode::Data(kind), number == last);
                to_us.send(Message::Frame(frame)).await.unwrap();
            }
            to_us.send(Message::Ping(Bytes::new())).await.unwrap();
        }
    };
    let heard = RefCell::new(Vec::new());
    // Both ends read until all is over, since there are pings and their answers, too.
    let hearing = async {
        loop {
            match from_us.next().await.unwrap().unwrap() {
                Message::Binary(bytes) => {
                    assert!(bytes.len() <= MAX_SENT_WEBSOCKET_MESSAGE_BYTES);
                    heard.borrow_mut().extend_from_slice(&bytes);
                }
                Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let (mut reader, mut writer) = tokio::io::split(&mut ours);
    let writing = async {
        for piece in said.chunks(step) {
            writer.write_all(piece).await.unwrap();
        }
        writer.flush().await.unwrap();
    };
    let read = RefCell::new(Vec::new());
    let reading = async {
        let mut buffer = vec![0; 50_000];
        loop {
            let length = reader.read(&mut buffer).await.unwrap();
            read.borrow_mut().extend_from_slice(&buffer[..length]);
        }
    };
    let all = async {
        tokio::join!(sending, writing);
        while heard.borrow().len() < said.len() || read.borrow().len() < expected.len() {
            tokio::task::yield_now().await;
        }
    };
    let conversation = async {
        tokio::select! {
            () = all => {}
            () = hearing => unreachable!(),
            () = reading => unreachable!(),
        }
    };
    within(conversation).await;
    assert!(*heard.borrow() == said, "what was said is not what was heard");
    assert!(*read.borrow() == expected, "what was sent is not what was read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn tungstenite_hears_what_is_said_and_is_heard(
        client in any::<bool>(),
        room in prop_oneof![Just(1_usize), 2..100_usize, Just(NARROW), Just(WIDE)],
        messages in pieces(),
        said in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..300),
            (any::<u8>(), 0..300_000_usize).prop_map(|(byte, length)| vec![byte; length]),
        ],
        step in 1..200_000_usize,
    ) {
        // A byte at a time is slow, so that there is less to say.
        let (mut messages, mut said) = (messages, said);
        if room < 100 {
            said.truncate(2_000);
            messages.iter_mut().flat_map(|Pieces(pieces)| pieces).for_each(|piece| piece.truncate(500));
        }
        let theirs = if client { Role::Client } else { Role::Server };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(converse(theirs, room, messages, said, step));
    }
}
