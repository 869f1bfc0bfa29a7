//! Packs a directory into a tar archive piece by piece. The whole archive is never in memory or on
//! the disk.

use std::collections::VecDeque;
use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_core::tar::{TarDecoder, TarEntry, TarEntryKind, encode};
use ab_host::host_program::{HostProgram, HostProgramRequest};
use ignore::WalkBuilder;

use crate::failure::Failure;

/// Time limit for git to list the files.
const LIST_TIME: Duration = Duration::from_secs(5 * 60);
/// Maximum size of the list of files in bytes.
const MAX_LIST: usize = 256 * 1024 * 1024;

/// A directory that is being packed.
#[derive(Debug)]
pub(super) struct PackedDirectory {
    root: PathBuf,
    entries: VecDeque<TarEntry>,
    /// The size of the whole archive.
    pub(super) size: u64,
    /// Links that lead out of the directory, sockets and other special files, and nested repositories.
    pub(super) left_out: u64,
    /// The file whose content is being read, its path and the bytes that are missing.
    current: Option<(File, PathBuf, u64)>,
    /// Bytes that are ready.
    ready: Vec<u8>,
    is_over: bool,
}

impl PackedDirectory {
    /// Lists the files of the directory. In a git repository these are the tracked files and the
    /// files that no `.gitignore` excludes. Elsewhere these are all files that no `.gitignore`
    /// excludes.
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
        let mut packed = PackedDirectory {
            root,
            entries: VecDeque::new(),
            size: encode::END.len() as u64,
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
                self.ready.extend(vec![0; encode::padding(size)]);
                self.current = None;
            }
            return Ok(());
        }
        let Some(entry) = self.entries.pop_front() else {
            self.ready.extend(encode::END);
            self.is_over = true;
            return Ok(());
        };
        let path = self.root.join(&entry.path);
        let header = encode::header(&entry).map_err(|error| unpackable(&path, &error))?;
        self.ready.extend(header);
        if let TarEntryKind::File { size } = entry.kind
            && size > 0
        {
            let file = File::open(&path).map_err(|error| failed("read", &path, error))?;
            self.current = Some((file, path, size));
        }
        Ok(())
    }

    fn add(&mut self, relative: PathBuf) -> Result<(), Failure> {
        let path = self.root.join(&relative);
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            // A file that git tracks but that was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("read", &path, error)),
        };
        let not_text = || Failure::usage(format!("the name {} is not UTF-8", path.display()));
        let kind = if found.is_file() {
            TarEntryKind::File { size: found.len() }
        } else if found.is_symlink() {
            let target = fs::read_link(&path).map_err(|error| failed("read", &path, error))?;
            let target = target.to_str().ok_or_else(not_text)?.to_owned();
            TarEntryKind::Symlink { target }
        } else {
            self.left_out += 1;
            return Ok(());
        };
        let text = relative.to_str().ok_or_else(not_text)?.to_owned();
        let entry = TarEntry { path: text, kind, mode: found.permissions().mode() & 0o777 };
        let header = encode::header(&entry).map_err(|error| unpackable(&path, &error))?;
        if matches!(entry.kind, TarEntryKind::Symlink { .. }) && !is_accepted(&header) {
            self.left_out += 1;
            return Ok(());
        }
        self.size += header.len() as u64;
        if let TarEntryKind::File { size } = entry.kind {
            self.size += size + encode::padding(size) as u64;
        }
        self.entries.push_back(entry);
        Ok(())
    }
}

/// Whether the server's decoder accepts the entry. Links must stay inside the archive.
fn is_accepted(header: &[u8]) -> bool {
    let mut decoder = TarDecoder::default();
    decoder.feed(header);
    matches!(decoder.next(), Ok(Some(_)))
}

/// The files that git tracks or does not ignore. `None` outside a repository, or without git.
async fn tracked(root: &Path) -> Option<Vec<PathBuf>> {
    let path: Vec<_> = env::split_paths(&env::var_os("PATH")?).collect();
    let git = HostProgram::find("git", &path).ok()?;
    let arguments =
        ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    let run = HostProgramRequest {
        arguments: arguments.map(Into::into).to_vec(),
        directory: root.to_owned(),
        environment: env::vars_os().collect(),
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
    use std::os::unix::fs::symlink;

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
