//! Replaces a file on a plain SSH server. Writes a temporary file (a draft) next to the file, and
//! renames the draft to the final path.
//!
//! If the server supports a rename onto an existing file, readers see either the old bytes or the
//! new bytes. An expected version is checked immediately before the rename. Locks serialize the
//! callers of this connection. Another client may still change the file between the check and the
//! rename.

use std::sync::Arc;
use std::time::Duration;

use ab_core::driver::BackendKind;
use ab_core::metadata::{FileKind, Stat};
use ab_core::options::{Durability, WriteMode, WriteOptions};
use ab_core::path::TEMP_FILE_PREFIX;
use ab_core::{Error, ErrorKind, Result, Verb, WsPath};
use bytes::Bytes;
use tokio::time::timeout;

use super::Plain;
use super::act::{Act, kind};
use super::read::regular;
use super::spot::{Final, Spot};
use crate::client::context::CallContext;
use crate::client::file::RemoteFile;
use crate::client::place::Place;
use crate::client::session::{Later, Session, extended};
use crate::sftp::SftpAttributes;
use crate::sftp::extended::ExtendedRequest;
use crate::sftp::packet::{SftpRequest, flags};
use crate::sftp::status;

impl Plain {
    pub(crate) async fn write(
        &self,
        session: &Arc<Session>,
        context: CallContext<'_>,
        path: &WsPath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<Stat> {
        let act = self.act(session, context, Verb::Write, path);
        if options.durability == Durability::SurvivesPowerLoss && !self.can.fsync {
            return Err(Error::for_unsupported_verb(BackendKind::Remote, Verb::Write));
        }
        let spot = act.spot(Final::Follow).await?;
        let _turn = self.turns.of(&spot.real).await;
        // Look the file up again, because it may have changed before the lock was acquired.
        let spot = act.spot(Final::Follow).await?;
        match &spot.found {
            Some(found) if options.mode != WriteMode::CreateNew => regular(&act, found)?,
            Some(found) if kind(found) == FileKind::Dir => return Err(act.is_a_directory()),
            Some(_) => {}
            None if options.expected_version.is_some() => return Err(conflict(&act)),
            None if options.mode == WriteMode::Replace => return Err(act.nothing(&spot)),
            None => act.make_parents(&spot).await?,
        }
        if let (Some(found), Some(expected)) = (&spot.found, options.expected_version)
            && act.described(&spot, found).version != expected
        {
            return Err(conflict(&act));
        }
        match (&spot.found, options.mode) {
            (Some(_), WriteMode::CreateNew) => return Err(act.already_exists()),
            (Some(found), WriteMode::CreateIfMissing) => return Ok(act.described(&spot, found)),
            (_, _) => {}
        }
        let mut draft = Draft::create(act, session, &spot, options.permissions).await?;
        let written = self.settle(&mut draft, &spot, content, options).await;
        draft.discard().await;
        written
    }

    /// Writes the content to the draft and renames the draft to the final path.
    async fn settle(
        &self,
        draft: &mut Draft<'_>,
        spot: &Spot,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<Stat> {
        let act = draft.act;
        let attributes = draft.fill(content, options.durability).await?;
        // Change the version before and after the write, because a concurrent reader may see either
        // state of the file.
        self.marks.change(&spot.real);
        let placed = draft.place(spot, options).await;
        self.marks.change(&spot.real);
        if let Placed::Taken = placed? {
            // Only a write that must create the file can fail in this way.
            let (spot, found) = act.existing(Final::Follow).await?;
            return match (kind(&found), options.mode) {
                (FileKind::File, WriteMode::CreateIfMissing) => Ok(act.described(&spot, &found)),
                (FileKind::Dir, _) => Err(act.is_a_directory()),
                (_, _) => Err(act.already_exists()),
            };
        }
        self.open_file_paths.gone(&spot.real);
        Ok(act.described(spot, &attributes))
    }
}

fn conflict(act: &Act<'_>) -> Error {
    act.error(ErrorKind::Conflict, "the file does not have the expected version")
        .with_hint("read the file again, and use its current version")
}

enum Placed {
    Done,
    /// The target already exists.
    Taken,
}

/// How long to wait until the server has removed a draft.
const DISCARD: Duration = Duration::from_secs(2);

/// A temporary file. It is removed unless it was renamed to its final path.
struct Draft<'a> {
    act: Act<'a>,
    at: String,
    file: Option<RemoteFile>,
    /// The permission bits of the final file.
    mode: Option<u32>,
    /// Whether to keep the draft. It is kept after it was renamed to its final path, and if it may
    /// be the only copy of the content.
    stays: bool,
}

impl<'a> Draft<'a> {
    async fn create(
        act: Act<'a>,
        session: &Arc<Session>,
        spot: &Spot,
        permissions: Option<u32>,
    ) -> Result<Self> {
        let existing = spot.found.as_ref().and_then(|found| found.mode);
        let mode = existing.or(permissions).map(|mode| mode & 0o777);
        let at = act.plain.at(&beside(spot));
        // The draft is private until it gets the mode of the file that it replaces.
        let at_first = mode.map(|_| 0o600);
        let request = SftpRequest::Open {
            path: at.clone().into(),
            flags: flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_CREATE | flags::OPEN_FLAG_EXCLUSIVE,
            attributes: SftpAttributes { mode: at_first, ..SftpAttributes::default() },
        };
        let mut draft = Self { act, at, file: None, mode, stays: false };
        let handle = match act.aside().handle(&request).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(status)) => {
                draft.stays = true;
                return Err(act.refused(&status));
            }
            Err(error) => {
                draft.discard().await;
                return Err(error);
            }
        };
        let place = Place::new(&WsPath::root(), act.path);
        draft.file = Some(RemoteFile::new(session.clone(), handle, place));
        Ok(draft)
    }

    /// Writes the content, and returns the attributes that the draft then has.
    async fn fill(&mut self, content: Bytes, durability: Durability) -> Result<SftpAttributes> {
        let act = self.act.aside();
        let Some(file) = &self.file else { return Err(act.nonsense()) };
        if let Err(error) = file.fill(act.context, 0, content).await {
            return Err(act.full_or(error).await);
        }
        if let Some(mode) = self.mode {
            let attributes = SftpAttributes { mode: Some(mode), ..SftpAttributes::default() };
            let request = SftpRequest::FsetStat { handle: file.handle().clone(), attributes };
            act.done(&request).await?;
        }
        if durability == Durability::SurvivesPowerLoss {
            self.sync(act).await?;
        }
        let Some(file) = &self.file else { return Err(act.nonsense()) };
        act.fstat(file.handle()).await
    }

    async fn sync(&self, act: Act<'_>) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let request = extended(&ExtendedRequest::Fsync { handle: file.handle().clone() });
        act.done(&request).await
    }

    async fn place(&mut self, spot: &Spot, options: WriteOptions) -> Result<Placed> {
        let from = Bytes::from(self.at.clone());
        let to = Bytes::from(self.act.plain.at(&spot.real));
        let new = match options.mode {
            WriteMode::CreateNew | WriteMode::CreateIfMissing => true,
            WriteMode::CreateOrReplace | WriteMode::Replace => false,
        };
        let status = match (new, self.act.plain.can.posix_rename) {
            (true, _) => self.act.status(&SftpRequest::Rename { from, to }).await?,
            (false, true) => {
                let request = extended(&ExtendedRequest::PosixRename { from, to });
                self.act.status(&request).await?
            }
            (false, false) if spot.found.is_none() => {
                self.act.status(&SftpRequest::Rename { from, to }).await?
            }
            (false, false) => {
                // Keep the draft, because after a failure it may be the only copy. In this case the
                // error contains its name.
                self.stays = true;
                let status = self.act.put_over(&self.at, spot).await?;
                self.stays = false;
                status
            }
        };
        if status.code != status::OK {
            let there = self.act.lstat(self.act.plain.at(&spot.real)).await?;
            return match there.as_ref().map(kind) {
                Some(FileKind::Dir) => Err(self.act.is_a_directory()),
                Some(_) if new => Ok(Placed::Taken),
                Some(_) | None => Err(self.act.refused(&status)),
            };
        }
        self.stays = true;
        if options.durability == Durability::SurvivesPowerLoss {
            // SFTP cannot sync a directory, so sync the file again. A file system journal that
            // contains the last change of the file also contains the rename before it.
            self.sync(self.act).await?;
        }
        Ok(Placed::Done)
    }
}

impl Draft<'_> {
    /// Removes the draft unless it must be kept. This is done before the error is returned, because
    /// the caller may drop the connection afterwards.
    async fn discard(mut self) {
        let session = self.act.session;
        if self.stays || session.is_over() {
            return;
        }
        let removing = async {
            if let Some(file) = self.file.take() {
                let number = session.requests.number();
                let close = SftpRequest::Close { handle: file.handle().clone() };
                file.forget();
                session.requests.ask(number, close.encode(number)).await?;
            }
            let number = session.requests.number();
            let remove = SftpRequest::Remove { path: self.at.clone().into() };
            session.requests.ask(number, remove.encode(number)).await
        };
        if let Ok(Ok(_)) = timeout(DISCARD, removing).await {
            self.stays = true;
        }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.file = None;
        if !self.stays {
            let number = self.act.session.requests.number();
            let request = SftpRequest::Remove { path: self.at.clone().into() };
            self.act.session.later(Later::Packet(request.encode(number)));
        }
    }
}

impl Act<'_> {
    /// If the disk is full, converts an unspecified write error to "no space".
    pub(super) async fn full_or(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Io
            && let Ok(space) = self.plain.space(self.session, self.context).await
            && space.available == 0
        {
            return self.error(ErrorKind::NoSpace, "no space left on the device");
        }
        self.named(error)
    }
}

/// A path for a temporary file in the same directory. Listings omit it.
pub(super) fn beside(spot: &Spot) -> String {
    let mut chance = [0; 12];
    // If this fails, two writers may get the same name. The second one is then refused.
    let _ = getrandom::fill(&mut chance);
    let name: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
    match spot.parent() {
        "" => format!("{TEMP_FILE_PREFIX}{name}"),
        parent => format!("{parent}/{TEMP_FILE_PREFIX}{name}"),
    }
}
