//! Performs the extended requests of SFTP: the requests of OpenSSH and the requests of
//! agent-backend clients.

use ab_core::options::{OverwriteMode, RenameOptions};
use bytes::Bytes;

use super::extended::ExtendedRequest;
use super::handles::{MAX_HANDLES, Open};
use super::order::{Footprint, Touch};
use super::packet::{MAX_PACKET_BYTES, MAX_PACKET_DATA_BYTES, SshFieldWriter};
use super::paths::text;
use super::status::{FAILURE, Refusal};
use super::{Outcome, Session, calls};

/// The block size that is reported to clients.
const BLOCK: u64 = 4096;
const LONGEST_NAME: u64 = 255;

type Done = Result<Outcome, Refusal>;

/// The paths that a request reads and changes. The calls of agent-backend clients report no paths,
/// because these clients wait for an answer before they send a request that depends on it.
pub(super) fn footprint(
    session: &Session,
    request: &ExtendedRequest,
) -> Result<Footprint, Refusal> {
    let place =
        |path: &Bytes| -> Result<_, Refusal> { Ok(session.backend.parse_path(text(path)?)?) };
    Ok(match request {
        ExtendedRequest::PosixRename { from, to } => {
            Footprint::of(place(from)?, Touch::Change).and(place(to)?, Touch::Change)
        }
        ExtendedRequest::Fsync { handle } => {
            Footprint::of(session.handle(handle)?.path.clone(), Touch::Change)
        }
        ExtendedRequest::Statvfs { .. }
        | ExtendedRequest::FstatVfs { .. }
        | ExtendedRequest::Limits
        | ExtendedRequest::Call(_) => Footprint::none(),
    })
}

/// Maximum number of bytes of the answer to a request.
pub(super) fn cost(request: &ExtendedRequest) -> usize {
    match request {
        ExtendedRequest::Call(call) => calls::cost(call),
        _ => 0,
    }
}

pub(super) async fn perform(session: &Session, request: ExtendedRequest) -> Done {
    let backend = &session.backend;
    match request {
        ExtendedRequest::PosixRename { from, to } => {
            let options = RenameOptions { overwrite: OverwriteMode::Replace };
            backend.rename_with(text(&from)?, text(&to)?, options).await?;
            Ok(Outcome::Done)
        }
        ExtendedRequest::Statvfs { path } => {
            backend.stat(text(&path)?).await?;
            space(session).await
        }
        ExtendedRequest::FstatVfs { handle } => {
            session.handle(&handle)?;
            space(session).await
        }
        ExtendedRequest::Fsync { handle } => match &session.handle(&handle)?.open {
            Open::File { file, .. } => {
                file.sync().await?;
                Ok(Outcome::Done)
            }
            Open::Directory(_) | Open::Staged(_) | Open::Answer(_) => {
                Err(Refusal::new(FAILURE, "not a file"))
            }
        },
        ExtendedRequest::Limits => {
            let mut answer = SshFieldWriter::extended();
            for value in
                [MAX_PACKET_BYTES, MAX_PACKET_DATA_BYTES, MAX_PACKET_DATA_BYTES, MAX_HANDLES]
            {
                answer.write_u64(value as u64);
            }
            Ok(Outcome::Packet(answer))
        }
        ExtendedRequest::Call(call) => calls::perform(session, *call).await,
    }
}

async fn space(session: &Session) -> Done {
    let space = session.backend.disk_space().await?;
    let free = space.available / BLOCK;
    let mut answer = SshFieldWriter::extended();
    for value in [BLOCK, BLOCK, space.total / BLOCK, free, free, 0, 0, 0, 0, 0, LONGEST_NAME] {
        answer.write_u64(value);
    }
    Ok(Outcome::Packet(answer))
}
