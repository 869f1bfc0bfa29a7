//! Unpacks a tar archive by handles.
//!
//! [`TarDecoder`] refuses names that lead out of the target directory. In addition, every directory
//! is opened relative to its parent and without following links, so even a mistake in the decoder
//! could not write outside.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use ab_core::tar::{TarDecoder, TarEntry, TarEntryKind, TarError, TarEvent};
use ab_core::{Error, ErrorCode, ErrorKind, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::failure;
use super::{DirectoryCopyLimits, DirectoryCopyReport};
use crate::blocking::Cancel;

/// Number of bytes that are read at a time.
const PIECE: usize = 256 * 1024;
/// Maximum nesting depth of directories. Copies of directories have the same limit.
const MAX_DEPTH: usize = 128;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) fn unpack(
    archive: &Path,
    to: &Path,
    limits: DirectoryCopyLimits,
    cancel: &Cancel,
) -> Result<DirectoryCopyReport> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(archive, flags, Mode::empty());
    let mut archive_file = File::from(opened.map_err(|errno| failure("open", archive, errno))?);
    rustix::fs::mkdir(to, Mode::RWXU).map_err(|errno| failure("create", to, errno))?;
    let root = rustix::fs::open(to, DIRECTORY, Mode::empty());
    let root = root.map_err(|errno| failure("open", to, errno))?;
    let mut unpacking = Unpacking {
        root,
        parent: None,
        limits,
        report: DirectoryCopyReport::default(),
        file: None,
    };
    let mut decoder = TarDecoder::default();
    let mut piece = vec![0; PIECE];
    loop {
        if cancel.is_set() {
            return Err(failure("unpack", archive, Errno::CANCELED));
        }
        let length = archive_file.read(&mut piece).map_err(|error| {
            failure("read", archive, Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        if length == 0 {
            break;
        }
        decoder.feed(&piece[..length]);
        while let Some(event) = decoder.next().map_err(invalid)? {
            match event {
                TarEvent::Entry(entry) => unpacking.entry(&entry)?,
                TarEvent::Data(data) => unpacking.data(&data)?,
            }
        }
    }
    decoder.finish().map_err(invalid)?;
    Ok(unpacking.report)
}

struct Unpacking {
    root: OwnedFd,
    /// The directory that the last entry was written to, and its path in the archive.
    parent: Option<(String, OwnedFd)>,
    limits: DirectoryCopyLimits,
    report: DirectoryCopyReport,
    /// The file that the following content belongs to, with its name.
    file: Option<(String, File)>,
}

impl Unpacking {
    fn entry(&mut self, entry: &TarEntry) -> Result<()> {
        self.file = None;
        let path = entry.path.as_str();
        if path.is_empty() {
            return Ok(());
        }
        let failed = |errno| failure("unpack", Path::new(path), errno);
        let count = self.report.files + self.report.directories + self.report.links;
        if count >= self.limits.entries {
            return Err(failed(Errno::FBIG));
        }
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.enter(directory)?;
        match &entry.kind {
            TarEntryKind::Directory => {
                self.report.directories += 1;
                make_directory(self.directory(), name).map_err(failed)
            }
            TarEntryKind::File { size } => {
                self.report.files += 1;
                self.count(*size).map_err(failed)?;
                let file = make_file(self.directory(), name, entry.mode).map_err(failed)?;
                self.file = Some((path.to_owned(), file));
                Ok(())
            }
            TarEntryKind::Symlink { target } => {
                self.report.links += 1;
                remove_file(self.directory(), name).map_err(failed)?;
                rustix::fs::symlinkat(target, self.directory(), name).map_err(failed)
            }
            TarEntryKind::HardLink { path: earlier } => {
                self.report.files += 1;
                let mut from = self.open_file(earlier).map_err(failed)?;
                let found = from.metadata().map_err(|error| failed(of_io(&error)))?;
                self.count(found.len()).map_err(failed)?;
                // Opening the earlier file may have changed the current directory.
                self.enter(directory)?;
                let mut to = make_file(self.directory(), name, entry.mode).map_err(failed)?;
                let copied = std::io::copy(&mut from, &mut to);
                copied.map(drop).map_err(|error| failed(of_io(&error)))
            }
        }
    }

    fn data(&mut self, data: &[u8]) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        file.write_all(data).map_err(|error| failure("unpack", Path::new(path), of_io(&error)))
    }

    fn count(&mut self, bytes: u64) -> rustix::io::Result<()> {
        self.report.bytes = self.report.bytes.saturating_add(bytes);
        if self.report.bytes > self.limits.bytes { Err(Errno::FBIG) } else { Ok(()) }
    }

    /// Makes `path` the current directory. Missing directories are created.
    fn enter(&mut self, path: &str) -> Result<()> {
        if self.parent.as_ref().is_some_and(|(known, _)| known == path) {
            return Ok(());
        }
        self.parent = None;
        if path.is_empty() {
            return Ok(());
        }
        let failed = |errno| failure("unpack", Path::new(path), errno);
        if path.split('/').count() > MAX_DEPTH {
            return Err(failed(Errno::FBIG));
        }
        let mut at: Option<OwnedFd> = None;
        for name in path.split('/') {
            let parent = at.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd);
            make_directory(parent, name).map_err(failed)?;
            let next = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty());
            at = Some(next.map_err(failed)?);
        }
        self.parent = at.map(|at| (path.to_owned(), at));
        Ok(())
    }

    fn directory(&self) -> BorrowedFd<'_> {
        self.parent.as_ref().map_or(self.root.as_fd(), |(_, directory)| directory.as_fd())
    }

    fn open_file(&mut self, path: &str) -> rustix::io::Result<File> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut at: Option<OwnedFd> = None;
        for part in directory.split('/').filter(|part| !part.is_empty()) {
            let parent = at.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd);
            at = Some(rustix::fs::openat(parent, part, DIRECTORY, Mode::empty())?);
        }
        let parent = at.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        if kind == FileType::RegularFile { Ok(File::from(file)) } else { Err(Errno::ISDIR) }
    }
}

fn make_directory(parent: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
    match rustix::fs::mkdirat(parent, name, mode) {
        Err(Errno::EXIST) => {
            // If there is a link at this name, that is an error. The link is not followed.
            let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = FileType::from_raw_mode(found.st_mode);
            if kind == FileType::Directory { Ok(()) } else { Err(Errno::NOTDIR) }
        }
        made => made,
    }
}

/// Creates a file. If there is an earlier file or link of this name, it is replaced.
fn make_file(parent: BorrowedFd<'_>, name: &str, mode: u32) -> rustix::io::Result<File> {
    remove_file(parent, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777) | Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(file))
}

fn remove_file(parent: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn of_io(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn invalid(error: TarError) -> Error {
    let message = format!("invalid tar archive: {error}");
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use ab_core::tar::encode;

    use super::*;

    fn entry(path: &str, kind: TarEntryKind, mode: u32) -> TarEntry {
        TarEntry { path: path.to_owned(), kind, mode }
    }

    /// Builds an archive of files with their content and of links with their target.
    fn archive(entries: &[(&str, &str, Option<&str>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (path, content, link) in entries {
            let kind = match link {
                Some(target) => TarEntryKind::Symlink { target: (*target).to_owned() },
                None if path.ends_with('/') => TarEntryKind::Directory,
                None => TarEntryKind::File { size: content.len() as u64 },
            };
            let path = path.trim_end_matches('/');
            bytes.extend(encode::encode_entry_header(&entry(path, kind, 0o4750)).unwrap());
            bytes.extend(content.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
        bytes.extend(encode::END_OF_ARCHIVE);
        bytes
    }

    fn unpacked(
        bytes: &[u8],
        limits: DirectoryCopyLimits,
    ) -> (tempfile::TempDir, Result<DirectoryCopyReport>) {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a.tar"), bytes).unwrap();
        let (from, to) = (place.path().join("a.tar"), place.path().join("to"));
        let report = unpack(&from, &to, limits, &Cancel::default());
        (place, report)
    }

    #[test]
    fn archives_are_unpacked_with_modes_and_links_and_later_entries_win() {
        let bytes = archive(&[
            ("a/b/c.sh", "first", None),
            ("a/b/c.sh", "second", None),
            ("link", "", Some("a/b")),
            ("file", "x", None),
            ("file", "", Some("a/b/c.sh")),
            ("empty/", "", None),
        ]);
        let (place, report) = unpacked(&bytes, DirectoryCopyLimits::default());
        let report = report.unwrap();
        assert_eq!((report.files, report.links, report.directories), (3, 2, 1));
        let to = place.path().join("to");
        assert_eq!(fs::read_to_string(to.join("a/b/c.sh")).unwrap(), "second");
        let mode = fs::metadata(to.join("a/b/c.sh")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o750);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("a/b"));
        assert_eq!(fs::read_link(to.join("file")).unwrap(), Path::new("a/b/c.sh"));
        assert!(to.join("empty").is_dir());
    }

    #[test]
    fn hard_links_become_copies() {
        let mut bytes = archive(&[("d/a", "content", None)]);
        bytes.truncate(bytes.len() - encode::END_OF_ARCHIVE.len());
        let mut header =
            encode::encode_entry_header(&entry("e/b", TarEntryKind::File { size: 0 }, 0o600))
                .unwrap();
        header[156] = b'1';
        header[157..160].copy_from_slice(b"d/a");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend(header);
        bytes.extend(encode::END_OF_ARCHIVE);
        let (place, report) = unpacked(&bytes, DirectoryCopyLimits::default());
        assert_eq!(report.unwrap().bytes, 14);
        let (a, b) = (place.path().join("to/d/a"), place.path().join("to/e/b"));
        fs::write(a, "changed").unwrap();
        assert_eq!(fs::read_to_string(b).unwrap(), "content");
    }

    #[test]
    fn archives_that_lead_out_or_are_too_large_are_refused() {
        let small = DirectoryCopyLimits { entries: 2, bytes: 10 };
        for (entries, limits, kind) in [
            (&[("../x", "", None)][..], small, ErrorKind::Invalid),
            (&[("l", "", Some("..")), ("l/x", "1", None)], small, ErrorKind::Invalid),
            (&[("a", "", None), ("b", "", None), ("c", "", None)], small, ErrorKind::TooLarge),
            (&[("a", "0123456789", None), ("b", "0", None)], small, ErrorKind::TooLarge),
            (&[("a", "1", None), ("a/b", "1", None)], small, ErrorKind::NotADirectory),
            (&[("a/b", "1", None), ("a", "1", None)], small, ErrorKind::IsADirectory),
        ] {
            let (place, report) = unpacked(&archive(entries), limits);
            assert_eq!(report.unwrap_err().kind(), kind, "{entries:?}");
            assert!(!place.path().join("x").exists());
        }
        let deep = format!("{}x", "d/".repeat(MAX_DEPTH + 1));
        let (_place, report) =
            unpacked(&archive(&[(&deep, "", None)]), DirectoryCopyLimits::default());
        assert_eq!(report.unwrap_err().kind(), ErrorKind::TooLarge);
        let whole = archive(&[("a", "1", None)]);
        let (_place, report) = unpacked(&whole[..600], DirectoryCopyLimits::default());
        assert_eq!(report.unwrap_err().kind(), ErrorKind::Invalid);
    }
}
