//! One connection to a workspace: which kind of server it leads to, and functions to send requests.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ab_core::driver::BackendInfo;
use ab_core::{Error, ErrorCode, ErrorKind, LostCallEffect, Result, Verb, WsPath};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use super::carrier::{Carrier, HalfChannel};
use super::context::CallContext;
use super::dial::Dialled;
use super::lines::Lines;
use super::plain::Plain;
use super::reply::{Reply, Status, Version};
use super::requests::{Requests, Unanswered};
use super::settings::ClientSettings;
use crate::cut::StreamCutter;
use crate::sftp::extended::ExtendedRequest;
use crate::sftp::packet::{self, MAX_PACKET_BYTES, MAX_PACKET_DATA_BYTES, SftpRequest};
use crate::wire;
use crate::wire::call::{self, RemoteCall, RemoteCallId, RemoteCallReplyPart, RemoteHelloReply};

/// A connection that is ready for calls.
pub(crate) struct Session {
    pub(crate) carrier: Carrier,
    pub(crate) lines: Arc<Lines>,
    pub(crate) requests: Arc<Requests>,
    /// The number that identifies this connection on an agent-backend server.
    pub(crate) number: u128,
    pub(crate) speech: Speech,
    /// The name of the server in error messages.
    pub(crate) who: String,
    /// How long a call may wait for an answer.
    pub(crate) time_limit: Duration,
    /// The queue of packets that are sent without waiting for an answer.
    later: mpsc::UnboundedSender<Later>,
    sender: JoinHandle<()>,
    /// Why the connection ended. Not set while the connection is open.
    pub(crate) over: OnceLock<Error>,
    cut: StreamCutter,
}

/// The protocol of the server.
pub(crate) enum Speech {
    /// An agent-backend server.
    Ours(Ours),
    /// A plain SSH server, which supports only SFTP and commands.
    Plain(Box<Plain>),
}

/// The state of a connection to an agent-backend server.
#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) info: BackendInfo,
    /// The path of the client's workspace in the server's workspace, with a scope root at its end.
    pub(crate) base: WsPath,
}

/// A message that is sent in the background after a caller dropped its future or a handle.
pub(crate) enum Later {
    Packet(Bytes),
    Close(HalfChannel),
}

impl Session {
    /// Exchanges the first messages on a new connection, which determine the kind of the server.
    pub(crate) async fn open(
        settings: &ClientSettings,
        dialled: Dialled,
        number: u128,
        deadline: tokio::time::Instant,
    ) -> Result<Self> {
        let Dialled { handle, lines, cut, who, .. } = dialled;
        let carrier = Carrier::new(handle);
        let late = |_| unready(&who, "no answer in time");
        let opening = async {
            let half = carrier.open().await.map_err(|why| unready(&who, why))?;
            let (requests, version) = Requests::new(carrier.clone(), half.id());
            lines.add(half.id(), requests.clone());
            let asked = half.request_subsystem("sftp").await;
            asked.map_err(|why| unready(&who, why))?;
            let gone = |_| unready(&who, "it serves no files");
            requests.send(packet::encode_init()).await.map_err(gone)?;
            let version = version.await.map_err(|_| unready(&who, "it serves no files"))?;
            Ok::<_, Error>((requests, version, half))
        };
        let (requests, version, half) = timeout_at(deadline, opening).await.map_err(late)??;
        let (later, waiting) = mpsc::unbounded_channel();
        let sender = tokio::spawn(send_later(requests.clone(), waiting, half));
        let mut session = Self {
            carrier,
            lines,
            requests,
            number,
            speech: Speech::Plain(Box::default()),
            who,
            time_limit: settings.operation_timeout,
            later,
            sender,
            over: OnceLock::new(),
            cut,
        };
        let speech = timeout_at(deadline, session.greet(settings, &version)).await;
        session.speech = speech.map_err(|_| unready(&session.who, "no answer in time"))??;
        Ok(session)
    }

    async fn greet(&self, settings: &ClientSettings, version: &Version) -> Result<Speech> {
        if !version.has(call::REMOTE_CALL_EXTENSION_NAME, call::REMOTE_CALL_EXTENSION_VERSION) {
            // If a daemon of another version were treated as a plain server, features would
            // silently be missing.
            if let Some(theirs) = version.of(call::REMOTE_CALL_EXTENSION_NAME) {
                return Err(apart(&self.who, &theirs));
            }
            return Ok(Speech::Plain(Box::new(Plain::greet(self, settings, version).await?)));
        }
        let hello = RemoteCall::Hello { connection: self.number };
        let welcome: RemoteHelloReply = self.call(CallContext::NONE, Verb::Connect, &hello).await?;
        let base = match &settings.root {
            Some(root) => base(root, &welcome.info, &self.who)?,
            None => WsPath::root(),
        };
        Ok(Speech::Ours(Ours { info: welcome.info, base }))
    }

    /// Whether the connection has ended, or its SFTP channel has, so that no call can succeed.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get().is_some() || self.requests.is_over() || self.lines.is_over()
    }

    /// Maximum number of bytes that fit in one request or answer.
    pub(crate) fn data_limit(&self) -> usize {
        match &self.speech {
            Speech::Ours(_) => MAX_PACKET_DATA_BYTES,
            Speech::Plain(plain) => plain.data_limit(),
        }
    }

    /// Sends a call to an agent-backend server and decodes the answer.
    pub(crate) async fn call<T: wire::WireCodec>(
        &self,
        context: CallContext<'_>,
        verb: Verb,
        call: &RemoteCall,
    ) -> Result<T> {
        let body = self.call_raw(context, verb, call).await?;
        wire::decode(body).map_err(|_| self.nonsense(verb))
    }

    /// Sends a call whose answer may consist of several parts. The total size is limited to what
    /// the call can need.
    pub(crate) async fn call_in_parts<T: wire::WireCodec>(
        &self,
        context: CallContext<'_>,
        verb: Verb,
        call: &RemoteCall,
    ) -> Result<T> {
        let most = call.max_reply_bytes();
        let mut part: RemoteCallReplyPart = self.call(context, verb, call).await?;
        if part.next_part.is_some() {
            let mut whole = bytes::BytesMut::from(&part.bytes[..]);
            while let Some(handle) = part.next_part {
                if part.bytes.is_empty() || whole.len() >= most {
                    let wrong = if part.bytes.is_empty() {
                        "with a part that holds nothing".to_owned()
                    } else {
                        format!("with more than {most} bytes, which no such answer has")
                    };
                    self.forget(handle);
                    return Err(self.wrong(verb, &wrong));
                }
                part = self.call(context, verb, &RemoteCall::More { handle }).await?;
                whole.extend_from_slice(&part.bytes);
            }
            part.bytes = whole.freeze();
        }
        wire::decode(part.bytes).map_err(|_| self.nonsense(verb))
    }

    /// Closes a handle on the server in the background.
    fn forget(&self, handle: call::RemoteFileHandle) {
        let request = SftpRequest::Close { handle: Bytes::copy_from_slice(&handle.to_be_bytes()) };
        self.later(Later::Packet(request.encode(self.requests.number())));
    }

    /// Sends a call and returns the encoded answer. If the caller drops the future, the call is
    /// cancelled on the server.
    pub(crate) async fn call_raw(
        &self,
        context: CallContext<'_>,
        verb: Verb,
        call: &RemoteCall,
    ) -> Result<Bytes> {
        let number = self.requests.number();
        let packet = call_packet(number, call);
        if packet.len() > MAX_PACKET_BYTES {
            let message = format!("more than {MAX_PACKET_BYTES} bytes of text in one call");
            return Err(
                Error::new(verb.default_error_code(), ErrorKind::Invalid, message).with_verb(verb)
            );
        }
        let mut leaving = Leaving { session: self, number, waits: true };
        let reply = context.within(self.time_limit, self.requests.ask(number, packet)).await;
        let Some(reply) = reply else {
            return Err(self.late(verb, number, call.may_modify_workspace()));
        };
        leaving.waits = false;
        if matches!(call, RemoteCall::More { .. }) {
            context.moved();
        }
        match reply {
            Ok(Reply::Extended(body)) => Ok(body),
            Ok(Reply::Status(status)) => Err(self.refusal(verb, status)),
            Ok(_) => Err(self.nonsense(verb)),
            Err(unanswered) => Err(self.unanswered(verb, unanswered, call.may_modify_workspace())),
        }
    }

    /// Sends a standard SFTP request and returns the answer.
    pub(crate) async fn ask(
        &self,
        context: CallContext<'_>,
        verb: Verb,
        request: &SftpRequest,
    ) -> Result<Reply> {
        let number = self.requests.number();
        let asking = self.requests.ask(number, request.encode(number));
        let modifies = request.modifies_workspace();
        let asked = context.within(self.time_limit, asking).await;
        if modifies && !matches!(asked, Some(Err(Unanswered { sent: false, .. }))) {
            context.record_change();
        }
        match asked {
            Some(Ok(reply)) => {
                context.moved();
                Ok(reply)
            }
            Some(Err(unanswered)) => Err(self.unanswered(verb, unanswered, modifies)),
            None => Err(self.late(verb, number, modifies)),
        }
    }

    /// Sends a request whose answer is a status. Fails unless the status reports success.
    pub(crate) async fn ask_for_done(
        &self,
        context: CallContext<'_>,
        verb: Verb,
        request: &SftpRequest,
    ) -> Result<()> {
        match self.ask(context, verb, request).await? {
            Reply::Status(status) if status.code == crate::sftp::status::OK => Ok(()),
            Reply::Status(status) => Err(self.refusal(verb, status)),
            _ => Err(self.nonsense(verb)),
        }
    }

    pub(crate) fn later(&self, what: Later) {
        // Sending fails if the connection has ended. In that case there is nothing to close.
        let _ = self.later.send(what);
    }

    /// The error for a status with which the server refuses a request.
    pub(crate) fn refusal(&self, verb: Verb, status: Status) -> Error {
        match (status.error, &self.speech) {
            (Some(error), _) => error,
            (None, Speech::Plain(_)) => super::plain::refusal(verb, status.code, &status.message),
            (None, Speech::Ours(_)) => {
                Error::new(verb.default_error_code(), ErrorKind::Io, status.message).with_verb(verb)
            }
        }
    }

    /// The error if the connection ended before the answer arrived.
    pub(crate) fn unanswered(&self, verb: Verb, lost: Unanswered, modifies: bool) -> Error {
        let error = self.lost(verb);
        match (modifies, lost.sent) {
            (false, _) => error,
            (true, false) => error.with_lost_call_effect(LostCallEffect::NotApplied, None),
            (true, true) => {
                error.with_lost_call_effect(LostCallEffect::Unknown, self.ticket(lost.number))
            }
        }
    }

    pub(crate) fn ticket(&self, request: u32) -> Option<ab_core::LostCallId> {
        match &self.speech {
            Speech::Ours(_) => {
                Some(RemoteCallId { connection: self.number, request }.to_lost_call_id())
            }
            Speech::Plain(_) => None,
        }
    }

    /// The error if the connection has ended.
    pub(crate) fn lost(&self, verb: Verb) -> Error {
        let message = match self.over.get() {
            Some(error) => error.message().to_owned(),
            None => format!("the connection to {} was lost", self.who),
        };
        Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message).with_verb(verb)
    }

    /// The error if the answer did not arrive before the deadline.
    pub(crate) fn late(&self, verb: Verb, number: u32, modifies: bool) -> Error {
        let message = format!("{} gave no answer within {:?}", self.who, self.time_limit);
        let error = Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message).with_verb(verb);
        if modifies {
            error.with_lost_call_effect(LostCallEffect::Unknown, self.ticket(number))
        } else {
            error
        }
    }

    pub(crate) fn nonsense(&self, verb: Verb) -> Error {
        self.wrong(verb, "with an invalid message")
    }

    /// The error if an answer violates the protocol.
    pub(crate) fn wrong(&self, verb: Verb, how: &str) -> Error {
        let message = format!("{} answered {how}", self.who);
        Error::new(verb.default_error_code(), ErrorKind::Io, message).with_verb(verb)
    }

    /// Closes the connection and fails all calls on it, with this reason.
    pub(crate) fn end(&self, why: &Error) {
        // The first reason is kept.
        let _ = self.over.set(why.clone());
        self.cut.cut();
        self.lines.end_all();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sender.abort();
        self.cut.cut();
        self.lines.end_all();
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("who", &self.who).finish_non_exhaustive()
    }
}

/// Tells the server to cancel a request when this value is dropped, unless the answer has arrived.
struct Leaving<'a> {
    session: &'a Session,
    number: u32,
    waits: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.waits {
            let number = self.session.requests.number();
            let call = RemoteCall::Cancel { request: self.number };
            self.session.later(Later::Packet(call_packet(number, &call)));
        }
    }
}

fn call_packet(number: u32, call: &RemoteCall) -> Bytes {
    packet::extended(number, call::REMOTE_CALL_EXTENSION_NAME, call)
}

/// Sends messages that need no answer, in order. Keeps the SFTP channel open.
async fn send_later(
    requests: Arc<Requests>,
    mut waiting: mpsc::UnboundedReceiver<Later>,
    _half: HalfChannel,
) {
    while let Some(what) = waiting.recv().await {
        match what {
            Later::Packet(packet) => drop(requests.send(packet).await),
            Later::Close(half) => half.close().await,
        }
    }
}

/// The path in the server's workspace of the directory `root` on the server's machine.
fn base(root: &str, info: &BackendInfo, who: &str) -> Result<WsPath> {
    let root = root.trim_end_matches('/');
    let below = info.root_aliases.iter().find_map(|alias| {
        let rest = root.strip_prefix(alias.trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
    });
    let mismatch = || {
        let serves = info.root_aliases.first().map_or("another workspace", String::as_str);
        let message = format!("{who} serves {serves}, not {root}");
        Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
            .with_hint("remove --root to use the directory that is served")
    };
    match below {
        Some("") => Ok(WsPath::root()),
        Some(below) => {
            let parsed = ab_core::PathParser::lenient().parse(below);
            Ok(parsed.map_err(|_| mismatch())?.into_scope_root())
        }
        None => Err(mismatch()),
    }
}

/// The error if a daemon uses another version of the protocol.
fn apart(who: &str, theirs: &str) -> Error {
    // The text comes from the server and can have any length, so it is truncated.
    let theirs: String = ab_core::error::escape_unprintable(theirs).chars().take(20).collect();
    let message = format!(
        "{who} speaks version '{theirs}' of the protocol, but this client speaks version '{}'",
        call::REMOTE_CALL_EXTENSION_VERSION
    );
    Error::new(ErrorCode::ConnectionClosed, ErrorKind::Unsupported, message)
        .with_verb(Verb::Connect)
        .with_hint("install the same release of agent-backend on both machines")
}

fn unready(who: &str, why: impl fmt::Display) -> Error {
    let message = format!("cannot use {who}: {why}");
    Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message)
}

/// Wraps an extended request as a standard SFTP request.
pub(crate) fn extended(request: &ExtendedRequest) -> SftpRequest {
    let (name, body) = request.encode();
    SftpRequest::Extended { name: Bytes::from_static(name.as_bytes()), body }
}
