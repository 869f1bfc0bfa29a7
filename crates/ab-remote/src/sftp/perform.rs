//! Converts a request to a job: what must be done, the paths that it reads and changes, and how
//! many bytes it may use.

use std::sync::Arc;

use ab_core::WsPath;
use ab_core::options::RemoveDepth;
use bytes::Bytes;

use super::extended::{ExtendedRequest, ExtendedRequestError, SUPPORTED_EXTENSIONS};
use super::handles::{Handle, Open, number};
use super::order::{Footprint, Touch};
use super::packet::{MAX_PACKET_DATA_BYTES, SftpRequest, SshFieldWriter};
use super::paths::text;
use super::status::{BAD_MESSAGE, FAILURE, Refusal, UNSUPPORTED};
use super::{LinkOrder, Outcome, Session, beyond, files};
use crate::wire::call::RemoteCall;

/// A packet of names is not filled further when it has reached this number of bytes.
pub(super) const NAMES_SIZE: usize = 64 * 1024;

/// The first packet of the server, with the version and the extensions.
pub(super) fn greeting() -> SshFieldWriter {
    let mut answer = SshFieldWriter::version();
    for (name, version) in SUPPORTED_EXTENSIONS {
        answer.write_string(name.as_bytes()).write_string(version.as_bytes());
    }
    answer
}

/// A request that is ready to run.
#[derive(Debug)]
pub(super) struct Job {
    act: Act,
    footprint: Footprint,
    cost: usize,
    /// The handle that the request uses. Answers about the same handle are sent in order.
    lane: Option<u32>,
}

#[derive(Debug)]
enum Act {
    /// The request was refused before it began.
    Refuse(Refusal),
    Path(SftpRequest),
    Handle(Arc<Handle>, SftpRequest),
    Extended(ExtendedRequest),
}

impl Job {
    pub(super) fn refuse(refusal: Refusal) -> Self {
        Self { act: Act::Refuse(refusal), footprint: Footprint::none(), cost: 0, lane: None }
    }

    /// Whether the job is a request of an agent-backend client that may change the workspace. The
    /// effects of other requests are not recorded.
    pub(super) fn modifies(&self) -> bool {
        match &self.act {
            Act::Handle(handle, SftpRequest::Write { .. } | SftpRequest::FsetStat { .. }) => {
                matches!(handle.open, Open::File { .. })
            }
            Act::Extended(ExtendedRequest::Call(call)) => call.may_modify_workspace(),
            Act::Refuse(_) | Act::Path(_) | Act::Handle(..) | Act::Extended(_) => false,
        }
    }

    /// Whether an error that is detected before any change means that the whole job has changed
    /// nothing.
    pub(super) fn fails_wholly(&self) -> bool {
        match &self.act {
            Act::Extended(ExtendedRequest::Call(call)) => match **call {
                RemoteCall::Remove { options, .. } => options.depth == RemoveDepth::NonRecursive,
                _ => true,
            },
            _ => true,
        }
    }

    /// Whether the client may cancel the job.
    pub(super) fn can_be_called_off(&self) -> bool {
        matches!(self.act, Act::Extended(ExtendedRequest::Call(_)))
    }

    pub(super) fn new(session: &Session, request: SftpRequest) -> Self {
        let lane = request.handle().and_then(|handle| number(handle));
        let job = Self::prepare(session, request).unwrap_or_else(Self::refuse);
        Self { lane, ..job }
    }

    fn prepare(session: &Session, request: SftpRequest) -> Result<Self, Refusal> {
        let place = |name: &Bytes| -> Result<WsPath, Refusal> {
            Ok(session.backend.parse_path(text(name)?)?)
        };
        let held = |handle: &Bytes| session.handle(handle);
        let mut cost = 0;
        let (act, footprint) = match request {
            SftpRequest::Open { ref path, flags, .. } => {
                let touch = if files::modifies(flags) { Touch::Change } else { Touch::Look };
                let footprint = Footprint::of(place(path)?, touch);
                (Act::Path(request), footprint)
            }
            SftpRequest::Lstat { ref path }
            | SftpRequest::Stat { ref path }
            | SftpRequest::OpenDir { ref path }
            | SftpRequest::ReadLink { ref path }
            | SftpRequest::RealPath { ref path } => {
                let footprint = Footprint::of(place(path)?, Touch::Look);
                (Act::Path(request), footprint)
            }
            SftpRequest::SetStat { ref path, .. }
            | SftpRequest::Remove { ref path }
            | SftpRequest::MakeDir { ref path, .. }
            | SftpRequest::RemoveDir { ref path } => {
                let footprint = Footprint::of(place(path)?, Touch::Change);
                (Act::Path(request), footprint)
            }
            SftpRequest::Rename { ref from, ref to } => {
                let footprint = Footprint::of(place(from)?, Touch::Change);
                let footprint = footprint.and(place(to)?, Touch::Change);
                (Act::Path(request), footprint)
            }
            SftpRequest::Symlink { first, second } => {
                let (target, link) = match session.links {
                    LinkOrder::TargetFirst => (first, second),
                    LinkOrder::LinkFirst => (second, first),
                };
                let footprint = Footprint::of(place(&link)?, Touch::Change);
                (Act::Path(SftpRequest::Symlink { first: target, second: link }), footprint)
            }
            SftpRequest::Close { ref handle } => {
                let removed = session.handles.remove(handle);
                let removed = removed.ok_or_else(|| Refusal::new(FAILURE, "no such handle"))?;
                let footprint = match removed.open {
                    Open::File { .. } | Open::Directory(_) => {
                        Footprint::of(removed.path.clone(), Touch::Change)
                    }
                    Open::Staged(_) | Open::Answer(_) => Footprint::none(),
                };
                (Act::Handle(removed, request), footprint)
            }
            SftpRequest::Read { ref handle, length, .. } => {
                let handle = held(handle)?;
                cost = (length as usize).min(MAX_PACKET_DATA_BYTES);
                let footprint = Footprint::of(handle.path.clone(), Touch::Look);
                (Act::Handle(handle, request), footprint)
            }
            SftpRequest::Write { ref handle, offset, ref data } => {
                let handle = held(handle)?;
                let touch = match handle.open {
                    Open::File { appends: false, .. } => {
                        Touch::Write(offset, offset.saturating_add(data.len() as u64))
                    }
                    Open::File { appends: true, .. } | Open::Directory(_) => Touch::Change,
                    Open::Staged(_) | Open::Answer(_) => Touch::Look,
                };
                let footprint = Footprint::of(handle.path.clone(), touch);
                (Act::Handle(handle, request), footprint)
            }
            SftpRequest::Fstat { ref handle } => {
                let handle = held(handle)?;
                let footprint = Footprint::of(handle.path.clone(), Touch::Look);
                (Act::Handle(handle, request), footprint)
            }
            SftpRequest::ReadDir { ref handle } => {
                let handle = held(handle)?;
                cost = NAMES_SIZE;
                let footprint = Footprint::of(handle.path.clone(), Touch::Look);
                (Act::Handle(handle, request), footprint)
            }
            SftpRequest::FsetStat { ref handle, .. } => {
                let handle = held(handle)?;
                let footprint = Footprint::of(handle.path.clone(), Touch::Change);
                (Act::Handle(handle, request), footprint)
            }
            SftpRequest::Extended { name, body } => {
                let extended = ExtendedRequest::decode(&name, body).map_err(misread)?;
                cost = beyond::cost(&extended);
                let footprint = beyond::footprint(session, &extended)?;
                (Act::Extended(extended), footprint)
            }
            SftpRequest::Unknown { kind } => {
                let message = format!("no request has the number {kind} in version 3");
                return Err(Refusal::new(UNSUPPORTED, message));
            }
        };
        Ok(Self { act, footprint, cost, lane: None })
    }

    pub(super) fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    pub(super) fn lane(&self) -> Option<u32> {
        self.lane
    }

    /// Maximum number of bytes that the job uses for its answer, in addition to its packet.
    pub(super) fn cost(&self) -> usize {
        self.cost
    }

    pub(super) async fn run(self, session: &Session) -> Result<Outcome, Refusal> {
        match self.act {
            Act::Refuse(refusal) => Err(refusal),
            Act::Path(request) => files::by_path(session, request).await,
            Act::Handle(handle, request) => files::by_handle(session, &handle, request).await,
            Act::Extended(extended) => beyond::perform(session, extended).await,
        }
    }
}

fn misread(misread: ExtendedRequestError) -> Refusal {
    match misread {
        ExtendedRequestError::UnknownName => {
            Refusal::new(UNSUPPORTED, "no extension has this name here")
        }
        ExtendedRequestError::Truncated => {
            Refusal::new(BAD_MESSAGE, "the extended request is cut short")
        }
        ExtendedRequestError::Invalid => {
            Refusal::new(BAD_MESSAGE, "a field of the extended request means nothing")
        }
    }
}
