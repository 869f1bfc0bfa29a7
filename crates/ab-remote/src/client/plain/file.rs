//! An open file on a plain SSH server. The access mode is checked here, because the server's error
//! for a forbidden operation is ambiguous.

use std::sync::Arc;

use ab_core::driver::File;
use ab_core::metadata::Stat;
use ab_core::options::{AttributeChanges, FileAccess, OpenOptions};
use ab_core::{Error, ErrorKind, Result, Verb, WsPath};
use async_trait::async_trait;
use bytes::Bytes;

use super::act::Act;
use super::open_file_paths::OpenFilePath;
use super::{Plain, change, look};
use crate::client::context::{CallContext, Changes};
use crate::client::file::RemoteFile;
use crate::client::session::{Session, Speech};
use crate::sftp::packet::SftpRequest;

/// The largest offset that a file can have.
const LAST: u64 = i64::MAX as u64;

#[derive(Debug)]
pub(super) struct PlainFile {
    session: Arc<Session>,
    file: RemoteFile,
    path: WsPath,
    /// The current path of the file. The version of the file depends on it.
    open_file_path: Arc<OpenFilePath>,
    access: FileAccess,
}

impl PlainFile {
    pub(super) fn new(
        session: &Arc<Session>,
        file: RemoteFile,
        path: &WsPath,
        open_file_path: Arc<OpenFilePath>,
        options: OpenOptions,
    ) -> Self {
        let (session, path) = (session.clone(), path.clone());
        Self { session, file, path, open_file_path, access: options.access }
    }

    fn plain(&self, verb: Verb) -> Result<&Plain> {
        match &self.session.speech {
            Speech::Plain(plain) => Ok(plain),
            Speech::Ours(_) => Err(self.session.nonsense(verb)),
        }
    }

    fn act<'a>(&'a self, context: CallContext<'a>, verb: Verb) -> Result<Act<'a>> {
        Ok(self.plain(verb)?.act(&self.session, context, verb, &self.path))
    }

    fn not_open_for(&self, verb: Verb, what: &str) -> Error {
        let message = format!("the file is not open for {what}");
        Error::for_path(verb, &self.path, ErrorKind::PermissionDenied, message)
    }

    /// Performs a change of the file. The file gets a new version before and after the change.
    async fn changing<T>(
        &self,
        act: Act<'_>,
        change: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if !self.access.can_write() {
            return Err(self.not_open_for(act.verb, "writing"));
        }
        act.plain.marks.change(&self.open_file_path.real());
        let done = act.context.judged(change.await);
        act.plain.marks.change(&self.open_file_path.real());
        done
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl File for PlainFile {
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let act = self.act(CallContext::NONE, Verb::Read)?;
        if !self.access.can_read() {
            return Err(self.not_open_for(Verb::Read, "reading"));
        }
        let most = usize::try_from(LAST.saturating_sub(offset)).unwrap_or(usize::MAX);
        match length.min(most) {
            0 => Ok(Bytes::new()),
            length => {
                let stretch = self.file.stretch(act.context, offset, length).await;
                stretch.map_err(|error| act.named(error))
            }
        }
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()> {
        let changes = Changes::default();
        let context = CallContext::NONE.with_changes(&changes);
        let act = self.act(context, Verb::Write)?;
        if LAST.saturating_sub(offset) < bytes.len() as u64 {
            return Err(act.error(ErrorKind::TooLarge, "too large for the file system"));
        }
        let writing = async {
            match self.file.fill(act.context, offset, bytes).await {
                Ok(()) => Ok(()),
                Err(error) => Err(act.full_or(error).await),
            }
        };
        self.changing(act, writing).await
    }

    async fn set_len(&self, length: u64) -> Result<()> {
        let changes = Changes::default();
        let context = CallContext::NONE.with_changes(&changes);
        let act = self.act(context, Verb::Write)?;
        let attributes = crate::sftp::SftpAttributes { size: Some(length), ..Default::default() };
        let request = SftpRequest::FsetStat { handle: self.file.handle().clone(), attributes };
        self.changing(act, act.done(&request)).await
    }

    async fn stat(&self) -> Result<Stat> {
        let act = self.act(CallContext::NONE, Verb::Stat)?;
        let found = act.fstat(self.file.handle()).await?;
        Ok(look::stat(act.plain, &self.open_file_path.real(), &found))
    }

    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat> {
        let changes = Changes::default();
        let context = CallContext::NONE.with_changes(&changes);
        let act = self.act(context, Verb::SetAttributes)?;
        let dressing = async {
            let found = act.fstat(self.file.handle()).await?;
            let wanted = change::wanted(&act, attributes, &found)?;
            let handle = self.file.handle().clone();
            act.done(&SftpRequest::FsetStat { handle, attributes: wanted }).await?;
            act.fstat(self.file.handle()).await
        };
        let found = self.changing(act, dressing).await?;
        Ok(look::stat(act.plain, &self.open_file_path.real(), &found))
    }

    async fn sync(&self) -> Result<()> {
        let act = self.act(CallContext::NONE, Verb::Write)?;
        if !act.plain.can.fsync {
            let error = Error::for_unsupported_verb(ab_core::BackendKind::Remote, Verb::Write);
            return Err(act.named(error));
        }
        self.file.sync().await.map_err(|error| act.named(error))
    }
}
