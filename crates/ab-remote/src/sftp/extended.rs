//! Extended requests: some of OpenSSH's, and the request of agent-backend clients, whose body is a
//! [`RemoteCall`]. Invalid fields are refused like an invalid packet. This module only decodes and
//! encodes.

use bytes::{Bytes, BytesMut};

use super::packet::{SshFieldReader, TruncatedField};
use crate::wire::call::{self, RemoteCall};
use crate::wire::{self, WireCodec};

/// An extended request of SFTP, which has a name instead of a number.
#[derive(Clone, Debug)]
pub enum ExtendedRequest {
    PosixRename { from: Bytes, to: Bytes },
    Statvfs { path: Bytes },
    FstatVfs { handle: Bytes },
    Fsync { handle: Bytes },
    Limits,
    Call(Box<RemoteCall>),
}

/// Why an extended request could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedRequestError {
    /// The name of the request is unknown.
    UnknownName,
    /// A field is incomplete.
    Truncated,
    /// A field has an invalid value.
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

/// The names of the supported extensions, and the version that is reported for each.
pub const SUPPORTED_EXTENSIONS: &[(&str, &str)] = &[
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("fsync@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    (call::REMOTE_CALL_EXTENSION_NAME, call::REMOTE_CALL_EXTENSION_VERSION),
];

impl ExtendedRequest {
    /// Decodes the fields of the request with this name.
    pub fn decode(name: &[u8], body: Bytes) -> Result<Self, ExtendedRequestError> {
        let mut fields = SshFieldReader::new(body);
        let fields = &mut fields;
        Ok(match name {
            b"posix-rename@openssh.com" => ExtendedRequest::PosixRename {
                from: fields.read_string()?,
                to: fields.read_string()?,
            },
            b"statvfs@openssh.com" => ExtendedRequest::Statvfs { path: fields.read_string()? },
            b"fstatvfs@openssh.com" => ExtendedRequest::FstatVfs { handle: fields.read_string()? },
            b"fsync@openssh.com" => ExtendedRequest::Fsync { handle: fields.read_string()? },
            b"limits@openssh.com" => ExtendedRequest::Limits,
            name if name == call::REMOTE_CALL_EXTENSION_NAME.as_bytes() => {
                ExtendedRequest::Call(Box::new(wire::decode(fields.read_remaining())?))
            }
            _ => return Err(ExtendedRequestError::UnknownName),
        })
    }

    /// Encodes the request. Returns its name and its fields in the form that
    /// [`decode`](Self::decode) accepts.
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
                call::REMOTE_CALL_EXTENSION_NAME
            }
        };
        (name, out.freeze())
    }
}
