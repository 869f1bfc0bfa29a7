//! The first requests to a plain SSH server. They determine its extensions and the path of the
//! root.

use ab_core::{Error, ErrorCode, ErrorKind, Result, Verb};

use super::{Extensions, Plain};
use crate::client::context::CallContext;
use crate::client::reply::{Reply, Version};
use crate::client::session::{Session, extended};
use crate::client::settings::ClientSettings;
use crate::sftp::extended::ExtendedRequest;
use crate::sftp::packet::{SftpRequest, SshFieldReader, TruncatedField};

/// Maximum number of bytes of a READ or WRITE that every server accepts.
pub(super) const LEAST_DATA: usize = 32 * 1024;
/// Maximum number of bytes of a READ or WRITE, even if the server allows more.
const MOST_DATA: usize = 255 * 1024;

impl Plain {
    pub(crate) async fn greet(
        session: &Session,
        settings: &ClientSettings,
        version: &Version,
    ) -> Result<Self> {
        if version.version < 3 {
            let message =
                format!("{} speaks only version {} of SFTP", session.who, version.version);
            return Err(Error::new(ErrorCode::ConnectionClosed, ErrorKind::Unavailable, message));
        }
        let can = Extensions {
            posix_rename: version.has("posix-rename@openssh.com", "1"),
            fsync: version.has("fsync@openssh.com", "1"),
            statvfs: version.has("statvfs@openssh.com", "2"),
        };
        let limits = async {
            if version.has("limits@openssh.com", "1") {
                data_limit(session).await
            } else {
                Ok(LEAST_DATA)
            }
        };
        let root = root(session, settings.root.as_deref());
        let (data_limit, root) = tokio::join!(limits, root);
        let root = root?.trim_end_matches('/').to_owned();
        let alias = settings.root.as_deref().map(|alias| alias.trim_end_matches('/').to_owned());
        let alias = alias.filter(|alias| alias.starts_with('/') && *alias != root);
        Ok(Self { root, alias, can, data_limit: data_limit?, ..Self::default() })
    }
}

async fn data_limit(session: &Session) -> Result<usize> {
    let reply =
        session.ask(CallContext::NONE, Verb::Connect, &extended(&ExtendedRequest::Limits)).await?;
    let Reply::Extended(body) = reply else { return Ok(LEAST_DATA) };
    let read = |mut fields: SshFieldReader| -> Result<u64, TruncatedField> {
        let _packet = fields.read_u64()?;
        let (read, write) = (fields.read_u64()?, fields.read_u64()?);
        Ok(read.min(write))
    };
    // If a limit is missing or zero, it is unknown.
    let limit = read(SshFieldReader::new(body)).ok().filter(|limit| *limit > 0);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    Ok(limit.map_or(LEAST_DATA, |limit| limit.min(MOST_DATA)))
}

/// The path of the workspace directory on the server.
async fn root(session: &Session, given: Option<&str>) -> Result<String> {
    let given = given.unwrap_or(".");
    // SFTP does not support `~`. It is not needed, because servers start in the user's home
    // directory.
    let below = given.strip_prefix("/~/").or(given.strip_prefix("~/")).unwrap_or(given);
    let wanted = if below.is_empty() || below == "~" { "." } else { below };
    let unusable = |why: &str| {
        let message = format!("{} has no workspace at '{given}': {why}", session.who);
        Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
            .with_hint("the root must name a directory of that machine")
    };
    let request = SftpRequest::RealPath { path: wanted.to_owned().into() };
    let reply = session.ask(CallContext::NONE, Verb::Connect, &request).await?;
    let Reply::Names(names) = reply else { return Err(unusable("there is nothing")) };
    let name = names.into_iter().next().map(|name| name.name).unwrap_or_default();
    let root = String::from_utf8(name.into()).map_err(|_| unusable("its name is not UTF-8"))?;
    if !root.starts_with('/') {
        return Err(unusable("the server gives it no absolute path"));
    }
    let request = SftpRequest::Stat { path: root.clone().into() };
    match session.ask(CallContext::NONE, Verb::Connect, &request).await? {
        Reply::Attributes(found) if super::act::kind(&found).is_dir() => Ok(root),
        Reply::Attributes(_) => Err(unusable("it is not a directory")),
        Reply::Status(status) => {
            let error = super::refusal(Verb::Connect, status.code, &status.message);
            Err(unusable(error.message()))
        }
        _ => Err(session.nonsense(Verb::Connect)),
    }
}
