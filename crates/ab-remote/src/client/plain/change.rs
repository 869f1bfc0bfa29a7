//! Sets attributes, and creates links and directories on a plain SSH server.

use std::time::SystemTime;

use ab_core::metadata::{FileKind, Stat};
use ab_core::options::AttributeChanges;
use ab_core::path::MAX_PATH_BYTES;
use ab_core::{ErrorKind, Result, Verb, WsPath};

use super::Plain;
use super::act::{Act, kind};
use super::spot::Final;
use crate::client::context::CallContext;
use crate::client::session::Session;
use crate::sftp;
use crate::sftp::packet::SftpRequest;
use crate::sftp::status;

impl Plain {
    pub(crate) async fn set_attributes(
        &self,
        session: &Session,
        context: CallContext<'_>,
        path: &WsPath,
        attributes: AttributeChanges,
    ) -> Result<Stat> {
        let act = self.act(session, context, Verb::SetAttributes, path);
        let (spot, found) = act.existing(Final::Follow).await?;
        if !matches!(kind(&found), FileKind::File | FileKind::Dir) {
            return Err(act.error(ErrorKind::SpecialFile, "not a regular file or directory"));
        }
        let wanted = wanted(&act, attributes, &found)?;
        if wanted == sftp::SftpAttributes::default() {
            return Ok(act.described(&spot, &found));
        }
        let at = self.at(&spot.real);
        act.done(&SftpRequest::SetStat { path: at.clone().into(), attributes: wanted }).await?;
        if attributes.modified.is_some() {
            self.marks.change(&spot.real);
        }
        let found = act.lstat(at).await?.ok_or_else(|| act.missing())?;
        Ok(act.described(&spot, &found))
    }

    pub(crate) async fn symlink(
        &self,
        session: &Session,
        context: CallContext<'_>,
        path: &WsPath,
        target: &str,
    ) -> Result<()> {
        let act = self.act(session, context, Verb::Symlink, path);
        if target.is_empty() || target.contains('\0') || target.len() > MAX_PATH_BYTES {
            let message = "the target of a link must not be empty, too long or contain NUL";
            return Err(act.error(ErrorKind::InvalidPath, message));
        }
        if !self.stays_inside(path, target) {
            return Err(act.error(ErrorKind::PathEscape, "the target leaves the workspace"));
        }
        let spot = act.spot(Final::Keep).await?;
        if spot.found.is_some() {
            return Err(act.already_exists());
        }
        act.make_parents(&spot).await?;
        let at = self.at(&spot.real);
        // OpenSSH and other servers expect the target as the first field, contrary to the
        // specification.
        let request =
            SftpRequest::Symlink { first: target.to_owned().into(), second: at.clone().into() };
        let status = act.status(&request).await?;
        if status.code == status::OK {
            self.marks.change(&spot.real);
            return Ok(());
        }
        match act.lstat(at).await? {
            Some(_) => Err(act.already_exists()),
            None => Err(act.refused(&status)),
        }
    }

    /// Whether the target text of a link leads to a path inside the workspace. Each use of the link
    /// checks its real target again.
    fn stays_inside(&self, path: &WsPath, target: &str) -> bool {
        if target.starts_with('/') {
            let below = self.inside(target, path.innermost_scope_root().as_str());
            return below.is_some_and(|below| climbs_from(0, below));
        }
        climbs_from(path.part_below_scope_root().split('/').count() - 1, target)
    }

    pub(crate) async fn create_dir(
        &self,
        session: &Session,
        context: CallContext<'_>,
        path: &WsPath,
    ) -> Result<()> {
        let act = self.act(session, context, Verb::Mkdir, path);
        let spot = act.spot(Final::Follow).await?;
        match spot.kind() {
            Some(FileKind::Dir) => Ok(()),
            Some(FileKind::File | FileKind::Symlink | FileKind::Other) => Err(act.already_exists()),
            None => act.make_all(&spot).await,
        }
    }
}

/// Whether a relative path that starts at this depth never leads above the root.
fn climbs_from(mut depth: usize, target: &str) -> bool {
    for segment in target.split('/') {
        match segment {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

/// The attributes to set. In SFTP version 3, both times are always set together, in whole seconds.
pub(super) fn wanted(
    act: &Act<'_>,
    attributes: AttributeChanges,
    found: &sftp::SftpAttributes,
) -> Result<sftp::SftpAttributes> {
    if attributes.mode.is_some_and(|mode| mode > 0o777) {
        return Err(act.error(ErrorKind::Invalid, "only permission bits up to 777 can be set"));
    }
    let seconds = |time: Option<SystemTime>| -> Result<Option<u32>> {
        let Some(time) = time else { return Ok(None) };
        let since = time.duration_since(SystemTime::UNIX_EPOCH).ok();
        let seconds = since.and_then(|since| u32::try_from(since.as_secs()).ok());
        let beyond =
            || act.error(ErrorKind::Invalid, "the time is beyond what the server can tell");
        seconds.map(Some).ok_or_else(beyond)
    };
    let (accessed, modified) = (seconds(attributes.accessed)?, seconds(attributes.modified)?);
    let times = match (accessed, modified, found.times) {
        (None, None, _) => None,
        (accessed, modified, known) => {
            let known = known.unwrap_or_default();
            Some((accessed.unwrap_or(known.0), modified.unwrap_or(known.1)))
        }
    };
    Ok(sftp::SftpAttributes { mode: attributes.mode, times, ..sftp::SftpAttributes::default() })
}
