//! Bounds of what a client may make a server hold: input, commands, times.

use std::time::Duration;

use ab_core::ErrorKind;
use ab_core::process::{Command, ExecRequest, ProcessControlMessage, StdinMode};
use ab_remote::wire;
use ab_remote::wire::call::{RemoteCall, RemoteCallId, RemoteHelloReply};
use ab_remote::wire::frame::{
    PROCESS_SUBSYSTEM, ProcessClientFrame, ProcessServerFrame, encode_frame,
};
use ab_remote::{HostKey, SshAccess, SshServer, SshServerSettings};
use bytes::{Bytes, BytesMut};
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg};

use crate::beyond::answer;
use crate::client::{Sftp, Trusting, connect, exec};
use crate::stage::within;

const CONNECTION: u128 = 7;

/// A server whose connections run at most so many commands, which have no walls.
fn serving(max_commands: usize) -> (tempfile::TempDir, SshServer) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = agent_backend::LocalWorkspaceConfig::new(directory.path());
    config.options.exec.isolation = ab_core::effective_policy::Isolation::None;
    let backend = agent_backend::local_with(config).unwrap();
    let host_key = HostKey::generate_ephemeral("a test").unwrap();
    let settings =
        SshServerSettings { max_commands, ..SshServerSettings::new(host_key, SshAccess::AnyUser) };
    (directory, SshServer::new(backend, settings))
}

/// A process of our own protocol.
struct Spoken {
    channel: Channel<Msg>,
    unread: BytesMut,
}

impl Spoken {
    async fn start(handle: &Handle<Trusting>, request: ExecRequest) -> Spoken {
        let channel = within(handle.channel_open_session()).await.unwrap();
        channel.request_subsystem(true, PROCESS_SUBSYSTEM).await.unwrap();
        let call = RemoteCallId { connection: CONNECTION, request: 1 };
        let spoken = Spoken { channel, unread: BytesMut::new() };
        let exec =
            ProcessClientFrame::Exec { call, window_bytes: 1_000_000, request: Box::new(request) };
        spoken.say(&exec).await;
        spoken
    }

    async fn say(&self, frame: &ProcessClientFrame) {
        self.channel.data_bytes(encode_frame(frame)).await.unwrap();
    }

    /// The next frame; nothing once the channel is closed.
    async fn hear(&mut self) -> Option<ProcessServerFrame> {
        loop {
            if let Some(header) = self.unread.first_chunk::<4>() {
                let whole = 4 + u32::from_be_bytes(*header) as usize;
                if self.unread.len() >= whole {
                    let frame = self.unread.split_to(whole).freeze();
                    return Some(wire::decode(frame.slice(4..)).unwrap());
                }
            }
            match within(self.channel.wait()).await? {
                ChannelMsg::Data { data } => self.unread.extend_from_slice(&data),
                ChannelMsg::Close => return None,
                _ => {}
            }
        }
    }
}

fn shell(line: &str) -> ExecRequest {
    ExecRequest::new(Command::Shell(line.to_owned()))
}

async fn introduced(handle: &Handle<Trusting>) -> Sftp {
    let mut sftp = Sftp::new(handle).await;
    let hello = RemoteCall::Hello { connection: CONNECTION };
    answer::<RemoteHelloReply>(&mut sftp, hello).await.unwrap();
    sftp
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_of_input_that_nobody_takes_end_the_process() {
    let (_directory, server) = serving(4);
    let (handle, _serving) = connect(&server).await;
    let _sftp = introduced(&handle).await;
    // It reads nothing, so that the first pieces of input fill what is between.
    let request = ExecRequest { stdin: StdinMode::Piped, ..shell("exec sleep 1000") };
    let mut process = Spoken::start(&handle, request).await;
    assert!(matches!(process.hear().await, Some(ProcessServerFrame::Started { .. })));
    // Input without a byte is nothing, however much of it comes.
    for _ in 0..10_000 {
        process.say(&ProcessClientFrame::Input(Bytes::new())).await;
    }
    for _ in 0..12 {
        process.say(&ProcessClientFrame::Input(vec![7; 64 * 1024].into())).await;
    }
    for _ in 0..10_000 {
        if process
            .channel
            .data_bytes(encode_frame(&ProcessClientFrame::Control(
                ProcessControlMessage::CloseStdin,
            )))
            .await
            .is_err()
        {
            break;
        }
    }
    // The process is let go of, and the connection goes on.
    while process.hear().await.is_some() {}
    assert_eq!(exec(&handle, "echo fine").await.0, "fine\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_runs_no_more_commands_than_it_may() {
    let (_directory, server) = serving(2);
    let (handle, _serving) = connect(&server).await;
    let _sftp = introduced(&handle).await;
    let mut first = within(handle.channel_open_session()).await.unwrap();
    first.exec(true, "echo on; cat").await.unwrap();
    while !matches!(within(first.wait()).await, Some(ChannelMsg::Data { .. })) {}
    let request = ExecRequest { stdin: StdinMode::Piped, ..shell("cat") };
    let mut second = Spoken::start(&handle, request).await;
    assert!(matches!(second.hear().await, Some(ProcessServerFrame::Started { .. })));

    let why = "2 commands of this connection already run";
    let mut refused = within(handle.channel_open_session()).await.unwrap();
    refused.exec(true, "echo no").await.unwrap();
    let (mut said, mut status) = (Vec::new(), None);
    while let Some(message) = within(refused.wait()).await {
        match message {
            ChannelMsg::ExtendedData { data, .. } => said.extend_from_slice(&data),
            ChannelMsg::ExitStatus { exit_status } => status = Some(exit_status),
            _ => {}
        }
    }
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains(why) && status == Some(126), "{status:?} {said}");
    match Spoken::start(&handle, shell("echo no")).await.hear().await {
        Some(ProcessServerFrame::Refused(error)) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.message().contains(why), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // Others have room of their own, and one that has ended leaves its room.
    assert_eq!(exec(&connect(&server).await.0, "echo yes").await.0, "yes\n");
    first.eof().await.unwrap();
    while within(first.wait()).await.is_some() {}
    assert_eq!(exec(&handle, "echo again").await.0, "again\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_nobody_can_count_are_no_limit() {
    let (_directory, server) = serving(4);
    let (handle, _serving) = connect(&server).await;
    let _sftp = introduced(&handle).await;
    let mut request = shell("echo ran");
    request.limits.wall_time = Some(Duration::MAX);
    request.limits.cpu = Some(Duration::MAX);
    let mut process = Spoken::start(&handle, request).await;
    let mut said = BytesMut::new();
    let exit = loop {
        match process.hear().await.expect("the process was lost") {
            ProcessServerFrame::Output(output) => said.extend_from_slice(&output.bytes),
            ProcessServerFrame::Ended(exit) => break exit.expect("nobody knows how it ended"),
            _ => {}
        }
    };
    while let Some(frame) = process.hear().await {
        match frame {
            ProcessServerFrame::Output(output) => said.extend_from_slice(&output.bytes),
            ProcessServerFrame::OutputEnd => break,
            _ => {}
        }
    }
    assert_eq!((exit.code, &said[..]), (Some(0), &b"ran\n"[..]));
}
