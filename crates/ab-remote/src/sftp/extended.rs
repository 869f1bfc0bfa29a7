//! Requests beyond version 3: some of OpenSSH's, and the one that our own client needs, whose body is a
//! [`WireCall`]. A request whose fields make no sense is refused like a bad packet. Pure: nothing is done
//! here.

use bytes::{Bytes, BytesMut};

use super::packet::{PacketReader, TruncatedField};
use crate::wire::call::{self, WireCall};
use crate::wire::{self, WireCodec};

/// An extended request.
#[derive(Clone, Debug)]
pub enum ExtendedRequest {
    PosixRename { from: Bytes, to: Bytes },
    Statvfs { path: Bytes },
    FstatVfs { handle: Bytes },
    Fsync { handle: Bytes },
    Limits,
    Call(Box<WireCall>),
}

/// Why an extended request is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedRequestError {
    /// Nobody here knows the name.
    UnknownName,
    /// A field is not there as a whole.
    Truncated,
    /// A field has a value that means nothing.
    Invalid,
}

impl From<TruncatedField> for ExtendedRequestError {
    fn from(TruncatedField: TruncatedField) -> Self {
        ExtendedRequestError::Truncated
    }
}

impl From<wire::DecodeError> for ExtendedRequestError {
    fn from(misread: wire::DecodeError) -> Self {
        match misread {
            wire::DecodeError::Truncated => ExtendedRequestError::Truncated,
            wire::DecodeError::Invalid => ExtendedRequestError::Invalid,
        }
    }
}

/// The names, and the version that is told of each.
pub const SUPPORTED_EXTENSIONS: &[(&str, &str)] = &[
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("fsync@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    (call::CALL_EXTENSION_NAME, call::CALL_EXTENSION_VERSION),
];

impl ExtendedRequest {
    /// Reads the fields of the request called `name`.
    pub fn decode(name: &[u8], body: Bytes) -> Result<Self, ExtendedRequestError> {
        let mut fields = PacketReader::new(body);
        let fields = &mut fields;
        Ok(match name {
            b"posix-rename@openssh.com" => {
                ExtendedRequest::PosixRename { from: fields.string()?, to: fields.string()? }
            }
            b"statvfs@openssh.com" => ExtendedRequest::Statvfs { path: fields.string()? },
            b"fstatvfs@openssh.com" => ExtendedRequest::FstatVfs { handle: fields.string()? },
            b"fsync@openssh.com" => ExtendedRequest::Fsync { handle: fields.string()? },
            b"limits@openssh.com" => ExtendedRequest::Limits,
            name if name == call::CALL_EXTENSION_NAME.as_bytes() => {
                ExtendedRequest::Call(Box::new(wire::decode(fields.rest())?))
            }
            _ => return Err(ExtendedRequestError::UnknownName),
        })
    }

    /// The name and the fields, as [`decode`](Self::decode) takes them.
    pub fn encode(&self) -> (&'static str, Bytes) {
        let mut out = BytesMut::new();
        let name = match self {
            ExtendedRequest::PosixRename { from, to } => {
                from.encode_to(&mut out);
                to.encode_to(&mut out);
                "posix-rename@openssh.com"
            }
            ExtendedRequest::Statvfs { path } => {
                path.encode_to(&mut out);
                "statvfs@openssh.com"
            }
            ExtendedRequest::FstatVfs { handle } => {
                handle.encode_to(&mut out);
                "fstatvfs@openssh.com"
            }
            ExtendedRequest::Fsync { handle } => {
                handle.encode_to(&mut out);
                "fsync@openssh.com"
            }
            ExtendedRequest::Limits => "limits@openssh.com",
            ExtendedRequest::Call(call) => {
                call.encode_to(&mut out);
                call::CALL_EXTENSION_NAME
            }
        };
        (name, out.freeze())
    }
}
