//! The calls that agent-backend clients make in addition to SFTP. Each operation on a workspace is
//! one call. A call takes one round trip. If it fails, it returns the complete error.
//!
//! Calls are extended requests with the name [`REMOTE_CALL_EXTENSION_NAME`]. The answer is an
//! extended reply, or a status that refuses the call. After a [`RemoteCall::Hello`], such a status
//! has an additional string after its language tag, which contains the complete error. This also
//! applies to the standard requests of SFTP.

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

use super::{DecodeError, DecodeResult, WireCodec};
use crate::sftp::packet::SshFieldReader;

/// The name of the extension, and its version.
pub const REMOTE_CALL_EXTENSION_NAME: &str = "call@agent-backend";
pub const REMOTE_CALL_EXTENSION_VERSION: &str = "1";

/// Maximum length in bytes of an answer in [parts](RemoteCallReplyPart). A server keeps at most
/// this number of bytes of such answers for one connection.
pub(crate) const MAX_CALL_REPLY_BYTES: usize = 128 * 1024 * 1024;
/// Maximum number of bytes of one entry of a listing: a path and its attributes.
const MAX_ENTRY: usize = MAX_PATH_BYTES + 1024;
/// Maximum number of bytes of a listing's answer in addition to its entries, such as the problems
/// that were found.
const BESIDE: usize = 8 * 1024 * 1024;

/// The number of an SFTP handle.
pub type RemoteFileHandle = u32;

/// Identifies a call that changes something, so that a client can ask for its effect after the
/// connection was lost. It consists of the number of the connection and the number of the request
/// on this connection.
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

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            connection: WireCodec::decode_from(fields)?,
            request: WireCodec::decode_from(fields)?,
        })
    }
}

#[derive(Clone, Debug)]
pub enum RemoteCall {
    /// The first call of a client. It contains the number that the client has chosen for its
    /// connection. The answer is a [`RemoteHelloReply`].
    Hello {
        connection: u128,
    },
    Stat {
        path: WsPath,
        options: StatOptions,
    },
    /// Lists a directory. The answer is a listing, in [parts](RemoteCallReplyPart).
    List {
        path: WsPath,
        options: ListOptions,
    },
    /// Searches. The answer is the result, in [parts](RemoteCallReplyPart).
    Search(Box<SearchQuery>),
    /// Requests the next part of an answer.
    NextReplyPart {
        handle: RemoteFileHandle,
    },
    /// Reads a file. The answer is a [`RemoteReadReply`].
    Read {
        path: WsPath,
        options: ReadOptions,
    },
    /// Reserves memory for content that is too long for one packet. The client sends the content
    /// with WRITE.
    StageWrite {
        size: u64,
    },
    Write {
        path: WsPath,
        body: RemoteWriteBody,
        options: WriteOptions,
    },
    /// Opens a file. The answer is a handle.
    Open {
        path: WsPath,
        options: OpenOptions,
    },
    /// Describes the file of a handle.
    StatHandle {
        handle: RemoteFileHandle,
    },
    SetHandleAttributes {
        handle: RemoteFileHandle,
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
    /// Lists the processes. The answer is in [parts](RemoteCallReplyPart).
    Processes,
    /// Requests the effective policy. The answer is in [parts](RemoteCallReplyPart).
    EffectivePolicy,
    /// Reports that the client no longer waits for the answer to this request.
    Cancel {
        request: u32,
    },
    /// Requests the effect of a call on an earlier connection. If that connection is still open,
    /// the server ends it first.
    QueryLostCall(RemoteCallId),
}

/// The content to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteWriteBody {
    Inline(Bytes),
    /// Content that was sent after a [`RemoteCall::StageWrite`]. The write closes the handle.
    Staged(RemoteFileHandle),
}

/// The answer to [`RemoteCall::Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteHelloReply {
    /// A number that changes when the server restarts. A restarted server knows nothing about
    /// earlier calls.
    pub server_instance: u128,
    pub info: BackendInfo,
}

/// The answer to [`RemoteCall::Read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteReadReply {
    /// The complete content follows.
    Inline(Stat),
    /// The content is too long for one packet. The client reads it from this handle with READ.
    Open(Stat, RemoteFileHandle),
}

/// A part of an answer that may be longer than one packet. The parts must be concatenated to get
/// the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteCallReplyPart {
    /// The handle with which the next part is requested. `None` for the last part.
    pub next_part: Option<RemoteFileHandle>,
    pub bytes: Bytes,
}

impl RemoteCall {
    /// Maximum length in bytes of an answer in [parts](RemoteCallReplyPart).
    pub(crate) fn max_reply_bytes(&self) -> usize {
        match self {
            RemoteCall::List { options, .. } => {
                let entries = options.max_entries.saturating_mul(MAX_ENTRY);
                entries.saturating_add(BESIDE).min(MAX_CALL_REPLY_BYTES)
            }
            _ => MAX_CALL_REPLY_BYTES,
        }
    }

    /// Whether the call may change the workspace.
    pub(crate) fn may_modify_workspace(&self) -> bool {
        match self {
            RemoteCall::Write { .. }
            | RemoteCall::SetHandleAttributes { .. }
            | RemoteCall::SetAttributes { .. }
            | RemoteCall::Symlink { .. }
            | RemoteCall::MakeDir { .. }
            | RemoteCall::Remove { .. }
            | RemoteCall::Rename { .. } => true,
            RemoteCall::Open { options, .. } => {
                options.create != ab_core::options::FileCreationMode::Never
                    || options.existing == ab_core::options::ExistingContentHandling::Truncate
            }
            RemoteCall::Hello { .. }
            | RemoteCall::Stat { .. }
            | RemoteCall::List { .. }
            | RemoteCall::Search(_)
            | RemoteCall::NextReplyPart { .. }
            | RemoteCall::Read { .. }
            | RemoteCall::StageWrite { .. }
            | RemoteCall::StatHandle { .. }
            | RemoteCall::ReadLink { .. }
            | RemoteCall::DiskSpace
            | RemoteCall::Processes
            | RemoteCall::EffectivePolicy
            | RemoteCall::Cancel { .. }
            | RemoteCall::QueryLostCall(_) => false,
        }
    }

    fn number(&self) -> u8 {
        match self {
            RemoteCall::Hello { .. } => 0,
            RemoteCall::Stat { .. } => 1,
            RemoteCall::List { .. } => 2,
            RemoteCall::Search(_) => 3,
            RemoteCall::NextReplyPart { .. } => 4,
            RemoteCall::Read { .. } => 5,
            RemoteCall::StageWrite { .. } => 6,
            RemoteCall::Write { .. } => 7,
            RemoteCall::Open { .. } => 8,
            RemoteCall::StatHandle { .. } => 9,
            RemoteCall::SetHandleAttributes { .. } => 10,
            RemoteCall::SetAttributes { .. } => 11,
            RemoteCall::ReadLink { .. } => 12,
            RemoteCall::Symlink { .. } => 13,
            RemoteCall::MakeDir { .. } => 14,
            RemoteCall::Remove { .. } => 15,
            RemoteCall::Rename { .. } => 16,
            RemoteCall::DiskSpace => 17,
            RemoteCall::Processes => 18,
            RemoteCall::EffectivePolicy => 19,
            RemoteCall::Cancel { .. } => 20,
            RemoteCall::QueryLostCall(_) => 21,
        }
    }
}

impl WireCodec for RemoteCall {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_u8(self.number());
        match self {
            RemoteCall::Hello { connection } => connection.encode_to(out),
            RemoteCall::Stat { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            RemoteCall::List { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            RemoteCall::Search(query) => query.encode_to(out),
            RemoteCall::NextReplyPart { handle } | RemoteCall::StatHandle { handle } => {
                handle.encode_to(out)
            }
            RemoteCall::Read { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            RemoteCall::StageWrite { size } => size.encode_to(out),
            RemoteCall::Write { path, body, options } => {
                path.encode_to(out);
                options.encode_to(out);
                body.encode_to(out);
            }
            RemoteCall::Open { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            RemoteCall::SetHandleAttributes { handle, attributes } => {
                handle.encode_to(out);
                attributes.encode_to(out);
            }
            RemoteCall::SetAttributes { path, attributes } => {
                path.encode_to(out);
                attributes.encode_to(out);
            }
            RemoteCall::ReadLink { path } | RemoteCall::MakeDir { path } => path.encode_to(out),
            RemoteCall::Symlink { path, target } => {
                path.encode_to(out);
                target.encode_to(out);
            }
            RemoteCall::Remove { path, options } => {
                path.encode_to(out);
                options.encode_to(out);
            }
            RemoteCall::Rename { from, to, options } => {
                from.encode_to(out);
                to.encode_to(out);
                options.encode_to(out);
            }
            RemoteCall::DiskSpace | RemoteCall::Processes | RemoteCall::EffectivePolicy => {}
            RemoteCall::Cancel { request } => request.encode_to(out),
            RemoteCall::QueryLostCall(call) => call.encode_to(out),
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(match fields.read_u8()? {
            0 => RemoteCall::Hello { connection: WireCodec::decode_from(fields)? },
            1 => RemoteCall::Stat {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            2 => RemoteCall::List {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            3 => RemoteCall::Search(Box::new(WireCodec::decode_from(fields)?)),
            4 => RemoteCall::NextReplyPart { handle: WireCodec::decode_from(fields)? },
            5 => RemoteCall::Read {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            6 => RemoteCall::StageWrite { size: WireCodec::decode_from(fields)? },
            7 => {
                let (path, options) = WireCodec::decode_from(fields)?;
                RemoteCall::Write { path, body: WireCodec::decode_from(fields)?, options }
            }
            8 => RemoteCall::Open {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            9 => RemoteCall::StatHandle { handle: WireCodec::decode_from(fields)? },
            10 => RemoteCall::SetHandleAttributes {
                handle: WireCodec::decode_from(fields)?,
                attributes: WireCodec::decode_from(fields)?,
            },
            11 => RemoteCall::SetAttributes {
                path: WireCodec::decode_from(fields)?,
                attributes: WireCodec::decode_from(fields)?,
            },
            12 => RemoteCall::ReadLink { path: WireCodec::decode_from(fields)? },
            13 => RemoteCall::Symlink {
                path: WireCodec::decode_from(fields)?,
                target: WireCodec::decode_from(fields)?,
            },
            14 => RemoteCall::MakeDir { path: WireCodec::decode_from(fields)? },
            15 => RemoteCall::Remove {
                path: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            16 => RemoteCall::Rename {
                from: WireCodec::decode_from(fields)?,
                to: WireCodec::decode_from(fields)?,
                options: WireCodec::decode_from(fields)?,
            },
            17 => RemoteCall::DiskSpace,
            18 => RemoteCall::Processes,
            19 => RemoteCall::EffectivePolicy,
            20 => RemoteCall::Cancel { request: WireCodec::decode_from(fields)? },
            21 => RemoteCall::QueryLostCall(WireCodec::decode_from(fields)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for RemoteWriteBody {
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            RemoteWriteBody::Inline(bytes) => {
                out.put_u8(0);
                bytes.encode_to(out);
            }
            RemoteWriteBody::Staged(handle) => {
                out.put_u8(1);
                handle.encode_to(out);
            }
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(match fields.read_u8()? {
            0 => RemoteWriteBody::Inline(WireCodec::decode_from(fields)?),
            1 => RemoteWriteBody::Staged(WireCodec::decode_from(fields)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for RemoteHelloReply {
    fn encode_to(&self, out: &mut BytesMut) {
        self.server_instance.encode_to(out);
        self.info.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            server_instance: WireCodec::decode_from(fields)?,
            info: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for RemoteReadReply {
    /// For `Inline`, the content follows the encoded value.
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            RemoteReadReply::Inline(stat) => {
                out.put_u8(0);
                stat.encode_to(out);
            }
            RemoteReadReply::Open(stat, handle) => {
                out.put_u8(1);
                stat.encode_to(out);
                handle.encode_to(out);
            }
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(match fields.read_u8()? {
            0 => RemoteReadReply::Inline(WireCodec::decode_from(fields)?),
            1 => RemoteReadReply::Open(
                WireCodec::decode_from(fields)?,
                WireCodec::decode_from(fields)?,
            ),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for RemoteCallReplyPart {
    fn encode_to(&self, out: &mut BytesMut) {
        self.next_part.encode_to(out);
        self.bytes.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            next_part: WireCodec::decode_from(fields)?,
            bytes: WireCodec::decode_from(fields)?,
        })
    }
}
