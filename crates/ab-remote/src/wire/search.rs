//! Searches on the wire.

use ab_core::search::{
    Case, Found, IgnoreFiles, Kinds, LeftOut, LineRole, Match, Query, SearchAnswer, SearchLimits,
    Span, Syntax, TextQuery, Visibility, Wanted,
};
use bytes::{BufMut, BytesMut};

use super::{Misread, Read, Wire, put_choice, take_choice};
use crate::sftp::packet::Fields;

const FILES_OR_ALL: [Kinds; 2] = [Kinds::Files, Kinds::All];
const SYNTAXES: [Syntax; 2] = [Syntax::Literal, Syntax::Regex];
const CASES: [Case; 2] = [Case::Sensitive, Case::Insensitive];
const SPANS: [Span; 2] = [Span::Line, Span::Lines];
const ANSWERS: [SearchAnswer; 3] = [SearchAnswer::Lines, SearchAnswer::Files, SearchAnswer::Counts];
const VISIBILITIES: [Visibility; 2] = [Visibility::Visible, Visibility::All];
const IGNORES: [IgnoreFiles; 2] = [IgnoreFiles::Disregard, IgnoreFiles::Honour];
const ROLES: [LineRole; 2] = [LineRole::Match, LineRole::Context];

impl Wire for Wanted {
    fn put(&self, out: &mut BytesMut) {
        match self {
            Wanted::Names { glob, kinds } => {
                out.put_u8(0);
                glob.put(out);
                put_choice(out, &FILES_OR_ALL, kinds);
            }
            Wanted::Text(text) => {
                out.put_u8(1);
                text.pattern.put(out);
                put_choice(out, &SYNTAXES, &text.syntax);
                put_choice(out, &CASES, &text.case);
                put_choice(out, &SPANS, &text.span);
                (text.before, text.after).put(out);
                put_choice(out, &ANSWERS, &text.answer);
            }
        }
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => Wanted::Names {
                glob: Wire::read(fields)?,
                kinds: take_choice(fields, &FILES_OR_ALL)?,
            },
            1 => Wanted::Text(TextQuery {
                pattern: Wire::read(fields)?,
                syntax: take_choice(fields, &SYNTAXES)?,
                case: take_choice(fields, &CASES)?,
                span: take_choice(fields, &SPANS)?,
                before: Wire::read(fields)?,
                after: Wire::read(fields)?,
                answer: take_choice(fields, &ANSWERS)?,
            }),
            _ => return Err(Misread::Senseless),
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
        put_choice(out, &VISIBILITIES, &self.hidden);
        put_choice(out, &IGNORES, &self.ignore_files);
        (self.limits.matches, self.limits.bytes).put(out);
        self.limits.time.put(out);
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(Self {
            root: Wire::read(fields)?,
            wanted: Wire::read(fields)?,
            include: Wire::read(fields)?,
            exclude: Wire::read(fields)?,
            ignore: Wire::read(fields)?,
            hidden: take_choice(fields, &VISIBILITIES)?,
            ignore_files: take_choice(fields, &IGNORES)?,
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
                put_choice(out, &ROLES, role);
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

    fn read(fields: &mut Fields) -> Read<Self> {
        Ok(match fields.u8()? {
            0 => Match::Name(Wire::read(fields)?),
            1 => Match::Line {
                path: Wire::read(fields)?,
                line: Wire::read(fields)?,
                text: Wire::read(fields)?,
                cut: Wire::read(fields)?,
                role: take_choice(fields, &ROLES)?,
            },
            2 => Match::File { path: Wire::read(fields)? },
            3 => Match::Count { path: Wire::read(fields)?, lines: Wire::read(fields)? },
            _ => return Err(Misread::Senseless),
        })
    }
}

impl Wire for Found {
    fn put(&self, out: &mut BytesMut) {
        self.matches.put(out);
        self.truncated.put(out);
        (self.searched, self.skipped_binary).put(out);
        (self.left_out.directories, self.left_out.files).put(out);
        self.problems.put(out);
    }

    fn read(fields: &mut Fields) -> Read<Self> {
        let (matches, truncated) = Wire::read(fields)?;
        let (searched, skipped_binary) = Wire::read(fields)?;
        let (directories, files) = Wire::read(fields)?;
        let left_out = LeftOut { directories, files };
        let problems = Wire::read(fields)?;
        Ok(Self { matches, truncated, searched, skipped_binary, left_out, problems })
    }
}
