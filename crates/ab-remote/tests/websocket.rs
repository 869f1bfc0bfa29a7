//! SSH over messages, as a WebSocket brings them.

use std::collections::VecDeque;
use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use ab_remote::websocket::{Codec, FrameStream, MAX_FRAME, Payload};
use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::client::{exec, log_in, open_server};
use crate::stage::within;

/// The messages of a WebSocket, as far as they matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Message {
    Binary(Bytes),
    Text(&'static str),
    Ping,
    Close(u16, &'static str),
}

const CODEC: Codec<Message> = Codec {
    pack: Message::Binary,
    unpack: |message| match message {
        Message::Binary(bytes) => Payload::Bytes(bytes),
        Message::Text(_) => Payload::Foreign,
        Message::Ping => Payload::Nothing,
        Message::Close(..) => Payload::End,
    },
};

/// One end of a WebSocket that keeps what it is given until it is flushed, as the real ones do.
struct Socket {
    unsent: VecDeque<Message>,
    out: Option<mpsc::UnboundedSender<Message>>,
    incoming: mpsc::UnboundedReceiver<Message>,
}

fn pair() -> (Socket, Socket) {
    let ((one_out, two_in), (two_out, one_in)) =
        (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let socket = |out, incoming| Socket { unsent: VecDeque::new(), out: Some(out), incoming };
    (socket(one_out, one_in), socket(two_out, two_in))
}

impl Stream for Socket {
    type Item = Result<Message, io::Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // An end without a goodbye is an error, as the real ones have it.
        let message = self.get_mut().incoming.poll_recv(cx);
        message.map(|message| Some(message.ok_or_else(|| io::Error::other("reset"))))
    }
}

impl Sink<Message> for Socket {
    type Error = io::Error;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(self: Pin<&mut Self>, message: Message) -> io::Result<()> {
        self.get_mut().unsent.push_back(message);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        for message in this.unsent.drain(..) {
            let sent = this.out.as_ref().map(|out| out.send(message));
            if !matches!(sent, Some(Ok(()))) {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.as_mut().poll_flush(cx);
        self.get_mut().out = None;
        flushed
    }
}

#[tokio::test]
async fn ssh_speaks_over_messages() {
    let directory = tempfile::tempdir().unwrap();
    let backend = agent_backend::local(directory.path()).unwrap();
    let server = open_server(backend.clone());
    let (mine, theirs) = pair();
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(FrameStream::new(theirs, CODEC)).await })
    };
    let handle = log_in(FrameStream::new(mine, CODEC), russh::client::Config::default()).await;
    assert_eq!(
        exec(&handle, "echo over messages; exit 3").await,
        ("over messages\n".into(), Some(3))
    );
    let (zeros, status) = exec(&handle, "head -c 3000000 /dev/zero").await;
    assert_eq!((zeros.len(), status), (3_000_000, Some(0)));
    drop(handle);
    assert_eq!(within(serving).await.unwrap(), ab_remote::Ended::Left);
    assert_eq!(server.connections(), 0);
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn messages_are_small_and_what_was_written_is_sent_before_reading() {
    let (mine, mut theirs) = pair();
    let mut stream = FrameStream::new(mine, CODEC).with_goodbye(|| Message::Close(1000, "done"));
    // Nobody flushes here but the read.
    let written = stream.write(&vec![7; MAX_FRAME + 5]).await.unwrap();
    assert_eq!(written, MAX_FRAME);
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
    assert_eq!(sent.len(), MAX_FRAME);
    for message in [Message::Binary("abc".into()), Message::Ping, Message::Binary("def".into())] {
        theirs.send(message).await.unwrap();
    }
    let (read, mut stream) = within(reading).await.unwrap();
    assert_eq!(read, b"abcdef");
    theirs.send(Message::Close(1000, "bye")).await.unwrap();
    assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
    stream.shutdown().await.unwrap();
    assert_eq!(theirs.next().await.unwrap().unwrap(), Message::Close(1000, "done"));
}

#[tokio::test]
async fn a_peer_that_is_gone_is_the_end() {
    let (mine, theirs) = pair();
    let mut stream = FrameStream::new(mine, CODEC);
    drop(theirs);
    assert_eq!(stream.read(&mut [0; 4]).await.unwrap(), 0);
    stream.write_all(b"lost").await.unwrap();
    assert_eq!(stream.flush().await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn text_is_refused() {
    let (mine, mut theirs) = pair();
    let mut stream = FrameStream::new(mine, CODEC);
    theirs.send(Message::Text("hello")).await.unwrap();
    let refused = stream.read(&mut [0; 4]).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
}

#[tokio::test]
async fn shutting_down_says_goodbye_in_both_languages() {
    let server = open_server(agent_backend::memory());
    let (mine, theirs) = pair();
    let sent = Arc::<Mutex<Vec<Message>>>::default();
    let writing = sent.clone();
    // Clients leave at SSH's goodbye, so the WebSocket's is looked for where it is sent.
    let theirs = theirs.with(move |message: Message| {
        writing.lock().unwrap().push(message.clone());
        ready(Ok::<_, io::Error>(message))
    });
    let goodbye = Message::Close(1000, "Server shutting down");
    let stream = FrameStream::new(theirs, CODEC).with_goodbye({
        let goodbye = goodbye.clone();
        || goodbye
    });
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(stream).await })
    };
    let handle = log_in(FrameStream::new(mine, CODEC), russh::client::Config::default()).await;
    within(server.shut_down()).await;
    assert_eq!(within(serving).await.unwrap(), ab_remote::Ended::ShutDown);
    let heard = within(handle).await;
    assert!(heard.is_ok() || matches!(heard, Err(russh::Error::Disconnect)), "{heard:?}");
    assert_eq!(sent.lock().unwrap().last(), Some(&goodbye));
    assert_eq!(server.serve(FrameStream::new(pair().0, CODEC)).await, ab_remote::Ended::ShutDown);
}
