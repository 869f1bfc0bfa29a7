//! The content of uploads. The data directory contains one file for each upload. The length of a
//! file is the offset of its upload, so the offset is correct even if the process is killed during
//! a write.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ab_api::{UploadId, UploadKind, UploadRequest};
use ab_core::tar::{TarDecoder, TarError, TarEvent};
use aws_lc_rs::digest::{Context, SHA256};

use super::refusal::UploadRefusal;
use crate::digest::hexadecimal;

/// The name of the directory with the files of uploads, in the data directory.
const DIRECTORY: &str = "uploads";
/// Number of bytes that are read at a time.
const PIECE: usize = 1024 * 1024;
/// Maximum number of entries in an archive.
const MAX_ENTRIES: u64 = 1_000_000;

/// The file of an upload, open for reading and writing.
#[derive(Debug)]
pub(super) struct UploadFile(File);

/// The directory that contains the files of all uploads.
#[derive(Debug, Clone)]
pub(crate) struct UploadFiles {
    directory: PathBuf,
}

impl UploadFiles {
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self { directory: data_dir.join(DIRECTORY) }
    }

    /// The number of bytes of an upload that have arrived.
    pub(super) fn length(&self, id: UploadId) -> io::Result<u64> {
        match fs::symlink_metadata(self.path(id)) {
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Opens the file of an upload for writing at `offset`. Creates the file if it is missing.
    pub(super) fn open(&self, id: UploadId, offset: u64) -> io::Result<UploadFile> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let mut file = options.open(self.path(id))?;
        file.set_len(offset)?;
        file.seek(io::SeekFrom::End(0))?;
        Ok(UploadFile(file))
    }

    /// Removes the file of an upload. A missing file is not an error.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns the names of the files of all uploads.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let names = entries.flatten().map(|entry| entry.file_name().into_string());
        Ok(names.filter_map(Result::ok).collect())
    }

    fn path(&self, id: UploadId) -> PathBuf {
        self.directory.join(id.to_string())
    }
}

/// Writes a piece at the end. If this fails, the part that was written is removed again.
pub(super) fn append(
    UploadFile(file): &mut UploadFile,
    offset: u64,
    piece: &[u8],
) -> Result<(), UploadRefusal> {
    file.write_all(piece).map_err(|error| {
        // If the truncation fails too, the written bytes stay. They are valid content of the
        // upload, and its offset counts them.
        let _ = file.set_len(offset).and_then(|()| file.seek(io::SeekFrom::End(0)));
        error.into()
    })
}

/// Checks the complete content. If the check fails, the content is removed, so that it can be sent
/// again.
pub(super) fn check(
    UploadFile(file): &mut UploadFile,
    request: &UploadRequest,
) -> Result<(), UploadRefusal> {
    let checked = read(file, request);
    if matches!(
        checked,
        Err(UploadRefusal::DigestMismatch { .. } | UploadRefusal::InvalidArchive { .. })
    ) {
        file.set_len(0)?;
    }
    checked
}

fn read(file: &mut File, request: &UploadRequest) -> Result<(), UploadRefusal> {
    let mut archive = (request.kind == UploadKind::Tar).then(ArchiveCheck::default);
    let mut digest = Context::new(&SHA256);
    let mut piece = vec![0; PIECE];
    file.rewind()?;
    loop {
        let length = file.read(&mut piece)?;
        let Some(read) = piece.get(..length).filter(|read| !read.is_empty()) else { break };
        digest.update(read);
        if let Some(archive) = &mut archive {
            archive.feed(read).map_err(refused)?;
        }
    }
    let found = format!("sha256:{}", hexadecimal(digest.finish().as_ref()));
    if request.digest.as_ref().is_some_and(|asked| *asked != found) {
        return Err(UploadRefusal::DigestMismatch { found });
    }
    match archive {
        Some(archive) => archive.decoder.finish().map_err(refused),
        None => Ok(()),
    }
}

/// Decodes an archive only to find errors in it.
#[derive(Default)]
struct ArchiveCheck {
    decoder: TarDecoder,
    entries: u64,
}

impl ArchiveCheck {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), TarError> {
        self.decoder.feed(bytes);
        while let Some(event) = self.decoder.next()? {
            if let TarEvent::Entry(_) = event {
                self.entries += 1;
            }
            if self.entries > MAX_ENTRIES {
                return Err(TarError::too_many_entries(MAX_ENTRIES));
            }
        }
        Ok(())
    }
}

fn refused(error: TarError) -> UploadRefusal {
    UploadRefusal::InvalidArchive { problem: error.to_string() }
}
