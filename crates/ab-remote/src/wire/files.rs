//! Files on the wire: how they are asked for, and what is said of them.

use ab_core::driver::{BackendInfo, BackendKind, Capabilities};
use ab_core::metadata::{
    DiskSpace, Entry, FileKind, Listing, Stat, TruncatedBy, Version, WalkProblem,
};
use ab_core::options::{
    Attributes, ByteRange, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteOptions,
};
use bytes::{BufMut, BytesMut};

use super::{Read, Wire, put_number, take_number};
use crate::sftp::packet::PacketReader;

impl Wire for StatOptions {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, self.links);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self { links: take_number(fields)? })
    }
}

impl Wire for ListOptions {
    fn put(&self, out: &mut BytesMut) {
        (self.depth, self.limit).put(out);
        put_number(out, self.detail);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (depth, limit) = Wire::read(fields)?;
        Ok(Self { depth, limit, detail: take_number(fields)? })
    }
}

impl Wire for ReadOptions {
    fn put(&self, out: &mut BytesMut) {
        self.range.map(|range| (range.start, range.length)).put(out);
        self.limit.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let range = <Option<(u64, u64)>>::read(fields)?;
        let range = range.map(|(start, length)| ByteRange { start, length });
        Ok(Self { range, limit: Wire::read(fields)? })
    }
}

impl Wire for WriteOptions {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, self.mode);
        self.expect.put(out);
        self.permissions.put(out);
        put_number(out, self.durability);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            mode: take_number(fields)?,
            expect: Wire::read(fields)?,
            permissions: Wire::read(fields)?,
            durability: take_number(fields)?,
        })
    }
}

impl Wire for OpenOptions {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, self.access);
        put_number(out, self.create);
        put_number(out, self.existing);
        put_number(out, self.position);
        self.permissions.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            access: take_number(fields)?,
            create: take_number(fields)?,
            existing: take_number(fields)?,
            position: take_number(fields)?,
            permissions: Wire::read(fields)?,
        })
    }
}

impl Wire for Attributes {
    fn put(&self, out: &mut BytesMut) {
        self.mode.put(out);
        (self.modified, self.accessed).put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let mode = Wire::read(fields)?;
        let (modified, accessed) = Wire::read(fields)?;
        Ok(Self { mode, modified, accessed })
    }
}

impl Wire for RemoveOptions {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, self.depth);
        put_number(out, self.missing);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self { depth: take_number(fields)?, missing: take_number(fields)? })
    }
}

impl Wire for RenameOptions {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, self.overwrite);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self { overwrite: take_number(fields)? })
    }
}

impl Wire for FileKind {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        take_number(fields)
    }
}

impl Wire for Version {
    fn put(&self, out: &mut BytesMut) {
        out.put_slice(&self.bytes());
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Version::new(Wire::read(fields)?))
    }
}

impl Wire for Stat {
    fn put(&self, out: &mut BytesMut) {
        self.kind.put(out);
        self.size.put(out);
        self.modified.put(out);
        (self.accessed, self.created).put(out);
        self.mode.put(out);
        self.version.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (kind, size, modified) =
            (Wire::read(fields)?, Wire::read(fields)?, Wire::read(fields)?);
        let (accessed, created) = Wire::read(fields)?;
        let (mode, version) = Wire::read(fields)?;
        Ok(Self { kind, size, modified, accessed, created, mode, version })
    }
}

impl Wire for Entry {
    fn put(&self, out: &mut BytesMut) {
        self.path.put(out);
        self.kind.put(out);
        self.stat.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self { path: Wire::read(fields)?, kind: Wire::read(fields)?, stat: Wire::read(fields)? })
    }
}

impl Wire for TruncatedBy {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        take_number(fields)
    }
}

impl Wire for WalkProblem {
    fn put(&self, out: &mut BytesMut) {
        self.path.put(out);
        self.error.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self { path: Wire::read(fields)?, error: Wire::read(fields)? })
    }
}

impl Wire for Listing {
    fn put(&self, out: &mut BytesMut) {
        self.entries.put(out);
        self.truncated.put(out);
        self.problems.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            entries: Wire::read(fields)?,
            truncated: Wire::read(fields)?,
            problems: Wire::read(fields)?,
        })
    }
}

impl Wire for DiskSpace {
    fn put(&self, out: &mut BytesMut) {
        (self.total, self.available).put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (total, available) = Wire::read(fields)?;
        Ok(Self { total, available })
    }
}

impl Wire for BackendKind {
    fn put(&self, out: &mut BytesMut) {
        put_number(out, *self);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        take_number(fields)
    }
}

impl Wire for Capabilities {
    fn put(&self, out: &mut BytesMut) {
        for can in [
            self.exec,
            self.detached,
            self.search,
            self.links,
            self.modes,
            self.empty_dirs,
            self.jail,
            self.atomic_write,
            self.exact_kinds,
        ] {
            can.put(out);
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            exec: Wire::read(fields)?,
            detached: Wire::read(fields)?,
            search: Wire::read(fields)?,
            links: Wire::read(fields)?,
            modes: Wire::read(fields)?,
            empty_dirs: Wire::read(fields)?,
            jail: Wire::read(fields)?,
            atomic_write: Wire::read(fields)?,
            exact_kinds: Wire::read(fields)?,
        })
    }
}

impl Wire for BackendInfo {
    fn put(&self, out: &mut BytesMut) {
        self.kind.put(out);
        self.root_aliases.put(out);
        self.capabilities.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            kind: Wire::read(fields)?,
            root_aliases: Wire::read(fields)?,
            capabilities: Wire::read(fields)?,
        })
    }
}
