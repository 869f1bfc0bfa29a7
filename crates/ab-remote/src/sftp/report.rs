//! What a workspace says, as the answers to our own extended requests. Their form is written down
//! in [`extended`](super::extended).

use std::time::{Duration, SystemTime};

use ab_core::Error;
use ab_core::metadata::{Entry, FileKind, Listing, Problem, Stat, Truncated};
use ab_core::process::{Channel, Exit, Output, ProcessInfo};
use ab_core::search::{Found, LineRole, Match};

use super::packet::Answer;

/// Longest answer to a request of ours; what does not fit is cut, and the answer says so.
pub(super) const MAX_ANSWER: usize = 2 * 1024 * 1024;
/// Where the note whether an answer was cut is in its packet.
const CUT_AT: usize = 9;

pub(super) fn stat(stat: &Stat) -> Answer {
    let mut answer = Answer::extended();
    describe(&mut answer, stat);
    answer
}

pub(super) fn listing(listing: &Listing) -> Answer {
    let mut answer = Answer::extended();
    answer.u8(cut(listing.truncated));
    counted(&mut answer, &listing.entries, entry);
    problems(&mut answer, &listing.problems);
    answer
}

pub(super) fn found(found: &Found) -> Answer {
    let mut answer = Answer::extended();
    answer.u8(cut(found.truncated)).u64(found.searched).u64(found.skipped_binary);
    counted(&mut answer, &found.matches, |answer, found| match found {
        Match::Name(name) => entry(answer.u8(0), name),
        Match::Line { path, line, text, cut, role } => {
            answer.u8(1).string(path.as_str().as_bytes()).u64(*line).string(text.as_bytes());
            answer.u64(cut.unwrap_or(0)).u8((*role == LineRole::Context).into());
        }
        Match::File { path } => {
            answer.u8(2).string(path.as_str().as_bytes());
        }
        Match::Count { path, lines } => {
            answer.u8(3).string(path.as_str().as_bytes()).u64(*lines);
        }
    });
    problems(&mut answer, &found.problems);
    answer
}

pub(super) fn processes(processes: &[ProcessInfo]) -> Answer {
    let mut answer = Answer::extended();
    answer.u8(cut(None));
    counted(&mut answer, processes, |answer, process| {
        answer.string(process.id.as_str().as_bytes()).string(process.command.as_bytes());
        answer.string(process.cwd.as_str().as_bytes());
        let since = since(process.started);
        answer.u64(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        answer.u8(process.exit.is_some().into());
        if let Some(exit) = &process.exit {
            end(answer, Some(exit));
        }
    });
    answer
}

pub(super) fn output(output: &Output) -> Answer {
    let mut answer = Answer::extended();
    answer.u8(0).u64(output.sequence).u8((output.channel == Channel::Stderr).into());
    answer.u64(output.lost).string(&output.bytes);
    answer
}

pub(super) fn ended(exit: Option<&Exit>) -> Answer {
    let mut answer = Answer::extended();
    end(answer.u8(1), exit);
    answer
}

/// What follows a status for clients that asked for it.
pub(super) fn exact(answer: &mut Answer, error: Option<&Error>) {
    let verb = error.and_then(Error::verb).map_or("", |verb| verb.as_str());
    let texts = [
        error.map_or("", |error| error.kind().as_str()),
        error.map_or("", |error| error.code().as_str()),
        verb,
        error.and_then(Error::path).unwrap_or(""),
        error.and_then(Error::hint).unwrap_or(""),
    ];
    for text in texts {
        answer.string(text.as_bytes());
    }
}

/// A count and so many items, or as many as fit.
fn counted<T>(answer: &mut Answer, items: &[T], put: impl Fn(&mut Answer, &T)) {
    let at = answer.len();
    answer.u32(0);
    let mut count = 0;
    for item in items {
        if answer.len() > MAX_ANSWER {
            answer.set_u8(CUT_AT, cut(Some(Truncated::Bytes)));
            break;
        }
        put(answer, item);
        count += 1;
    }
    answer.set_u32(at, count);
}

fn entry(answer: &mut Answer, entry: &Entry) {
    answer.string(entry.path.as_str().as_bytes()).u8(kind(entry.kind));
    answer.u8(entry.stat.is_some().into());
    if let Some(stat) = &entry.stat {
        describe(answer, stat);
    }
}

fn describe(answer: &mut Answer, stat: &Stat) {
    let modified = since(stat.modified);
    answer.u8(kind(stat.kind)).u64(stat.size);
    answer.u64(modified.as_secs()).u32(modified.subsec_nanos());
    answer.u32(stat.mode.unwrap_or(u32::MAX));
    let version = stat.version.bytes();
    version.iter().for_each(|byte| {
        answer.u8(*byte);
    });
}

fn problems(answer: &mut Answer, problems: &[Problem]) {
    counted(answer, problems, |answer, problem| {
        answer.string(problem.path.as_bytes()).string(problem.error.message().as_bytes());
    });
}

fn end(answer: &mut Answer, exit: Option<&Exit>) {
    match exit.map(|exit| (exit.code, exit.signal)) {
        Some((Some(code), _)) => answer.u8(0).u32(code.cast_unsigned()),
        Some((None, Some(signal))) => answer.u8(1).u32(signal.cast_unsigned()),
        Some((None, None)) | None => answer.u8(2),
    };
}

fn kind(kind: FileKind) -> u8 {
    match kind {
        FileKind::File => 0,
        FileKind::Dir => 1,
        FileKind::Symlink => 2,
        FileKind::Other => 3,
    }
}

fn cut(truncated: Option<Truncated>) -> u8 {
    match truncated {
        None => 0,
        Some(Truncated::Count) => 1,
        Some(Truncated::Bytes) => 2,
        Some(Truncated::Time) => 3,
    }
}

fn since(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
