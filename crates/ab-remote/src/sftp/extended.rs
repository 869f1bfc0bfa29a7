//! Requests beyond version 3: some of OpenSSH's, and the one that our own client needs, whose body is a
//! [`WireCall`]. A request whose fields make no sense is refused like a bad packet. Pure: nothing is done
//! here.

use bytes::{Bytes, BytesMut};

use super::packet::{PacketReader, TruncatedField};
use crate::wire::call::{self, WireCall};
use crate::wire::{self, Wire};

/// An extended request.
#[derive(Clone, Debug)]
pub enum Extended {
    PosixRename { from: Bytes, to: Bytes },
    Statvfs { path: Bytes },
    FstatVfs { handle: Bytes },
    Fsync { handle: Bytes },
    Limits,
    Call(Box<WireCall>),
}

/// Why an extended request is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedError {
    /// Nobody here knows the name.
    UnknownName,
    /// A field is not there as a whole.
    Truncated,
    /// A field has a value that means nothing.
    Invalid,
}

impl From<TruncatedField> for ExtendedError {
    fn from(TruncatedField: TruncatedField) -> Self {
        ExtendedError::Truncated
    }
}

impl From<wire::DecodeError> for ExtendedError {
    fn from(misread: wire::DecodeError) -> Self {
        match misread {
            wire::DecodeError::Truncated => ExtendedError::Truncated,
            wire::DecodeError::Invalid => ExtendedError::Invalid,
        }
    }
}

/// The names, and the version that is told of each.
pub const NAMES: &[(&str, &str)] = &[
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("fsync@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    (call::NAME, call::VERSION),
];

impl Extended {
    /// Reads the fields of the request called `name`.
    pub fn decode(name: &[u8], body: Bytes) -> Result<Self, ExtendedError> {
        let mut fields = PacketReader::new(body);
        let fields = &mut fields;
        Ok(match name {
            b"posix-rename@openssh.com" => {
                Extended::PosixRename { from: fields.string()?, to: fields.string()? }
            }
            b"statvfs@openssh.com" => Extended::Statvfs { path: fields.string()? },
            b"fstatvfs@openssh.com" => Extended::FstatVfs { handle: fields.string()? },
            b"fsync@openssh.com" => Extended::Fsync { handle: fields.string()? },
            b"limits@openssh.com" => Extended::Limits,
            name if name == call::NAME.as_bytes() => {
                Extended::Call(Box::new(wire::decode(fields.rest())?))
            }
            _ => return Err(ExtendedError::UnknownName),
        })
    }

    /// The name and the fields, as [`decode`](Self::decode) takes them.
    pub fn encode(&self) -> (&'static str, Bytes) {
        let mut out = BytesMut::new();
        let name = match self {
            Extended::PosixRename { from, to } => {
                from.put(&mut out);
                to.put(&mut out);
                "posix-rename@openssh.com"
            }
            Extended::Statvfs { path } => {
                path.put(&mut out);
                "statvfs@openssh.com"
            }
            Extended::FstatVfs { handle } => {
                handle.put(&mut out);
                "fstatvfs@openssh.com"
            }
            Extended::Fsync { handle } => {
                handle.put(&mut out);
                "fsync@openssh.com"
            }
            Extended::Limits => "limits@openssh.com",
            Extended::Call(call) => {
                call.put(&mut out);
                call::NAME
            }
        };
        (name, out.freeze())
    }
}
