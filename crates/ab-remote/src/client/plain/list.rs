//! Lists directories of a plain SSH server in path order. Several directories are requested in
//! advance.

use std::collections::HashMap;

use ab_core::metadata::{DirEntry, FileKind, Listing, TruncationCause, WalkProblem};
use ab_core::options::{DEFAULT_MAX_LIST_ENTRIES, EntryDetailLevel, ListOptions};
use ab_core::path::TEMP_FILE_PREFIX;
use ab_core::{Error, ErrorKind, Result, Verb, WsPath};
use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};

use super::act::{Act, kind};
use super::spot::Final;
use super::{Plain, look};
use crate::client::context::CallContext;
use crate::client::reply::{Name, Reply};
use crate::client::session::{Later, Session};
use crate::sftp::packet::SftpRequest;
use crate::sftp::status;

pub(super) type Names = Vec<Name>;

/// Number of directories that are read at the same time.
const DIRECTORIES: usize = 8;
/// How many of the next entries are searched for directories that are requested in advance.
const AHEAD: usize = 256;
/// Number of READDIR requests for one directory that are in flight at the same time.
const PIECES: usize = 4;
/// Maximum number of names that are read from one directory, and their maximum total length in
/// bytes.
const MOST_NAMES: usize = DEFAULT_MAX_LIST_ENTRIES;
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of empty answers that are accepted for one directory.
const MOST_EMPTY: usize = 8;

impl Plain {
    pub(crate) async fn list(
        &self,
        session: &Session,
        context: CallContext<'_>,
        path: &WsPath,
        options: ListOptions,
    ) -> Result<Listing> {
        let act = self.act(session, context, Verb::List, path);
        let (spot, found) = act.existing(Final::Follow).await?;
        if kind(&found) != FileKind::Dir {
            return Err(act.not_a_directory());
        }
        let mut walk = Walk { act, options, stack: Vec::new(), listing: Listing::default() };
        if options.depth > 0 {
            let names = act.names(self.at(&spot.real).into()).await?;
            let path = path.clone();
            let top = Directory { path, real: spot.real, place: spot.place, depth: 0 };
            walk.push(&top, names);
            walk.run().await;
        }
        Ok(walk.listing)
    }
}

/// A directory that is listed or may be listed later.
#[derive(Clone)]
struct Directory {
    path: WsPath,
    real: String,
    /// The path after links are resolved, with the access rules that apply to it.
    place: WsPath,
    depth: usize,
}

struct Item {
    entry: DirEntry,
    /// The directory to list, if the entry is a directory that must be entered.
    inner: Option<Directory>,
}

struct Walk<'a> {
    act: Act<'a>,
    options: ListOptions,
    /// A stack: the last item comes next.
    stack: Vec<Item>,
    listing: Listing,
}

impl Walk<'_> {
    async fn run(&mut self) {
        let act = self.act;
        let mut reading = FuturesUnordered::new();
        let mut read: HashMap<String, Result<Names>> = HashMap::new();
        let mut begun: std::collections::HashSet<String> = std::collections::HashSet::new();
        while let Some(Item { entry, inner }) = self.stack.pop() {
            if self.listing.entries.len() >= self.options.limit {
                self.listing.truncated = Some(TruncationCause::Count);
                return;
            }
            self.listing.entries.push(entry);
            let Some(directory) = inner else { continue };
            let ahead = self.stack.iter().rev().take(AHEAD).filter_map(|item| item.inner.as_ref());
            for directory in std::iter::once(&directory).chain(ahead) {
                if reading.len() >= DIRECTORIES && begun.len() > read.len() {
                    break;
                }
                if read.len() + reading.len() >= 2 * DIRECTORIES {
                    break;
                }
                if begun.insert(directory.real.clone()) {
                    reading.push(read_ahead(act, directory.real.clone()));
                }
            }
            if begun.insert(directory.real.clone()) {
                reading.push(read_ahead(act, directory.real.clone()));
            }
            let names = loop {
                if let Some(names) = read.remove(&directory.real) {
                    break names;
                }
                match reading.next().await {
                    Some((real, names)) => drop(read.insert(real, names)),
                    None => break Err(act.nonsense()),
                }
            };
            begun.remove(&directory.real);
            match names {
                Ok(names) => self.push(&directory, names),
                Err(error) => {
                    let path = directory.path.to_string();
                    let error = error.with_path(path.clone());
                    self.listing.problems.push(WalkProblem { path, error });
                }
            }
        }
    }

    /// Adds the entries of a directory to the stack, so that they come before the rest of the
    /// stack.
    fn push(&mut self, directory: &Directory, mut names: Names) {
        names.sort_by(|one, other| other.name.cmp(&one.name));
        for Name { name, attributes } in names {
            if name.starts_with(TEMP_FILE_PREFIX.as_bytes()) {
                continue;
            }
            let text = String::from_utf8_lossy(&name);
            if directory.place.hides_child(&text) {
                continue;
            }
            let child = match std::str::from_utf8(&name) {
                Ok(text) => directory.path.child(text),
                Err(_) => {
                    let message = "the name is not valid UTF-8";
                    Err(self.act.error(ErrorKind::InvalidPath, message))
                }
            };
            let path = match child {
                Ok(path) => path,
                Err(error) => {
                    let path = if directory.path.is_root() {
                        text.into_owned()
                    } else {
                        format!("{}/{text}", directory.path)
                    };
                    let error =
                        Error::for_path(Verb::List, &directory.path, error.kind(), error.message());
                    let error = error.with_path(path.clone());
                    self.listing.problems.push(WalkProblem { path, error });
                    continue;
                }
            };
            let real = if directory.real.is_empty() {
                text.into_owned()
            } else {
                format!("{}/{text}", directory.real)
            };
            let kind = kind(&attributes);
            let stat = match self.options.detail {
                EntryDetailLevel::Kind => None,
                EntryDetailLevel::Stat => Some(look::stat(self.act.plain, &real, &attributes)),
            };
            let depth = directory.depth + 1;
            let enters = kind == FileKind::Dir && depth < self.options.depth;
            let place = directory.place.join_unchecked(&String::from_utf8_lossy(&name));
            let inner = enters.then(|| Directory { path: path.clone(), real, place, depth });
            self.stack.push(Item { entry: DirEntry { path, kind, stat }, inner });
        }
        // Each item results in at least one entry. Keep one item beyond the limit, so that the
        // listing is reported as truncated.
        let room = self.options.limit.saturating_sub(self.listing.entries.len());
        let beyond = self.stack.len().saturating_sub(room.saturating_add(1));
        self.stack.drain(..beyond);
    }
}

async fn read_ahead(act: Act<'_>, real: String) -> (String, Result<Names>) {
    let names = act.names(act.plain.at(&real).into()).await;
    (real, names)
}

impl Act<'_> {
    /// All entries of a directory except `.` and `..`, in no particular order.
    pub(super) async fn names(&self, at: Bytes) -> Result<Names> {
        let handle = match self.handle(&SftpRequest::OpenDir { path: at.clone() }).await? {
            Ok(handle) => handle,
            Err(status) => return Err(self.refused(&status)),
        };
        let open = Open { act: *self, handle };
        let next = || self.next_names(open.handle.clone()).boxed();
        let mut names = Vec::new();
        let (mut bytes, mut empty) = (0, 0);
        let mut pieces: FuturesOrdered<_> = (0..PIECES).map(|_| next()).collect();
        while let Some(piece) = pieces.next().await {
            match piece? {
                Reply::Names(piece) => {
                    bytes += piece.iter().map(|name| name.name.len()).sum::<usize>();
                    empty += usize::from(piece.is_empty());
                    names.extend(piece);
                }
                Reply::Status(status) if status.code == status::EOF => break,
                Reply::Status(status) => return Err(self.refused(&status)),
                _ => return Err(self.nonsense()),
            }
            if names.len() > MOST_NAMES || bytes > MOST_BYTES {
                return Err(self.wrong("with more names than are taken of a directory"));
            }
            if empty > MOST_EMPTY {
                return Err(self.wrong("with no names, and not that there are no more"));
            }
            pieces.push_back(next());
        }
        names.retain(|name| &name.name[..] != b"." && &name.name[..] != b"..");
        for name in &mut names {
            if name.attributes.mode.is_none() {
                // Some servers do not send attributes together with the names.
                let path = [&at[..], b"/", &name.name[..]].concat();
                let reply = self.ask(&SftpRequest::Lstat { path: path.into() }).await?;
                if let Reply::Attributes(attributes) = reply {
                    name.attributes = attributes;
                }
            }
        }
        Ok(names)
    }
}

impl Act<'_> {
    async fn next_names(&self, handle: Bytes) -> Result<Reply> {
        self.ask(&SftpRequest::ReadDir { handle }).await
    }
}

/// A directory that is open on the server.
struct Open<'a> {
    act: Act<'a>,
    handle: Bytes,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let number = self.act.session.requests.number();
        let request = SftpRequest::Close { handle: self.handle.clone() };
        self.act.session.later(Later::Packet(request.encode(number)));
    }
}
