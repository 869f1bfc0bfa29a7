//! A file too large for one call: written beside its place, several pieces at once, then put there.
//!
//! Whoever looks sees the old file or the new one. What was begun and not finished is removed where
//! it can be reached, and named where it cannot. Its name is used once, so that what an earlier
//! attempt left is in nobody's way.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ab_core::metadata::{FileKind, Stat};
use ab_core::options::{
    FileAccess, FileCreationMode, LinkHandling, OpenOptions, OverwriteMode, RemoveOptions,
    RenameOptions, StatOptions,
};
use ab_core::stream::StreamCopyError;
use ab_core::{
    Backend, ConnectionStatus, Error, ErrorCode, ErrorKind, File, LostCallEffect,
    StatusSubscription, Verb,
};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Write;
use crate::commands::input::Blocks;
use crate::failure::Failure;
use crate::hint;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Whether a file can be put in this place: nobody expects a version of what is there, and it is
/// no link, which would be lost.
pub(super) async fn possible(
    command: &Write,
    backend: &Backend,
    path: &str,
) -> Result<bool, Failure> {
    let there = backend.stat_with(path, StatOptions { links: LinkHandling::NoFollow }).await;
    match there {
        Ok(stat) => Ok(command.expect.is_none() && stat.kind != FileKind::Symlink),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(command.expect.is_none()),
        Err(error) => Err(error.into()),
    }
}

/// Writes what has begun to come, and the rest of it.
pub(super) async fn write(
    command: &Write,
    backend: &Backend,
    path: &str,
    (begun, blocks): (Vec<u8>, Blocks),
    progress: Progress,
    (signals, terminal): (&mut Signals, &mut Terminal),
) -> Result<Stat, Failure> {
    let beside = beside(backend, path)?;
    let filling = async {
        let (_subscription, mut loss) = loss(backend);
        tokio::select! {
            filled = filled(command, backend, (path, &beside), (begun, blocks), progress) => filled,
            // What is open over there is closed with the connection: no more input will help.
            Some(error) = loss.recv() => Err(Unfinished::Lost(error.into())),
        }
    };
    let filled = tokio::select! {
        filled = filling => filled,
        exit = signals.next() => Err(Unfinished::Begun(Failure::Told(exit))),
    };
    let placed = match filled {
        Ok(()) => placed(command, backend, (path, &beside), signals).await,
        Err(unfinished) => Err((unfinished, LostCallEffect::NotApplied)),
    };
    match placed {
        Ok(()) => {
            let there = backend.stat(path).await;
            Ok(there.map_err(|error| error.with_lost_call_effect(LostCallEffect::Applied, None))?)
        }
        Err((unfinished, effect)) => {
            let whom = (signals, terminal);
            Err(unfinished.told(backend, (path, &beside), effect, whom).await)
        }
    }
}

/// Puts what lies beside the file in its place; or says why not, and what became of the file.
async fn placed(
    command: &Write,
    backend: &Backend,
    (path, beside): (&str, &str),
    signals: &mut Signals,
) -> Result<(), (Unfinished, LostCallEffect)> {
    let overwrite = if command.create_new { OverwriteMode::Refuse } else { OverwriteMode::Replace };
    tokio::select! {
        placed = backend.rename_with(beside, path, RenameOptions { overwrite }) => match placed {
            Ok(_) => Ok(()),
            Err(error) => {
                let effect = error.lost_call_effect().unwrap_or(LostCallEffect::NotApplied);
                Err((Unfinished::of(error), effect))
            }
        },
        exit = signals.next() => Err((Unfinished::Begun(Failure::Told(exit)), LostCallEffect::Unknown)),
    }
}

/// How long it may take to clear away what was begun.
const CLEARING: Duration = Duration::from_secs(5);

/// Why the file is not in its place.
enum Unfinished {
    /// Nothing was begun.
    Untouched(Failure),
    /// Something may lie beside the file, and can be removed.
    Begun(Failure),
    /// The same, and it is out of reach.
    Lost(Failure),
}

impl Unfinished {
    fn of(failure: impl Into<Failure>) -> Unfinished {
        let failure = failure.into();
        match failure.error().map(Error::kind) {
            Some(ErrorKind::Disconnected | ErrorKind::Destroyed) => Unfinished::Lost(failure),
            _ => Unfinished::Begun(failure),
        }
    }

    /// Clears away what can be, and says of the file that was meant what became of it.
    async fn told(
        self,
        backend: &Backend,
        (path, beside): (&str, &str),
        effect: LostCallEffect,
        (signals, terminal): (&mut Signals, &mut Terminal),
    ) -> Failure {
        let (failure, left) = match self {
            Unfinished::Untouched(failure) => (failure, false),
            Unfinished::Begun(failure) => {
                let cleared = cleared(backend, beside, signals).await;
                (failure, !cleared)
            }
            Unfinished::Lost(failure) => (failure, effect != LostCallEffect::Applied),
        };
        let became = match effect {
            LostCallEffect::Applied => format!("'{path}' was written all the same"),
            LostCallEffect::NotApplied => format!("'{path}' was not changed"),
            LostCallEffect::Unknown => {
                format!("'{path}' may have been replaced or not: look before trying again")
            }
        };
        let left = left.then(|| format!("'{beside}' may be left there: remove it with fs rm"));
        let Failure::Call(error) = failure else {
            // Whoever stopped it knows that it was not done.
            if left.is_some() || effect == LostCallEffect::Unknown {
                let words: Vec<String> = [Some(became), left].into_iter().flatten().collect();
                terminal.note(&words.join("; "));
            }
            return failure;
        };
        let own = error.hint().or_else(|| hint::for_kind(error.kind())).map(str::to_owned);
        let words: Vec<String> = [Some(became), own, left].into_iter().flatten().collect();
        // What was written beside is no business of whoever named the file.
        let error = if error.path().is_some() || error.kind() == ErrorKind::Disconnected {
            error.with_verb(Verb::Write).with_path(path)
        } else {
            error
        };
        Failure::Call(error.with_lost_call_effect(effect, None).with_hint(words.join("; ")))
    }
}

/// Whether nothing is left beside the file. One that is out of reach is not waited for.
async fn cleared(backend: &Backend, beside: &str, signals: &mut Signals) -> bool {
    if backend.status() != ConnectionStatus::Connected {
        return false;
    }
    let removing = backend.rm(beside, RemoveOptions::default().missing_ok());
    tokio::select! {
        removed = timeout(CLEARING, removing) => matches!(removed, Ok(Ok(_))),
        // Whoever asks twice means it.
        _ = signals.next() => false,
    }
}

/// Where the end of the connection is told, as long as the subscription is held.
fn loss(backend: &Backend) -> (StatusSubscription, mpsc::Receiver<Error>) {
    let (tells, hears) = mpsc::channel(1);
    let subscription = backend.on_status_change(move |change| {
        let lost = || {
            Error::new(
                ErrorCode::ConnectionClosed,
                ErrorKind::Disconnected,
                "the connection was lost",
            )
        };
        if change.to != ConnectionStatus::Connected {
            // Told once is enough.
            let _ = tells.try_send(change.error.clone().unwrap_or_else(lost));
        }
    });
    (subscription, hears)
}

/// Everything, in a file beside the one that is meant.
async fn filled(
    command: &Write,
    backend: &Backend,
    (path, beside): (&str, &str),
    (begun, blocks): (Vec<u8>, Blocks),
    progress: Progress,
) -> Result<(), Unfinished> {
    let permissions = match backend.stat(path).await {
        Ok(stat) => stat.mode,
        Err(_) => None,
    };
    let options = OpenOptions {
        access: FileAccess::Write,
        create: FileCreationMode::MustBeNew,
        permissions,
        ..OpenOptions::default()
    };
    let file = backend.open(beside, options).await.map_err(|error| match error.kind() {
        ErrorKind::Disconnected | ErrorKind::Timeout => Unfinished::of(error),
        _ => Unfinished::Untouched(error.into()),
    })?;
    fill(file.as_ref(), begun, blocks, progress).await.map_err(Unfinished::of)?;
    if command.sync {
        file.sync().await.map_err(Unfinished::of)?;
    }
    Ok(())
}

/// A name of our own in the same directory.
fn beside(backend: &Backend, path: &str) -> Result<String, Failure> {
    let parsed = backend.parse_path(path)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mark = format!("{}-{}", std::process::id(), now.as_nanos());
    let name = parsed.name().unwrap_or_default();
    // A long name leaves no room for more.
    let short: String = name.chars().take(32).collect();
    let name = format!(".{short}.{mark}.part");
    Ok(match parsed.parent() {
        Some(parent) if !parent.is_root() => format!("{parent}/{name}"),
        _ => name,
    })
}

async fn fill(
    file: &dyn File,
    begun: Vec<u8>,
    blocks: Blocks,
    mut progress: Progress,
) -> Result<(), Failure> {
    let begun = stream::iter([Ok(Bytes::from(begun))]);
    let rest = stream::try_unfold(blocks, |mut blocks| async move {
        Ok(blocks.next().await?.map(|block| (block, blocks)))
    });
    let filled = ab_core::stream::write_stream_to_file(file, begun.chain(rest), |bytes| {
        progress.advance(bytes)
    });
    filled.await.map(drop).map_err(|unfilled| match unfilled {
        StreamCopyError::Source(failure) => failure,
        StreamCopyError::Target(error) => error.into(),
    })
}
