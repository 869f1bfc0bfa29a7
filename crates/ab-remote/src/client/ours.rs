//! The calls to an agent-backend server. Each is one round trip. If the call fails, it returns the
//! error of the server.

use std::sync::Arc;

use ab_core::driver::File;
use ab_core::metadata::{DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat};
use ab_core::options::{
    AttributeChanges, ByteRange, ListOptions, OpenOptions, ReadOptions, RemoveOptions,
    RenameOptions, StatOptions, WriteOptions,
};
use ab_core::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use ab_core::search::selection::SearchFilter;
use ab_core::search::text::TextSearch;
use ab_core::search::{SearchMatch, SearchQuery, SearchResults, SearchTarget};
use ab_core::{EffectivePolicy, Error, ErrorCode, ErrorKind, LostCallEffect, Result, Verb, WsPath};
use bytes::Bytes;

use super::context::CallContext;
use super::file::RemoteFile;
use super::place::Place;
use super::process::{self, Begin};
use super::remote::Shared;
use super::session::{Ours, Session};
use crate::sftp::packet::{MAX_PACKET_DATA_BYTES, SshFieldReader};
use crate::wire::WireCodec;
use crate::wire::call::{self, RemoteCall, RemoteCallId, RemoteWriteBody};

/// How often a file is read again if it changes during the read.
const READ_AGAIN: usize = 8;

pub(super) async fn stat(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
    options: StatOptions,
) -> Result<Stat> {
    let place = Place::new(&ours.base, path);
    let call = RemoteCall::Stat { path: place.path.clone(), options };
    place.shown(session.call(context, Verb::Stat, &call).await)
}

pub(super) async fn list(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
    options: ListOptions,
) -> Result<Listing> {
    let place = Place::new(&ours.base, path);
    let call = RemoteCall::List { path: place.path.clone(), options };
    let mut listing: Listing =
        place.shown(session.call_in_parts(context, Verb::List, &call).await)?;
    for entry in &mut listing.entries {
        entry.path = place.inward(&entry.path);
    }
    place.problems(&mut listing.problems);
    Ok(listing)
}

pub(super) async fn search(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
    query: &SearchQuery,
) -> Result<SearchResults> {
    let place = Place::whole(&ours.base);
    makes_sense(query)?;
    let query = SearchQuery { root: ours.base.join(&query.root), ..query.clone() };
    let call = RemoteCall::Search(Box::new(query));
    let mut found: SearchResults =
        place.shown(session.call_in_parts(context, Verb::Search, &call).await)?;
    for item in &mut found.matches {
        let path = match item {
            SearchMatch::Name(entry) => &mut entry.path,
            SearchMatch::Line { path, .. }
            | SearchMatch::File { path }
            | SearchMatch::Count { path, .. } => path,
        };
        *path = place.inward(path);
    }
    place.problems(&mut found.problems);
    Ok(found)
}

/// Compiles a pattern that is too long for one request. If the pattern is invalid, returns the same
/// error that the server would return.
fn makes_sense(query: &SearchQuery) -> Result<()> {
    let pattern = match &query.target {
        SearchTarget::Names { glob, .. } => glob,
        SearchTarget::Text(text) => &text.pattern,
    };
    let globs = query.include.iter().chain(&query.exclude);
    let length: usize = globs.map(String::len).sum();
    if pattern.len() + length < MAX_PACKET_DATA_BYTES {
        return Ok(());
    }
    SearchFilter::compile(query)?;
    match &query.target {
        SearchTarget::Names { .. } => Ok(()),
        SearchTarget::Text(text) => TextSearch::compile(query, text).map(drop),
    }
}

pub(super) async fn read(
    session: &Arc<Session>,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
    options: ReadOptions,
) -> Result<FileContent> {
    let place = Place::new(&ours.base, path);
    let call = RemoteCall::Read { path: place.path.clone(), options };
    for _ in 0..READ_AGAIN {
        let mut body =
            SshFieldReader::new(place.shown(session.call_raw(context, Verb::Read, &call).await)?);
        let content = call::RemoteReadReply::decode_from(&mut body);
        match content.map_err(|_| session.nonsense(Verb::Read))? {
            call::RemoteReadReply::Inline(stat) => {
                return Ok(FileContent { bytes: body.read_remaining(), stat });
            }
            call::RemoteReadReply::Open(stat, handle) => {
                let handle = Bytes::copy_from_slice(&handle.to_be_bytes());
                let file = RemoteFile::new(session.clone(), handle, place.clone());
                if let Some(content) = read_open(&file, context, path, stat, options).await? {
                    return Ok(content);
                }
            }
        }
    }
    let message = "the file is changed repeatedly";
    Err(Error::for_path(Verb::Read, path, ErrorKind::Conflict, message))
}

/// Reads a file that is too long for one answer. Returns `None` if the file changes during the
/// read.
async fn read_open(
    file: &RemoteFile,
    context: CallContext<'_>,
    path: &WsPath,
    stat: Stat,
    options: ReadOptions,
) -> Result<Option<FileContent>> {
    let whole = ByteRange { start: 0, length: stat.size };
    let range = options.range.unwrap_or(whole);
    let length = range.length.min(stat.size.saturating_sub(range.start));
    if length > options.max_bytes {
        let message = format!("{length} bytes are more than the limit of {}", options.max_bytes);
        return Err(Error::for_path(Verb::Read, path, ErrorKind::TooLarge, message));
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let bytes = file.read_in(context, range.start, length).await?;
    let after = file.stat_in(context).await?;
    Ok((after.version == stat.version).then_some(FileContent { bytes, stat }))
}

pub(super) async fn write(
    session: &Arc<Session>,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
    content: Bytes,
    options: WriteOptions,
) -> Result<Stat> {
    let place = Place::new(&ours.base, path);
    let staged = if content.len() <= MAX_PACKET_DATA_BYTES / 2 {
        None
    } else {
        Some(stage(session, context, &place, content.clone()).await?)
    };
    let body = match &staged {
        Some(file) => RemoteWriteBody::Staged(file.number()),
        None => RemoteWriteBody::Inline(content),
    };
    let call = RemoteCall::Write { path: place.path.clone(), body, options };
    let written = session.call(context, Verb::Write, &call).await;
    if let Some(file) = staged {
        file.forget();
    }
    place.shown(written)
}

/// Sends content that is too long for one request. The server keeps it until the write.
async fn stage(
    session: &Arc<Session>,
    context: CallContext<'_>,
    place: &Place,
    content: Bytes,
) -> Result<RemoteFile> {
    let call = RemoteCall::StageWrite { size: content.len() as u64 };
    let handle: u32 = session.call(context, Verb::Write, &call).await?;
    let handle = Bytes::copy_from_slice(&handle.to_be_bytes());
    let file = RemoteFile::new(session.clone(), handle, place.clone());
    // The workspace is changed only after the complete content has arrived.
    let filled = place.shown(file.fill(context, 0, content).await);
    filled.map_err(|error| match error.lost_call_effect() {
        Some(_) => error.with_lost_call_effect(LostCallEffect::NotApplied, None),
        None => error,
    })?;
    Ok(file)
}

pub(super) async fn open(
    session: &Arc<Session>,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
    options: OpenOptions,
) -> Result<Box<dyn File>> {
    let place = Place::new(&ours.base, path);
    let call = RemoteCall::Open { path: place.path.clone(), options };
    let handle: u32 = place.shown(session.call(context, Verb::Open, &call).await)?;
    let handle = Bytes::copy_from_slice(&handle.to_be_bytes());
    Ok(Box::new(RemoteFile::new(session.clone(), handle, place)))
}

pub(super) async fn set_attributes(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
    attributes: AttributeChanges,
) -> Result<Stat> {
    let place = Place::new(&ours.base, path);
    let call = RemoteCall::SetAttributes { path: place.path.clone(), attributes };
    place.shown(session.call(context, Verb::SetAttributes, &call).await)
}

pub(super) async fn read_link(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
) -> Result<String> {
    let place = Place::new(&ours.base, path);
    let call = RemoteCall::ReadLink { path: place.path.clone() };
    place.shown(session.call(context, Verb::ReadLink, &call).await)
}

pub(super) async fn symlink(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
    target: &str,
) -> Result<()> {
    let place = Place::new(&ours.base, path);
    let call = RemoteCall::Symlink { path: place.path.clone(), target: target.to_owned() };
    place.shown(session.call(context, Verb::Symlink, &call).await)
}

pub(super) async fn create_dir(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
) -> Result<()> {
    let place = Place::new(&ours.base, path);
    let call = RemoteCall::MakeDir { path: place.path.clone() };
    place.shown(session.call(context, Verb::Mkdir, &call).await)
}

pub(super) async fn remove(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
    path: &WsPath,
    options: RemoveOptions,
) -> Result<RemoveOutcome> {
    let place = Place::new(&ours.base, path);
    let call = RemoteCall::Remove { path: place.path.clone(), options };
    let count = place.shown(session.call(context, Verb::Delete, &call).await)?;
    Ok(RemoveOutcome { count })
}

pub(super) async fn rename(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
    from: &WsPath,
    to: &WsPath,
    options: RenameOptions,
) -> Result<RenameOutcome> {
    let (place, target) = (Place::new(&ours.base, from), Place::new(&ours.base, to));
    let call = RemoteCall::Rename { from: place.path.clone(), to: target.path, options };
    let atomic = place.shown(session.call(context, Verb::Rename, &call).await)?;
    Ok(RenameOutcome { atomic })
}

pub(super) async fn space(session: &Session, context: CallContext<'_>) -> Result<DiskSpace> {
    session.call(context, Verb::DiskSpace, &RemoteCall::DiskSpace).await
}

pub(super) async fn effective_policy(
    session: &Session,
    context: CallContext<'_>,
) -> Result<EffectivePolicy> {
    session.call_in_parts(context, Verb::Exec, &RemoteCall::EffectivePolicy).await
}

pub(super) async fn outcome(
    session: &Session,
    context: CallContext<'_>,
    call: RemoteCallId,
) -> Result<LostCallEffect> {
    session.call(context, Verb::Connect, &RemoteCall::QueryLostCall(call)).await
}

pub(super) async fn processes(
    session: &Session,
    context: CallContext<'_>,
    ours: &Ours,
) -> Result<Vec<ProcessInfo>> {
    let call = RemoteCall::Processes;
    let mut all: Vec<ProcessInfo> = session.call_in_parts(context, Verb::Processes, &call).await?;
    all.retain(|process| process.cwd.starts_with(&ours.base));
    for process in &mut all {
        process.cwd = Place::whole(&ours.base).inward(&process.cwd);
    }
    Ok(all)
}

pub(super) async fn exec(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    context: CallContext<'_>,
    ours: &Ours,
    mut request: ExecRequest,
) -> Result<Process> {
    let place = Place::whole(&ours.base);
    request.cwd = ours.base.join(&request.cwd);
    request.restrictions = request.restrictions.map_paths(|path| ours.base.join(path));
    place.shown(process::begin(shared, session, context, Begin::Exec(Box::new(request))).await)
}

pub(super) async fn attach(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    context: CallContext<'_>,
    ours: &Ours,
    id: &ProcessId,
    from: u64,
) -> Result<Process> {
    let own = ours.base.is_root()
        || processes(session, context, ours).await?.iter().any(|process| process.id == *id);
    if !own {
        let message = format!("no process {id} in this workspace");
        return Err(
            Error::new(ErrorCode::ExecError, ErrorKind::NotFound, message).with_verb(Verb::Attach)
        );
    }
    process::begin(shared, session, context, Begin::Attach { id: id.clone(), from }).await
}
