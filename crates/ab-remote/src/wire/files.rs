//! The encoding of file options, attributes and listings.

use ab_core::driver::{BackendInfo, BackendKind, Capabilities};
use ab_core::metadata::{
    DirEntry, DiskSpace, FileKind, FileVersion, Listing, Stat, TruncationCause, WalkProblem,
};
use ab_core::options::{
    AttributeChanges, ByteRange, ListOptions, OpenOptions, ReadOptions, RemoveOptions,
    RenameOptions, StatOptions, WriteOptions,
};
use bytes::{BufMut, BytesMut};

use super::{DecodeResult, WireCodec, put_number, take_number};
use crate::sftp::packet::SshFieldReader;

impl WireCodec for StatOptions {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, self.links);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self { links: take_number(fields)? })
    }
}

impl WireCodec for ListOptions {
    fn encode_to(&self, out: &mut BytesMut) {
        (self.max_depth, self.max_entries).encode_to(out);
        put_number(out, self.detail);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (depth, limit) = WireCodec::decode_from(fields)?;
        Ok(Self { max_depth: depth, max_entries: limit, detail: take_number(fields)? })
    }
}

impl WireCodec for ReadOptions {
    fn encode_to(&self, out: &mut BytesMut) {
        self.range.map(|range| (range.start, range.length)).encode_to(out);
        self.max_bytes.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let range = <Option<(u64, u64)>>::decode_from(fields)?;
        let range = range.map(|(start, length)| ByteRange { start, length });
        Ok(Self { range, max_bytes: WireCodec::decode_from(fields)? })
    }
}

impl WireCodec for WriteOptions {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, self.mode);
        self.expected_version.encode_to(out);
        self.permissions.encode_to(out);
        put_number(out, self.durability);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            mode: take_number(fields)?,
            expected_version: WireCodec::decode_from(fields)?,
            permissions: WireCodec::decode_from(fields)?,
            durability: take_number(fields)?,
        })
    }
}

impl WireCodec for OpenOptions {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, self.access);
        put_number(out, self.create);
        put_number(out, self.existing);
        put_number(out, self.position);
        self.permissions.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            access: take_number(fields)?,
            create: take_number(fields)?,
            existing: take_number(fields)?,
            position: take_number(fields)?,
            permissions: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for AttributeChanges {
    fn encode_to(&self, out: &mut BytesMut) {
        self.mode.encode_to(out);
        (self.modified, self.accessed).encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let mode = WireCodec::decode_from(fields)?;
        let (modified, accessed) = WireCodec::decode_from(fields)?;
        Ok(Self { mode, modified, accessed })
    }
}

impl WireCodec for RemoveOptions {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, self.depth);
        put_number(out, self.missing);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self { depth: take_number(fields)?, missing: take_number(fields)? })
    }
}

impl WireCodec for RenameOptions {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, self.overwrite);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self { overwrite: take_number(fields)? })
    }
}

impl WireCodec for FileKind {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        take_number(fields)
    }
}

impl WireCodec for FileVersion {
    fn encode_to(&self, out: &mut BytesMut) {
        out.put_slice(&self.to_be_bytes());
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(FileVersion::new(WireCodec::decode_from(fields)?))
    }
}

impl WireCodec for Stat {
    fn encode_to(&self, out: &mut BytesMut) {
        self.kind.encode_to(out);
        self.size.encode_to(out);
        self.modified.encode_to(out);
        (self.accessed, self.created).encode_to(out);
        self.mode.encode_to(out);
        self.version.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (kind, size, modified) = (
            WireCodec::decode_from(fields)?,
            WireCodec::decode_from(fields)?,
            WireCodec::decode_from(fields)?,
        );
        let (accessed, created) = WireCodec::decode_from(fields)?;
        let (mode, version) = WireCodec::decode_from(fields)?;
        Ok(Self { kind, size, modified, accessed, created, mode, version })
    }
}

impl WireCodec for DirEntry {
    fn encode_to(&self, out: &mut BytesMut) {
        self.path.encode_to(out);
        self.kind.encode_to(out);
        self.stat.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            path: WireCodec::decode_from(fields)?,
            kind: WireCodec::decode_from(fields)?,
            stat: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for TruncationCause {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        take_number(fields)
    }
}

impl WireCodec for WalkProblem {
    fn encode_to(&self, out: &mut BytesMut) {
        self.path.encode_to(out);
        self.error.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self { path: WireCodec::decode_from(fields)?, error: WireCodec::decode_from(fields)? })
    }
}

impl WireCodec for Listing {
    fn encode_to(&self, out: &mut BytesMut) {
        self.entries.encode_to(out);
        self.truncated.encode_to(out);
        self.problems.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            entries: WireCodec::decode_from(fields)?,
            truncated: WireCodec::decode_from(fields)?,
            problems: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for DiskSpace {
    fn encode_to(&self, out: &mut BytesMut) {
        (self.total, self.available).encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (total, available) = WireCodec::decode_from(fields)?;
        Ok(Self { total, available })
    }
}

impl WireCodec for BackendKind {
    fn encode_to(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        take_number(fields)
    }
}

impl WireCodec for Capabilities {
    fn encode_to(&self, out: &mut BytesMut) {
        for can in [
            self.exec,
            self.detached_processes,
            self.search,
            self.symlinks,
            self.file_modes,
            self.empty_dirs,
            self.jail,
            self.atomic_write,
            self.exact_error_kinds,
        ] {
            can.encode_to(out);
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            exec: WireCodec::decode_from(fields)?,
            detached_processes: WireCodec::decode_from(fields)?,
            search: WireCodec::decode_from(fields)?,
            symlinks: WireCodec::decode_from(fields)?,
            file_modes: WireCodec::decode_from(fields)?,
            empty_dirs: WireCodec::decode_from(fields)?,
            jail: WireCodec::decode_from(fields)?,
            atomic_write: WireCodec::decode_from(fields)?,
            exact_error_kinds: WireCodec::decode_from(fields)?,
        })
    }
}

impl WireCodec for BackendInfo {
    fn encode_to(&self, out: &mut BytesMut) {
        self.kind.encode_to(out);
        self.root_aliases.encode_to(out);
        self.capabilities.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            kind: WireCodec::decode_from(fields)?,
            root_aliases: WireCodec::decode_from(fields)?,
            capabilities: WireCodec::decode_from(fields)?,
        })
    }
}
