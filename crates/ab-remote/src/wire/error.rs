//! The encoding of errors. An error has the same kind on both sides.

use ab_core::{ApprovalId, Error, LostCallEffect, Verb};
use bytes::BytesMut;

use super::{DecodeResult, WireCodec, put_number, take_number};
use crate::sftp::packet::SshFieldReader;

impl WireCodec for Verb {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        take_number(fields)
    }
}

impl WireCodec for LostCallEffect {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        take_number(fields)
    }
}

impl WireCodec for Error {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, self.code());
        put_number(out, self.kind());
        self.message().to_owned().encode_to(out);
        let owned = |text: Option<&str>| text.map(str::to_owned);
        owned(self.hint()).encode_to(out);
        self.backend_kind().encode_to(out);
        self.verb().encode_to(out);
        owned(self.path()).encode_to(out);
        owned(self.command()).encode_to(out);
        self.process_exit().cloned().encode_to(out);
        owned(self.pending_approval_id().map(ApprovalId::as_str)).encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (code, kind) = (take_number(fields)?, take_number(fields)?);
        let mut error = Error::new(code, kind, String::decode_from(fields)?);
        if let Some(hint) = <Option<String>>::decode_from(fields)? {
            error = error.with_hint(hint);
        }
        if let Some(backend) = WireCodec::decode_from(fields)? {
            error = error.with_backend_kind(backend);
        }
        if let Some(verb) = WireCodec::decode_from(fields)? {
            error = error.with_verb(verb);
        }
        if let Some(path) = <Option<String>>::decode_from(fields)? {
            error = error.with_path(path);
        }
        if let Some(command) = <Option<String>>::decode_from(fields)? {
            error = error.with_command(command);
        }
        if let Some(exit) = WireCodec::decode_from(fields)? {
            error = error.with_process_exit(exit);
        }
        if let Some(approval) = <Option<String>>::decode_from(fields)? {
            error = error.with_pending_approval_id(ApprovalId::new(approval));
        }
        Ok(error)
    }
}
