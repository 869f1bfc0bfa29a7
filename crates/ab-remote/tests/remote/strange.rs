//! Servers that answer strangely: each call ends in a clear error, or in the right answer.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_core::options::ListOptions;
use ab_core::process::{
    Command, OutputChannel as Side, OutputChunk, Process, ProcessExit, ProcessId,
};
use ab_core::{Backend, ConnectionStatus, ErrorCode, ErrorKind, ExecOptions, LostCallEffect};
use ab_remote::client::{
    ByteStream, Connector, RemoteClientSettings, RemoteDriver, RemoteEndpoint,
};
use ab_remote::sftp::packet::SshFieldReader;
use ab_remote::wire::call::{self, RemoteCall, RemoteCallReplyPart, RemoteHelloReply};
use ab_remote::wire::frame::{self, PROCESS_SUBSYSTEM, ProcessClientFrame, ProcessServerFrame};
use ab_remote::wire::{self, WireCodec};
use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, Session, run_stream};
use russh::{Channel, ChannelId};

use crate::stage::within;

/// What a server does with the calls that follow the greeting, given those so far: their numbers and
/// bodies. Answers what it sends.
type Script = fn(&[(u32, RemoteCall)]) -> Option<Vec<u8>>;

/// What a server says of a process once it was asked for one, given how many it was asked for before
/// on the same connection, and how. It closes the channel, unless it said that all is over.
type Talk = fn(usize, &ProcessClientFrame) -> Vec<ProcessServerFrame>;

/// A server that speaks SSH and SFTP well enough to be believed, and then does as it is told.
#[derive(Clone)]
struct Strange {
    script: Script,
    talk: Talk,
    version: &'static str,
    /// The channel of a process, once there is one, and whether all was said on it.
    process: Option<(ChannelId, bool)>,
    asked: usize,
    unread: Arc<Mutex<BytesMut>>,
    calls: Arc<Mutex<Vec<(u32, RemoteCall)>>>,
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
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.process = (name == PROCESS_SUBSYSTEM).then_some((channel, false));
        session.channel_success(channel)
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some((process, said_all)) = &mut self.process
            && *process == channel
        {
            if !std::mem::replace(said_all, true) {
                let wish = wire::decode(Bytes::copy_from_slice(&data[4..])).unwrap();
                let talk = (self.talk)(self.asked, &wish);
                self.asked += 1;
                for said in &talk {
                    session.data(channel, frame::encode_frame(said))?;
                }
                if !matches!(talk.last(), Some(ProcessServerFrame::OutputEnd)) {
                    session.close(channel)?;
                }
            }
            return Ok(());
        }
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
        let mut fields = SshFieldReader::new(packet);
        let (kind, number) = (fields.read_u8().unwrap(), fields.read_u32().unwrap());
        if kind == 1 {
            let mut body = BytesMut::new();
            Bytes::from_static(call::REMOTE_CALL_EXTENSION_NAME.as_bytes()).encode_to(&mut body);
            Bytes::from_static(self.version.as_bytes()).encode_to(&mut body);
            return Some(framed(2, 3, &body));
        }
        if kind == 4 {
            // Something was closed; nobody waits for the answer.
            return None;
        }
        let name = fields.read_string().unwrap();
        assert_eq!(name, call::REMOTE_CALL_EXTENSION_NAME.as_bytes());
        let call: RemoteCall = wire::decode(fields.read_remaining()).unwrap();
        if let RemoteCall::Hello { .. } = call {
            let mut info = agent_backend::memory().info();
            (info.capabilities.exec, info.capabilities.detached_processes) = (true, true);
            return Some(reply(number, &RemoteHelloReply { server_instance: 1, info }));
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

fn reply(number: u32, value: &impl WireCodec) -> Vec<u8> {
    framed(201, number, &wire::encode(value))
}

#[async_trait]
impl Connector for Strange {
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

async fn backend(script: Script, time_limit: Duration) -> Backend {
    talking(script, |_, _| Vec::new(), time_limit).await
}

async fn talking(script: Script, talk: Talk, time_limit: Duration) -> Backend {
    let backend = speaking(call::REMOTE_CALL_EXTENSION_VERSION, script, talk, time_limit);
    within(backend.connect()).await.unwrap();
    backend
}

fn speaking(version: &'static str, script: Script, talk: Talk, time_limit: Duration) -> Backend {
    let (process, asked) = (None, 0);
    let (unread, calls) = Default::default();
    let server = Strange { script, talk, version, process, asked, unread, calls };
    let mut settings = RemoteClientSettings::new(RemoteEndpoint::Stream(Arc::new(server)));
    settings.operation_timeout = time_limit;
    settings.reconnection.enabled = false;
    Backend::new(RemoteDriver::new(settings).unwrap())
}

/// Long enough for an answer that comes.
const TIMEOUT: Duration = Duration::from_secs(20);

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
        TIMEOUT,
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
    let backend = backend(|_| Some(u32::MAX.to_be_bytes().to_vec()), TIMEOUT).await;
    let error = within(backend.stat("a")).await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
    );
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn what_makes_no_sense_is_said_to_make_none() {
    let backend = backend(|calls| Some(reply(calls.last()?.0, &7u32)), TIMEOUT).await;
    let error = within(backend.stat("a")).await.unwrap_err();
    assert!(error.message().contains("an invalid message"), "{error}");
    // The connection is as good as before.
    assert_eq!(backend.status(), ConnectionStatus::Connected);
    // A packet of no known kind is another matter.
    within(backend.destroy()).await.unwrap();
    let backend = self::backend(|_| Some(framed(77, 1, b"")), TIMEOUT).await;
    let error = within(backend.stat("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for() {
    let backend = backend(|_| None, Duration::from_millis(500)).await;
    let error = within(backend.stat("a")).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::Timeout, ErrorKind::Timeout));
    assert_eq!(backend.status(), ConnectionStatus::Connected);
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn an_answer_without_end_is_not_taken() {
    let backend = backend(
        |calls| {
            let part =
                RemoteCallReplyPart { next_part: Some(1), bytes: vec![0; 1024 * 1024].into() };
            Some(reply(calls.last()?.0, &part))
        },
        TIMEOUT,
    )
    .await;
    let options = ListOptions { max_entries: 10, ..ListOptions::default() };
    let error = within(backend.list(".", options)).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::LsFailed, ErrorKind::Io));
    assert!(error.message().contains("answered with more than"), "{error}");
    assert_eq!(backend.status(), ConnectionStatus::Connected);
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn an_answer_in_parts_that_hold_nothing_is_not_taken() {
    let backend = backend(
        |calls| {
            Some(reply(
                calls.last()?.0,
                &RemoteCallReplyPart { next_part: Some(1), bytes: Bytes::new() },
            ))
        },
        TIMEOUT,
    )
    .await;
    let error = within(backend.list(".", ListOptions::default())).await.unwrap_err();
    assert!(error.message().contains("a part that holds nothing"), "{error}");
    within(backend.destroy()).await.unwrap();
}

/// A process that says so many pieces of so many bytes, at once and whether there is room or not,
/// and has then ended well.
fn flood(pieces: u64, length: u64) -> Vec<ProcessServerFrame> {
    let mut said = vec![began()];
    said.extend(
        (0..pieces).map(|piece| {
            output(piece * length, vec![b'x'; usize::try_from(length).unwrap()].into())
        }),
    );
    said.extend(ended());
    said
}

fn began() -> ProcessServerFrame {
    ProcessServerFrame::Started { id: ProcessId::new("p"), accepts_input: false }
}

fn output(sequence: u64, bytes: Bytes) -> ProcessServerFrame {
    ProcessServerFrame::Output(OutputChunk {
        offset: sequence,
        channel: Side::Stdout,
        bytes,
        lost_bytes_before: 0,
    })
}

fn ended() -> [ProcessServerFrame; 2] {
    [
        ProcessServerFrame::Ended(Some(ProcessExit { code: Some(0), ..ProcessExit::default() })),
        ProcessServerFrame::OutputEnd,
    ]
}

/// A process of a server that talks so.
async fn begun(talk: Talk, detached: bool) -> (Backend, ab_core::Result<Process>) {
    let backend = talking(|_| None, talk, TIMEOUT).await;
    let command = Command::Shell("x".to_owned());
    let request = backend.build_exec_request(command, ExecOptions::default()).unwrap();
    let process = within(async {
        if detached { backend.spawn_detached(request).await } else { backend.spawn(request).await }
    })
    .await;
    (backend, process)
}

/// All that a process says.
async fn heard(process: &mut Process) -> Vec<u8> {
    let mut heard = Vec::new();
    while let Some(output) = within(process.output.recv()).await {
        heard.extend_from_slice(&output.bytes);
    }
    heard
}

#[tokio::test]
async fn output_that_there_is_no_room_for_loses_its_process() {
    // One that keeps to its room, and two that do not.
    let talks: [(Talk, bool); 3] = [
        (|_, _| flood(16, 64 * 1024), true),
        (|_, _| flood(200, 64 * 1024), false),
        (|_, _| flood(5000, 0), false),
    ];
    for (talk, keeps_to_it) in talks {
        for detached in [false, true] {
            let (backend, process) = begun(talk, detached).await;
            let mut process = process.unwrap();
            // Nobody reads before it is known how it ended.
            let exit = within(process.wait()).await;
            let read = heard(&mut process).await.len();
            if keeps_to_it {
                assert_eq!((exit.unwrap().code, read), (Some(0), 16 * 64 * 1024))
            } else {
                assert_eq!(exit, None);
                let why = process.exit_receiver().process_lost_error().unwrap();
                assert!(why.message().contains("more output than"), "{why}");
                assert!(read < 100 * 64 * 1024, "{read}");
            }
            assert_eq!(backend.status(), ConnectionStatus::Connected);
            within(backend.destroy()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_daemon_of_another_version_is_no_plain_server() {
    let backend = speaking("2", |_| None, |_, _| Vec::new(), TIMEOUT);
    let error = within(backend.connect()).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::ConnectionClosed, ErrorKind::Unsupported));
    assert_eq!(error.retry_advice(), ab_core::RetryAdvice::Never);
    for words in
        ["speaks version '2'", &format!("speaks version '{}'", call::REMOTE_CALL_EXTENSION_VERSION)]
    {
        assert!(error.message().contains(words), "{error}");
    }
    assert!(error.hint().unwrap().contains("the same release"), "{error:?}");
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn a_process_whose_channel_was_closed_is_read_on_from_where_it_was() {
    let talk: Talk = |before, wish| match (before, wish) {
        (0, ProcessClientFrame::Exec { .. }) => vec![began(), output(0, "ab".into())],
        (1, ProcessClientFrame::Attach { from: 2, .. }) => {
            [vec![began(), output(2, "cd".into())], ended().into()].concat()
        }
        _ => panic!("{before}: {wish:?}"),
    };
    let (backend, process) = begun(talk, true).await;
    let mut process = process.unwrap();
    assert_eq!(heard(&mut process).await, b"abcd");
    assert_eq!(within(process.wait()).await.unwrap().code, Some(0));
    assert_eq!(backend.status(), ConnectionStatus::Connected);
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn a_process_that_a_server_lets_go_of_is_lost() {
    // One that is let go of each time, one that is not given back, and one that nobody asks for
    // again.
    let talks: [(Talk, bool); 3] = [
        (|_, _| vec![began()], true),
        (|before, _| [began()].into_iter().skip(before).collect(), true),
        (|_, _| vec![began()], false),
    ];
    for (talk, detached) in talks {
        let (backend, process) = begun(talk, detached).await;
        let mut process = process.unwrap();
        assert_eq!(heard(&mut process).await, b"");
        assert_eq!(within(process.wait()).await, None);
        let why = process.exit_receiver().process_lost_error().unwrap();
        assert_eq!((why.code(), why.kind()), (ErrorCode::ExecError, ErrorKind::Io), "{why}");
        assert!(why.message().contains("closed the channel"), "{why}");
        assert_eq!(backend.status(), ConnectionStatus::Connected);
        within(backend.destroy()).await.unwrap();
    }
}

#[tokio::test]
async fn a_process_that_is_let_go_of_before_it_began_may_run() {
    for detached in [false, true] {
        let (backend, process) = begun(|_, _| Vec::new(), detached).await;
        let error = process.unwrap_err();
        assert_eq!((error.code(), error.kind()), (ErrorCode::ExecError, ErrorKind::Io), "{error}");
        assert_eq!(error.lost_call_effect(), Some(LostCallEffect::Unknown));
        assert!(error.lost_call_id().is_some());
        assert_eq!(backend.status(), ConnectionStatus::Connected);
        within(backend.destroy()).await.unwrap();
    }
}
