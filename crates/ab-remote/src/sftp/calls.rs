//! Performs the calls of agent-backend clients. Each call is one operation on the workspace.

use ab_core::metadata::RemoveOutcome;
use ab_core::options::{ByteRange, FileAccess, ListOptions, OpenOptions, ReadOptions};
use ab_core::path::AccessRulesBelowPrefix;
use ab_core::process::PathRestrictions;
use ab_core::search::{SearchLimits, SearchQuery};
use ab_core::{Backend, ErrorKind, PathParser, ScopeOptions, WriteContent, WsPath};
use bytes::{Bytes, BytesMut};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::handles::{Handle, MAX_LISTED, Open};
use super::packet::{MAX_PACKET_DATA_BYTES, SshFieldWriter};
use super::status::{FAILURE, Refusal};
use super::{Outcome, Session};
use crate::wire::call::{self, RemoteCall, RemoteCallReplyPart, RemoteHelloReply, RemoteReadReply};
use crate::wire::{self, WireCodec};

/// Number of bytes of a long answer that are sent in one packet. The client requests the next bytes
/// with another call.
const PART: usize = 1024 * 1024;
/// Maximum number of scopes for which a channel caches handles.
const MAX_SCOPES: usize = 64;
/// The highest limits that a client can set for a search.
const MOST: SearchLimits = SearchLimits {
    max_matches: 1_000_000,
    max_bytes: 32 * 1024 * 1024,
    max_duration: Duration::from_secs(120),
};

type Done = Result<Outcome, Refusal>;

/// Maximum number of bytes of the answer to a call.
pub(super) fn cost(call: &RemoteCall) -> usize {
    match call {
        RemoteCall::List { .. }
        | RemoteCall::Search(_)
        | RemoteCall::NextReplyPart { .. }
        | RemoteCall::Processes
        | RemoteCall::EffectivePolicy => PART,
        RemoteCall::Read { .. } => MAX_PACKET_DATA_BYTES,
        RemoteCall::Hello { .. }
        | RemoteCall::Stat { .. }
        | RemoteCall::StageWrite { .. }
        | RemoteCall::Write { .. }
        | RemoteCall::Open { .. }
        | RemoteCall::StatHandle { .. }
        | RemoteCall::SetHandleAttributes { .. }
        | RemoteCall::SetAttributes { .. }
        | RemoteCall::ReadLink { .. }
        | RemoteCall::Symlink { .. }
        | RemoteCall::MakeDir { .. }
        | RemoteCall::Remove { .. }
        | RemoteCall::Rename { .. }
        | RemoteCall::DiskSpace
        | RemoteCall::Cancel { .. }
        | RemoteCall::QueryLostCall(_) => 0,
    }
}

pub(super) async fn perform(session: &Session, call: RemoteCall) -> Done {
    match call {
        RemoteCall::Hello { connection } => hello(session, connection),
        RemoteCall::Stat { path, options } => {
            let (backend, path) = place(session, &path)?;
            answered(&backend.stat_with(&path, options).await?)
        }
        RemoteCall::List { path, options } => {
            let (backend, path) = place(session, &path)?;
            let options =
                ListOptions { max_entries: options.max_entries.min(MAX_LISTED), ..options };
            let _turn = session.allowance.listing().await?;
            let listing = backend.list(&path, options).await?;
            in_parts(session, wire::encode(&listing))
        }
        RemoteCall::Search(query) => {
            let _turn = session.allowance.search().await?;
            let found = session.views.search(&bounded(*query)).await?;
            in_parts(session, wire::encode(&found))
        }
        RemoteCall::NextReplyPart { handle } => more(session, handle),
        RemoteCall::Read { path, options } => read(session, &path, options).await,
        RemoteCall::StageWrite { size } => {
            let share = session.allowance.handle()?;
            let open = Open::Staged(session.staging.stage(&session.allowance.staging, size).await?);
            let handle = Handle { path: WsPath::root(), open, _share: share };
            answered(&session.handles.add(handle))
        }
        RemoteCall::Write { path, body, options } => {
            let (backend, path) = place(session, &path)?;
            match body {
                call::RemoteWriteBody::Inline(bytes) => {
                    answered(&backend.write_with(&path, WriteContent(bytes), options).await?)
                }
                call::RemoteWriteBody::Staged(handle) => {
                    let handle = session.handles.remove(&handle.to_be_bytes());
                    let handle = handle.ok_or_else(no_such_handle)?;
                    let Open::Staged(stage) = &handle.open else { return Err(no_such_handle()) };
                    answered(&backend.write_with(&path, WriteContent(stage.take()), options).await?)
                }
            }
        }
        RemoteCall::Open { path, options } => {
            let number = open(session, &path, options).await?;
            answered(&number)
        }
        RemoteCall::StatHandle { handle } => {
            let handle = held(session, handle)?;
            answered(&file(&handle)?.stat().await?)
        }
        RemoteCall::SetHandleAttributes { handle, attributes } => {
            let handle = held(session, handle)?;
            answered(&file(&handle)?.set_attributes(attributes).await?)
        }
        RemoteCall::SetAttributes { path, attributes } => {
            let (backend, path) = place(session, &path)?;
            answered(&backend.set_attributes(&path, attributes).await?)
        }
        RemoteCall::ReadLink { path } => {
            let (backend, path) = place(session, &path)?;
            answered(&backend.read_link(&path).await?)
        }
        RemoteCall::Symlink { path, target } => {
            let (backend, path) = place(session, &path)?;
            answered(&backend.symlink(&path, &target).await?)
        }
        RemoteCall::MakeDir { path } => {
            let (backend, path) = place(session, &path)?;
            answered(&backend.mkdir(&path).await?)
        }
        RemoteCall::Remove { path, options } => {
            let (backend, path) = place(session, &path)?;
            let RemoveOutcome { count } = backend.rm(&path, options).await?;
            answered(&count)
        }
        RemoteCall::Rename { from, to, options } => {
            let (backend, from, to) = places(session, &from, &to)?;
            answered(&backend.rename_with(&from, &to, options).await?.atomic)
        }
        RemoteCall::DiskSpace => answered(&session.views.disk_space().await?),
        RemoteCall::Processes => {
            let processes = session.views.detached_processes().await?;
            in_parts(session, wire::encode(&processes))
        }
        RemoteCall::EffectivePolicy => {
            let policy = session.views.effective_policy().await?;
            in_parts(session, wire::encode(&policy))
        }
        RemoteCall::Cancel { request } => {
            session.cancel(request);
            answered(&())
        }
        RemoteCall::QueryLostCall(number) => {
            let own = session.seat.get().map(|(connection, _)| *connection);
            answered(&session.ledger.outcome(number, own).await)
        }
    }
}

/// Handles the first call of an agent-backend client. The call contains the number of the client's
/// connection. From now on the client receives complete errors, and the server records its calls.
fn hello(session: &Session, connection: u128) -> Done {
    let Some(seat) = session.ledger.introduce(&session.caller, connection) else {
        return Err(Refusal::new(FAILURE, "the number in this hello is not this connection's"));
    };
    if session.seat.set((connection, seat)).is_err() {
        return Err(Refusal::new(FAILURE, "hello was said already"));
    }
    session.says_exactly();
    let incarnation = session.ledger.incarnation();
    answered(&RemoteHelloReply { server_instance: incarnation, info: session.backend.info() })
}

/// Returns a handle with the scope roots and access rules of a path. Also returns the path relative
/// to this handle.
fn place(session: &Session, path: &WsPath) -> Result<(Backend, String), Refusal> {
    let confined = path.split_at_scope_roots();
    Ok((within(session, path, &confined.scopes, confined.rest)?, or_root(confined.rest)))
}

/// Returns a handle for two paths, with the scope roots that both paths have in common.
fn places(
    session: &Session,
    one: &WsPath,
    other: &WsPath,
) -> Result<(Backend, String, String), Refusal> {
    let (path, rules_differ) = (one, one.access_rules() != other.access_rules());
    let (one, other) = (one.split_at_scope_roots(), other.split_at_scope_roots());
    let pairs = one.scopes.iter().zip(&other.scopes);
    let common = pairs.take_while(|(one, other)| one == other).count();
    let below = |scope_roots: &[&str], rest: &str| {
        let parts: Vec<&str> = scope_roots.iter().skip(common).copied().chain([rest]).collect();
        or_root(parts.join("/").trim_matches('/'))
    };
    // Refuse paths with different scope roots if there are access rules. A single handle cannot
    // apply access rules inside a scope root that only one of the paths has.
    let apart = one.scopes.len() != common || other.scopes.len() != common;
    if rules_differ || path.has_access_rules() && apart {
        return Err(Refusal::new(FAILURE, "the two paths are restricted in different ways"));
    }
    let backend = within(session, path, &one.scopes[..common], one.rest)?;
    Ok((backend, below(&one.scopes, one.rest), below(&other.scopes, other.rest)))
}

fn or_root(path: &str) -> String {
    if path.is_empty() { ".".to_owned() } else { path.to_owned() }
}

/// Returns a handle on the workspace inside these scope roots, with the access rules of the path.
/// Handles are cached, because each handle remembers that its directory exists.
fn within(
    session: &Session,
    path: &WsPath,
    scope_roots: &[&str],
    rest: &str,
) -> Result<Backend, Refusal> {
    if scope_roots.is_empty() && !path.has_access_rules() {
        return Ok(session.views.clone());
    }
    let mut key = scope_roots.join("\0");
    if path.has_access_rules() {
        key = format!(
            "{key}\0{:?}\0{:?}",
            path.access_rules(),
            path.access_rules_if_path_is_scope_root()
        );
    }
    // Access rules whose prefix is the whole path apply relative to the scope root.
    let at_end = path
        .access_rules_if_path_is_scope_root()
        .iter()
        .map(|set| set.with_path_prefix(rest, 0))
        .collect();
    let mut scopes = session.scopes.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(backend) = scopes.get(&key) {
        return Ok(backend.clone());
    }
    let mut backend = restricted(session.views.clone(), path.access_rules_of_scope_root(0))?;
    for (index, scope_root) in scope_roots.iter().enumerate() {
        backend = backend.scope(scope_root, ScopeOptions::default())?;
        backend = restricted(backend, path.access_rules_of_scope_root(index + 1))?;
    }
    backend = restricted(backend, at_end)?;
    if scopes.len() >= MAX_SCOPES {
        scopes.clear();
    }
    scopes.insert(key, backend.clone());
    Ok(backend)
}

/// Applies the access rules of the client to a handle. The paths in the rules are relative to the
/// root of the handle.
fn restricted(mut backend: Backend, sets: Vec<AccessRulesBelowPrefix>) -> Result<Backend, Refusal> {
    let rules = PathParser::lenient().allow_reserved_names();
    let parse = |paths: &[String]| -> Result<Vec<WsPath>, ab_core::Error> {
        let parse =
            |path: &String| if path.is_empty() { Ok(WsPath::root()) } else { rules.parse(path) };
        paths.iter().map(parse).collect()
    };
    for set in sets.iter().filter(|set| !set.is_empty()) {
        let (hidden, read_only) = (parse(&set.hidden)?, parse(&set.read_only)?);
        backend = backend.restrict(PathRestrictions {
            hidden,
            read_only,
            host_directories: Vec::new(),
        })?;
    }
    Ok(backend)
}

fn bounded(query: SearchQuery) -> SearchQuery {
    let asked = query.limits;
    let limits = SearchLimits {
        max_matches: asked.max_matches.min(MOST.max_matches),
        max_bytes: asked.max_bytes.min(MOST.max_bytes),
        max_duration: asked.max_duration.min(MOST.max_duration),
    };
    SearchQuery { limits, ..query }
}

/// Returns short content in the answer. If the content is long, opens the file, and the client then
/// reads the file in pieces.
async fn read(session: &Session, path: &WsPath, options: ReadOptions) -> Done {
    let (backend, text) = place(session, path)?;
    let short = match options.range {
        Some(ByteRange { length, .. }) => length <= MAX_PACKET_DATA_BYTES as u64,
        None => true,
    };
    if short {
        let limit = options.max_bytes.min(MAX_PACKET_DATA_BYTES as u64);
        match backend.read_with(&text, ReadOptions { max_bytes: limit, ..options }).await {
            Ok(content) => {
                let mut answer = SshFieldWriter::extended();
                answer.bytes(&wire::encode(&RemoteReadReply::Inline(content.stat)));
                return Ok(Outcome::Parts(answer, content.bytes));
            }
            Err(error) if error.kind() == ErrorKind::TooLarge && limit < options.max_bytes => {}
            Err(error) => return Err(error.into()),
        }
    }
    let number = open(session, path, OpenOptions::default()).await?;
    let handle = held(session, number)?;
    let stat = file(&handle)?.stat().await;
    if stat.is_err() {
        session.handles.remove(&number.to_be_bytes());
    }
    answered(&RemoteReadReply::Open(stat?, number))
}

async fn open(session: &Session, path: &WsPath, options: OpenOptions) -> Result<u32, Refusal> {
    let share = session.allowance.handle()?;
    let (backend, text) = place(session, path)?;
    let file = backend.open(&text, options).await?;
    let appends = options.access != FileAccess::Read
        && options.position == ab_core::options::WritePosition::End;
    let open = Open::File { file, appends };
    Ok(session.handles.add(Handle { path: path.clone(), open, _share: share }))
}

/// Returns an answer. If the answer is too long for one packet, the client requests the rest.
fn in_parts(session: &Session, mut bytes: Bytes) -> Done {
    if bytes.len() <= PART {
        return answered(&RemoteCallReplyPart { next_part: None, bytes });
    }
    let share = session.allowance.answer(bytes.len())?;
    let first = bytes.split_to(PART);
    let open = Open::Answer(Mutex::new(bytes));
    let number = session.handles.add(Handle { path: WsPath::root(), open, _share: share });
    answered(&RemoteCallReplyPart { next_part: Some(number), bytes: first })
}

fn more(session: &Session, number: u32) -> Done {
    let handle = held(session, number)?;
    let Open::Answer(left) = &handle.open else { return Err(no_such_handle()) };
    let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
    let length = left.len().min(PART);
    let bytes = left.split_to(length);
    let more = (!left.is_empty()).then_some(number);
    drop(left);
    if more.is_none() {
        session.handles.remove(&number.to_be_bytes());
    }
    answered(&RemoteCallReplyPart { next_part: more, bytes })
}

fn held(session: &Session, number: u32) -> Result<std::sync::Arc<Handle>, Refusal> {
    session.handles.get(&number.to_be_bytes()).ok_or_else(no_such_handle)
}

fn file(handle: &Handle) -> Result<&dyn ab_core::File, Refusal> {
    match &handle.open {
        Open::File { file, .. } => Ok(&**file),
        Open::Directory(_) | Open::Staged(_) | Open::Answer(_) => Err(no_such_handle()),
    }
}

fn no_such_handle() -> Refusal {
    Refusal::new(FAILURE, "no such handle")
}

fn answered(value: &impl WireCodec) -> Done {
    let mut body = BytesMut::new();
    value.encode_to(&mut body);
    let mut answer = SshFieldWriter::extended();
    answer.bytes(&body);
    Ok(Outcome::Packet(answer))
}
