//! Plain servers that do as they are told: what they say to commands, and when they go away.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_core::{Backend, Error, ErrorCode, ErrorKind, LostCallEffect};
use ab_remote::client::{
    ByteStream, Connector, RemoteClientSettings, RemoteDriver, RemoteEndpoint,
};
use ab_remote::sftp::packet::SshFieldReader;
use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, Session, run_stream};
use russh::{Channel, ChannelId};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::strange::framed;
use crate::stage::within;

/// What a server does with a channel for a command.
#[derive(Clone, Copy, Debug)]
enum Conduct {
    /// It opens so many channels, and does not answer to a request for another; else it is dumb.
    Opens(usize),
    /// It does not run the command.
    Refuses,
    /// It says the line that it should run, and nothing else.
    Repeats,
    /// It says yes to our question, and nothing to any other line.
    Dumb,
    /// It says nothing at all.
    Mute,
    /// It says yes to our question, and at the next line ends all channels, that of files first.
    Leaves,
}

/// A server that has one directory, which is empty, and no commands but as it is told.
#[derive(Clone, Debug)]
struct Plain {
    conduct: Conduct,
    unread: Arc<Mutex<BytesMut>>,
    files: Arc<Mutex<Option<ChannelId>>>,
    unopened: Arc<Mutex<Vec<Held>>>,
    /// How many channels were asked for, and how many lines.
    asked: watch::Sender<(usize, usize)>,
    carrying: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// A request that is not answered as long as this lives.
struct Held(#[expect(dead_code, reason = "it is only kept")] ChannelOpenHandle);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

impl Handler for Plain {
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
        let before = self.asked.borrow().0;
        match self.conduct {
            Conduct::Opens(most) if before >= most => {
                self.unopened.lock().unwrap().push(Held(reply))
            }
            _ => reply.accept().await,
        }
        self.asked.send_modify(|(channels, _)| *channels += 1);
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        *self.files.lock().unwrap() = Some(channel);
        session.channel_success(channel)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        line: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        match self.conduct {
            Conduct::Refuses => session.channel_failure(channel)?,
            Conduct::Mute => session.channel_success(channel)?,
            Conduct::Repeats => {
                session.channel_success(channel)?;
                session.data(channel, Bytes::copy_from_slice(line))?;
                session.close(channel)?;
            }
            Conduct::Dumb | Conduct::Opens(_) | Conduct::Leaves => {
                session.channel_success(channel)?;
                let asks = line == b"printf 'agent-%s' backend";
                let files = *self.files.lock().unwrap();
                match (asks, self.conduct, files) {
                    (true, ..) => {
                        session.data(channel, Bytes::from("agent-backend"))?;
                        session.close(channel)?;
                    }
                    (false, Conduct::Leaves, Some(files)) => {
                        session.close(files)?;
                        session.close(channel)?;
                    }
                    (false, ..) => {}
                }
            }
        }
        self.asked.send_modify(|(_, lines)| *lines += 1);
        Ok(())
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if *self.files.lock().unwrap() != Some(channel) {
            return Ok(());
        }
        self.unread.lock().unwrap().extend_from_slice(data);
        while let Some(packet) = self.packet() {
            session.data(channel, Bytes::from(answer(packet)))?;
        }
        Ok(())
    }
}

/// What SFTP says: whatever is asked for is the directory.
fn answer(packet: Bytes) -> Vec<u8> {
    const DIRECTORY: [u32; 2] = [4, 0o40755];
    let mut fields = SshFieldReader::new(packet);
    let (kind, number) = (fields.read_u8().unwrap(), fields.read_u32().unwrap());
    let mut body = BytesMut::new();
    match kind {
        1 => framed(2, 3, &[]),
        16 => {
            body.put_u32(1);
            for name in ["/", "/"] {
                body.put_u32(u32::try_from(name.len()).unwrap());
                body.put_slice(name.as_bytes());
            }
            DIRECTORY.into_iter().for_each(|word| body.put_u32(word));
            framed(104, number, &body)
        }
        7 | 17 => {
            DIRECTORY.into_iter().for_each(|word| body.put_u32(word));
            framed(105, number, &body)
        }
        other => panic!("nobody should ask for {other}"),
    }
}

impl Plain {
    fn new(conduct: Conduct) -> Self {
        Self {
            conduct,
            unread: Arc::default(),
            files: Arc::default(),
            unopened: Arc::default(),
            asked: watch::Sender::default(),
            carrying: Arc::default(),
        }
    }

    fn packet(&self) -> Option<Bytes> {
        let mut unread = self.unread.lock().unwrap();
        let length = u32::from_be_bytes(*unread.first_chunk::<4>()?) as usize;
        (unread.len() >= 4 + length).then(|| unread.split_to(4 + length).freeze().slice(4..))
    }

    async fn backend(&self) -> Backend {
        let mut settings =
            RemoteClientSettings::new(RemoteEndpoint::Stream(Arc::new(self.clone())));
        settings.reconnection.enabled = false;
        let backend = Backend::new(RemoteDriver::new(settings).unwrap());
        within(backend.connect()).await.unwrap();
        backend
    }

    /// Ends the connection once so much was asked for.
    async fn cut_when(&self, asked: (usize, usize)) {
        let mut watch = self.asked.subscribe();
        let enough = |now: &(usize, usize)| now.0 >= asked.0 && now.1 >= asked.1;
        within(watch.wait_for(enough)).await.unwrap();
        self.carrying.lock().unwrap().drain(..).for_each(|carrying| carrying.abort());
    }
}

#[async_trait]
impl Connector for Plain {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let (mine, mut near) = tokio::io::duplex(64 * 1024);
        let (mut far, theirs) = tokio::io::duplex(64 * 1024);
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&[7; 32]));
        let config = russh::server::Config { keys: vec![key], ..Default::default() };
        let server = self.clone();
        tokio::spawn(async move {
            if let Ok(session) = run_stream(Arc::new(config), theirs, server).await {
                let _ = session.await;
            }
        });
        // Both ends find the end when this is taken away.
        let carrying = tokio::spawn(async move {
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
        self.carrying.lock().unwrap().push(carrying);
        Ok(Box::new(mine))
    }
}

#[tokio::test]
async fn a_server_that_refuses_commands_runs_none() {
    for conduct in [Conduct::Refuses, Conduct::Repeats] {
        let server = Plain::new(conduct);
        let backend = server.backend().await;
        assert_eq!(*server.asked.borrow(), (1, 0), "it was asked before anybody wanted to know");
        for _ in 0..2 {
            let refused = within(backend.exec("true")).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{conduct:?}: {refused}");
            assert_eq!(refused.lost_call_effect(), None, "nothing was lost");
        }
        assert_eq!(*server.asked.borrow(), (2, 1), "a server that said no was asked again");
        assert!(!backend.info().capabilities.exec);
        within(backend.stat(".")).await.unwrap();
        within(backend.destroy()).await.unwrap();
    }
}

/// A server that takes its time to be reached.
#[derive(Debug)]
struct Far(Plain);

#[async_trait]
impl Connector for Far {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        sleep(Duration::from_secs(60)).await;
        self.0.connect().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_has_one_deadline_for_the_link_and_the_answer() {
    let server = Arc::new(Far(Plain::new(Conduct::Mute)));
    let mut settings = RemoteClientSettings::new(RemoteEndpoint::Stream(server));
    settings.operation_timeout = Duration::from_secs(100);
    settings.connect_timeout = Duration::from_secs(90);
    settings.keepalive.interval = Duration::from_secs(3600);
    let backend = Backend::new(RemoteDriver::new(settings).unwrap());
    let before = Instant::now();
    let error = backend.exec("true").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.lost_call_effect()),
        (ErrorKind::Timeout, Some(LostCallEffect::NotApplied))
    );
    assert_eq!(before.elapsed().as_secs(), 100, "{error}");
    backend.destroy().await.unwrap();
}

/// What a command is told whose connection ends once the server was asked for so many channels and
/// lines.
async fn cut(conduct: Conduct, asked: (usize, usize), effect: LostCallEffect) {
    let server = Plain::new(conduct);
    let backend = server.backend().await;
    let running = backend.exec("true");
    let (ran, ()) = within(async { tokio::join!(running, server.cut_when(asked)) }).await;
    is_lost(&ran.unwrap_err(), effect);
    within(backend.destroy()).await.unwrap();
}

fn is_lost(error: &Error, effect: LostCallEffect) {
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
    );
    assert_eq!((error.lost_call_effect(), error.lost_call_id()), (Some(effect), None), "{error:?}");
    assert_eq!(error.command(), Some("true"));
}

/// Who is told first differs from time to time.
const TIMES: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_never_sent_did_nothing() {
    for _ in 0..TIMES {
        // Our own question was not, then it was not answered, then the command was not.
        cut(Conduct::Opens(1), (2, 0), LostCallEffect::NotApplied).await;
        cut(Conduct::Mute, (2, 1), LostCallEffect::NotApplied).await;
        cut(Conduct::Opens(2), (3, 1), LostCallEffect::NotApplied).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_sent_may_have_run() {
    for _ in 0..TIMES {
        cut(Conduct::Dumb, (3, 2), LostCallEffect::Unknown).await;
    }
}

#[tokio::test]
async fn a_connection_without_its_files_is_over_for_commands_too() {
    let server = Plain::new(Conduct::Leaves);
    let backend = server.backend().await;
    is_lost(&within(backend.exec("true")).await.unwrap_err(), LostCallEffect::Unknown);
    within(backend.destroy()).await.unwrap();
}
