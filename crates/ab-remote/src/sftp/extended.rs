//! Requests beyond version 3: some of OpenSSH's, and our own, whose names end in `@agent-backend`.
//!
//! Ours exist so that a client of ours needs one round trip where version 3 needs many, and learns
//! exactly why something failed. They are built of the same fields as version 3: `u8`, `u32` and
//! `u64` in network order, and strings with their length in front. Paths are strings; those in
//! answers are relative to the root. A request whose fields make no sense is refused like a bad
//! packet. Pure: nothing is done here.
//!
//! | name | fields | answer |
//! | --- | --- | --- |
//! | `errors` | none | OK; from then on a status that refuses goes on after its language tag with the strings kind, code, verb, path and hint, empty where there is none |
//! | `stat` | path, `u8` 1 to follow links | description |
//! | `list` | path, `u32` depth, `u32` limit, `u8` 1 for descriptions | `u8` cut, `u32` count, entries, problems |
//! | `search` | path, query, `u32` includes and strings, `u32` excludes and strings, `u8` 1 with hidden names, `u8` 1 to honour ignore files, `u32` matches, `u32` bytes, `u32` milliseconds | `u8` cut, `u64` files searched, `u64` binary files, `u32` count, matches, problems |
//! | `processes` | none | `u8` cut, `u32` count, processes |
//! | `attach` | id, `u64` from | a handle: WRITE is input, CLOSE lets go |
//! | `output` | handle | waits: `u8` 0, `u64` sequence, `u8` 1 for standard error, `u64` lost, bytes; or `u8` 1, end |
//! | `control` | handle, `u8` 0 signal, 1 size, 2 end of input, `u32`, `u32` | OK |
//!
//! - query: `u8` 0, glob, `u8` 1 with directories; or `u8` 1, pattern, `u8` 1 for a regular
//!   expression, `u8` 1 for any case, `u8` 1 for matches over line ends, `u32` lines before, `u32` after, `u8` 0 lines, 1 files, 2 counts
//! - description: `u8` kind (0 file, 1 directory, 2 link, 3 other), `u64` size, `u64` seconds and
//!   `u32` nanoseconds of the change, `u32` mode or all ones, 16 bytes of version
//! - entry: path, `u8` kind, `u8` 1 if a description follows
//! - match: `u8` 0, entry; `u8` 1, path, `u64` line, text, `u64` length of a cut line or 0, `u8` 1 if it
//!   is only beside a match; `u8` 2, path; `u8` 3, path, `u64` lines
//! - problems: `u32` count, each path and message
//! - cut: `u8` 0 no, 1 by count, 2 by bytes, 3 by time
//! - process: id, command, directory, `u64` milliseconds since 1970, `u8` 1 and end if it ended
//! - end: `u8` 0, `u32` code; `u8` 1, `u32` signal; `u8` 2 if it is not known

use bytes::{BufMut, Bytes, BytesMut};

use super::packet::{Fields, Short};

/// Names that a query may include or exclude.
pub const MAX_GLOBS: usize = 1000;

/// An extended request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extended {
    PosixRename { from: Bytes, to: Bytes },
    Statvfs { path: Bytes },
    FstatVfs { handle: Bytes },
    Fsync { handle: Bytes },
    Limits,
    Errors,
    Stat { path: Bytes, follow: bool },
    List { path: Bytes, depth: u32, limit: u32, described: bool },
    Search(Box<Search>),
    Processes,
    Attach { id: Bytes, from: u64 },
    Output { handle: Bytes },
    Control { handle: Bytes, wish: Wish },
}

/// What is searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    pub path: Bytes,
    pub what: Wanted,
    pub include: Vec<Bytes>,
    pub exclude: Vec<Bytes>,
    pub hidden: bool,
    pub honour_ignore_files: bool,
    pub matches: u32,
    pub bytes: u32,
    pub milliseconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Names {
        glob: Bytes,
        directories: bool,
    },
    Text {
        pattern: Bytes,
        regex: bool,
        any_case: bool,
        over_lines: bool,
        before: u32,
        after: u32,
        answer: TextAnswer,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextAnswer {
    Lines,
    Files,
    Counts,
}

/// What is to happen to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Signal(u32),
    Resize { columns: u32, rows: u32 },
    EndInput,
}

/// Why an extended request is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misread {
    /// Nobody here knows the name.
    UnknownName,
    /// A field is not there as a whole.
    Short,
    /// A field has a value that means nothing.
    Senseless,
}

impl From<Short> for Misread {
    fn from(Short: Short) -> Self {
        Misread::Short
    }
}

/// The names, and the version that is told of each.
pub const NAMES: &[(&str, &str)] = &[
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("fsync@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("errors@agent-backend", "1"),
    ("stat@agent-backend", "1"),
    ("list@agent-backend", "1"),
    ("search@agent-backend", "1"),
    ("processes@agent-backend", "1"),
    ("attach@agent-backend", "1"),
    ("output@agent-backend", "1"),
    ("control@agent-backend", "1"),
];

impl Extended {
    /// Reads the fields of the request called `name`.
    pub fn decode(name: &[u8], body: Bytes) -> Result<Self, Misread> {
        let mut fields = Fields::new(body);
        let fields = &mut fields;
        Ok(match name {
            b"posix-rename@openssh.com" => {
                Extended::PosixRename { from: fields.string()?, to: fields.string()? }
            }
            b"statvfs@openssh.com" => Extended::Statvfs { path: fields.string()? },
            b"fstatvfs@openssh.com" => Extended::FstatVfs { handle: fields.string()? },
            b"fsync@openssh.com" => Extended::Fsync { handle: fields.string()? },
            b"limits@openssh.com" => Extended::Limits,
            b"errors@agent-backend" => Extended::Errors,
            b"stat@agent-backend" => {
                Extended::Stat { path: fields.string()?, follow: yes(fields)? }
            }
            b"list@agent-backend" => Extended::List {
                path: fields.string()?,
                depth: fields.u32()?,
                limit: fields.u32()?,
                described: yes(fields)?,
            },
            b"search@agent-backend" => Extended::Search(Box::new(Search::decode(fields)?)),
            b"processes@agent-backend" => Extended::Processes,
            b"attach@agent-backend" => {
                Extended::Attach { id: fields.string()?, from: fields.u64()? }
            }
            b"output@agent-backend" => Extended::Output { handle: fields.string()? },
            b"control@agent-backend" => {
                let handle = fields.string()?;
                let (what, first, second) = (fields.u8()?, fields.u32()?, fields.u32()?);
                let wish = match what {
                    0 => Wish::Signal(first),
                    1 => Wish::Resize { columns: first, rows: second },
                    2 => Wish::EndInput,
                    _ => return Err(Misread::Senseless),
                };
                Extended::Control { handle, wish }
            }
            _ => return Err(Misread::UnknownName),
        })
    }

    /// The name and the fields, as [`decode`](Self::decode) takes them.
    pub fn encode(&self) -> (&'static str, Bytes) {
        let mut out = BytesMut::new();
        let name = match self {
            Extended::PosixRename { from, to } => {
                put(&mut out, from);
                put(&mut out, to);
                "posix-rename@openssh.com"
            }
            Extended::Statvfs { path } => {
                put(&mut out, path);
                "statvfs@openssh.com"
            }
            Extended::FstatVfs { handle } => {
                put(&mut out, handle);
                "fstatvfs@openssh.com"
            }
            Extended::Fsync { handle } => {
                put(&mut out, handle);
                "fsync@openssh.com"
            }
            Extended::Limits => "limits@openssh.com",
            Extended::Errors => "errors@agent-backend",
            Extended::Stat { path, follow } => {
                put(&mut out, path);
                out.put_u8((*follow).into());
                "stat@agent-backend"
            }
            Extended::List { path, depth, limit, described } => {
                put(&mut out, path);
                out.put_u32(*depth);
                out.put_u32(*limit);
                out.put_u8((*described).into());
                "list@agent-backend"
            }
            Extended::Search(search) => {
                search.encode(&mut out);
                "search@agent-backend"
            }
            Extended::Processes => "processes@agent-backend",
            Extended::Attach { id, from } => {
                put(&mut out, id);
                out.put_u64(*from);
                "attach@agent-backend"
            }
            Extended::Output { handle } => {
                put(&mut out, handle);
                "output@agent-backend"
            }
            Extended::Control { handle, wish } => {
                put(&mut out, handle);
                let (what, first, second) = match *wish {
                    Wish::Signal(number) => (0, number, 0),
                    Wish::Resize { columns, rows } => (1, columns, rows),
                    Wish::EndInput => (2, 0, 0),
                };
                out.put_u8(what);
                out.put_u32(first);
                out.put_u32(second);
                "control@agent-backend"
            }
        };
        (name, out.freeze())
    }
}

impl Search {
    fn decode(fields: &mut Fields) -> Result<Self, Misread> {
        let path = fields.string()?;
        let what = match fields.u8()? {
            0 => Wanted::Names { glob: fields.string()?, directories: yes(fields)? },
            1 => Wanted::Text {
                pattern: fields.string()?,
                regex: yes(fields)?,
                any_case: yes(fields)?,
                over_lines: yes(fields)?,
                before: fields.u32()?,
                after: fields.u32()?,
                answer: match fields.u8()? {
                    0 => TextAnswer::Lines,
                    1 => TextAnswer::Files,
                    2 => TextAnswer::Counts,
                    _ => return Err(Misread::Senseless),
                },
            },
            _ => return Err(Misread::Senseless),
        };
        Ok(Self {
            path,
            what,
            include: globs(fields)?,
            exclude: globs(fields)?,
            hidden: yes(fields)?,
            honour_ignore_files: yes(fields)?,
            matches: fields.u32()?,
            bytes: fields.u32()?,
            milliseconds: fields.u32()?,
        })
    }

    fn encode(&self, out: &mut BytesMut) {
        put(out, &self.path);
        match &self.what {
            Wanted::Names { glob, directories } => {
                out.put_u8(0);
                put(out, glob);
                out.put_u8((*directories).into());
            }
            Wanted::Text { pattern, regex, any_case, over_lines, before, after, answer } => {
                out.put_u8(1);
                put(out, pattern);
                out.put_u8((*regex).into());
                out.put_u8((*any_case).into());
                out.put_u8((*over_lines).into());
                out.put_u32(*before);
                out.put_u32(*after);
                out.put_u8(match answer {
                    TextAnswer::Lines => 0,
                    TextAnswer::Files => 1,
                    TextAnswer::Counts => 2,
                });
            }
        }
        for globs in [&self.include, &self.exclude] {
            out.put_u32(u32::try_from(globs.len()).unwrap_or(u32::MAX));
            globs.iter().for_each(|glob| put(out, glob));
        }
        out.put_u8(self.hidden.into());
        out.put_u8(self.honour_ignore_files.into());
        out.put_u32(self.matches);
        out.put_u32(self.bytes);
        out.put_u32(self.milliseconds);
    }
}

fn yes(fields: &mut Fields) -> Result<bool, Misread> {
    match fields.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Misread::Senseless),
    }
}

fn globs(fields: &mut Fields) -> Result<Vec<Bytes>, Misread> {
    let count = fields.u32()? as usize;
    if count > MAX_GLOBS {
        return Err(Misread::Senseless);
    }
    if count > fields.room_for(4) {
        return Err(Misread::Short);
    }
    (0..count).map(|_| Ok(fields.string()?)).collect()
}

fn put(out: &mut BytesMut, bytes: &Bytes) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.put_u32(length);
    out.extend_from_slice(&bytes[..length as usize]);
}
