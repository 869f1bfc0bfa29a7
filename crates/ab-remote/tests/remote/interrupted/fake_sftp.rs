//! A plain server with its files in memory, which misbehaves when it is told to. It renames onto
//! nothing that is there, as version 3 of SFTP has it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};

use ab_core::Backend;
use ab_remote::client::{
    ByteStream, Connector, RemoteClientSettings, RemoteDriver, RemoteEndpoint,
};
use ab_remote::sftp::packet::{ClientPacket, SftpRequest, decode_client_packet, flags};
use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, Session, run_stream};
use russh::{Channel, ChannelId};

use crate::remote::strange::framed;
use crate::stage::within;

/// What is done with a request.
pub(super) enum Verdict {
    Serve,
    Refuse,
    /// It is neither done nor answered.
    Ignore,
    /// It is not done, and the connection ends.
    Cut,
    /// It is answered by a packet of this kind.
    Say(u8, Vec<u8>),
}

type Judge = Arc<dyn Fn(&SftpRequest) -> Verdict + Send + Sync>;
type Body = Arc<Mutex<Vec<u8>>>;

#[derive(Clone)]
pub(super) struct FakeSftpServer {
    judge: Judge,
    nodes: Arc<Mutex<BTreeMap<String, Node>>>,
    handles: Arc<Mutex<HashMap<Bytes, Handle>>>,
    pub(super) seen: Arc<Mutex<Vec<SftpRequest>>>,
    unread: Arc<Mutex<BytesMut>>,
}

#[derive(Clone)]
enum Node {
    Dir,
    File(Body),
}

enum Handle {
    File(Body),
    Dir(Vec<(String, Node)>),
}

impl std::fmt::Debug for FakeSftpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeSftpServer").finish_non_exhaustive()
    }
}

impl FakeSftpServer {
    pub(super) fn new(judge: impl Fn(&SftpRequest) -> Verdict + Send + Sync + 'static) -> Self {
        let fake_sftp = Self {
            judge: Arc::new(judge),
            nodes: Arc::default(),
            handles: Arc::default(),
            seen: Arc::default(),
            unread: Arc::default(),
        };
        fake_sftp.nodes.lock().unwrap().insert("/".to_owned(), Node::Dir);
        fake_sftp
    }

    /// Puts a file there, or a directory if it has no content.
    pub(super) fn with(self, path: &str, content: Option<&str>) -> Self {
        let node = match content {
            Some(content) => Node::File(Arc::new(Mutex::new(content.as_bytes().to_vec()))),
            None => Node::Dir,
        };
        self.nodes.lock().unwrap().insert(path.to_owned(), node);
        self
    }

    /// The files that are there, with what they hold.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let nodes = self.nodes.lock().unwrap();
        let files = nodes.iter().filter_map(|(path, node)| match node {
            Node::Dir => None,
            Node::File(body) => {
                let text = String::from_utf8(body.lock().unwrap().clone()).unwrap();
                Some((path.clone(), text))
            }
        });
        files.collect()
    }

    pub(super) async fn backend(&self, adjust: impl FnOnce(&mut RemoteClientSettings)) -> Backend {
        let mut settings =
            RemoteClientSettings::new(RemoteEndpoint::Stream(Arc::new(self.clone())));
        settings.reconnection.enabled = false;
        adjust(&mut settings);
        let backend = Backend::new(RemoteDriver::new(settings).unwrap());
        within(backend.connect()).await.unwrap();
        backend
    }

    fn packet(&self) -> Option<Bytes> {
        let mut unread = self.unread.lock().unwrap();
        let length = u32::from_be_bytes(*unread.first_chunk::<4>()?) as usize;
        (unread.len() >= 4 + length).then(|| unread.split_to(4 + length).freeze().slice(4..))
    }

    /// The kind and the body of the answer.
    fn serve(&self, request: SftpRequest) -> (u8, Vec<u8>) {
        const DONE: u32 = 0;
        const END: u32 = 1;
        const NOTHING: u32 = 2;
        const FAILURE: u32 = 4;
        let text = |path: &Bytes| String::from_utf8(path.to_vec()).unwrap();
        let status = |code: u32| (101, [code.to_be_bytes(), [0; 4], [0; 4]].concat());
        let mut nodes = self.nodes.lock().unwrap();
        let mut handles = self.handles.lock().unwrap();
        let new = Bytes::from(format!("handle-{}", self.seen.lock().unwrap().len()));
        match request {
            SftpRequest::RealPath { .. } => (104, names(&[("/".to_owned(), Node::Dir)])),
            SftpRequest::Stat { path } | SftpRequest::Lstat { path } => {
                match nodes.get(&text(&path)) {
                    Some(node) => (105, attributes(node)),
                    None => status(NOTHING),
                }
            }
            SftpRequest::Fstat { handle } => match &handles[&handle] {
                Handle::File(body) => (105, attributes(&Node::File(body.clone()))),
                Handle::Dir(_) => (105, attributes(&Node::Dir)),
            },
            SftpRequest::Open { path, flags: wanted, .. } => {
                let path = text(&path);
                let body = match nodes.get(&path) {
                    Some(Node::Dir) => return status(FAILURE),
                    Some(Node::File(_)) if wanted & flags::OPEN_FLAG_EXCLUSIVE != 0 => {
                        return status(FAILURE);
                    }
                    Some(Node::File(body)) => body.clone(),
                    None if wanted & flags::OPEN_FLAG_CREATE == 0 => return status(NOTHING),
                    None => Body::default(),
                };
                nodes.insert(path, Node::File(body.clone()));
                handles.insert(new.clone(), Handle::File(body));
                (102, string(&new))
            }
            SftpRequest::OpenDir { path } => {
                let path = text(&path);
                let under = format!("{}/", path.trim_end_matches('/'));
                let inside = nodes.iter().filter_map(|(path, node)| {
                    let name = path.strip_prefix(&under).filter(|name| !name.is_empty())?;
                    (!name.contains('/')).then(|| (name.to_owned(), node.clone()))
                });
                handles.insert(new.clone(), Handle::Dir(inside.collect()));
                (102, string(&new))
            }
            SftpRequest::ReadDir { handle } => match handles.get_mut(&handle) {
                Some(Handle::Dir(left)) if !left.is_empty() => (104, names(&std::mem::take(left))),
                _ => status(END),
            },
            SftpRequest::Close { handle } => {
                handles.remove(&handle);
                status(DONE)
            }
            SftpRequest::Read { handle, offset, length } => match &handles[&handle] {
                Handle::File(body) => {
                    let body = body.lock().unwrap();
                    let start = body.len().min(usize::try_from(offset).unwrap());
                    let end = body.len().min(start + length as usize);
                    if start == end { status(END) } else { (103, string(&body[start..end])) }
                }
                Handle::Dir(_) => status(FAILURE),
            },
            SftpRequest::Write { handle, offset, data } => match &handles[&handle] {
                Handle::File(body) => {
                    let mut body = body.lock().unwrap();
                    let start = usize::try_from(offset).unwrap();
                    let end = body.len().max(start + data.len());
                    body.resize(end, 0);
                    body[start..start + data.len()].copy_from_slice(&data);
                    status(DONE)
                }
                Handle::Dir(_) => status(FAILURE),
            },
            SftpRequest::SetStat { .. } | SftpRequest::FsetStat { .. } => status(DONE),
            SftpRequest::Remove { path } | SftpRequest::RemoveDir { path } => {
                match nodes.remove(&text(&path)) {
                    Some(_) => status(DONE),
                    None => status(NOTHING),
                }
            }
            SftpRequest::MakeDir { path, .. } => {
                nodes.insert(text(&path), Node::Dir);
                status(DONE)
            }
            SftpRequest::Rename { from, to } => {
                let (from, to) = (text(&from), text(&to));
                match (nodes.get(&from).cloned(), nodes.contains_key(&to)) {
                    (Some(node), false) => {
                        nodes.remove(&from);
                        nodes.insert(to, node);
                        status(DONE)
                    }
                    (Some(_), true) => status(FAILURE),
                    (None, _) => status(NOTHING),
                }
            }
            other => panic!("nobody should ask for {other:?}"),
        }
    }
}

pub(super) fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes(), bytes].concat()
}

/// Size, mode and times.
fn attributes(node: &Node) -> Vec<u8> {
    let mut body = Vec::new();
    let (size, mode) = match node {
        Node::Dir => (0, 0o40755),
        Node::File(bytes) => (bytes.lock().unwrap().len(), 0o100_644),
    };
    body.put_u32(1 | 4 | 8);
    body.put_u64(size as u64);
    body.put_u32(mode);
    body.put_u64(0);
    body
}

fn names(entries: &[(String, Node)]) -> Vec<u8> {
    let mut body = u32::try_from(entries.len()).unwrap().to_be_bytes().to_vec();
    for (name, node) in entries {
        body.extend(string(name.as_bytes()));
        body.extend(string(name.as_bytes()));
        body.extend(attributes(node));
    }
    body
}

impl Handler for FakeSftpServer {
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
            let (id, request) = match decode_client_packet(packet).unwrap() {
                ClientPacket::Init { .. } => {
                    session.data(channel, Bytes::from(framed(2, 3, &[])))?;
                    continue;
                }
                ClientPacket::Request { id, request } => (id, request),
            };
            self.seen.lock().unwrap().push(request.clone());
            let (kind, body) = match (self.judge)(&request) {
                Verdict::Serve => self.serve(request),
                Verdict::Refuse => (101, [[0, 0, 0, 4], [0; 4], [0; 4]].concat()),
                Verdict::Ignore => continue,
                Verdict::Cut => return Err(russh::Error::Disconnect),
                Verdict::Say(kind, body) => (kind, body),
            };
            session.data(channel, Bytes::from(framed(kind, id, &body)))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Connector for FakeSftpServer {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
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
