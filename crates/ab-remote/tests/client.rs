//! A client that says exactly what a test wants said: raw SFTP packets over a russh channel.

use std::sync::Arc;

use ab_core::Backend;
use ab_remote::sftp::packet::SshFieldReader;
use ab_remote::{HostKey, SshAccess, SshConnectionEnd, SshServer, SshServerSettings};
use bytes::{BufMut, Bytes, BytesMut};
use russh::client::{self, Config, Handle, Handler, Msg, connect_stream};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelMsg};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use crate::stage::within;

pub(crate) struct Trusting;

impl Handler for Trusting {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

/// A server that lets everybody in, as behind a WebSocket.
pub(crate) fn open_server(backend: Backend) -> SshServer {
    let host_key = HostKey::generate_ephemeral("a test").unwrap();
    SshServer::new(backend, SshServerSettings::new(host_key, SshAccess::AnyUser))
}

/// A connection by memory, and how it ends on the server's side.
pub(crate) async fn connect(
    server: &SshServer,
) -> (Handle<Trusting>, JoinHandle<SshConnectionEnd>) {
    let (mine, theirs) = tokio::io::duplex(256 * 1024);
    let server = server.clone();
    let serving = tokio::spawn(async move { server.serve(theirs).await });
    (log_in(mine, Config::default()).await, serving)
}

pub(crate) async fn log_in(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    config: client::Config,
) -> Handle<Trusting> {
    let mut handle = within(connect_stream(Arc::new(config), stream, Trusting)).await.unwrap();
    assert!(within(handle.authenticate_none("agent")).await.unwrap().success());
    handle
}

/// Runs a command to its end: its output, and its status.
pub(crate) async fn exec(handle: &Handle<Trusting>, line: &str) -> (String, Option<u32>) {
    let mut channel = within(handle.channel_open_session()).await.unwrap();
    channel.exec(true, line).await.unwrap();
    channel.eof().await.unwrap();
    let (mut said, mut status) = (Vec::new(), None);
    while let Some(message) = within(channel.wait()).await {
        match message {
            ChannelMsg::Data { data } => said.extend_from_slice(&data),
            ChannelMsg::ExitStatus { exit_status } => status = Some(exit_status),
            _ => {}
        }
    }
    (String::from_utf8(said).unwrap(), status)
}

/// An SFTP channel.
pub(crate) struct Sftp {
    pub(crate) channel: Channel<Msg>,
    unread: BytesMut,
    next: u32,
}

/// A packet without its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) kind: u8,
    pub(crate) id: u32,
    pub(crate) body: Bytes,
}

pub(crate) const STATUS: u8 = 101;
pub(crate) const HANDLE: u8 = 102;
pub(crate) const DATA: u8 = 103;
pub(crate) const NAME: u8 = 104;
pub(crate) const ATTRS: u8 = 105;
pub(crate) const EXTENDED: u8 = 200;
pub(crate) const EXTENDED_REPLY: u8 = 201;

impl Sftp {
    /// Opens a channel, without a word on it.
    pub(crate) async fn silent(handle: &Handle<Trusting>) -> Self {
        let channel = within(handle.channel_open_session()).await.unwrap();
        channel.request_subsystem(true, "sftp").await.unwrap();
        Self { channel, unread: BytesMut::new(), next: 0 }
    }

    pub(crate) async fn new(handle: &Handle<Trusting>) -> Self {
        let mut sftp = Self::silent(handle).await;
        sftp.raw(&[0, 0, 0, 5, 1, 0, 0, 0, 3]).await;
        let version = sftp.receive().await.unwrap();
        assert_eq!((version.kind, version.id), (2, 3));
        sftp
    }

    pub(crate) async fn raw(&self, bytes: &[u8]) {
        within(self.channel.data_bytes(Bytes::copy_from_slice(bytes))).await.unwrap();
    }

    /// Sends a request; its number.
    pub(crate) async fn send(&mut self, kind: u8, body: &[u8]) -> u32 {
        self.next += 1;
        self.raw(&packet(kind, self.next, body)).await;
        self.next
    }

    /// The next packet, or nothing when the channel is closed.
    pub(crate) async fn receive(&mut self) -> Option<Packet> {
        loop {
            if let Some(header) = self.unread.first_chunk::<4>() {
                let length = u32::from_be_bytes(*header) as usize;
                if self.unread.len() >= 4 + length {
                    let _ = self.unread.split_to(4);
                    let mut fields = SshFieldReader::new(self.unread.split_to(length).freeze());
                    let (kind, id) = (fields.read_u8().unwrap(), fields.read_u32().unwrap());
                    return Some(Packet { kind, id, body: fields.read_remaining() });
                }
            }
            match within(self.channel.wait()).await? {
                ChannelMsg::Data { data } => self.unread.extend_from_slice(&data),
                ChannelMsg::Failure => panic!("there is no sftp"),
                _ => {}
            }
        }
    }

    /// A request and its answer.
    pub(crate) async fn ask(&mut self, kind: u8, body: &[u8]) -> Packet {
        let id = self.send(kind, body).await;
        let answer = self.receive().await.expect("the channel was closed");
        assert_eq!(answer.id, id);
        answer
    }

    pub(crate) async fn extended(&mut self, name: &str, body: &[u8]) -> Packet {
        let body = [&string(name.as_bytes()), body].concat();
        self.ask(EXTENDED, &body).await
    }

    /// Opens a file: its handle.
    pub(crate) async fn open(&mut self, path: &str, flags: u32) -> Bytes {
        let body = [string(path.as_bytes()), flags.to_be_bytes().to_vec(), vec![0; 4]].concat();
        let answer = self.ask(3, &body).await;
        assert_eq!(answer.kind, HANDLE, "{answer:?}");
        SshFieldReader::new(answer.body).read_string().unwrap()
    }

    pub(crate) async fn write(&mut self, handle: &[u8], offset: u64, data: &[u8]) -> u32 {
        let answer = self.ask(6, &write_body(handle, offset, data)).await;
        answer.status()
    }

    pub(crate) async fn read(&mut self, handle: &[u8], offset: u64, length: u32) -> Packet {
        self.ask(5, &read_body(handle, offset, length)).await
    }

    pub(crate) async fn close(&mut self, handle: &[u8]) -> u32 {
        self.ask(4, &string(handle)).await.status()
    }

    /// The status of how the channel ended.
    pub(crate) async fn ended(&mut self) -> Option<u32> {
        let mut status = None;
        while let Some(message) = within(self.channel.wait()).await {
            if let ChannelMsg::ExitStatus { exit_status } = message {
                status = Some(exit_status);
            }
        }
        status
    }
}

impl Packet {
    pub(crate) fn status(&self) -> u32 {
        assert_eq!(self.kind, STATUS, "{self:?}");
        SshFieldReader::new(self.body.clone()).read_u32().unwrap()
    }

    pub(crate) fn data(&self) -> Bytes {
        assert_eq!(self.kind, DATA, "{self:?}");
        SshFieldReader::new(self.body.clone()).read_string().unwrap()
    }

    pub(crate) fn fields(&self) -> SshFieldReader {
        SshFieldReader::new(self.body.clone())
    }
}

pub(crate) fn packet(kind: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(body.len() + 9);
    packet.put_u32(body.len() as u32 + 5);
    packet.put_u8(kind);
    packet.put_u32(id);
    packet.extend_from_slice(body);
    packet
}

pub(crate) fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

pub(crate) fn write_body(handle: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
    [string(handle), offset.to_be_bytes().to_vec(), string(data)].concat()
}

pub(crate) fn read_body(handle: &[u8], offset: u64, length: u32) -> Vec<u8> {
    [string(handle), offset.to_be_bytes().to_vec(), length.to_be_bytes().to_vec()].concat()
}
