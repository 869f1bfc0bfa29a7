//! Describes files, links and free disk space on a plain SSH server.

use std::time::{Duration, SystemTime};

use ab_core::driver::BackendKind;
use ab_core::metadata::{DiskSpace, FileKind, Stat};
use ab_core::options::{LinkHandling, StatOptions};
use ab_core::{Error, ErrorKind, Result, Verb, WsPath};

use super::Plain;
use super::act::kind;
use super::spot::Final;
use crate::client::context::CallContext;
use crate::client::reply::Reply;
use crate::client::session::{Session, extended};
use crate::sftp::SftpAttributes;
use crate::sftp::extended::ExtendedRequest;
use crate::sftp::packet::{SshFieldReader, TruncatedField};

impl Plain {
    pub(crate) async fn stat(
        &self,
        session: &Session,
        context: CallContext<'_>,
        path: &WsPath,
        options: StatOptions,
    ) -> Result<Stat> {
        let act = self.act(session, context, Verb::Stat, path);
        let last = match options.links {
            LinkHandling::Follow => Final::Follow,
            LinkHandling::NoFollow => Final::Keep,
        };
        let (spot, found) = act.existing(last).await?;
        Ok(act.described(&spot, &found))
    }

    pub(crate) async fn read_link(
        &self,
        session: &Session,
        context: CallContext<'_>,
        path: &WsPath,
    ) -> Result<String> {
        let act = self.act(session, context, Verb::ReadLink, path);
        let (spot, found) = act.existing(Final::Keep).await?;
        match kind(&found) {
            FileKind::Symlink => act.link_text(self.at(&spot.real)).await,
            FileKind::File | FileKind::Dir | FileKind::Other => {
                Err(act.error(ErrorKind::Invalid, "not a link"))
            }
        }
    }

    pub(crate) async fn space(
        &self,
        session: &Session,
        context: CallContext<'_>,
    ) -> Result<DiskSpace> {
        if !self.can.statvfs {
            return Err(Error::for_unsupported_verb(BackendKind::Remote, Verb::DiskSpace));
        }
        let root = WsPath::root();
        let act = self.act(session, context, Verb::DiskSpace, &root);
        let request = extended(&ExtendedRequest::Statvfs { path: self.at("").into() });
        match act.ask(&request).await? {
            Reply::Extended(body) => room(SshFieldReader::new(body)).map_err(|_| act.nonsense()),
            Reply::Status(status) => Err(act.refused(&status)),
            _ => Err(act.nonsense()),
        }
    }
}

fn room(mut fields: SshFieldReader) -> Result<DiskSpace, TruncatedField> {
    let _preferred = fields.read_u64()?;
    let block = fields.read_u64()?;
    let blocks = fields.read_u64()?;
    let _free = fields.read_u64()?;
    let available = fields.read_u64()?;
    let bytes = |count: u64| count.saturating_mul(block);
    Ok(DiskSpace { total: bytes(blocks), available: bytes(available.min(blocks)) })
}

/// Converts the server's attributes to a [`Stat`].
pub(super) fn stat(plain: &Plain, real: &str, attributes: &SftpAttributes) -> Stat {
    let time = |seconds: u32| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into());
    let kind = kind(attributes);
    let size = match kind {
        FileKind::Dir => 0,
        FileKind::File | FileKind::Symlink | FileKind::Other => attributes.size.unwrap_or(0),
    };
    Stat {
        kind,
        size,
        modified: time(attributes.times.map_or(0, |times| times.1)),
        accessed: attributes.times.map(|times| time(times.0)),
        created: None,
        mode: attributes.mode.map(|mode| mode & 0o777),
        version: plain.marks.version(real, attributes),
    }
}
