//! A file too large for one call: written beside its place, several pieces at once, then put there.
//!
//! Whoever looks sees the old file or the new one. What was begun and not finished is removed.

use std::time::{SystemTime, UNIX_EPOCH};

use ab_core::metadata::{FileKind, Stat};
use ab_core::options::{
    Access, Creation, Links, OpenOptions, Overwrite, RemoveOptions, RenameOptions, StatOptions,
};
use ab_core::{Backend, File, Kind};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::Write;
use crate::commands::fs::pieces::{AHEAD, PIECE};
use crate::commands::input::Blocks;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::signals::Signals;

/// Whether a file can be put in this place: nobody expects a version of what is there, and it is
/// no link, which would be lost.
pub(super) async fn possible(
    command: &Write,
    backend: &Backend,
    path: &str,
) -> Result<bool, Failure> {
    let there = backend.stat_with(path, StatOptions { links: Links::Keep }).await;
    match there {
        Ok(stat) => Ok(command.expect.is_none() && stat.kind != FileKind::Symlink),
        Err(error) if error.kind() == Kind::NotFound => Ok(command.expect.is_none()),
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
    signals: &mut Signals,
) -> Result<Stat, Failure> {
    let beside = beside(backend, path)?;
    let writing = async {
        let permissions = match backend.stat(path).await {
            Ok(stat) => stat.mode,
            Err(_) => None,
        };
        let options = OpenOptions {
            access: Access::Write,
            create: Creation::Always,
            permissions,
            ..OpenOptions::default()
        };
        let file = backend.open(&beside, options).await?;
        fill(file.as_ref(), begun, blocks, progress).await?;
        if command.sync {
            file.sync().await?;
        }
        drop(file);
        let overwrite = match command.create_new {
            true => Overwrite::Refuse,
            false => Overwrite::Replace,
        };
        backend.rename_with(&beside, path, RenameOptions { overwrite }).await?;
        Ok(backend.stat(path).await?)
    };
    let written = tokio::select! {
        written = writing => written,
        exit = signals.next() => Err(Failure::Told(exit)),
    };
    if written.is_err() {
        // Where even that is out of reach, the error that is told is why.
        let _ = backend.rm(&beside, RemoveOptions::default().missing_ok()).await;
    }
    written
}

/// A name of our own in the same directory.
fn beside(backend: &Backend, path: &str) -> Result<String, Failure> {
    let parsed = backend.resolve(path)?;
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
    mut blocks: Blocks,
    mut progress: Progress,
) -> Result<(), Failure> {
    let mut begun = Bytes::from(begun);
    let mut under_way = FuturesUnordered::new();
    let mut offset = 0;
    loop {
        let block = match begun.is_empty() {
            false => Some(begun.split_to(begun.len().min(PIECE))),
            true => loop {
                // What is on its way goes on while nothing comes.
                tokio::select! {
                    block = blocks.next() => break block?,
                    Some(written) = under_way.next(), if !under_way.is_empty() => {
                        progress.advance(written?);
                    }
                }
            },
        };
        let Some(block) = block else { break };
        let length = block.len() as u64;
        let at = offset;
        under_way.push(async move { file.write_at(at, block).await.map(|()| length) });
        offset += length;
        if under_way.len() >= AHEAD
            && let Some(written) = under_way.next().await
        {
            progress.advance(written?);
        }
    }
    while let Some(written) = under_way.next().await {
        progress.advance(written?);
    }
    Ok(())
}
