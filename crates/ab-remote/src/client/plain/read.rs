//! Reads a file or a range of it from a plain SSH server. If the file changes during the read, it
//! is read again. Not every change can be detected.

use std::sync::Arc;

use ab_core::metadata::{FileContent, FileKind};
use ab_core::options::{ByteRange, ReadOptions};
use ab_core::{ErrorKind, Result, Verb, WsPath};
use bytes::Bytes;

use super::Plain;
use super::act::{Act, kind};
use super::spot::Final;
use crate::client::context::CallContext;
use crate::client::file::RemoteFile;
use crate::client::place::Place;
use crate::client::session::Session;
use crate::sftp::SftpAttributes;
use crate::sftp::packet::{SftpRequest, flags};
use crate::sftp::status;

/// How often a file is read again if it changes during the read.
const READ_AGAIN: usize = 8;

impl Plain {
    pub(crate) async fn read(
        &self,
        session: &Arc<Session>,
        context: CallContext<'_>,
        path: &WsPath,
        options: ReadOptions,
    ) -> Result<FileContent> {
        let act = self.act(session, context, Verb::Read, path);
        for _ in 0..READ_AGAIN {
            if let Some(content) = self.read_once(session, act, options).await? {
                return Ok(content);
            }
        }
        Err(act.error(ErrorKind::Conflict, "the file is changed repeatedly"))
    }

    /// Reads the file once. Returns `None` if it changes during the read.
    async fn read_once(
        &self,
        session: &Arc<Session>,
        act: Act<'_>,
        options: ReadOptions,
    ) -> Result<Option<FileContent>> {
        let (spot, found) = act.existing(Final::Follow).await?;
        regular(&act, &found)?;
        let before = act.described(&spot, &found);
        let range = options.range.unwrap_or(ByteRange { start: 0, length: before.size });
        let length = range.length.min(before.size.saturating_sub(range.start));
        if length > options.limit {
            let message = format!("{length} bytes are more than the limit of {}", options.limit);
            return Err(act.error(ErrorKind::TooLarge, &message));
        }
        let request = SftpRequest::Open {
            path: self.at(&spot.real).into(),
            flags: flags::OPEN_FLAG_READ,
            attributes: SftpAttributes::default(),
        };
        let handle = match act.handle(&request).await? {
            Ok(handle) => handle,
            // The file has disappeared since it was looked up. The next lookup reports that.
            Err(status) if status.code == status::NO_SUCH_FILE => return Ok(None),
            Err(status) => return Err(act.refused(&status)),
        };
        let place = Place::new(&WsPath::root(), act.path);
        let file = RemoteFile::new(session.clone(), handle, place);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = match length {
            0 => Bytes::new(),
            _ => {
                let stretch = file.stretch(act.context, range.start, length).await;
                stretch.map_err(|error| act.named(error))?
            }
        };
        let after = act.fstat(file.handle()).await?;
        let stat = act.described(&spot, &after);
        let same = stat.version == before.version && bytes.len() == length;
        Ok(same.then_some(FileContent { bytes, stat }))
    }
}

/// Fails unless this is a regular file.
pub(super) fn regular(act: &Act<'_>, found: &SftpAttributes) -> Result<()> {
    match kind(found) {
        FileKind::File => Ok(()),
        FileKind::Dir => Err(act.is_a_directory()),
        FileKind::Symlink | FileKind::Other => {
            Err(act.error(ErrorKind::SpecialFile, "not a regular file"))
        }
    }
}
