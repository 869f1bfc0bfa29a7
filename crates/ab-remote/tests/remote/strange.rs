//! Servers that answer strangely: each call ends in a clear error, or in the right answer.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_core::{Backend, Code, Kind, Status};
use ab_remote::client::{Connector, Endpoint, Remote, Settings, Stream};
use ab_remote::sftp::packet::Fields;
use ab_remote::wire::call::{self, Call, Welcome};
use ab_remote::wire::{self, Wire};
use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, Session, run_stream};
use russh::{Channel, ChannelId};

use crate::stage::within;

/// What a server does with the calls that follow the greeting, given those so far: their numbers and
/// bodies. Answers what it sends.
type Script = fn(&[(u32, Call)]) -> Option<Vec<u8>>;

/// A server that speaks SSH and SFTP well enough to be believed, and then does as it is told.
#[derive(Clone)]
struct Strange {
    script: Script,
    version: &'static str,
    unread: Arc<Mutex<BytesMut>>,
    calls: Arc<Mutex<Vec<(u32, Call)>>>,
}

impl std::fmt::Debug for Strange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Strange").finish_non_exhaustive()
    }
}

impl Handler for Strange {
    type Error = russh::Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, Self::Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.unread.lock().unwrap().extend_from_slice(data);
        while let Some(packet) = self.packet() {
            if let Some(answer) = self.answer(packet) {
                session.data(channel, Bytes::from(answer))?;
            }
        }
        Ok(())
    }
}

impl Strange {
    fn packet(&self) -> Option<Bytes> {
        let mut unread = self.unread.lock().unwrap();
        let length = u32::from_be_bytes(*unread.first_chunk::<4>()?) as usize;
        (unread.len() >= 4 + length).then(|| unread.split_to(4 + length).freeze().slice(4..))
    }

    fn answer(&self, packet: Bytes) -> Option<Vec<u8>> {
        let mut fields = Fields::new(packet);
        let (kind, number) = (fields.u8().unwrap(), fields.u32().unwrap());
        if kind == 1 {
            let mut body = BytesMut::new();
            Bytes::from_static(call::NAME.as_bytes()).put(&mut body);
            Bytes::from_static(self.version.as_bytes()).put(&mut body);
            return Some(framed(2, 3, &body));
        }
        let name = fields.string().unwrap();
        assert_eq!(name, call::NAME.as_bytes());
        let call: Call = wire::decode(fields.rest()).unwrap();
        if let Call::Hello { .. } = call {
            let info = agent_backend::memory().info();
            return Some(reply(number, &Welcome { incarnation: 1, info }));
        }
        let mut calls = self.calls.lock().unwrap();
        calls.push((number, call));
        (self.script)(&calls)
    }
}

pub(super) fn framed(kind: u8, number: u32, body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    packet.put_u32(u32::try_from(body.len() + 5).unwrap());
    packet.put_u8(kind);
    packet.put_u32(number);
    packet.extend_from_slice(body);
    packet
}

fn reply(number: u32, value: &impl Wire) -> Vec<u8> {
    framed(201, number, &wire::encode(value))
}

#[async_trait]
impl Connector for Strange {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let (mine, theirs) = tokio::io::duplex(64 * 1024);
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&[7; 32]));
        let config = russh::server::Config { keys: vec![key], ..Default::default() };
        let server = self.clone();
        tokio::spawn(async move {
            if let Ok(session) = run_stream(Arc::new(config), theirs, server).await {
                let _ = session.await;
            }
        });
        Ok(Box::new(mine))
    }
}

async fn backend(script: Script, patience: Duration) -> Backend {
    let version = call::VERSION;
    let server = Strange { script, version, unread: Arc::default(), calls: Arc::default() };
    let mut settings = Settings::new(Endpoint::Stream(Arc::new(server)));
    settings.operation_timeout = patience;
    settings.reconnection.enabled = false;
    let backend = Backend::new(Remote::new(settings).unwrap());
    within(backend.connect()).await.unwrap();
    backend
}

/// Long enough for an answer that comes.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn answers_may_come_in_any_order() {
    let backend = backend(
        |calls| {
            // Both are answered once the second is there, the second first.
            let [(first, _), (second, _)] = calls else { return None };
            Some(
                [reply(*second, &"second".to_owned()), reply(*first, &"first".to_owned())].concat(),
            )
        },
        PATIENCE,
    )
    .await;
    let (one, two) =
        within(async { tokio::join!(biased; backend.read_link("a"), backend.read_link("b")) })
            .await;
    assert_eq!((one.unwrap(), two.unwrap()), ("first".to_owned(), "second".to_owned()));
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn a_length_that_nobody_can_mean_ends_the_connection() {
    let backend = backend(|_| Some(u32::MAX.to_be_bytes().to_vec()), PATIENCE).await;
    let error = within(backend.stat("a")).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (Code::ConnectionClosed, Kind::Disconnected));
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn what_makes_no_sense_is_said_to_make_none() {
    let backend = backend(|calls| Some(reply(calls.last()?.0, &7u32)), PATIENCE).await;
    let error = within(backend.stat("a")).await.unwrap_err();
    assert!(error.message().contains("makes no sense"), "{error}");
    // The connection is as good as before.
    assert_eq!(backend.status(), Status::Connected);
    // A packet of no known kind is another matter.
    within(backend.destroy()).await.unwrap();
    let backend = self::backend(|_| Some(framed(77, 1, b"")), PATIENCE).await;
    let error = within(backend.stat("a")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Disconnected);
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for() {
    let backend = backend(|_| None, Duration::from_millis(500)).await;
    let error = within(backend.stat("a")).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (Code::Timeout, Kind::Timeout));
    assert_eq!(backend.status(), Status::Connected);
    within(backend.destroy()).await.unwrap();
}
