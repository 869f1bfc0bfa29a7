//! The encoding of search queries and their results.

use ab_core::search::{
    IgnoredEntryCounts, LineSelection, SearchLimits, SearchMatch, SearchQuery, SearchResults,
    SearchTarget, TextQuery,
};
use bytes::{BufMut, BytesMut};

use super::{DecodeError, DecodeResult, WireCodec, put_number, take_number};
use crate::sftp::packet::SshFieldReader;

impl WireCodec for SearchTarget {
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            SearchTarget::Names { glob, kinds } => {
                out.put_u8(0);
                glob.encode_to(out);
                put_number(out, *kinds);
            }
            SearchTarget::Text(text) => {
                // Peers of earlier versions know only the first form.
                let is_selective = is_selective(text);
                out.put_u8(if is_selective { 2 } else { 1 });
                text.pattern.encode_to(out);
                put_number(out, text.syntax);
                put_number(out, text.case);
                put_number(out, text.line_mode);
                (text.context_before, text.context_after).encode_to(out);
                put_number(out, text.output_mode);
                if is_selective {
                    put_number(out, text.lines);
                    text.max_lines_per_file.encode_to(out);
                }
            }
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(match fields.read_u8()? {
            0 => SearchTarget::Names {
                glob: WireCodec::decode_from(fields)?,
                kinds: take_number(fields)?,
            },
            1 => SearchTarget::Text(text_query(fields)?),
            2 => {
                let text = text_query(fields)?;
                let lines = take_number(fields)?;
                let max_lines_per_file = WireCodec::decode_from(fields)?;
                SearchTarget::Text(TextQuery { lines, max_lines_per_file, ..text })
            }
            _ => return Err(DecodeError::Invalid),
        })
    }
}

/// Whether a query selects lines by more than their matches.
fn is_selective(text: &TextQuery) -> bool {
    text.lines != LineSelection::Matching || text.max_lines_per_file.is_some()
}

/// Decodes the fields that every query has.
fn text_query(fields: &mut SshFieldReader) -> DecodeResult<TextQuery> {
    Ok(TextQuery {
        pattern: WireCodec::decode_from(fields)?,
        syntax: take_number(fields)?,
        case: take_number(fields)?,
        line_mode: take_number(fields)?,
        lines: LineSelection::Matching,
        max_lines_per_file: None,
        context_before: WireCodec::decode_from(fields)?,
        context_after: WireCodec::decode_from(fields)?,
        output_mode: take_number(fields)?,
    })
}

impl WireCodec for SearchQuery {
    fn encode_to(&self, out: &mut BytesMut) {
        self.root.encode_to(out);
        self.target.encode_to(out);
        self.include.encode_to(out);
        self.exclude.encode_to(out);
        self.ignore.encode_to(out);
        put_number(out, self.dotfiles);
        put_number(out, self.ignore_files);
        (self.limits.max_matches, self.limits.max_bytes).encode_to(out);
        self.limits.max_duration.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(Self {
            root: WireCodec::decode_from(fields)?,
            target: WireCodec::decode_from(fields)?,
            include: WireCodec::decode_from(fields)?,
            exclude: WireCodec::decode_from(fields)?,
            ignore: WireCodec::decode_from(fields)?,
            dotfiles: take_number(fields)?,
            ignore_files: take_number(fields)?,
            limits: SearchLimits {
                max_matches: WireCodec::decode_from(fields)?,
                max_bytes: WireCodec::decode_from(fields)?,
                max_duration: WireCodec::decode_from(fields)?,
            },
        })
    }
}

impl WireCodec for SearchMatch {
    fn encode_to(&self, out: &mut BytesMut) {
        match self {
            SearchMatch::Name(entry) => {
                out.put_u8(0);
                entry.encode_to(out);
            }
            SearchMatch::Line { path, line_number: line, text, full_line_bytes: cut, role } => {
                out.put_u8(1);
                path.encode_to(out);
                line.encode_to(out);
                text.encode_to(out);
                cut.encode_to(out);
                put_number(out, *role);
            }
            SearchMatch::File { path } => {
                out.put_u8(2);
                path.encode_to(out);
            }
            SearchMatch::Count { path, matching_lines: lines } => {
                out.put_u8(3);
                path.encode_to(out);
                lines.encode_to(out);
            }
        }
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        Ok(match fields.read_u8()? {
            0 => SearchMatch::Name(WireCodec::decode_from(fields)?),
            1 => SearchMatch::Line {
                path: WireCodec::decode_from(fields)?,
                line_number: WireCodec::decode_from(fields)?,
                text: WireCodec::decode_from(fields)?,
                full_line_bytes: WireCodec::decode_from(fields)?,
                role: take_number(fields)?,
            },
            2 => SearchMatch::File { path: WireCodec::decode_from(fields)? },
            3 => SearchMatch::Count {
                path: WireCodec::decode_from(fields)?,
                matching_lines: WireCodec::decode_from(fields)?,
            },
            _ => return Err(DecodeError::Invalid),
        })
    }
}

impl WireCodec for SearchResults {
    fn encode_to(&self, out: &mut BytesMut) {
        self.matches.encode_to(out);
        self.truncated.encode_to(out);
        (self.files_searched, self.binary_files_skipped).encode_to(out);
        (self.ignored_entries.directories, self.ignored_entries.files).encode_to(out);
        self.problems.encode_to(out);
    }

    fn decode_from(fields: &mut SshFieldReader) -> DecodeResult<Self> {
        let (matches, truncated) = WireCodec::decode_from(fields)?;
        let (searched, skipped_binary) = WireCodec::decode_from(fields)?;
        let (directories, files) = WireCodec::decode_from(fields)?;
        let left_out = IgnoredEntryCounts { directories, files };
        let problems = WireCodec::decode_from(fields)?;
        Ok(Self {
            matches,
            truncated,
            files_searched: searched,
            binary_files_skipped: skipped_binary,
            ignored_entries: left_out,
            problems,
        })
    }
}
