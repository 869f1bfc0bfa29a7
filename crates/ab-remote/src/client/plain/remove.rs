//! Removes files and directories on a plain SSH server without following links.

use ab_core::metadata::{FileKind, RemoveOutcome};
use ab_core::options::{OnMissingTarget, RemoveDepth, RemoveOptions};
use ab_core::path::TEMP_FILE_PREFIX;
use ab_core::{ErrorKind, Result, Verb, WsPath};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::act::{Act, kind};
use super::list::Names;
use super::spot::Final;
use super::{Plain, root_stays};
use crate::client::context::CallContext;
use crate::client::session::Session;
use crate::sftp::packet::SftpRequest;
use crate::sftp::status;

/// Number of files that are removed at the same time.
const TOGETHER: usize = 32;
/// How often a directory is emptied again if other clients add entries to it.
const REFILLS: usize = 8;

impl Plain {
    pub(crate) async fn remove(
        &self,
        session: &Session,
        context: CallContext<'_>,
        path: &WsPath,
        options: RemoveOptions,
    ) -> Result<RemoveOutcome> {
        let act = self.act(session, context, Verb::Delete, path);
        if path.is_root() {
            return Err(root_stays(&act));
        }
        match self.remove_spot(act, options.depth).await {
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    && options.missing == OnMissingTarget::Ignore =>
            {
                Ok(RemoveOutcome::default())
            }
            result => result,
        }
    }

    async fn remove_spot(&self, act: Act<'_>, reach: RemoveDepth) -> Result<RemoveOutcome> {
        let (spot, found) = act.existing(Final::Keep).await?;
        if spot.real.is_empty() {
            return Err(root_stays(&act));
        }
        let _turn = self.turns.of(&spot.real).await;
        let at = Bytes::from(self.at(&spot.real));
        let removed = match (kind(&found), reach) {
            (FileKind::Dir, RemoveDepth::NonRecursive) => act.remove_empty(at).await.map(|()| 1),
            (FileKind::Dir, RemoveDepth::Recursive) => act.remove_tree(at).await,
            (FileKind::File | FileKind::Symlink | FileKind::Other, _) => {
                act.done(&SftpRequest::Remove { path: at }).await.map(|()| 1)
            }
        };
        self.marks.change(&spot.real);
        if removed.is_ok() {
            self.open_file_paths.gone(&spot.real);
        }
        removed.map(|count| RemoveOutcome { count })
    }
}

impl Act<'_> {
    /// Removes a directory that contains at most temporary files of killed writers.
    async fn remove_empty(&self, at: Bytes) -> Result<()> {
        let request = SftpRequest::RemoveDir { path: at.clone() };
        let status = self.status(&request).await?;
        if status.code == status::OK {
            return Ok(());
        }
        if status.code != status::FAILURE {
            return Err(self.refused(&status));
        }
        let names = self.names(at.clone()).await?;
        if names.is_empty() {
            return Err(self.refused(&status));
        }
        let leftover = |name: &Bytes| name.starts_with(TEMP_FILE_PREFIX.as_bytes());
        if !names.iter().all(|name| leftover(&name.name)) {
            return Err(self
                .error(ErrorKind::NotEmpty, "the directory is not empty")
                .with_hint("remove it recursively"));
        }
        for name in names {
            self.done(&SftpRequest::Remove { path: below(&at, &name.name) }).await?;
        }
        self.done(&request).await
    }

    async fn remove_tree(&self, top: Bytes) -> Result<u64> {
        let mut count = 0;
        // Each directory is visited twice: first to empty it, then to remove it.
        let mut work = vec![Step::Empty(top)];
        let mut refills = 0;
        while let Some(step) = work.pop() {
            match step {
                Step::Empty(at) => {
                    let names = self.names(at.clone()).await?;
                    work.push(Step::Remove(at.clone()));
                    let (dirs, files): (Names, Names) =
                        names.into_iter().partition(|name| kind(&name.attributes) == FileKind::Dir);
                    let files = stream::iter(files).map(|name| {
                        let path = below(&at, &name.name);
                        async move { self.remove_one(path).await }
                    });
                    let gone: Vec<u64> = files.buffered(TOGETHER).try_collect().await?;
                    count += gone.into_iter().sum::<u64>();
                    work.extend(dirs.iter().map(|name| Step::Empty(below(&at, &name.name))));
                }
                Step::Remove(at) => {
                    let status = self.status(&SftpRequest::RemoveDir { path: at.clone() }).await?;
                    match status.code {
                        status::OK => count += 1,
                        status::NO_SUCH_FILE => {}
                        status::FAILURE if refills < REFILLS => {
                            refills += 1;
                            work.push(Step::Empty(at));
                        }
                        _ => return Err(self.refused(&status)),
                    }
                }
            }
        }
        Ok(count)
    }

    /// Removes a file or link. If another client has already removed it, it is not counted.
    async fn remove_one(&self, path: Bytes) -> Result<u64> {
        let status = self.status(&SftpRequest::Remove { path }).await?;
        match status.code {
            status::OK => Ok(1),
            status::NO_SUCH_FILE => Ok(0),
            _ => Err(self.refused(&status)),
        }
    }
}

enum Step {
    Empty(Bytes),
    Remove(Bytes),
}

fn below(at: &Bytes, name: &Bytes) -> Bytes {
    [&at[..], b"/", &name[..]].concat().into()
}
