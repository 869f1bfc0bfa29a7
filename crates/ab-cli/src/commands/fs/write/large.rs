//! Writes a file that is too large for a single call. Several pieces at a time are written to a
//! temporary file next to the target, which is then renamed.
//!
//! Readers see either the old file or the new one. An unfinished temporary file is removed if the
//! workspace can be reached. Otherwise a message contains its name. Every attempt uses a new name,
//! so that leftovers of earlier attempts cause no conflict.

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

/// Whether a rename can replace the target. This is possible if two conditions hold. The caller
/// does not require a version, and the target is not a symbolic link, because a rename would
/// replace the link itself.
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

/// Writes the bytes in `begun` and then the rest of the input.
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
            // After the connection is lost, the server closes the open file, so the rest of the
            // input cannot be written.
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

/// Renames the temporary file to the target. If the rename fails, the error says why, and whether
/// the target was replaced.
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

/// Time limit for removing the temporary file.
const CLEARING: Duration = Duration::from_secs(5);

/// Why the target was not written, and what remains of the temporary file.
enum Unfinished {
    /// The temporary file was not created.
    Untouched(Failure),
    /// The temporary file may exist, and can be removed.
    Begun(Failure),
    /// The temporary file may exist, and cannot be reached.
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

    /// Removes the temporary file if possible. Returns a failure that says what happened to the
    /// target.
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
            LostCallEffect::Applied => format!("'{path}' was written nevertheless"),
            LostCallEffect::NotApplied => format!("'{path}' was not changed"),
            LostCallEffect::Unknown => {
                format!(
                    "it is unknown whether '{path}' was replaced: check it before you try again"
                )
            }
        };
        let left = left.then(|| format!("'{beside}' may remain: remove it with fs rm"));
        let Failure::Call(error) = failure else {
            // A user who interrupts the command expects that the file is unchanged. Print a message
            // if the file may have changed, or if a temporary file is left.
            if left.is_some() || effect == LostCallEffect::Unknown {
                let words: Vec<String> = [Some(became), left].into_iter().flatten().collect();
                terminal.note(&words.join("; "));
            }
            return failure;
        };
        let own = error.hint().or_else(|| hint::for_kind(error.kind())).map(str::to_owned);
        let words: Vec<String> = [Some(became), own, left].into_iter().flatten().collect();
        // Name the path that the user gave, not the path of the temporary file.
        let error = if error.path().is_some() || error.kind() == ErrorKind::Disconnected {
            error.with_verb(Verb::Write).with_path(path)
        } else {
            error
        };
        Failure::Call(error.with_lost_call_effect(effect, None).with_hint(words.join("; ")))
    }
}

/// Removes the temporary file, and returns whether the file is gone. Does nothing if the connection
/// is lost.
async fn cleared(backend: &Backend, beside: &str, signals: &mut Signals) -> bool {
    if backend.status() != ConnectionStatus::Connected {
        return false;
    }
    let removing = backend.rm(beside, RemoveOptions::default().missing_ok());
    tokio::select! {
        removed = timeout(CLEARING, removing) => matches!(removed, Ok(Ok(_))),
        // A second signal ends the wait.
        _ = signals.next() => false,
    }
}

/// Returns a channel that receives the error when the connection is lost. The channel works as long
/// as the caller holds the subscription.
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
            // The channel has room for the first error. Later errors are dropped.
            let _ = tells.try_send(change.error.clone().unwrap_or_else(lost));
        }
    });
    (subscription, hears)
}

/// Writes all input to the temporary file.
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

/// A unique path for the temporary file, in the same directory as the target.
fn beside(backend: &Backend, path: &str) -> Result<String, Failure> {
    let parsed = backend.parse_path(path)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mark = format!("{}-{}", std::process::id(), now.as_nanos());
    let name = parsed.name().unwrap_or_default();
    // Shorten the name, so that the result with the suffix is a valid file name.
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
