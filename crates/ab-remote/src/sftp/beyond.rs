//! What OpenSSH's extended requests do.

use ab_core::options::{Overwrite, RenameOptions};
use bytes::Bytes;

use super::extended::Extended;
use super::handles::{MAX_HANDLES, Open};
use super::order::{Footprint, Touch};
use super::packet::{MAX_DATA, MAX_PACKET, SftpReply};
use super::paths::text;
use super::status::{FAILURE, Refusal};
use super::{Outcome, Session, calls};

/// Bytes of a block, as far as clients are told.
const BLOCK: u64 = 4096;
const LONGEST_NAME: u64 = 255;

type Done = Result<Outcome, Refusal>;

/// Where a request touches the workspace. Our own client waits for an answer before it asks for
/// something that depends on it, so that its calls wait for none.
pub(super) fn footprint(session: &Session, request: &Extended) -> Result<Footprint, Refusal> {
    let place = |path: &Bytes| -> Result<_, Refusal> { Ok(session.backend.resolve(text(path)?)?) };
    Ok(match request {
        Extended::PosixRename { from, to } => {
            Footprint::of(place(from)?, Touch::Change).and(place(to)?, Touch::Change)
        }
        Extended::Fsync { handle } => {
            Footprint::of(session.handle(handle)?.path.clone(), Touch::Change)
        }
        Extended::Statvfs { .. }
        | Extended::FstatVfs { .. }
        | Extended::Limits
        | Extended::Call(_) => Footprint::none(),
    })
}

/// Bytes that the answer may take.
pub(super) fn cost(request: &Extended) -> usize {
    match request {
        Extended::Call(call) => calls::cost(call),
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
            backend.stat(text(&path)?).await?;
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
            Open::Directory(_) | Open::Staged(_) | Open::Answer(_) => {
                Err(Refusal::new(FAILURE, "not a file"))
            }
        },
        Extended::Limits => {
            let mut answer = SftpReply::extended();
            for value in [MAX_PACKET, MAX_DATA, MAX_DATA, MAX_HANDLES] {
                answer.u64(value as u64);
            }
            Ok(Outcome::Packet(answer))
        }
        Extended::Call(call) => calls::perform(session, *call).await,
    }
}

async fn space(session: &Session) -> Done {
    let space = session.backend.disk_space().await?;
    let free = space.available / BLOCK;
    let mut answer = SftpReply::extended();
    for value in [BLOCK, BLOCK, space.total / BLOCK, free, free, 0, 0, 0, 0, 0, LONGEST_NAME] {
        answer.u64(value);
    }
    Ok(Outcome::Packet(answer))
}
