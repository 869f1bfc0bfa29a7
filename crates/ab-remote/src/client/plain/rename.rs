//! Renames a file or a directory on a plain SSH server.
//!
//! The standard rename of SFTP refuses an existing target. An extension of OpenSSH replaces the
//! target in one step. All other conditions are checked before the rename.

use ab_core::error::escape_unprintable;
use ab_core::metadata::{FileKind, RenameOutcome};
use ab_core::options::{OverwriteMode, RenameOptions};
use ab_core::{Error, ErrorKind, LostCallEffect, Result, Verb, WsPath};
use bytes::Bytes;

use super::act::{Act, kind};
use super::spot::{Final, Spot};
use super::write::beside;
use super::{Plain, root_stays};
use crate::client::context::CallContext;
use crate::client::reply::Status;
use crate::client::session::{Session, extended};
use crate::sftp::SftpAttributes;
use crate::sftp::extended::ExtendedRequest;
use crate::sftp::packet::SftpRequest;
use crate::sftp::status;

impl Plain {
    pub(crate) async fn rename(
        &self,
        session: &Session,
        context: CallContext<'_>,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        let act = self.act(session, context, Verb::Rename, from);
        let target = act.about(to);
        if let Some(root) = [act, target].iter().find(|act| act.path.is_root()) {
            return Err(root_stays(root));
        }
        let (source, found) = act.existing(Final::Keep).await?;
        if from == to {
            return Ok(RenameOutcome { atomic: true });
        }
        if kind(&found) == FileKind::Dir && to.starts_with(from) {
            return Err(act.error(ErrorKind::Invalid, "a directory cannot move into itself"));
        }
        let place = target.spot(Final::Keep).await?;
        let _turn = self.turns.of_two(&source.real, &place.real).await;
        let place = match place.found {
            Some(_) => target.spot(Final::Keep).await?,
            None => place,
        };
        if source.real == place.real {
            return Ok(RenameOutcome { atomic: true });
        }
        let below = place.real.strip_prefix(&source.real);
        if below.is_some_and(|below| below.starts_with('/')) {
            return Err(act.error(ErrorKind::Invalid, "a directory cannot move into itself"));
        }
        match place.kind() {
            Some(there) => target.allows(kind(&found), there, &place, options).await?,
            None => target.make_parents(&place).await?,
        }
        let moved = self.shift(act, &source, &place, options).await;
        self.marks.change(&source.real);
        self.marks.change(&place.real);
        if let Ok(Moved::Refused(status)) = &moved {
            return Err(act.why_not(target, &source, &place, status).await);
        }
        let atomic = match moved? {
            Moved::AtOnce => true,
            Moved::InSteps => false,
            Moved::Refused(status) => return Err(act.refused(&status)),
        };
        self.open_file_paths.moved(&source.real, &place.real);
        Ok(RenameOutcome { atomic })
    }

    async fn shift(
        &self,
        act: Act<'_>,
        source: &Spot,
        place: &Spot,
        options: RenameOptions,
    ) -> Result<Moved> {
        let (from, to) = (Bytes::from(self.at(&source.real)), Bytes::from(self.at(&place.real)));
        let (request, moved) = match (options.overwrite, self.can.posix_rename) {
            // OpenSSH creates the new name as a hard link, and then removes the old name.
            (OverwriteMode::Refuse, _) => (SftpRequest::Rename { from, to }, Moved::InSteps),
            (OverwriteMode::Replace, true) => {
                (extended(&ExtendedRequest::PosixRename { from, to }), Moved::AtOnce)
            }
            (OverwriteMode::Replace, false) => (SftpRequest::Rename { from, to }, Moved::InSteps),
        };
        let in_the_way = match (&moved, options.overwrite) {
            (Moved::InSteps, OverwriteMode::Replace) => place.kind(),
            (_, _) => None,
        };
        let status = match in_the_way {
            None => act.status(&request).await?,
            Some(FileKind::Dir) => {
                let path = Bytes::from(self.at(&place.real));
                act.done(&SftpRequest::RemoveDir { path: path.clone() }).await?;
                let status = act.status(&request).await?;
                if status.code != status::OK {
                    let mode = place.found.as_ref().and_then(|found| found.mode);
                    let mode = mode.map(|mode| mode & 0o777);
                    let attributes = SftpAttributes { mode, ..SftpAttributes::default() };
                    act.done(&SftpRequest::MakeDir { path, attributes }).await?;
                }
                status
            }
            Some(_) => act.put_over(&self.at(&source.real), place).await?,
        };
        Ok(match status.code {
            status::OK => moved,
            _ => Moved::Refused(status),
        })
    }
}

enum Moved {
    AtOnce,
    /// For a short time, both names or none of them may have been visible.
    InSteps,
    Refused(Status),
}

impl Act<'_> {
    /// Replaces a file on a server whose rename refuses an existing target. The old file is moved
    /// to a temporary name first. If the new file cannot get the name, the old file is moved back.
    /// Both files have a name at any time.
    pub(super) async fn put_over(&self, from: &str, place: &Spot) -> Result<Status> {
        let to = self.plain.at(&place.real);
        let aside = self.plain.at(&beside(place));
        let rename = |from: &str, to: &str| {
            let (from, to) = (from.to_owned().into(), to.to_owned().into());
            SftpRequest::Rename { from, to }
        };
        let kept = |error: Error| self.kept(&error, &aside, from);
        let moved = self.status(&rename(&to, &aside)).await.map_err(kept)?;
        match moved.code {
            status::OK => {}
            // Another client has removed it first.
            status::NO_SUCH_FILE => return self.status(&rename(from, &to)).await,
            _ => return Ok(moved),
        }
        let put = self.status(&rename(from, &to)).await.map_err(kept)?;
        if put.code == status::OK {
            // If this fails, a temporary file remains. Listings do not show it.
            let _ = self.status(&SftpRequest::Remove { path: aside.into() }).await;
            return Ok(put);
        }
        let back = self.status(&rename(&aside, &to)).await.map_err(kept)?;
        match back.code {
            status::OK => Ok(put),
            _ => Err(kept(self.refused(&put))),
        }
    }

    /// The error if the old and the new file both exist, but only under temporary names that
    /// listings omit.
    fn kept(&self, error: &Error, aside: &str, from: &str) -> Error {
        let message = format!(
            "{}; what was there may now be at '{}', and what was to replace it at '{}'",
            error.message(),
            escape_unprintable(aside),
            escape_unprintable(from)
        );
        let error = Error::new(error.code(), error.kind(), message);
        self.named(error).with_lost_call_effect(LostCallEffect::Unknown, None)
    }

    /// Whether the existing target may be replaced.
    async fn allows(
        &self,
        source: FileKind,
        there: FileKind,
        place: &Spot,
        options: RenameOptions,
    ) -> Result<()> {
        match (options.overwrite, source, there) {
            (OverwriteMode::Refuse, _, _) => Err(self.already_exists()),
            (OverwriteMode::Replace, FileKind::Dir, FileKind::Dir) => {
                if self.names(self.plain.at(&place.real).into()).await?.is_empty() {
                    Ok(())
                } else {
                    Err(self.error(ErrorKind::NotEmpty, "the directory is not empty"))
                }
            }
            (OverwriteMode::Replace, FileKind::Dir, _) => Err(self.not_a_directory()),
            (OverwriteMode::Replace, _, FileKind::Dir) => Err(self.is_a_directory()),
            (OverwriteMode::Replace, _, _) => Ok(()),
        }
    }

    /// Why the server has probably refused the rename. The files are looked at again to find out.
    async fn why_not(
        &self,
        target: Act<'_>,
        source: &Spot,
        place: &Spot,
        status: &Status,
    ) -> Error {
        if let Ok(None) = self.lstat(self.plain.at(&source.real)).await {
            return self.missing();
        }
        let there = target.lstat(self.plain.at(&place.real)).await;
        match (there, place.found.is_some()) {
            (Ok(Some(_)), false) => target.already_exists(),
            (_, _) => self.refused(status),
        }
    }
}
