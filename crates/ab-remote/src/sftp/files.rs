//! Performs the standard requests of SFTP on files and directories.

use std::time::SystemTime;

use ab_core::metadata::{DirEntry, FileKind, WalkProblem};
use ab_core::options::{
    AttributeChanges as Wanted, EntryDetailLevel, ExistingContentHandling, FileAccess,
    FileCreationMode, LinkHandling, ListOptions, OpenOptions, OverwriteMode, RemoveOptions,
    RenameOptions, StatOptions, WritePosition,
};
use ab_core::{Backend, ErrorKind, WsPath};
use tokio::sync::Mutex as AsyncMutex;

use super::attributes::seconds;
use super::handles::{Directory, Handle, MAX_LISTED, Open};
use super::long_name::{Times, long_name};
use super::packet::{MAX_PACKET_DATA_BYTES, SftpRequest, SshFieldWriter, flags};
use super::paths::{link_text, real_path, shown, text};
use super::perform::NAMES_SIZE;
use super::status::{FAILURE, PERMISSION_DENIED, Refusal, UNSUPPORTED};
use super::{Outcome, Session, SftpAttributes};

/// Permission bits that new files and directories never get. Most clients request all bits and rely
/// on the umask of the server.
const UMASK: u32 = 0o022;

/// The mode that is reported for a name that is not UTF-8: a file without permissions.
const STRANGER: u32 = 0o100_000;

type Done = Result<Outcome, Refusal>;

/// Whether opening a file with these flags may change the workspace.
pub(super) fn modifies(flags: u32) -> bool {
    flags
        & (flags::OPEN_FLAG_WRITE
            | flags::OPEN_FLAG_APPEND
            | flags::OPEN_FLAG_CREATE
            | flags::OPEN_FLAG_TRUNCATE)
        != 0
}

pub(super) async fn by_path(session: &Session, request: SftpRequest) -> Done {
    let backend = &session.backend;
    match request {
        SftpRequest::Open { path, flags, attributes } => {
            open(session, text(&path)?, flags, &attributes).await
        }
        SftpRequest::Stat { path } => stat(backend, text(&path)?, LinkHandling::Follow).await,
        SftpRequest::Lstat { path } => stat(backend, text(&path)?, LinkHandling::NoFollow).await,
        SftpRequest::SetStat { path, attributes } => {
            let path = text(&path)?;
            // Check everything before anything is changed.
            let wanted = wanted(backend, &attributes)?;
            if let Some(size) = attributes.size {
                let options = OpenOptions { access: FileAccess::Write, ..OpenOptions::default() };
                backend.open(path, options).await?.set_len(size).await?;
            }
            if let Some(wanted) = wanted {
                backend.set_attributes(path, wanted).await?;
            } else if attributes.size.is_none() {
                backend.stat(path).await?;
            }
            Ok(Outcome::Done)
        }
        SftpRequest::OpenDir { path } => open_dir(session, text(&path)?).await,
        SftpRequest::Remove { path } => {
            let path = text(&path)?;
            if lstat(backend, path).await?.kind.is_dir() {
                return Err(Refusal::new(FAILURE, "is a directory"));
            }
            backend.rm(path, RemoveOptions::default()).await?;
            Ok(Outcome::Done)
        }
        SftpRequest::RemoveDir { path } => {
            let path = text(&path)?;
            if !lstat(backend, path).await?.kind.is_dir() {
                return Err(Refusal::new(FAILURE, "not a directory"));
            }
            backend.rm(path, RemoveOptions::default()).await?;
            Ok(Outcome::Done)
        }
        SftpRequest::MakeDir { path, attributes } => {
            make_dir(session, text(&path)?, &attributes).await
        }
        SftpRequest::Rename { from, to } => {
            let options = RenameOptions { overwrite: OverwriteMode::Replace };
            backend.rename_with(text(&from)?, text(&to)?, options).await?;
            Ok(Outcome::Done)
        }
        SftpRequest::ReadLink { path } => {
            let target = backend.read_link(text(&path)?).await?;
            let mut answer = SshFieldWriter::names(1);
            answer.name(&target, &target, &SftpAttributes::default());
            Ok(Outcome::Packet(answer))
        }
        SftpRequest::RealPath { path } => {
            let real = shown(&real_path(backend, text(&path)?).await?);
            let mut answer = SshFieldWriter::names(1);
            answer.name(&real, &real, &SftpAttributes::default());
            Ok(Outcome::Packet(answer))
        }
        SftpRequest::Symlink { first: target, second: link } => {
            let link = text(&link)?;
            let target = link_text(backend, &backend.parse_path(link)?, text(&target)?)?;
            backend.symlink(link, &target).await?;
            Ok(Outcome::Done)
        }
        other => Err(misplaced(&other)),
    }
}

pub(super) async fn by_handle(session: &Session, handle: &Handle, request: SftpRequest) -> Done {
    match (&handle.open, request) {
        (_, SftpRequest::Close { .. }) => Ok(Outcome::Done),
        (Open::File { file, .. }, SftpRequest::Read { offset, length, .. }) => {
            let data = file.read_at(offset, (length as usize).min(MAX_PACKET_DATA_BYTES)).await?;
            if data.is_empty() && length > 0 {
                Err(Refusal::end())
            } else {
                Ok(Outcome::Data(data))
            }
        }
        (Open::File { file, .. }, SftpRequest::Write { offset, data, .. }) => {
            file.write_at(offset, data).await?;
            Ok(Outcome::Done)
        }
        (Open::File { file, .. }, SftpRequest::Fstat { .. }) => Ok(Outcome::Packet(
            SshFieldWriter::attributes(&SftpAttributes::of(&file.stat().await?)),
        )),
        (Open::File { file, .. }, SftpRequest::FsetStat { attributes, .. }) => {
            let wanted = wanted(&session.backend, &attributes)?;
            if let Some(size) = attributes.size {
                file.set_len(size).await?;
            }
            if let Some(wanted) = wanted {
                file.set_attributes(wanted).await?;
            }
            Ok(Outcome::Done)
        }
        (Open::Directory(directory), SftpRequest::ReadDir { .. }) => {
            read_dir(session, &handle.path, directory).await
        }
        (Open::Directory(_), SftpRequest::Fstat { .. }) => {
            let path = super::paths::shown(&handle.path);
            stat(&session.backend, &path, LinkHandling::Follow).await
        }
        (Open::Directory(_), _) => Err(Refusal::new(FAILURE, "the handle is of a directory")),
        (Open::Staged(stage), SftpRequest::Write { offset, data, .. }) => {
            stage.write(offset, &data)?;
            Ok(Outcome::Done)
        }
        (Open::Staged(_), _) => Err(Refusal::new(FAILURE, "the handle is of a content")),
        (Open::Answer(_), _) => Err(Refusal::new(FAILURE, "the handle is of an answer")),
        (Open::File { .. }, _) => Err(Refusal::new(FAILURE, "the handle is of a file")),
    }
}

fn misplaced(request: &SftpRequest) -> Refusal {
    Refusal::new(FAILURE, format!("cannot be done: {request:?}"))
}

async fn open(session: &Session, path: &str, flags: u32, attributes: &SftpAttributes) -> Done {
    let share = session.allowance.handle()?;
    let appends = flags & flags::OPEN_FLAG_APPEND != 0;
    let writes = appends || flags & flags::OPEN_FLAG_WRITE != 0;
    let access = match (flags & flags::OPEN_FLAG_READ != 0, writes) {
        (true, true) => FileAccess::ReadWrite,
        (false, true) => FileAccess::Write,
        (_, false) => FileAccess::Read,
    };
    let create =
        match (flags & flags::OPEN_FLAG_CREATE != 0, flags & flags::OPEN_FLAG_EXCLUSIVE != 0) {
            (false, _) => FileCreationMode::Never,
            (true, false) => FileCreationMode::IfMissing,
            (true, true) => FileCreationMode::MustBeNew,
        };
    let existing = if writes && flags & flags::OPEN_FLAG_TRUNCATE != 0 {
        ExistingContentHandling::Truncate
    } else {
        ExistingContentHandling::Keep
    };
    let placement = if appends { WritePosition::End } else { WritePosition::AtOffset };
    let permissions = attributes.mode.map(|mode| mode & 0o777 & !UMASK);
    let options = OpenOptions { access, create, existing, position: placement, permissions };
    let resolved = session.backend.parse_path(path)?;
    let file = session.backend.open(path, options).await?;
    let open = Open::File { file, appends };
    let number = session.handles.add(Handle { path: resolved, open, _share: share });
    Ok(Outcome::Packet(SshFieldWriter::handle(number)))
}

async fn stat(backend: &Backend, path: &str, links: LinkHandling) -> Done {
    let stat = backend.stat_with(path, StatOptions { links }).await?;
    Ok(Outcome::Packet(SshFieldWriter::attributes(&SftpAttributes::of(&stat))))
}

async fn lstat(backend: &Backend, path: &str) -> Result<ab_core::Stat, Refusal> {
    Ok(backend.stat_with(path, StatOptions { links: LinkHandling::NoFollow }).await?)
}

/// The attributes to change, except the size. `None` if there are none.
fn wanted(backend: &Backend, attributes: &SftpAttributes) -> Result<Option<Wanted>, Refusal> {
    if attributes.owner.is_some() {
        return Err(Refusal::new(PERMISSION_DENIED, "owners cannot be changed here"));
    }
    if attributes.mode.is_some() && !backend.info().capabilities.file_modes {
        return Err(Refusal::new(UNSUPPORTED, "there are no permission bits here"));
    }
    let (accessed, modified) = attributes.wanted_times();
    // The higher bits are the file type and the setuid, setgid and sticky bits. Ignore these bits
    // and do not refuse them, so that a client can copy a file together with its mode.
    let mode = attributes.mode.map(|mode| mode & 0o777);
    let wanted = Wanted { mode, accessed, modified };
    Ok((wanted != Wanted::default()).then_some(wanted))
}

async fn make_dir(session: &Session, path: &str, attributes: &SftpAttributes) -> Done {
    let backend = &session.backend;
    let turn = session.making.lock().await;
    match backend.stat_with(path, StatOptions { links: LinkHandling::NoFollow }).await {
        Ok(_) => return Err(Refusal::new(FAILURE, "the path already exists")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    backend.mkdir(path).await?;
    drop(turn);
    let mode = attributes.mode.map(|mode| mode & 0o777 & !UMASK);
    if let Some(mode) = mode.filter(|mode| *mode != 0o755)
        && backend.info().capabilities.file_modes
    {
        backend.set_attributes(path, Wanted { mode: Some(mode), ..Wanted::default() }).await?;
    }
    Ok(Outcome::Done)
}

async fn open_dir(session: &Session, path: &str) -> Done {
    let share = session.allowance.handle()?;
    let resolved = session.backend.parse_path(path)?;
    let stat = session.backend.stat(path).await?;
    if !stat.kind.is_dir() {
        return Err(Refusal::new(FAILURE, "not a directory"));
    }
    let open = Open::Directory(AsyncMutex::new(Directory::Unread));
    let number = session.handles.add(Handle { path: resolved, open, _share: share });
    Ok(Outcome::Packet(SshFieldWriter::handle(number)))
}

async fn read_dir(session: &Session, path: &WsPath, directory: &AsyncMutex<Directory>) -> Done {
    let mut directory = directory.lock().await;
    if matches!(*directory, Directory::Unread) {
        let options =
            ListOptions { max_entries: MAX_LISTED, detail: EntryDetailLevel::Stat, max_depth: 1 };
        let _turn = session.allowance.listing().await?;
        let listing = session.backend.list(&super::paths::shown(path), options).await?;
        let share = session.allowance.entries(listing.entries.len())?;
        let cut = listing.truncated.is_some();
        let strangers = strangers(&listing.problems).into_iter();
        let entries = listing.entries.into_iter();
        *directory = Directory::Reading { entries, strangers, cut, _share: share };
    }
    let Directory::Reading { entries, strangers, cut, .. } = &mut *directory else {
        return Err(Refusal::end());
    };
    let mut answer = SshFieldWriter::names(0);
    let mut count = 0;
    let now = seconds(SystemTime::now());
    while answer.len() < NAMES_SIZE - 1024 {
        if let Some(entry) = entries.next() {
            count += u32::from(add_name(&mut answer, &entry, now));
        } else if let Some(name) = strangers.next() {
            add_stranger(&mut answer, &name);
            count += 1;
        } else {
            break;
        }
    }
    if count > 0 {
        answer.set_count(count);
        return Ok(Outcome::Packet(answer));
    }
    let cut = *cut;
    *directory = Directory::Done;
    if cut {
        let message = format!("the directory has more than {MAX_LISTED} entries");
        Err(Refusal::new(FAILURE, message))
    } else {
        Err(Refusal::end())
    }
}

/// The names that are not UTF-8, with invalid bytes replaced. A listing reports them as problems.
fn strangers(problems: &[WalkProblem]) -> Vec<String> {
    let unnamed = problems.iter().filter(|problem| problem.error.kind() == ErrorKind::InvalidPath);
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    unnamed.map(|problem| name(&problem.path)).collect()
}

/// Adds a name that is not UTF-8 to a listing, as a file. A client that copies the directory then
/// tries to open this file and gets an error. If the name were omitted, the file would be missing
/// in the copy without an error.
fn add_stranger(answer: &mut SshFieldWriter, name: &str) {
    let attributes = SftpAttributes { mode: Some(STRANGER), ..SftpAttributes::default() };
    let times = Times { modified: 0, now: 0 };
    answer.name(name, &long_name(name, FileKind::File, 0, 0, times), &attributes);
}

fn add_name(answer: &mut SshFieldWriter, entry: &DirEntry, now: u32) -> bool {
    let Some(name) = entry.path.name() else { return false };
    // A file that was removed during the listing has a name but no attributes.
    let attributes = match &entry.stat {
        Some(stat) => SftpAttributes::of(stat),
        None => SftpAttributes::default(),
    };
    let (mode, size) = (attributes.mode.unwrap_or_default(), attributes.size.unwrap_or_default());
    let modified = attributes.times.map_or(0, |times| times.1);
    let times = Times { modified: modified.into(), now: now.into() };
    let long = long_name(name, entry.kind, mode, size, times);
    answer.name(name, &long, &attributes);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_file_is_told_by_its_line() {
        let mut answer = SshFieldWriter::names(0);
        let backend = Backend::new(ab_core::MemoryDriver::new());
        let path = backend.parse_path("d/x").unwrap();
        assert!(add_name(&mut answer, &DirEntry { path, kind: FileKind::Dir, stat: None }, 0));
        let bytes = answer.finish(7);
        assert!(bytes.windows(10).any(|window| window == b"d---------"));
        let root = DirEntry { path: WsPath::root(), kind: FileKind::Dir, stat: None };
        assert!(!add_name(&mut SshFieldWriter::names(0), &root, 0));
    }

    #[test]
    fn asking_for_nothing_changes_nothing() {
        let backend = Backend::new(ab_core::MemoryDriver::new());
        assert_eq!(wanted(&backend, &SftpAttributes::default()).unwrap(), None);
        let mode = SftpAttributes { mode: Some(0o107_644), ..SftpAttributes::default() };
        assert_eq!(wanted(&backend, &mode).unwrap().unwrap().mode, Some(0o644));
        let owner = SftpAttributes { owner: Some((0, 0)), ..SftpAttributes::default() };
        assert_eq!(wanted(&backend, &owner).unwrap_err().code, PERMISSION_DENIED);
    }
}
