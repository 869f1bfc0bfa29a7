//! Moving a file or a directory.
//!
//! The server's own rename refuses a name that is taken, and OpenSSH's addition replaces in one
//! step. What neither says is found out by looking before.

use ab_core::metadata::{FileKind, Renamed};
use ab_core::options::{Overwrite, RenameOptions};
use ab_core::{Kind, Result, Verb, WsPath};
use bytes::Bytes;

use super::act::{Act, kind};
use super::spot::{Final, Spot};
use super::{Plain, root_stays};
use crate::client::session::{Session, extended};
use crate::sftp::extended::Extended;
use crate::sftp::packet::Request;
use crate::sftp::status;

impl Plain {
    pub(crate) async fn rename(
        &self,
        session: &Session,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<Renamed> {
        let act = self.act(session, Verb::Rename, from);
        let target = act.about(to);
        if let Some(root) = [act, target].iter().find(|act| act.path.is_root()) {
            return Err(root_stays(root));
        }
        let (source, found) = act.existing(Final::Keep).await?;
        if from == to {
            return Ok(Renamed { atomic: true });
        }
        if kind(&found) == FileKind::Dir && to.starts_with(from) {
            return Err(act.error(Kind::Invalid, "a directory cannot move into itself"));
        }
        let place = target.spot(Final::Keep).await?;
        let _turn = self.turns.of_two(&source.real, &place.real).await;
        let place = match place.found {
            Some(_) => target.spot(Final::Keep).await?,
            None => place,
        };
        if source.real == place.real {
            return Ok(Renamed { atomic: true });
        }
        let below = place.real.strip_prefix(&source.real);
        if below.is_some_and(|below| below.starts_with('/')) {
            return Err(act.error(Kind::Invalid, "a directory cannot move into itself"));
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
        self.whereabouts.moved(&source.real, &place.real);
        Ok(Renamed { atomic })
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
            // OpenSSH links the new name and then removes the old one.
            (Overwrite::Refuse, _) => (Request::Rename { from, to }, Moved::InSteps),
            (Overwrite::Replace, true) => {
                (extended(&Extended::PosixRename { from, to }), Moved::AtOnce)
            }
            (Overwrite::Replace, false) => {
                match place.kind() {
                    Some(FileKind::Dir) => {
                        act.done(&Request::RemoveDir { path: to.clone() }).await?;
                    }
                    Some(_) => act.done(&Request::Remove { path: to.clone() }).await?,
                    None => {}
                }
                (Request::Rename { from, to }, Moved::InSteps)
            }
        };
        let status = act.status(&request).await?;
        Ok(match status.code {
            status::OK => moved,
            _ => Moved::Refused(status),
        })
    }
}

enum Moved {
    AtOnce,
    /// Both names, or neither, could be seen for a moment.
    InSteps,
    Refused(crate::client::reply::Status),
}

impl Act<'_> {
    /// Whether what is at the target may be replaced.
    async fn allows(
        &self,
        source: FileKind,
        there: FileKind,
        place: &Spot,
        options: RenameOptions,
    ) -> Result<()> {
        match (options.overwrite, source, there) {
            (Overwrite::Refuse, _, _) => Err(self.exists()),
            (Overwrite::Replace, FileKind::Dir, FileKind::Dir) => {
                match self.names(self.plain.at(&place.real).into()).await?.is_empty() {
                    true => Ok(()),
                    false => Err(self.error(Kind::NotEmpty, "the directory is not empty")),
                }
            }
            (Overwrite::Replace, FileKind::Dir, _) => Err(self.not_a_directory()),
            (Overwrite::Replace, _, FileKind::Dir) => Err(self.is_a_directory()),
            (Overwrite::Replace, _, _) => Ok(()),
        }
    }

    /// What is behind a refusal, as far as it shows afterwards.
    async fn why_not(
        &self,
        target: Act<'_>,
        source: &Spot,
        place: &Spot,
        status: &crate::client::reply::Status,
    ) -> ab_core::Error {
        if let Ok(None) = self.lstat(self.plain.at(&source.real)).await {
            return self.missing();
        }
        let there = target.lstat(self.plain.at(&place.real)).await;
        match (there, place.found.is_some()) {
            (Ok(Some(_)), false) => target.exists(),
            (_, _) => self.refused(status),
        }
    }
}
