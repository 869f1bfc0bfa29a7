//! The calls of our client to our server, beyond SFTP. Each operation of a workspace is one call,
//! one round trip, with an exact answer.
//!
//! Calls are extended requests named [`CALL_EXTENSION_NAME`]. The answer is an extended reply, or a
//! status that refuses the call. After a [`WireCall::Hello`], such a status has one more string
//! after its language tag, with the complete error. That also applies to the standard requests of
//! SFTP.

use ab_core::driver::BackendInfo;
use ab_core::metadata::Stat;
use ab_core::options::{
    AttributeChanges, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteOptions,
};
use ab_core::path::MAX_PATH_BYTES;
use ab_core::search::SearchQuery;
use ab_core::{LostCallId, WsPath};
use bytes::{BufMut, Bytes, BytesMut};

use super::{DecodeError, Read, WireCodec};
use crate::sftp::packet::PacketReader;

/// The name of the extension and its version.
pub const CALL_EXTENSION_NAME: &str = "call@agent-backend";
pub const CALL_EXTENSION_VERSION: &str = "1";

/// The longest answer in [parts](CallReplyPart), and the most bytes of such answers that a server
/// keeps for one connection.
pub(crate) const MAX_CALL_REPLY_BYTES: usize = 128 * 1024 * 1024;
/// Most bytes of one entry of a listing: a path and its attributes.
const MAX_ENTRY: usize = MAX_PATH_BYTES + 1024;
/// Most bytes of an answer besides its entries, such as the problems of a walk.
const BESIDE: usize = 8 * 1024 * 1024;

/// The number of an SFTP handle.
pub type WireHandle = u32;

/// Identifies a call that changes something, so that a client can ask for its effect after the
/// connection is lost: the number of the connection, and of the request on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteCallId {
    pub connection: u128,
    pub request: u32,
}

impl RemoteCallId {
    pub(crate) fn to_lost_call_id(self) -> LostCallId {
        LostCallId::new(format!("{:032x}-{}", self.connection, self.request))
    }

    pub(crate) fn from_lost_call_id(id: &LostCallId) -> Option<Self> {
        let (connection, request) = id.as_str().split_once('-')?;
        let whole = connection.len() == 32 && !request.starts_with('+');
        let connection = u128::from_str_radix(connection, 16).ok().filter(|_| whole)?;
        Some(Self { connection, request: request.parse().ok()? })
    }
}

impl WireCodec for RemoteCallId {
    fn encode_to(&self, out: &mut BytesMut) {
        self.connection.encode_to(out);
        self.request.encode_to(out);
    }

    fn decode_from(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            connection: WireCodec::decode_from(fields)?,
            request: WireCodec::decode_from(fields)?,
        })
    }
}

#[derive(Clone, Debug)]
pub enum WireCall {
    /// Identifies the connection. The answer is a [`HelloReply`].
    Hello {
        connection: u128,
    },
    Stat {
        path: WsPath,
        options: StatOptions,
    },
    /// The answer is a listing, in [parts](CallReplyPart).
    List {
        path: WsPath,
        options: ListOptions,
    },
    /// The answer is the search result, in [parts](CallReplyPart).
    Search(Box<SearchQuery>),
    /// The next part of an answer.
    More {
        handle: WireHandle,
    },
    /// The answer is [`WireReadReply`].
    Read {
        path: WsPath,
        options: ReadOptions,
    },
    /// Reserves room for content that is too long for one packet. The client fills it with WRITE.
    Stage {
        size: u64,
    },
    Write {
        path: WsPath,
        body: WireWriteBody,
        options: WriteOptions,
    },
    /// The answer is a handle.
    Open {
        path: WsPath,
        options: OpenOptions,
    },
    /// Describes the file of a handle.
    StatHandle {
        handle: WireHandle,
    },
    SetFileAttributes {
        handle: WireHandle,
        attributes: AttributeChanges,
    },
    SetAttributes {
        path: WsPath,
        attributes: AttributeChanges,
    },
    ReadLink {
        path: WsPath,
    },
    Symlink {
        path: WsPath,
        target: String,
    },
    MakeDir {
        path: WsPath,
    },
    Remove {
        path: WsPath,
        options: RemoveOptions,
    },
    Rename {
        from: WsPath,
        to: WsPath,
        options: RenameOptions,
    },
    DiskSpace,
    /// The answer is a list of processes, in [parts](CallReplyPart).
    Processes,
    /// The answer is the effective policy, in [parts](CallReplyPart).
    Policy,
    /// The client no longer waits for the answer to this request.
    Cancel {
        request: u32,
    },
    /// The effect of a call on a lost connection. If that connection is still open, it is ended.
    Outcome(RemoteCallId),
}

/// The content to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireWriteBody {
    Inline(Bytes),
    /// Content from a [`WireCall::Stage`]. The handle is closed by the write.
    Staged(WireHandle),
}

/// The answer to [`WireCall::Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloReply {
    /// Changes when the server restarts. A restarted server knows nothing of earlier calls.
    pub server_instance: u128,
    pub info: BackendInfo,
}

/// The answer to [`WireCall::Read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireReadReply {
    /// The whole content follows.
    Inline(Stat),
    /// The content is too long for one packet. The client reads it with READ.
    Open(Stat, WireHandle),
}

/// A part of an answer that may be longer than one packet. The answer is the concatenation of its
/// parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReplyPart {
    /// The handle for the next part.
    pub next_part: Option<WireHandle>,
    pub bytes: Bytes,
}

impl WireCall {
    /// The longest possible answer in [parts](CallReplyPart), in bytes.
    pub(crate) fn max_reply_bytes(&self) -> usize {
        match self {
            WireCall::List { options, .. } => {
                let entries = options.limit.saturating_mul(MAX_ENTRY);
                entries.saturating_add(BESIDE).min(MAX_CALL_REPLY_BYTES)
            }
            _ => MAX_CALL_REPLY_BYTES,
        }
    }

    /// Whether the call may change the workspace.
    pub(crate) fn may_modify_workspace(&self) -> bool {
        match self {
            WireCall::Write { .. }
            | WireCall::SetFileAttributes { .. }
            | WireCall::SetAttributes { .. }
            | WireCall::Symlink { .. }
            | WireCall::MakeDir { .. }
            | WireCall::Remove { .. }
            | WireCall::Rename { .. } => true,
            WireCall::Open { options, .. } => {
                options.create != ab_core::options::FileCreationMode::Never
                    || options.existing == ab_core::options::ExistingContentHandling::Truncate
            }
            WireCall::Hello { .. }
            | WireCall::Stat { .. }
            | WireCall::List { .. }
            | WireCall::Search(_)
            | WireCall::More { .. }
            | WireCall::Read { .. }
            | WireCall::Stage { .. }
            | WireCall::StatHandle { .. }
            | WireCall::ReadLink { .. }
            | WireCall::DiskSpace
            | WireCall::Processes
            | WireCall::Policy
            | WireCall::Cancel { .. }
            | WireCall::Outcome(_) => false,
        }
    }

    fn number(&self) -> u8 {
        match self {
            WireCall::Hello { .. } => 0,
            WireCall::Stat { .. } => 1,
            WireCall::List { .. } => 2,
            WireCall::Search(_) => 3,
            WireCall::More { .. } => 4,
            WireCall::Read { .. } => 5,
            WireCall::Stage { .. } => 6,
            WireCall::Write { .. } => 7,
            WireCall::Open { .. } => 8,
            WireCall::StatHandle { .. } => 9,
            WireCall::SetFileAttributes { .. } => 10,
            WireCall::SetAttributes { .. } => 11,
            WireCall::ReadLink { .. } => 12,
            WireCall::Symlink { .. } => 13,
            WireCall::MakeDir { .. } => 14,
            WireCall::Remove { .. } => 15,
            WireCall::Rename { .. } => 16,
            WireCall::DiskSpace => 17,
            WireCall::Processes => 18,
            WireCall::Policy => 19,
            WireCall::Cancel { .. } => 20,
            WireCall::Outcome(_) => 21,
        }
    }
}

impl WireCodec for WireCall {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u8(self.number());
        match self {
            WireCall::Hello { connection } => connection.encode_to(out),
            WireCall::Stat { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            WireCall::List { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            WireCall::Search(query) => query.encode_to(out),
            WireCall::More { handle } | WireCall::StatHandle { handle } => handle.encode_to(out),
            WireCall::Read { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            WireCall::Stage { size } => size.encode_to(out),
            WireCall::Write { path, body, options } => {
                path.encode_to(out);
                options.encode_to(out);
                body.encode_to(out);
            }
            WireCall::Open { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            WireCall::SetFileAttributes { handle, attributes } => {
                handle.encode_to(out);
                attributes.encode_to(out);
            }
            WireCall::SetAttributes { path, attributes } => {
                path.encode_to(out);
                attributes.encode_to(out);
            }
            WireCall::ReadLink { path } | WireCall::MakeDir { path } => path.encode_to(out),
            WireCall::Symlink { path, target } => {
                path.encode_to(out);
                target.encode_to(out);
            }
            WireCall::Remove { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            WireCall::Rename { from, to, options } => {
                from.encode_to(out);
                to.encode_to(out);
                options.encode_to(out);
            }
            WireCall::DiskSpace | WireCall::Processes | WireCall::Policy => {}
            WireCall::Cancel { request } => request.encode_to(out),
            WireCall::Outcome(call) => call.encode_to(out),
        }
    }

    fn decode_from(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => WireCall::Hello { connection: WireCodec::decode_from(fields)? },
            1 => WireCall::Stat {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            2 => WireCall::List {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            3 => WireCall::Search(Box::new(WireCodec::decode_from(fields)?)),
            4 => WireCall::More { handle: WireCodec::decode_from(fields)? },
            5 => WireCall::Read {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            6 => WireCall::Stage { size: WireCodec::decode_from(fields)? },
            7 => {
                let (path, options) = WireCodec::decode_from(fields)?;
                WireCall::Write { path, body: WireCodec::decode_from(fields)?, options }
            }
            8 => WireCall::Open {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            9 => WireCall::StatHandle { handle: WireCodec::decode_from(fields)? },
            10 => WireCall::SetFileAttributes {
                handle: WireCodec::decode_from(fields)?,
                attributes: WireCodec::decode_from(fields)?,
            },
            11 => WireCall::SetAttributes {
                path: WireCodec::decode_from(fields)?,
                attributes: WireCodec::decode_from(fields)?,
            },
            12 => WireCall::ReadLink { path: WireCodec::decode_from(fields)? },
            13 => WireCall::Symlink {
                path: WireCodec::decode_from(fields)?,
                target: WireCodec::decode_from(fields)?,
            },
            14 => WireCall::MakeDir { path: WireCodec::decode_from(fields)? },
            15 => WireCall::Remove {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            16 => WireCall::Rename {
                from: WireCodec::decode_from(fields)?,
                to: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            17 => WireCall::DiskSpace,
            18 => WireCall::Processes,
            19 => WireCall::Policy,
            20 => WireCall::Cancel { request: WireCodec::decode_from(fields)? },
            21 => WireCall::Outcome(WireCodec::decode_from(fields)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for WireWriteBody {
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            WireWriteBody::Inline(bytes) => {
                out.put_u8(0);
                bytes.encode_to(out);
            }
            WireWriteBody::Staged(handle) => {
                out.put_u8(1);
                handle.encode_to(out);
            }
        }
    }

    fn decode_from(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => WireWriteBody::Inline(WireCodec::decode_from(fields)?),
            1 => WireWriteBody::Staged(WireCodec::decode_from(fields)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for HelloReply {
    fn encode_to(&self, out: &mut BytesMut) {
        self.server_instance.encode_to(out);
        self.info.encode_to(out);
    }

    fn decode_from(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            server_instance: WireCodec::decode_from(fields)?,
            info: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for WireReadReply {
    /// For `Inline` the content itself follows.
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            WireReadReply::Inline(stat) => {
                out.put_u8(0);
                stat.encode_to(out);
            }
            WireReadReply::Open(stat, handle) => {
                out.put_u8(1);
                stat.encode_to(out);
                handle.encode_to(out);
            }
        }
    }

    fn decode_from(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => WireReadReply::Inline(WireCodec::decode_from(fields)?),
            1 => WireReadReply::Open(
                WireCodec::decode_from(fields)?,
                WireCodec::decode_from(fields)?,
            ),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for CallReplyPart {
    fn encode_to(&self, out: &mut BytesMut) {
        self.next_part.encode_to(out);
        self.bytes.encode_to(out);
    }

    fn decode_from(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            next_part: WireCodec::decode_from(fields)?,
            bytes: WireCodec::decode_from(fields)?,
        })
    }
}
