//! What our client asks of our server, beyond SFTP: one call for each thing a workspace can do, in
//! one round trip, with exact answers.
//!
//! Calls are extended requests named [`NAME`]; the answer to one is an extended reply, or a status
//! that refuses. After a [`WireCall::Hello`] such a status goes on after its language tag with a string
//! that holds the whole error, for SFTP's own requests too.

use ab_core::driver::BackendInfo;
use ab_core::metadata::Stat;
use ab_core::options::{
    Attributes, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions, StatOptions,
    WriteOptions,
};
use ab_core::path::MAX_PATH_BYTES;
use ab_core::search::Query;
use ab_core::{Ticket, WsPath};
use bytes::{BufMut, Bytes, BytesMut};

use super::{DecodeError, Read, Wire};
use crate::sftp::packet::PacketReader;

/// The extension's name and its version.
pub const NAME: &str = "call@agent-backend";
pub const VERSION: &str = "1";

/// The longest answer in [parts](AnswerPart), and the most of such answers that a server keeps for one
/// connection.
pub const MAX_ANSWER: usize = 128 * 1024 * 1024;
/// What an entry of a listing takes at most: a path and what is known of it.
const MAX_ENTRY: usize = MAX_PATH_BYTES + 1024;
/// What there may be in an answer beside its entries: what could not be read, for the most part.
const BESIDE: usize = 8 * 1024 * 1024;

/// A number that an SFTP handle is.
pub type WireHandle = u32;

/// A call that changes something, so that it can be asked about after its connection is gone: who
/// made the connection, and the number of the request on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallNumber {
    pub connection: u128,
    pub request: u32,
}

impl CallNumber {
    pub fn ticket(self) -> Ticket {
        Ticket::new(format!("{:032x}-{}", self.connection, self.request))
    }

    pub fn parse(ticket: &Ticket) -> Option<Self> {
        let (connection, request) = ticket.as_str().split_once('-')?;
        let whole = connection.len() == 32 && !request.starts_with('+');
        let connection = u128::from_str_radix(connection, 16).ok().filter(|_| whole)?;
        Some(Self { connection, request: request.parse().ok()? })
    }
}

impl Wire for CallNumber {
    fn put(&self, out: &mut BytesMut) {
        self.connection.put(out);
        self.request.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self { connection: Wire::read(fields)?, request: Wire::read(fields)? })
    }
}

#[derive(Clone, Debug)]
pub enum WireCall {
    /// Who makes this connection; the answer is a [`HelloReply`].
    Hello {
        connection: u128,
    },
    Stat {
        path: WsPath,
        options: StatOptions,
    },
    /// The answer is a listing, in [parts](AnswerPart).
    List {
        path: WsPath,
        options: ListOptions,
    },
    /// The answer is what was found, in [parts](AnswerPart).
    Search(Box<Query>),
    /// The next part of an answer.
    More {
        handle: WireHandle,
    },
    /// The answer is [`WireContent`].
    Read {
        path: WsPath,
        options: ReadOptions,
    },
    /// Room for a content that is too long for one packet; it is filled with WRITE.
    Stage {
        size: u64,
    },
    Write {
        path: WsPath,
        body: WireBody,
        options: WriteOptions,
    },
    /// The answer is a handle.
    Open {
        path: WsPath,
        options: OpenOptions,
    },
    /// Describes what a handle is of.
    StatHandle {
        handle: WireHandle,
    },
    SetFileAttributes {
        handle: WireHandle,
        attributes: Attributes,
    },
    SetAttributes {
        path: WsPath,
        attributes: Attributes,
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
    /// The answer is a list of processes, in [parts](AnswerPart).
    Processes,
    /// The answer is what is in force, in [parts](AnswerPart).
    Policy,
    /// Nobody waits for the answer to this request any more.
    Cancel {
        request: u32,
    },
    /// What became of a call on a connection that is no more; one that still is is ended.
    Outcome(CallNumber),
}

/// What a file is written with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireBody {
    Inline(Bytes),
    /// What a [`WireCall::Stage`] made room for; the handle is used up.
    Staged(WireHandle),
}

/// The answer to [`WireCall::Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloReply {
    /// The server from its start to its end: another one knows nothing of earlier calls.
    pub incarnation: u128,
    pub info: BackendInfo,
}

/// The answer to [`WireCall::Read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireContent {
    /// All of it follows.
    Inline(Stat),
    /// It is too long for one packet and to be read by READ.
    Open(Stat, WireHandle),
}

/// A piece of an answer that may be longer than one packet. Put together, the pieces are it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPart {
    /// What to ask for the next piece by.
    pub more: Option<WireHandle>,
    pub bytes: Bytes,
}

impl WireCall {
    /// Bytes of the longest answer in [parts](AnswerPart) that this can have.
    pub fn longest_answer(&self) -> usize {
        match self {
            WireCall::List { options, .. } => {
                let entries = options.limit.saturating_mul(MAX_ENTRY);
                entries.saturating_add(BESIDE).min(MAX_ANSWER)
            }
            _ => MAX_ANSWER,
        }
    }

    /// Whether the workspace may be another one afterwards.
    pub fn modifies(&self) -> bool {
        match self {
            WireCall::Write { .. }
            | WireCall::SetFileAttributes { .. }
            | WireCall::SetAttributes { .. }
            | WireCall::Symlink { .. }
            | WireCall::MakeDir { .. }
            | WireCall::Remove { .. }
            | WireCall::Rename { .. } => true,
            WireCall::Open { options, .. } => {
                options.create != ab_core::options::FileCreation::Never
                    || options.existing == ab_core::options::ExistingContent::Truncate
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

impl Wire for WireCall {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(self.number());
        match self {
            WireCall::Hello { connection } => connection.put(out),
            WireCall::Stat { path, options } => {
                path.put(out);
                options.put(out);
            }
            WireCall::List { path, options } => {
                path.put(out);
                options.put(out);
            }
            WireCall::Search(query) => query.put(out),
            WireCall::More { handle } | WireCall::StatHandle { handle } => handle.put(out),
            WireCall::Read { path, options } => {
                path.put(out);
                options.put(out);
            }
            WireCall::Stage { size } => size.put(out),
            WireCall::Write { path, body, options } => {
                path.put(out);
                options.put(out);
                body.put(out);
            }
            WireCall::Open { path, options } => {
                path.put(out);
                options.put(out);
            }
            WireCall::SetFileAttributes { handle, attributes } => {
                handle.put(out);
                attributes.put(out);
            }
            WireCall::SetAttributes { path, attributes } => {
                path.put(out);
                attributes.put(out);
            }
            WireCall::ReadLink { path } | WireCall::MakeDir { path } => path.put(out),
            WireCall::Symlink { path, target } => {
                path.put(out);
                target.put(out);
            }
            WireCall::Remove { path, options } => {
                path.put(out);
                options.put(out);
            }
            WireCall::Rename { from, to, options } => {
                from.put(out);
                to.put(out);
                options.put(out);
            }
            WireCall::DiskSpace | WireCall::Processes | WireCall::Policy => {}
            WireCall::Cancel { request } => request.put(out),
            WireCall::Outcome(call) => call.put(out),
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => WireCall::Hello { connection: Wire::read(fields)? },
            1 => WireCall::Stat { path: Wire::read(fields)?, options: Wire::read(fields)? },
            2 => WireCall::List { path: Wire::read(fields)?, options: Wire::read(fields)? },
            3 => WireCall::Search(Box::new(Wire::read(fields)?)),
            4 => WireCall::More { handle: Wire::read(fields)? },
            5 => WireCall::Read { path: Wire::read(fields)?, options: Wire::read(fields)? },
            6 => WireCall::Stage { size: Wire::read(fields)? },
            7 => {
                let (path, options) = Wire::read(fields)?;
                WireCall::Write { path, body: Wire::read(fields)?, options }
            }
            8 => WireCall::Open { path: Wire::read(fields)?, options: Wire::read(fields)? },
            9 => WireCall::StatHandle { handle: Wire::read(fields)? },
            10 => WireCall::SetFileAttributes {
                handle: Wire::read(fields)?,
                attributes: Wire::read(fields)?,
            },
            11 => WireCall::SetAttributes {
                path: Wire::read(fields)?,
                attributes: Wire::read(fields)?,
            },
            12 => WireCall::ReadLink { path: Wire::read(fields)? },
            13 => WireCall::Symlink { path: Wire::read(fields)?, target: Wire::read(fields)? },
            14 => WireCall::MakeDir { path: Wire::read(fields)? },
            15 => WireCall::Remove { path: Wire::read(fields)?, options: Wire::read(fields)? },
            16 => WireCall::Rename {
                from: Wire::read(fields)?,
                to: Wire::read(fields)?,
                options: Wire::read(fields)?,
            },
            17 => WireCall::DiskSpace,
            18 => WireCall::Processes,
            19 => WireCall::Policy,
            20 => WireCall::Cancel { request: Wire::read(fields)? },
            21 => WireCall::Outcome(Wire::read(fields)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl Wire for WireBody {
    fn put(&self, out: &mut BytesMut) {
        match self {
            WireBody::Inline(bytes) => {
                out.put_u8(0);
                bytes.put(out);
            }
            WireBody::Staged(handle) => {
                out.put_u8(1);
                handle.put(out);
            }
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => WireBody::Inline(Wire::read(fields)?),
            1 => WireBody::Staged(Wire::read(fields)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl Wire for HelloReply {
    fn put(&self, out: &mut BytesMut) {
        self.incarnation.put(out);
        self.info.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self { incarnation: Wire::read(fields)?, info: Wire::read(fields)? })
    }
}

impl Wire for WireContent {
    /// The bytes themselves, if they are here, follow.
    fn put(&self, out: &mut BytesMut) {
        match self {
            WireContent::Inline(stat) => {
                out.put_u8(0);
                stat.put(out);
            }
            WireContent::Open(stat, handle) => {
                out.put_u8(1);
                stat.put(out);
                handle.put(out);
            }
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => WireContent::Inline(Wire::read(fields)?),
            1 => WireContent::Open(Wire::read(fields)?, Wire::read(fields)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl Wire for AnswerPart {
    fn put(&self, out: &mut BytesMut) {
        self.more.put(out);
        self.bytes.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self { more: Wire::read(fields)?, bytes: Wire::read(fields)? })
    }
}
