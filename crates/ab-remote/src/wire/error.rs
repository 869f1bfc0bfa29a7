//! Failures on the wire, exactly: the same failure has the same kind on both sides.

use ab_core::{ApprovalId, CallEffect, Error, Verb};
use bytes::BytesMut;

use super::{Read, Wire, put_number, take_number};
use crate::sftp::packet::PacketReader;

impl Wire for Verb {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        take_number(fields)
    }
}

impl Wire for CallEffect {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        take_number(fields)
    }
}

impl Wire for Error {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, self.code());
        put_number(out, self.kind());
        self.message().to_owned().put(out);
        let owned = |text: Option<&str>| text.map(str::to_owned);
        owned(self.hint()).put(out);
        self.backend().put(out);
        self.verb().put(out);
        owned(self.path()).put(out);
        owned(self.command()).put(out);
        self.exit().cloned().put(out);
        owned(self.approval().map(ApprovalId::as_str)).put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (code, kind) = (take_number(fields)?, take_number(fields)?);
        let mut error = Error::new(code, kind, String::read(fields)?);
        if let Some(hint) = <Option<String>>::read(fields)? {
            error = error.with_hint(hint);
        }
        if let Some(backend) = Wire::read(fields)? {
            error = error.with_backend(backend);
        }
        if let Some(verb) = Wire::read(fields)? {
            error = error.with_verb(verb);
        }
        if let Some(path) = <Option<String>>::read(fields)? {
            error = error.with_path(path);
        }
        if let Some(command) = <Option<String>>::read(fields)? {
            error = error.with_command(command);
        }
        if let Some(exit) = Wire::read(fields)? {
            error = error.with_exit(exit);
        }
        if let Some(approval) = <Option<String>>::read(fields)? {
            error = error.with_approval(ApprovalId::new(approval));
        }
        Ok(error)
    }
}
