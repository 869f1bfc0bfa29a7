//! What our client asks of our server, beyond SFTP: one call for each thing a workspace can do, in
//! one round trip, with exact answers.
//!
//! Calls are extended requests named [`NAME`]; the answer to one is an extended reply, or a status
//! that refuses. After a [`Call::Hello`] such a status goes on after its language tag with a string
//! that holds the whole error, for SFTP's own requests too.

use ab_core::driver::Info;
use ab_core::metadata::Stat;
use ab_core::options::{
    Attributes, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions, StatOptions,
    WriteOptions,
};
use ab_core::path::MAX_PATH_BYTES;
use ab_core::search::Query;
use ab_core::{Ticket, WsPath};
use bytes::{BufMut, Bytes, BytesMut};

use super::{Misread, Read, Wire};
use crate::sftp::packet::Fields;

/// The extension's name and its version.
pub const NAME: &str = "call@agent-backend";
pub const VERSION: &str = "1";

/// The longest answer in [parts](Part), and the most of such answers that a server keeps for one
/// connection.
pub const MAX_ANSWER: usize = 128 * 1024 * 1024;
/// What an entry of a listing takes at most: a path and what is known of it.
const MAX_ENTRY: usize = MAX_PATH_BYTES + 1024;
/// What there may be in an answer beside its entries: what could not be read, for the most part.
const BESIDE: usize = 8 * 1024 * 1024;

/// A number that an SFTP handle is.
pub type Handle = u32;

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

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(Self { connection: Wire::read(fields)?, request: Wire::read(fields)? })
    }
}

#[derive(Clone, Debug)]
pub enum Call {
    /// Who makes this connection; the answer is a [`Welcome`].
    Hello {
        connection: u128,
    },
    Stat {
        path: WsPath,
        options: StatOptions,
    },
    /// The answer is a listing, in [parts](Part).
    List {
        path: WsPath,
        options: ListOptions,
    },
    /// The answer is what was found, in [parts](Part).
    Search(Box<Query>),
    /// The next part of an answer.
    More {
        handle: Handle,
    },
    /// The answer is [`Content`].
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
        body: Body,
        options: WriteOptions,
    },
    /// The answer is a handle.
    Open {
        path: WsPath,
        options: OpenOptions,
    },
    /// Describes what a handle is of.
    Describe {
        handle: Handle,
    },
    Dress {
        handle: Handle,
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
    Space,
    /// The answer is a list of processes, in [parts](Part).
    Processes,
    /// The answer is what is in force, in [parts](Part).
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
pub enum Body {
    Here(Bytes),
    /// What a [`Call::Stage`] made room for; the handle is used up.
    Staged(Handle),
}

/// The answer to [`Call::Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The server from its start to its end: another one knows nothing of earlier calls.
    pub incarnation: u128,
    pub info: Info,
}

/// The answer to [`Call::Read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of it follows.
    Here(Stat),
    /// It is too long for one packet and to be read by READ.
    Open(Stat, Handle),
}

/// A piece of an answer that may be longer than one packet. Put together, the pieces are it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What to ask for the next piece by.
    pub more: Option<Handle>,
    pub bytes: Bytes,
}

impl Call {
    /// Bytes of the longest answer in [parts](Part) that this can have.
    pub fn longest_answer(&self) -> usize {
        match self {
            Call::List { options, .. } => {
                let entries = options.limit.saturating_mul(MAX_ENTRY);
                entries.saturating_add(BESIDE).min(MAX_ANSWER)
            }
            _ => MAX_ANSWER,
        }
    }

    /// Whether the workspace may be another one afterwards.
    pub fn modifies(&self) -> bool {
        match self {
            Call::Write { .. }
            | Call::Dress { .. }
            | Call::SetAttributes { .. }
            | Call::Symlink { .. }
            | Call::MakeDir { .. }
            | Call::Remove { .. }
            | Call::Rename { .. } => true,
            Call::Open { options, .. } => {
                options.create != ab_core::options::Creation::Never
                    || options.existing == ab_core::options::Existing::Truncate
            }
            Call::Hello { .. }
            | Call::Stat { .. }
            | Call::List { .. }
            | Call::Search(_)
            | Call::More { .. }
            | Call::Read { .. }
            | Call::Stage { .. }
            | Call::Describe { .. }
            | Call::ReadLink { .. }
            | Call::Space
            | Call::Processes
            | Call::Policy
            | Call::Cancel { .. }
            | Call::Outcome(_) => false,
        }
    }

    fn number(&self) -> u8 {
        match self {
            Call::Hello { .. } => 0,
            Call::Stat { .. } => 1,
            Call::List { .. } => 2,
            Call::Search(_) => 3,
            Call::More { .. } => 4,
            Call::Read { .. } => 5,
            Call::Stage { .. } => 6,
            Call::Write { .. } => 7,
            Call::Open { .. } => 8,
            Call::Describe { .. } => 9,
            Call::Dress { .. } => 10,
            Call::SetAttributes { .. } => 11,
            Call::ReadLink { .. } => 12,
            Call::Symlink { .. } => 13,
            Call::MakeDir { .. } => 14,
            Call::Remove { .. } => 15,
            Call::Rename { .. } => 16,
            Call::Space => 17,
            Call::Processes => 18,
            Call::Policy => 19,
            Call::Cancel { .. } => 20,
            Call::Outcome(_) => 21,
        }
    }
}

impl Wire for Call {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(self.number());
        match self {
            Call::Hello { connection } => connection.put(out),
            Call::Stat { path, options } => {
                path.put(out);
                options.put(out);
            }
            Call::List { path, options } => {
                path.put(out);
                options.put(out);
            }
            Call::Search(query) => query.put(out),
            Call::More { handle } | Call::Describe { handle } => handle.put(out),
            Call::Read { path, options } => {
                path.put(out);
                options.put(out);
            }
            Call::Stage { size } => size.put(out),
            Call::Write { path, body, options } => {
                path.put(out);
                options.put(out);
                body.put(out);
            }
            Call::Open { path, options } => {
                path.put(out);
                options.put(out);
            }
            Call::Dress { handle, attributes } => {
                handle.put(out);
                attributes.put(out);
            }
            Call::SetAttributes { path, attributes } => {
                path.put(out);
                attributes.put(out);
            }
            Call::ReadLink { path } | Call::MakeDir { path } => path.put(out),
            Call::Symlink { path, target } => {
                path.put(out);
                target.put(out);
            }
            Call::Remove { path, options } => {
                path.put(out);
                options.put(out);
            }
            Call::Rename { from, to, options } => {
                from.put(out);
                to.put(out);
                options.put(out);
            }
            Call::Space | Call::Processes | Call::Policy => {}
            Call::Cancel { request } => request.put(out),
            Call::Outcome(call) => call.put(out),
        }
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => Call::Hello { connection: Wire::read(fields)? },
            1 => Call::Stat { path: Wire::read(fields)?, options: Wire::read(fields)? },
            2 => Call::List { path: Wire::read(fields)?, options: Wire::read(fields)? },
            3 => Call::Search(Box::new(Wire::read(fields)?)),
            4 => Call::More { handle: Wire::read(fields)? },
            5 => Call::Read { path: Wire::read(fields)?, options: Wire::read(fields)? },
            6 => Call::Stage { size: Wire::read(fields)? },
            7 => {
                let (path, options) = Wire::read(fields)?;
                Call::Write { path, body: Wire::read(fields)?, options }
            }
            8 => Call::Open { path: Wire::read(fields)?, options: Wire::read(fields)? },
            9 => Call::Describe { handle: Wire::read(fields)? },
            10 => Call::Dress { handle: Wire::read(fields)?, attributes: Wire::read(fields)? },
            11 => {
                Call::SetAttributes { path: Wire::read(fields)?, attributes: Wire::read(fields)? }
            }
            12 => Call::ReadLink { path: Wire::read(fields)? },
            13 => Call::Symlink { path: Wire::read(fields)?, target: Wire::read(fields)? },
            14 => Call::MakeDir { path: Wire::read(fields)? },
            15 => Call::Remove { path: Wire::read(fields)?, options: Wire::read(fields)? },
            16 => Call::Rename {
                from: Wire::read(fields)?,
                to: Wire::read(fields)?,
                options: Wire::read(fields)?,
            },
            17 => Call::Space,
            18 => Call::Processes,
            19 => Call::Policy,
            20 => Call::Cancel { request: Wire::read(fields)? },
            21 => Call::Outcome(Wire::read(fields)?),
            _ => return Err(Misread::Senseless),
        })
    }
}

impl Wire for Body {
    fn put(&self, out: &mut BytesMut) {
        match self {
            Body::Here(bytes) => {
                out.put_u8(0);
                bytes.put(out);
            }
            Body::Staged(handle) => {
                out.put_u8(1);
                handle.put(out);
            }
        }
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => Body::Here(Wire::read(fields)?),
            1 => Body::Staged(Wire::read(fields)?),
            _ => return Err(Misread::Senseless),
        })
    }
}

impl Wire for Welcome {
    fn put(&self, out: &mut BytesMut) {
        self.incarnation.put(out);
        self.info.put(out);
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(Self { incarnation: Wire::read(fields)?, info: Wire::read(fields)? })
    }
}

impl Wire for Content {
    /// The bytes themselves, if they are here, follow.
    fn put(&self, out: &mut BytesMut) {
        match self {
            Content::Here(stat) => {
                out.put_u8(0);
                stat.put(out);
            }
            Content::Open(stat, handle) => {
                out.put_u8(1);
                stat.put(out);
                handle.put(out);
            }
        }
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => Content::Here(Wire::read(fields)?),
            1 => Content::Open(Wire::read(fields)?, Wire::read(fields)?),
            _ => return Err(Misread::Senseless),
        })
    }
}

impl Wire for Part {
    fn put(&self, out: &mut BytesMut) {
        self.more.put(out);
        self.bytes.put(out);
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(Self { more: Wire::read(fields)?, bytes: Wire::read(fields)? })
    }
}
