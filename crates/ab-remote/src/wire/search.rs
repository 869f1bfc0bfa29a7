//! Searches on the wire.

use ab_core::search::{
    IgnoredCounts, Match, Query, SearchLimits, SearchResults, SearchTarget, TextQuery,
};
use bytes::{BufMut, BytesMut};

use super::{DecodeError, Read, Wire, put_number, take_number};
use crate::sftp::packet::PacketReader;

impl Wire for SearchTarget {
    fn put(&self, out: &mut BytesMut) {
        match self {
            SearchTarget::Names { glob, kinds } => {
                out.put_u8(0);
                glob.put(out);
                put_number(out, *kinds);
            }
            SearchTarget::Text(text) => {
                out.put_u8(1);
                text.pattern.put(out);
                put_number(out, text.syntax);
                put_number(out, text.case);
                put_number(out, text.span);
                (text.before, text.after).put(out);
                put_number(out, text.answer);
            }
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => SearchTarget::Names { glob: Wire::read(fields)?, kinds: take_number(fields)? },
            1 => SearchTarget::Text(TextQuery {
                pattern: Wire::read(fields)?,
                syntax: take_number(fields)?,
                case: take_number(fields)?,
                span: take_number(fields)?,
                before: Wire::read(fields)?,
                after: Wire::read(fields)?,
                answer: take_number(fields)?,
            }),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl Wire for Query {
    fn put(&self, out: &mut BytesMut) {
        self.root.put(out);
        self.wanted.put(out);
        self.include.put(out);
        self.exclude.put(out);
        self.ignore.put(out);
        put_number(out, self.hidden);
        put_number(out, self.ignore_files);
        (self.limits.matches, self.limits.bytes).put(out);
        self.limits.time.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(Self {
            root: Wire::read(fields)?,
            wanted: Wire::read(fields)?,
            include: Wire::read(fields)?,
            exclude: Wire::read(fields)?,
            ignore: Wire::read(fields)?,
            hidden: take_number(fields)?,
            ignore_files: take_number(fields)?,
            limits: SearchLimits {
                matches: Wire::read(fields)?,
                bytes: Wire::read(fields)?,
                time: Wire::read(fields)?,
            },
        })
    }
}

impl Wire for Match {
    fn put(&self, out: &mut BytesMut) {
        match self {
            Match::Name(entry) => {
                out.put_u8(0);
                entry.put(out);
            }
            Match::Line { path, line, text, cut, role } => {
                out.put_u8(1);
                path.put(out);
                line.put(out);
                text.put(out);
                cut.put(out);
                put_number(out, *role);
            }
            Match::File { path } => {
                out.put_u8(2);
                path.put(out);
            }
            Match::Count { path, lines } => {
                out.put_u8(3);
                path.put(out);
                lines.put(out);
            }
        }
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => Match::Name(Wire::read(fields)?),
            1 => Match::Line {
                path: Wire::read(fields)?,
                line: Wire::read(fields)?,
                text: Wire::read(fields)?,
                cut: Wire::read(fields)?,
                role: take_number(fields)?,
            },
            2 => Match::File { path: Wire::read(fields)? },
            3 => Match::Count { path: Wire::read(fields)?, lines: Wire::read(fields)? },
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl Wire for SearchResults {
    fn put(&self, out: &mut BytesMut) {
        self.matches.put(out);
        self.truncated.put(out);
        (self.searched, self.skipped_binary).put(out);
        (self.left_out.directories, self.left_out.files).put(out);
        self.problems.put(out);
    }

    fn read(fields: &mut PacketReader) -> Read<Self> {
        let (matches, truncated) = Wire::read(fields)?;
        let (searched, skipped_binary) = Wire::read(fields)?;
        let (directories, files) = Wire::read(fields)?;
        let left_out = IgnoredCounts { directories, files };
        let problems = Wire::read(fields)?;
        Ok(Self { matches, truncated, searched, skipped_binary, left_out, problems })
    }
}
