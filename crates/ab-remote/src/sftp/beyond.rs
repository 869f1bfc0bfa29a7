//! What extended requests do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ab_core::options::{Detail, Links, ListOptions, Overwrite, RenameOptions, StatOptions};
use ab_core::process::{Control, Process, ProcessId};
use ab_core::search::{
    self, Case, IgnoreFiles, Kinds, Query, SearchLimits, Span, Syntax, TextQuery, Visibility,
};
use bytes::Bytes;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::extended::{Extended, Search, TextAnswer, Wanted, Wish};
use super::handles::{Handle, MAX_HANDLES, MAX_LISTED, Open};
use super::order::{Footprint, Touch};
use super::packet::{Answer, MAX_DATA, MAX_PACKET};
use super::paths::text;
use super::report::{self, MAX_ANSWER};
use super::status::{FAILURE, Refusal};
use super::{Outcome, Session};
use crate::command;

/// Processes that one channel may be attached to; each may have a request that waits.
const MAX_ATTACHED: usize = 16;
/// Bytes of a block, as far as clients are told.
const BLOCK: u64 = 4096;
const LONGEST_NAME: u64 = 255;

type Done = Result<Outcome, Refusal>;

/// A process that a client holds on to.
#[derive(Debug)]
pub(super) struct Attached {
    process: AsyncMutex<Process>,
    stdin: Option<tokio::sync::mpsc::Sender<Bytes>>,
    control: tokio::sync::mpsc::Sender<Control>,
    /// Whether the client let go of it; a request for output waits no longer then.
    closed: watch::Sender<bool>,
}

impl Attached {
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(super) async fn write(&self, data: Bytes) -> Done {
        let gone = |_| Refusal::new(FAILURE, "the process takes no more input");
        let Some(stdin) = &self.stdin else { return Err(gone(())) };
        stdin.send(data).await.map_err(|_| gone(()))?;
        Ok(Outcome::Done)
    }
}

/// Where a request touches the workspace.
pub(super) fn footprint(session: &Session, request: &Extended) -> Result<Footprint, Refusal> {
    let place = |path: &Bytes| -> Result<_, Refusal> { Ok(session.backend.resolve(text(path)?)?) };
    Ok(match request {
        Extended::PosixRename { from, to } => {
            Footprint::of(place(from)?, Touch::Change).and(place(to)?, Touch::Change)
        }
        Extended::Fsync { handle } => {
            Footprint::of(session.handle(handle)?.path.clone(), Touch::Change)
        }
        Extended::Stat { path, .. } => Footprint::of(place(path)?, Touch::Look),
        // A long look at much holds nobody up.
        Extended::List { .. }
        | Extended::Search(_)
        | Extended::Statvfs { .. }
        | Extended::FstatVfs { .. }
        | Extended::Limits
        | Extended::Errors
        | Extended::Processes
        | Extended::Attach { .. }
        | Extended::Output { .. }
        | Extended::Control { .. } => Footprint::none(),
    })
}

/// Bytes that the answer may take.
pub(super) fn cost(request: &Extended) -> usize {
    match request {
        Extended::List { .. } | Extended::Search(_) | Extended::Processes => MAX_ANSWER,
        // Pieces of output have no bound of their own; they are not larger than a packet by much.
        Extended::Output { .. } => MAX_PACKET,
        _ => 0,
    }
}

pub(super) async fn perform(session: &Session, request: Extended) -> Done {
    let backend = &session.backend;
    match request {
        Extended::PosixRename { from, to } => {
            let options = RenameOptions { overwrite: Overwrite::Replace };
            backend.rename_with(text(&from)?, text(&to)?, options).await?;
            Ok(Outcome::Done)
        }
        Extended::Statvfs { path } => {
            backend.resolve(text(&path)?)?;
            space(session).await
        }
        Extended::FstatVfs { handle } => {
            session.handle(&handle)?;
            space(session).await
        }
        Extended::Fsync { handle } => match &session.handle(&handle)?.open {
            Open::File { file, .. } => {
                file.sync().await?;
                Ok(Outcome::Done)
            }
            Open::Directory(_) | Open::Process(_) => Err(Refusal::new(FAILURE, "not a file")),
        },
        Extended::Limits => {
            let mut answer = Answer::extended();
            for value in [MAX_PACKET, MAX_DATA, MAX_DATA, MAX_HANDLES] {
                answer.u64(value as u64);
            }
            Ok(Outcome::Packet(answer))
        }
        Extended::Errors => {
            session.exact.store(true, Ordering::Release);
            Ok(Outcome::Done)
        }
        Extended::Stat { path, follow } => {
            let links = if follow { Links::Follow } else { Links::Keep };
            let stat = backend.stat_with(text(&path)?, StatOptions { links }).await?;
            Ok(Outcome::Packet(report::stat(&stat)))
        }
        Extended::List { path, depth, limit, described } => {
            let options = ListOptions {
                depth: if depth == u32::MAX { usize::MAX } else { depth as usize },
                limit: (limit as usize).min(MAX_LISTED),
                detail: if described { Detail::Stat } else { Detail::Kind },
            };
            Ok(Outcome::Packet(report::listing(&backend.list(text(&path)?, options).await?)))
        }
        Extended::Search(wanted) => {
            let found = backend.search(&query(session, &wanted)?).await?;
            Ok(Outcome::Packet(report::found(&found)))
        }
        Extended::Processes => Ok(Outcome::Packet(report::processes(&backend.processes().await?))),
        Extended::Attach { id, from } => attach(session, text(&id)?, from).await,
        Extended::Output { handle } => output(&session.handle(&handle)?).await,
        Extended::Control { handle, wish } => control(&session.handle(&handle)?, wish).await,
    }
}

async fn space(session: &Session) -> Done {
    let space = session.backend.space().await?;
    let free = space.available / BLOCK;
    let mut answer = Answer::extended();
    for value in [BLOCK, BLOCK, space.total / BLOCK, free, free, 0, 0, 0, 0, 0, LONGEST_NAME] {
        answer.u64(value);
    }
    Ok(Outcome::Packet(answer))
}

fn query(session: &Session, wanted: &Search) -> Result<Query, Refusal> {
    let globs = |globs: &[Bytes]| -> Result<Vec<String>, Refusal> {
        globs.iter().map(|glob| Ok(exactly(glob)?.to_owned())).collect()
    };
    let what = match &wanted.what {
        Wanted::Names { glob, directories } => search::Wanted::Names {
            glob: exactly(glob)?.to_owned(),
            kinds: if *directories { Kinds::All } else { Kinds::Files },
        },
        Wanted::Text { pattern, regex, any_case, over_lines, before, after, answer } => {
            search::Wanted::Text(TextQuery {
                pattern: exactly(pattern)?.to_owned(),
                syntax: if *regex { Syntax::Regex } else { Syntax::Literal },
                case: if *any_case { Case::Insensitive } else { Case::Sensitive },
                span: if *over_lines { Span::Lines } else { Span::Line },
                before: *before as usize,
                after: *after as usize,
                answer: match answer {
                    TextAnswer::Lines => search::Answer::Lines,
                    TextAnswer::Files => search::Answer::Files,
                    TextAnswer::Counts => search::Answer::Counts,
                },
            })
        }
    };
    let most = SearchLimits::default();
    let asked = Duration::from_millis(wanted.milliseconds.into());
    Ok(Query {
        root: session.backend.resolve(text(&wanted.path)?)?,
        wanted: what,
        include: globs(&wanted.include)?,
        exclude: globs(&wanted.exclude)?,
        hidden: if wanted.hidden { Visibility::All } else { Visibility::Visible },
        ignore_files: match wanted.honour_ignore_files {
            true => IgnoreFiles::Honour,
            false => IgnoreFiles::Disregard,
        },
        limits: SearchLimits {
            matches: most.matches.min(wanted.matches as usize),
            bytes: MAX_ANSWER.min(wanted.bytes as usize),
            time: most.time.min(asked),
        },
    })
}

/// Text that is no path: nothing stands for anything else.
fn exactly(bytes: &Bytes) -> Result<&str, Refusal> {
    std::str::from_utf8(bytes).map_err(|_| Refusal::new(FAILURE, "patterns must be valid UTF-8"))
}

async fn attach(session: &Session, id: &str, from: u64) -> Done {
    let share = session.allowance.handle()?;
    if session.handles.attached() >= MAX_ATTACHED {
        let message = format!("a channel is attached to at most {MAX_ATTACHED} processes");
        return Err(Refusal::new(FAILURE, message));
    }
    let mut process = session.backend.attach(&ProcessId::new(id), from).await?;
    let attached = Attached {
        stdin: process.stdin.take(),
        control: process.control.clone(),
        process: AsyncMutex::new(process),
        closed: watch::Sender::new(false),
    };
    let path = ab_core::WsPath::root();
    let open = Open::Process(attached);
    let number = session.handles.add(Handle { path, open, _share: share });
    Ok(Outcome::Packet(Answer::handle(number)))
}

async fn output(handle: &Arc<Handle>) -> Done {
    let attached = process(handle)?;
    let Ok(mut process) = attached.process.try_lock() else {
        return Err(Refusal::new(FAILURE, "a request for output waits already"));
    };
    let mut closed = attached.closed.subscribe();
    let output = tokio::select! {
        output = process.output.recv() => output,
        _ = closed.wait_for(|closed| *closed) => {
            return Err(Refusal::new(FAILURE, "the handle was closed"));
        }
    };
    match output {
        Some(output) => Ok(Outcome::Packet(report::output(&output))),
        None => Ok(Outcome::Packet(report::ended(process.wait().await.as_ref()))),
    }
}

async fn control(handle: &Arc<Handle>, wish: Wish) -> Done {
    let control = match wish {
        Wish::Signal(number) => {
            let number = i32::try_from(number).ok().filter(|number| (1..=64).contains(number));
            Control::Signal(number.ok_or_else(|| Refusal::new(FAILURE, "no such signal"))?)
        }
        Wish::Resize { columns, rows } => Control::Resize(command::size(columns, rows)),
        Wish::EndInput => Control::EndInput,
    };
    let sent = process(handle)?.control.send(control).await;
    sent.map_err(|_| Refusal::new(FAILURE, "the process has ended"))?;
    Ok(Outcome::Done)
}

fn process(handle: &Arc<Handle>) -> Result<&Attached, Refusal> {
    match &handle.open {
        Open::Process(attached) => Ok(attached),
        Open::File { .. } | Open::Directory(_) => Err(Refusal::new(FAILURE, "not a process")),
    }
}
