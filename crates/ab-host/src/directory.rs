//! Copies and removes whole directories of the host, and copies single files out of them. No
//! workspace driver is involved.
//!
//! An agent may have created any name in these directories. Therefore every file is opened relative
//! to a directory handle, and no symbolic link is followed.

mod copy;
mod removal;
mod unpack;
mod usage;

use std::path::Path;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::blocking;

pub use copy::{DirectoryCopyLimits, DirectoryCopyReport};
pub use usage::DirectoryUsage;

/// Copies the directory `from` to `to`, which must not exist. See [`DirectoryCopyLimits`] for the
/// limits.
///
/// Regular files share their blocks with the original if the file system supports that. Symbolic
/// links are copied as links with the same target. Devices, sockets and FIFOs are skipped and
/// counted. Permissions (without set-user-ID and set-group-ID) and modification times are kept.
/// Owners and extended attributes are not kept.
///
/// # Errors
/// Fails if a file cannot be read, if the copy exceeds its limits, or if `to` lies inside `from`.
/// The part that was already copied is not removed.
pub async fn copy_directory(
    from: &Path,
    to: &Path,
    limits: DirectoryCopyLimits,
) -> Result<DirectoryCopyReport> {
    let (from, to) = (from.to_owned(), to.to_owned());
    blocking::run(move |cancel| copy::copy(&from, &to, limits, cancel)).await
}

/// Unpacks the tar archive `archive` into `to`, which must not exist. See [`DirectoryCopyLimits`]
/// for the limits.
///
/// Every name stays below `to`, and no link in the archive is followed. Files keep their
/// permissions without set-user-ID and set-group-ID, and the owner can always read and write them.
/// A later entry replaces an earlier file or link of the same name. Hard links become copies.
///
/// # Errors
/// Fails if the archive is damaged, if it contains something that is not accepted (see
/// [`ab_core::tar`]), or if it exceeds the limits. The part that was already unpacked is not
/// removed.
pub async fn unpack_tar(
    archive: &Path,
    to: &Path,
    limits: DirectoryCopyLimits,
) -> Result<DirectoryCopyReport> {
    let (archive, to) = (archive.to_owned(), to.to_owned());
    blocking::run(move |cancel| unpack::unpack(&archive, &to, limits, cancel)).await
}

/// Removes a directory with everything in it. It is not an error if the directory does not exist.
///
/// If the permissions of a directory prevent its removal, they are changed first. Trees may have
/// any depth. Links are removed, never followed.
///
/// # Errors
/// Fails if something cannot be removed, such as a mount point. The call can be repeated.
pub async fn remove_directory(path: &Path) -> Result<()> {
    let path = path.to_owned();
    blocking::run(move |_| removal::remove(&path)).await
}

/// Counts the disk space and the files of a directory. Links are not followed.
///
/// # Errors
/// Fails if the path is not a directory, or is a link to a directory.
pub async fn directory_usage(path: &Path) -> Result<DirectoryUsage> {
    let path = path.to_owned();
    blocking::run(move |cancel| usage::count(&path, cancel)).await
}

/// Returns the number of bytes that this process can still write to the file system of `path`.
///
/// # Errors
/// Fails if the path cannot be found.
pub fn free_space(path: &Path) -> Result<u64> {
    let found =
        rustix::fs::statvfs(path).map_err(|errno| failure("ask for the space at", path, errno))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Copies the file `name` of `directory` to the new file `to`, and returns its size in bytes.
///
/// # Errors
/// Fails if `name` is not a regular file (links are not followed), or if it has more than
/// `max_bytes` bytes.
pub async fn copy_file(directory: &Path, name: &str, to: &Path, max_bytes: u64) -> Result<u64> {
    let (directory, name, to) = (directory.to_owned(), name.to_owned(), to.to_owned());
    blocking::run(move |_| take(&directory, &name, &to, max_bytes)).await
}

fn take(directory: &Path, name: &str, to: &Path, most: u64) -> Result<u64> {
    let shown = directory.join(name);
    let failed = |errno| failure("take", &shown, errno);
    if name.contains('/') {
        return Err(failed(Errno::INVAL));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = rustix::fs::open(directory, flags, Mode::empty()).map_err(failed)?;
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&parent, name, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(failed(Errno::NODEV));
    }
    if u64::try_from(stat.st_size).is_ok_and(|size| size > most) {
        return Err(failed(Errno::FBIG));
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = rustix::fs::open(to, flags, Mode::RUSR | Mode::WUSR);
    let mut made = std::fs::File::from(made.map_err(|errno| failure("create", to, errno))?);
    // The file may grow while it is read, so read at most one byte beyond the limit.
    let file = std::fs::File::from(file);
    let modified = file.metadata().and_then(|found| found.modified());
    let mut file = std::io::Read::take(file, most.saturating_add(1));
    // The copy keeps the modification time, because git compares the modification times of files
    // with the time of its index.
    let copied = std::io::copy(&mut file, &mut made)
        .and_then(|copied| made.set_modified(modified?).map(|()| copied));
    let copied =
        copied.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    if copied > most {
        return Err(failed(Errno::FBIG));
    }
    Ok(copied)
}

/// Creates an error that names the act, the path and the cause.
fn failure(act: &str, path: &Path, errno: Errno) -> Error {
    let (code, kind) = match errno {
        Errno::NOENT => (ErrorCode::ReadFailed, ErrorKind::NotFound),
        Errno::ISDIR => (ErrorCode::WriteFailed, ErrorKind::IsADirectory),
        Errno::EXIST => (ErrorCode::WriteFailed, ErrorKind::AlreadyExists),
        Errno::NOTDIR => (ErrorCode::ReadFailed, ErrorKind::NotADirectory),
        Errno::LOOP | Errno::NODEV => (ErrorCode::ReadFailed, ErrorKind::SpecialFile),
        Errno::ACCESS | Errno::PERM => (ErrorCode::ReadFailed, ErrorKind::PermissionDenied),
        Errno::NOSPC | Errno::DQUOT => (ErrorCode::WriteFailed, ErrorKind::NoSpace),
        Errno::FBIG => (ErrorCode::TooLarge, ErrorKind::TooLarge),
        Errno::CANCELED => (ErrorCode::ReadFailed, ErrorKind::Cancelled),
        Errno::INVAL => (ErrorCode::InvalidPath, ErrorKind::InvalidPath),
        _ => (ErrorCode::WriteFailed, ErrorKind::Io),
    };
    let error = std::io::Error::from(errno);
    Error::new(code, kind, format!("cannot {act} {}: {error}", path.display())).with_source(error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[tokio::test]
    async fn files_are_taken_but_not_through_links_or_beyond_the_bound() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("file"), "0123456789").unwrap();
        symlink("file", from.join("link")).unwrap();
        assert_eq!(copy_file(&from, "file", &to, 10).await.unwrap(), 10);
        assert_eq!(fs::read(&to).unwrap(), b"0123456789");
        let second = place.path().join("second");
        for (name, most, kind) in [
            ("link", 10, ErrorKind::SpecialFile),
            ("../to", 10, ErrorKind::InvalidPath),
            ("missing", 10, ErrorKind::NotFound),
            (".", 10, ErrorKind::SpecialFile),
            ("file", 9, ErrorKind::TooLarge),
        ] {
            let error = copy_file(&from, name, &second, most).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{name}: {error}");
        }
        symlink(&from, place.path().join("alias")).unwrap();
        assert!(copy_file(&place.path().join("alias"), "file", &second, 10).await.is_err());
    }

    #[tokio::test]
    async fn removal_handles_closed_and_deep_directories_and_follows_no_link() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("closed/inner")).unwrap();
        fs::write(root.join("closed/inner/file"), "").unwrap();
        symlink(&outside, root.join("closed/link")).unwrap();
        symlink(&outside, root.join("link")).unwrap();
        fs::write(root.join(".ab-removed-0"), "").unwrap();
        for closed in ["closed/inner", "closed"] {
            fs::set_permissions(root.join(closed), fs::Permissions::from_mode(0o000)).unwrap();
        }
        // Make the tree deeper than the longest possible path.
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut at = rustix::fs::open(&root, flags, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "deeper", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "deeper", flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove_directory(&root).await.unwrap();
        assert!(!root.exists());
        assert!(outside.join("kept").exists());
        remove_directory(&root).await.unwrap();
        // If the path is a link to a directory, only the link is removed.
        symlink(&outside, &root).unwrap();
        remove_directory(&root).await.unwrap();
        assert!(fs::symlink_metadata(&root).is_err());
        assert!(outside.join("kept").exists());
    }

    #[tokio::test]
    async fn copies_keep_contents_links_and_modes_and_skip_special_files() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::write(from.join("sub/program"), "#!/bin/sh\n").unwrap();
        let mode = fs::Permissions::from_mode(0o4755);
        fs::set_permissions(from.join("sub/program"), mode).unwrap();
        fs::set_permissions(from.join("sub"), fs::Permissions::from_mode(0o555)).unwrap();
        symlink("/no/such/target", from.join("dangling")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        let bounds = DirectoryCopyLimits { entries: 100, bytes: 1000 };
        let report = copy_directory(&from, &to, bounds).await.unwrap();
        assert_eq!((report.files, report.bytes, report.skipped_special_files), (1, 10, 1));
        assert_eq!(fs::read(to.join("sub/program")).unwrap(), b"#!/bin/sh\n");
        let made = fs::metadata(to.join("sub/program")).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, 0o755);
        let original = fs::metadata(from.join("sub/program")).unwrap();
        assert_eq!(made.modified().unwrap(), original.modified().unwrap());
        assert_eq!(fs::read_link(to.join("dangling")).unwrap(), Path::new("/no/such/target"));
        assert!(!to.join("socket").exists());
        // A change of the copy must not change the original.
        fs::write(to.join("sub/program"), "changed").unwrap();
        assert_eq!(fs::read(from.join("sub/program")).unwrap(), b"#!/bin/sh\n");
    }

    #[tokio::test]
    async fn copies_are_bounded_and_never_contain_themselves() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        fs::create_dir(&from).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(from.join(name), "0123456789").unwrap();
        }
        for (name, bounds, kind) in [
            ("entries", DirectoryCopyLimits { entries: 2, bytes: 1000 }, ErrorKind::TooLarge),
            ("bytes", DirectoryCopyLimits { entries: 10, bytes: 25 }, ErrorKind::TooLarge),
        ] {
            let error = copy_directory(&from, &place.path().join(name), bounds).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
        let bounds = DirectoryCopyLimits::default();
        let error = copy_directory(&from, &from.join("inside"), bounds).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{error}");
        let (missing, other) = (place.path().join("missing"), place.path().join("other"));
        let error = copy_directory(&missing, &other, bounds).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let error = copy_directory(&from, &place.path().join("bytes"), bounds).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    }
}
