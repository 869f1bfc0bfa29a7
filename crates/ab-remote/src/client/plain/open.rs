//! Opens a file on a plain SSH server for reading and writing at offsets. Creates the file if
//! requested.

use std::sync::Arc;

use ab_core::driver::File;
use ab_core::options::{
    ExistingContentHandling, FileAccess, FileCreationMode, OpenOptions, WritePosition,
};
use ab_core::{Error, ErrorKind, Result, Verb, WsPath};
use bytes::Bytes;

use super::Plain;
use super::act::Act;
use super::file::PlainFile;
use super::read::regular;
use super::spot::{Final, Spot};
use crate::client::context::CallContext;
use crate::client::file::RemoteFile;
use crate::client::place::Place;
use crate::client::session::Session;
use crate::sftp::SftpAttributes;
use crate::sftp::packet::{SftpRequest, flags};
use crate::sftp::status;

/// Number of retries if the file appears or disappears while it is being opened.
const LOOK_AGAIN: usize = 8;

impl Plain {
    pub(crate) async fn open(
        &self,
        session: &Arc<Session>,
        context: CallContext<'_>,
        path: &WsPath,
        options: OpenOptions,
    ) -> Result<Box<dyn File>> {
        let act = self.act(session, context, Verb::Open, path);
        for _ in 0..LOOK_AGAIN {
            let spot = act.spot(Final::Follow).await?;
            if options.may_modify() && spot.place.is_write_protected() {
                return Err(Error::for_write_protected_path(Verb::Open, path));
            }
            let handle = match &spot.found {
                Some(found) => {
                    regular(&act, found)?;
                    if options.create == FileCreationMode::MustBeNew {
                        return Err(act.already_exists());
                    }
                    self.open_existing(act, &spot, options).await?
                }
                None if options.create == FileCreationMode::Never => return Err(act.nothing(&spot)),
                None => {
                    act.make_parents(&spot).await?;
                    self.make(act, &spot, options).await?
                }
            };
            if let Some(handle) = handle {
                let place = Place::new(&WsPath::root(), path);
                let file = RemoteFile::new(session.clone(), handle, place);
                let open_file_path = self.open_file_paths.opened(spot.real);
                return Ok(Box::new(PlainFile::new(session, file, path, open_file_path, options)));
            }
        }
        Err(act.error(ErrorKind::Conflict, "the file is created and removed repeatedly"))
    }

    /// Opens an existing file. Returns `None` if the file has disappeared since it was looked up.
    async fn open_existing(
        &self,
        act: Act<'_>,
        spot: &Spot,
        options: OpenOptions,
    ) -> Result<Option<Bytes>> {
        let truncates =
            options.existing == ExistingContentHandling::Truncate && options.access.can_write();
        let mut wanted = bits(options);
        if truncates {
            // SFTP version 3 cannot truncate a file without the flag for creation.
            wanted |= flags::OPEN_FLAG_TRUNCATE | flags::OPEN_FLAG_CREATE;
        }
        let request = SftpRequest::Open {
            path: self.at(&spot.real).into(),
            flags: wanted,
            attributes: SftpAttributes::default(),
        };
        if truncates {
            self.marks.change(&spot.real);
        }
        let opened = act.handle(&request).await?;
        if truncates {
            self.marks.change(&spot.real);
        }
        match opened {
            Ok(handle) => Ok(Some(handle)),
            Err(status) if status.code == status::NO_SUCH_FILE => Ok(None),
            Err(status) => Err(act.refused(&status)),
        }
    }

    /// Creates a file. Returns `None` if a file has appeared at the path since it was looked up.
    async fn make(&self, act: Act<'_>, spot: &Spot, options: OpenOptions) -> Result<Option<Bytes>> {
        let mode = options.permissions.map(|mode| mode & 0o777);
        let request = SftpRequest::Open {
            path: self.at(&spot.real).into(),
            flags: bits(options) | flags::OPEN_FLAG_CREATE | flags::OPEN_FLAG_EXCLUSIVE,
            attributes: SftpAttributes { mode, ..SftpAttributes::default() },
        };
        let handle = match act.handle(&request).await? {
            Ok(handle) => handle,
            Err(status) => {
                return match act.lstat(self.at(&spot.real)).await? {
                    Some(_) => Ok(None),
                    None => Err(act.refused(&status)),
                };
            }
        };
        self.marks.change(&spot.real);
        if mode.is_some() {
            // Set the requested mode explicitly, so that it does not depend on the umask of the
            // server.
            let attributes = SftpAttributes { mode, ..SftpAttributes::default() };
            act.done(&SftpRequest::FsetStat { handle: handle.clone(), attributes }).await?;
        }
        Ok(Some(handle))
    }
}

fn bits(options: OpenOptions) -> u32 {
    let access = match options.access {
        FileAccess::Read => flags::OPEN_FLAG_READ,
        FileAccess::Write => flags::OPEN_FLAG_WRITE,
        FileAccess::ReadWrite => flags::OPEN_FLAG_READ | flags::OPEN_FLAG_WRITE,
    };
    match options.position {
        WritePosition::AtOffset => access,
        WritePosition::End => access | flags::OPEN_FLAG_APPEND,
    }
}
