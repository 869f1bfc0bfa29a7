//! Stores the output of a command in a file of the workspace if it is too long for an answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ab_core::options::{WriteMode, WriteOptions};
use ab_core::{Backend, Result, WsPath};
use jiff::Timestamp;

use crate::catalog::EXEC;
use crate::quantity::grouped;

/// Maximum number of bytes of the output of one command that are stored in a file.
pub const MAX_OUTPUT_FILE_BYTES: usize = 10 * 1024 * 1024;

/// A directory of the workspace for long output of commands. Clones share the numbering of the
/// files.
#[derive(Clone)]
pub struct OutputFileStore {
    directory: WsPath,
    files: Arc<AtomicU64>,
    describe: Arc<DescribePlace>,
}

/// Returns a text that tells a model where a file is and how to read it.
type DescribePlace = dyn Fn(&WsPath) -> String + Send + Sync;

impl OutputFileStore {
    pub fn new(directory: WsPath) -> OutputFileStore {
        let describe = |path: &WsPath| format!("'{path}'; read_text_file and grep show more of it");
        OutputFileStore { directory, files: Arc::default(), describe: Arc::new(describe) }
    }

    /// Sets the function that tells a model where a file in the directory is and how to read it.
    pub fn with_file_description(
        mut self,
        describe: impl Fn(&WsPath) -> String + Send + Sync + 'static,
    ) -> OutputFileStore {
        self.describe = Arc::new(describe);
        self
    }

    /// A text that tells a model where the file `path` is and how to read it.
    pub fn describe_file(&self, path: &WsPath) -> String {
        (self.describe)(path)
    }

    /// Writes `bytes` to a new file, whose name begins with `tool`, and returns its path.
    pub async fn save_output(
        &self,
        backend: &Backend,
        tool: &str,
        bytes: Vec<u8>,
    ) -> Result<WsPath> {
        if self.files.load(Ordering::Relaxed) == 0 {
            // Write a file that makes version control ignore the output. If this fails, store the
            // output anyway.
            let ignore = self.directory.child(".gitignore")?;
            let options =
                WriteOptions { mode: WriteMode::CreateIfMissing, ..WriteOptions::default() };
            let _ = backend.write_with(&ignore, "*\n", options).await;
        }
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let name = format!("{tool}-{}-{number}.txt", Timestamp::now().as_millisecond());
        let path = self.directory.child(&name)?;
        let options = WriteOptions { mode: WriteMode::CreateNew, ..WriteOptions::default() };
        backend.write_with(&path, bytes, options).await?;
        Ok(path)
    }
}

impl fmt::Debug for OutputFileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputFileStore")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// The output of one command on both channels, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct WholeOutput {
    bytes: Vec<u8>,
    total: u64,
}

impl WholeOutput {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = MAX_OUTPUT_FILE_BYTES - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Stores the output in a file. Returns a note for the caller, and the path of the file. The
    /// path is `None` if the file could not be written.
    pub(crate) async fn save(
        self,
        backend: &Backend,
        place: &OutputFileStore,
    ) -> (Option<WsPath>, String) {
        let (kept, total) = (self.bytes.len() as u64, self.total);
        match place.save_output(backend, EXEC, self.bytes).await {
            Ok(path) => {
                let what = if kept == total {
                    format!("all {} bytes are", grouped(total))
                } else {
                    format!("the first {} of {} bytes are", grouped(kept), grouped(total))
                };
                let told = format!("the output was cut: {what} in {}", place.describe_file(&path));
                (Some(path), told)
            }
            Err(error) => (None, format!("the output was cut, and saving it failed: {error}")),
        }
    }
}
