//! Packs a directory into a tar archive piece by piece. The whole archive is never in memory or on
//! the disk.
//!
//! An agent may have written the directory. Therefore no link in the directory is followed, not
//! even a link that replaced a directory that git tracks. For the same reason, git runs none of the
//! programs that the settings of the repository name.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ab_core::tar::{TarDecoder, TarEntry, TarEntryKind, encode};
use ab_host::host_program::{HostProgram, HostProgramRequest};
use ignore::WalkBuilder;
use rustix::fs::{self as sys, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::failure::Failure;

/// Time limit for git to list the files.
const LIST_TIME: Duration = Duration::from_secs(5 * 60);
/// Maximum size of the list of files in bytes.
const MAX_LIST: usize = 256 * 1024 * 1024;
/// Settings with which git runs none of the programs that the repository names.
const OVERRIDES: &[&str] = &[
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.hooksPath=/dev/null",
    "core.alternateRefsCommand=true",
    "core.sshCommand=false",
];
/// Environment variables for the same purpose. Git may use no protocol, so it cannot fetch missing
/// objects.
const ENVIRONMENT: &[(&str, &str)] =
    &[("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none"), ("GIT_OPTIONAL_LOCKS", "0")];

/// A directory that is being packed.
#[derive(Debug)]
pub(super) struct PackedDirectory {
    root: PathBuf,
    handle: OwnedFd,
    entries: VecDeque<TarEntry>,
    /// The size of the whole archive.
    pub(super) size: u64,
    /// Number of entries that were left out: links that lead out of the directory, sockets and
    /// other special files, and nested repositories.
    pub(super) left_out: u64,
    /// The file that is being read, its path, and the number of bytes that remain to be read.
    current: Option<(File, PathBuf, u64)>,
    /// Bytes of the archive that were produced but not returned yet.
    ready: Vec<u8>,
    is_over: bool,
}

impl PackedDirectory {
    /// Lists the files of the directory. In a git repository, lists the tracked files and the files
    /// that no `.gitignore` excludes. Elsewhere, lists all files that no `.gitignore` excludes.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a directory or a name in it is not UTF-8.
    pub(super) async fn list(directory: &Path) -> Result<PackedDirectory, Failure> {
        let root = directory.canonicalize();
        let root = root.map_err(|error| failed("find", directory, error))?;
        if !root.is_dir() {
            let message = format!("{} is not a directory", directory.display());
            return Err(Failure::usage(message).with_hint("--attach takes files"));
        }
        let paths = match tracked(&root).await {
            Some(paths) => paths,
            None => walked(&root)?,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = sys::openat(CWD, &root, flags, Mode::empty());
        let handle = handle.map_err(|errno| failed("open", &root, errno.into()))?;
        let mut packed = PackedDirectory {
            root,
            handle,
            entries: VecDeque::new(),
            size: encode::END_OF_ARCHIVE.len() as u64,
            left_out: 0,
            current: None,
            ready: Vec::new(),
            is_over: false,
        };
        for path in paths {
            packed.add(path)?;
        }
        Ok(packed)
    }

    /// Returns the next `most` bytes of the archive, or fewer at the end.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or has become shorter since it was listed.
    pub(super) fn piece(&mut self, most: usize) -> Result<Vec<u8>, Failure> {
        while self.ready.len() < most && !self.is_over {
            self.fill(most)?;
        }
        let rest = self.ready.split_off(most.min(self.ready.len()));
        Ok(std::mem::replace(&mut self.ready, rest))
    }

    fn fill(&mut self, most: usize) -> Result<(), Failure> {
        if let Some((file, path, left)) = &mut self.current {
            let wanted = usize::try_from(*left).unwrap_or(usize::MAX);
            let wanted = wanted.min(most - self.ready.len());
            let before = self.ready.len();
            self.ready.resize(before + wanted, 0);
            let read = file.read(&mut self.ready[before..]);
            let read = read.map_err(|error| failed("read", path, error))?;
            self.ready.truncate(before + read);
            if read == 0 && wanted > 0 {
                let shorter = io::Error::other("it became shorter while it was packed");
                return Err(failed("read", path, shorter));
            }
            *left -= read as u64;
            if *left == 0 {
                let size = io::Seek::stream_position(file);
                let size = size.map_err(|error| failed("read", path, error))?;
                self.ready.extend(vec![0; encode::padding_length(size)]);
                self.current = None;
            }
            return Ok(());
        }
        let Some(entry) = self.entries.pop_front() else {
            self.ready.extend(encode::END_OF_ARCHIVE);
            self.is_over = true;
            return Ok(());
        };
        let path = self.root.join(&entry.path);
        let header =
            encode::encode_entry_header(&entry).map_err(|error| unpackable(&path, &error))?;
        self.ready.extend(header);
        if let TarEntryKind::File { size } = entry.kind
            && size > 0
        {
            let file = self.open(Path::new(&entry.path));
            let file = file.map_err(|errno| failed("read", &path, errno.into()))?;
            self.current = Some((file, path, size));
        }
        Ok(())
    }

    fn add(&mut self, relative: PathBuf) -> Result<(), Failure> {
        let path = self.root.join(&relative);
        let (parent, name) = match self.parent(&relative) {
            Ok(found) => found,
            // Git tracks files in this directory, but the directory was removed.
            Err(Errno::NOENT) => return Ok(()),
            // A link or a file has replaced the directory. The files at the target of the link are
            // not packed.
            Err(Errno::LOOP | Errno::NOTDIR | Errno::INVAL) => {
                self.left_out += 1;
                return Ok(());
            }
            Err(errno) => return Err(failed("read", &path, errno.into())),
        };
        let found = match sys::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(failed("read", &path, errno.into())),
        };
        let not_text = || Failure::usage(format!("the name {} is not UTF-8", path.display()));
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {
                TarEntryKind::File { size: u64::try_from(found.st_size).unwrap_or_default() }
            }
            FileType::Symlink => {
                let target = sys::readlinkat(&parent, &name, Vec::new());
                let target = target.map_err(|errno| failed("read", &path, errno.into()))?;
                TarEntryKind::Symlink { target: target.into_string().map_err(|_| not_text())? }
            }
            _ => {
                self.left_out += 1;
                return Ok(());
            }
        };
        let text = relative.to_str().ok_or_else(not_text)?.to_owned();
        let entry = TarEntry { path: text, kind, mode: found.st_mode & 0o777 };
        let header =
            encode::encode_entry_header(&entry).map_err(|error| unpackable(&path, &error))?;
        if matches!(entry.kind, TarEntryKind::Symlink { .. }) && !is_accepted(&header) {
            self.left_out += 1;
            return Ok(());
        }
        self.size += header.len() as u64;
        if let TarEntryKind::File { size } = entry.kind {
            self.size += size + encode::padding_length(size) as u64;
        }
        self.entries.push_back(entry);
        Ok(())
    }
}

impl PackedDirectory {
    /// Opens the directory of a file without following any link. Also returns the name of the file.
    fn parent(&self, relative: &Path) -> Result<(OwnedFd, OsString), Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for component in relative.components() {
            match component {
                Component::Normal(name) => names.push(name),
                // The index of a repository can be manipulated to contain any path.
                _ => return Err(Errno::INVAL),
            }
        }
        let name = names.pop().ok_or(Errno::INVAL)?;
        let mut directory = sys::openat(&self.handle, ".", flags, Mode::empty())?;
        for each in names {
            directory = sys::openat(&directory, each, flags, Mode::empty())?;
        }
        Ok((directory, name.to_owned()))
    }

    fn open(&self, relative: &Path) -> Result<File, Errno> {
        let (parent, name) = self.parent(relative)?;
        // The name may now belong to a link or a pipe. With these flags a link is not followed, and
        // opening a pipe does not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(sys::openat(parent, name, flags, Mode::empty())?))
    }
}

/// Whether the server would accept the entry. It refuses links that lead out of the archive.
fn is_accepted(header: &[u8]) -> bool {
    let mut decoder = TarDecoder::default();
    decoder.feed(header);
    matches!(decoder.next(), Ok(Some(_)))
}

/// Lists the files that git tracks or does not ignore. `None` if the directory is in no repository
/// or git is not installed.
async fn tracked(root: &Path) -> Option<Vec<PathBuf>> {
    let path: Vec<_> = env::split_paths(&env::var_os("PATH")?).collect();
    let git = HostProgram::find("git", &path).ok()?;
    let settings = OVERRIDES.iter().flat_map(|setting| ["-c", setting]);
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    // Do not pass on git's variables, because they could name another repository or contain
    // settings.
    let is_git = |name: &OsString| name.as_encoded_bytes().starts_with(b"GIT_");
    let inherited = env::vars_os().filter(|(name, _)| !is_git(name));
    let ours = ENVIRONMENT.iter().map(|(name, value)| (OsString::from(name), value.into()));
    let run = HostProgramRequest {
        arguments: settings.chain(list).map(Into::into).collect(),
        directory: root.to_owned(),
        environment: inherited.chain(ours).collect(),
        input: Vec::new(),
        timeout: LIST_TIME,
        max_output: MAX_LIST,
    };
    let output = git.run(run).await.ok().filter(|output| output.code == Some(0))?;
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let name = |name: &[u8]| PathBuf::from(String::from_utf8_lossy(name).trim_end_matches('/'));
    Some(names.map(name).collect())
}

fn walked(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let walk = WalkBuilder::new(root)
        .hidden(false)
        .parents(false)
        .git_global(false)
        .require_git(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_name(|one, other| one.cmp(other))
        .build();
    let mut paths = Vec::new();
    for entry in walk {
        let entry = entry.map_err(|error| failed("list", root, io::Error::other(error)))?;
        let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
        if let Ok(relative) = entry.path().strip_prefix(root)
            && !is_directory
        {
            paths.push(relative.to_owned());
        }
    }
    Ok(paths)
}

fn failed(act: &str, path: &Path, error: io::Error) -> Failure {
    Failure::input(format!("{act} {}", path.display()), error)
}

fn unpackable(path: &Path, error: &ab_core::tar::TarError) -> Failure {
    failed("pack", path, io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    use ab_core::tar::TarEvent;

    use super::*;

    /// Reads the entries of an archive with their content.
    fn read(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut decoder = TarDecoder::default();
        decoder.feed(archive);
        let mut entries = Vec::<(String, Vec<u8>)>::new();
        while let Some(event) = decoder.next().unwrap() {
            match event {
                TarEvent::Entry(entry) => entries.push((entry.path, Vec::new())),
                TarEvent::Data(data) => entries.last_mut().unwrap().1.extend_from_slice(&data),
            }
        }
        decoder.finish().unwrap();
        entries
    }

    #[tokio::test]
    async fn directory_is_packed_in_pieces_without_ignored_files() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        fs::create_dir_all(root.join("src/.git")).unwrap();
        for (name, content) in [
            (".gitignore", "*.log\n"),
            ("noise.log", "x"),
            ("src/a.rs", "fn a() {}\n"),
            ("src/.git/config", "x"),
            (".hidden", ""),
        ] {
            fs::write(root.join(name), content).unwrap();
        }
        fs::write(root.join("large.bin"), vec![7; 100_000]).unwrap();
        symlink("src/a.rs", root.join("inside")).unwrap();
        symlink("/etc/passwd", root.join("outside")).unwrap();
        let mut packed = PackedDirectory::list(root).await.unwrap();
        assert_eq!(packed.left_out, 1);
        let mut archive = Vec::new();
        loop {
            let piece = packed.piece(1000).unwrap();
            assert!(piece.len() <= 1000);
            if piece.is_empty() {
                break;
            }
            archive.extend(piece);
        }
        assert_eq!(archive.len() as u64, packed.size);
        let entries = read(&archive);
        let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [".gitignore", ".hidden", "inside", "large.bin", "src/a.rs"]);
        assert_eq!(entries[3].1, vec![7; 100_000]);
        assert_eq!(entries[4].1, b"fn a() {}\n");
    }

    /// Packs the directory, and returns the name and the content of each entry.
    fn packed(mut packed: PackedDirectory) -> Vec<(String, Vec<u8>)> {
        let mut archive = Vec::new();
        loop {
            let piece = packed.piece(1000).unwrap();
            if piece.is_empty() {
                return read(&archive);
            }
            archive.extend(piece);
        }
    }

    fn git(root: &Path, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(root).env("GIT_CONFIG_GLOBAL", "/dev/null").args(arguments);
        assert!(git.status().unwrap().success(), "{arguments:?}");
    }

    #[tokio::test]
    async fn link_in_the_place_of_a_tracked_directory_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (root, outside) = (place.path().join("root"), place.path().join("outside"));
        for directory in [&root.join("keys"), &root.join("a/b"), &outside] {
            fs::create_dir_all(directory).unwrap();
        }
        for file in ["keys/secret", "a/b/secret", "a/kept", "kept"] {
            fs::write(root.join(file), "tracked").unwrap();
        }
        fs::write(outside.join("secret"), "from outside").unwrap();
        git(&root, &["init", "-q"]);
        git(&root, &["add", "."]);
        for directory in ["keys", "a/b"] {
            fs::remove_dir_all(root.join(directory)).unwrap();
            symlink(&outside, root.join(directory)).unwrap();
        }
        let listed = PackedDirectory::list(&root).await.unwrap();
        assert!(listed.left_out >= 2, "{}", listed.left_out);
        let whole = [("a/kept", b"tracked".to_vec()), ("kept", b"tracked".to_vec())];
        assert_eq!(packed(listed), whole.map(|(name, content)| (name.to_owned(), content)));

        // A directory may also be replaced by a link after the files were listed.
        let mut listed = PackedDirectory::list(&root).await.unwrap();
        fs::rename(root.join("a"), root.join("moved")).unwrap();
        fs::create_dir(outside.join("a")).unwrap();
        fs::write(outside.join("a/kept"), "outside").unwrap();
        symlink(outside.join("a"), root.join("a")).unwrap();
        assert!(listed.piece(100_000).is_err());
    }

    #[tokio::test]
    async fn programs_of_the_repository_do_not_run() {
        let place = tempfile::tempdir().unwrap();
        let (root, mark) = (place.path().join("root"), place.path().join("mark"));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a"), "").unwrap();
        fs::write(root.join(".gitattributes"), "* filter=evil\n").unwrap();
        let program = place.path().join("program");
        fs::write(&program, format!("#!/bin/sh\ntouch '{}'\n", mark.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        git(&root, &["init", "-q"]);
        git(&root, &["add", "."]);
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        fs::copy(&program, root.join(".git/hooks/post-index-change")).unwrap();
        let program = program.to_str().unwrap();
        for name in
            ["filter.evil.clean", "filter.evil.process", "core.sshCommand", "core.fsmonitor"]
        {
            git(&root, &["config", name, program]);
        }
        fs::write(root.join("a"), "changed").unwrap();
        let names = packed(PackedDirectory::list(&root).await.unwrap());
        assert_eq!(
            names.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
            [".gitattributes", "a"]
        );
        assert!(!mark.exists(), "a program of the repository ran");
    }

    #[tokio::test]
    async fn file_that_becomes_shorter_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a"), "0123456789").unwrap();
        let mut packed = PackedDirectory::list(place.path()).await.unwrap();
        fs::write(place.path().join("a"), "01").unwrap();
        assert!(packed.piece(100_000).is_err());
        assert!(PackedDirectory::list(&place.path().join("a")).await.is_err());
    }
}
