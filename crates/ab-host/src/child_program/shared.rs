//! A program that several processes use at the same time. The program ends when the last of these
//! processes stops using it.
//!
//! The program's standard input is a named pipe in a separate directory. Every user holds the pipe
//! open for writing. The kernel closes a user's end when that user ends, even if it is killed. When
//! no user is left, the program reads the end of its input and ends. The process that starts the
//! program writes a record beside the pipe, which tells the other users how to reach the program.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, fcntl_setfl, flock, mknodat, open};
use rustix::io::Errno;

use super::{ChildLog, ChildProcess};

/// The names of the pipe, the record and the locks of a program in its directory.
const PIPE: &str = "program.input";
const RECORD: &str = "program.json";
const NEW_RECORD: &str = "program.json.new";
const LOCK: &str = "program.lock";
/// A lock file that all users lock in shared mode.
const USERS: &str = "program.users";
/// Maximum number of bytes of a record that are read.
const MAX_RECORD: u64 = 64 * 1024;
/// The mode of the files. Only the user may read them, because a record may contain secrets.
const PRIVATE: u32 = 0o600;

/// The right to start or join the program of a directory. Only one process can have this right at a
/// time.
#[derive(Debug)]
pub struct SharedProgramLock {
    directory: PathBuf,
    _file: File,
}

/// The right of one process to use a program. The program ends when the last `SharedProgramHandle` of all
/// processes is dropped.
#[derive(Debug)]
pub struct SharedProgramHandle {
    pipe: File,
    users: File,
    directory: PathBuf,
}

/// A program that this process has started, with the `SharedProgramHandle` of this process.
#[derive(Debug)]
pub struct StartedSharedProgram {
    pub process: ChildProcess,
    pub log: ChildLog,
    pub program_use: SharedProgramHandle,
}

impl SharedProgramLock {
    /// Takes the lock of the program in `directory`, which must exist. Returns `None` if another
    /// process has the lock.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be written.
    pub fn try_acquire(directory: &Path) -> Result<Option<SharedProgramLock>> {
        let file = locked(&directory.join(LOCK), FlockOperation::NonBlockingLockExclusive)?;
        Ok(file.map(|file| SharedProgramLock { directory: directory.to_owned(), _file: file }))
    }

    /// Joins the program if it runs. Also returns the record that the starter of the program wrote.
    /// Returns `None` if the program does not run.
    ///
    /// # Errors
    ///
    /// Fails if the pipe or the record cannot be read.
    pub fn join_running(&self) -> Result<Option<(SharedProgramHandle, String)>> {
        // A user that was killed leaves the record behind. If the program has no users, it is about
        // to end and must not be joined.
        let no_users =
            locked(&self.directory.join(USERS), FlockOperation::NonBlockingLockExclusive)?;
        if no_users.is_some() {
            return Ok(None);
        }
        let Some(users) = self.users()? else { return Ok(None) };
        let path = self.directory.join(PIPE);
        // If no process reads the pipe, opening it for writing fails. In this case the program does
        // not run.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let pipe = match open(&path, flags, Mode::empty()) {
            Ok(pipe) => File::from(pipe),
            Err(Errno::NOENT | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(failure("open", &path, error.into())),
        };
        let path = self.directory.join(RECORD);
        let mut record = String::new();
        let read =
            File::open(&path).and_then(|file| file.take(MAX_RECORD).read_to_string(&mut record));
        match read {
            Ok(_) => Ok(Some((self.use_of(pipe, users), record))),
            // The starter ended before the program was ready, or the last user has removed the
            // record.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failure("read", &path, error)),
        }
    }

    /// Starts the program with a new pipe. A program that still reads the old pipe can no longer be
    /// joined.
    ///
    /// # Errors
    ///
    /// Fails if the pipe cannot be made or the program cannot be started.
    pub fn start(&self, program: &Path, arguments: &[OsString]) -> Result<StartedSharedProgram> {
        let path = self.directory.join(PIPE);
        let fails = |error: io::Error| failure("make", &path, error);
        for stale in [PIPE, RECORD] {
            match fs::remove_file(self.directory.join(stale)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fails(error)),
                _ => {}
            }
        }
        let mode = Mode::from_raw_mode(PRIVATE);
        mknodat(CWD, &path, FileType::Fifo, mode, 0).map_err(|error| fails(error.into()))?;
        let open_end = |flags: OFlags| {
            open(&path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
                .map(File::from)
                .map_err(|error| fails(error.into()))
        };
        // Both ends are opened without waiting. The reading end must be opened first, because
        // opening the writing end fails without a reader.
        let (reader, pipe) = (open_end(OFlags::RDONLY)?, open_end(OFlags::WRONLY)?);
        fcntl_setfl(&reader, OFlags::empty()).map_err(|error| fails(error.into()))?;
        let users = self.users()?;
        let users = users.ok_or_else(|| fails(io::ErrorKind::ResourceBusy.into()))?;
        let (process, log) = ChildProcess::start_reading(program, arguments, reader)?;
        Ok(StartedSharedProgram { process, log, program_use: self.use_of(pipe, users) })
    }

    fn users(&self) -> Result<Option<File>> {
        locked(&self.directory.join(USERS), FlockOperation::NonBlockingLockShared)
    }

    fn use_of(&self, pipe: File, users: File) -> SharedProgramHandle {
        SharedProgramHandle { pipe, users, directory: self.directory.clone() }
    }

    /// Writes the record of the program for the processes that join it.
    ///
    /// # Errors
    ///
    /// Fails if the record cannot be written.
    pub fn write_record(&self, record: &str) -> Result<()> {
        let (new, path) = (self.directory.join(NEW_RECORD), self.directory.join(RECORD));
        let write = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.create(true).truncate(true).write(true).mode(PRIVATE).open(&new)?;
            file.write_all(record.as_bytes())?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| failure("write", &path, error))
    }
}

impl SharedProgramHandle {
    /// Sends a line to the program. The line must be short, because this does not wait until the
    /// program has read it.
    ///
    /// # Errors
    ///
    /// Fails if the program has ended.
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        self.pipe.write_all(line.as_bytes())
    }

    /// Returns whether the program still reads its input.
    pub fn is_running(&self) -> bool {
        let mut fds = [PollFd::new(&self.pipe, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = poll(&mut fds, Some(&now));
        polled.is_ok() && !fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }
}

impl Drop for SharedProgramHandle {
    /// The last user removes the record, so that no process joins a program that is about to end.
    fn drop(&mut self) {
        let Ok(Some(_lock)) = SharedProgramLock::try_acquire(&self.directory) else { return };
        if flock(&self.users, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_file(self.directory.join(RECORD));
        }
    }
}

/// Opens a file and locks it. Returns `None` if another process has a lock that excludes this one.
fn locked(path: &Path, operation: FlockOperation) -> Result<Option<File>> {
    let fails = |error: io::Error| failure("lock", path, error);
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(PRIVATE).open(path);
    let file = file.map_err(fails)?;
    match flock(&file, operation) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(fails(error.into())),
    }
}

fn failure(act: &str, path: &Path, error: io::Error) -> Error {
    let message = format!("cannot {act} {}: {error}", path.display());
    Error::new(ErrorCode::ExecError, ErrorKind::Io, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// Starts a program that prints its input to its log and ends at the end of its input.
    fn start(lock: &SharedProgramLock) -> StartedSharedProgram {
        lock.start(Path::new("/bin/sh"), &["-c", "cat >&2"].map(OsString::from)).unwrap()
    }

    #[tokio::test]
    async fn a_program_ends_with_its_last_use() {
        let directory = tempfile::tempdir().unwrap();
        let lock = SharedProgramLock::try_acquire(directory.path()).unwrap().unwrap();
        assert!(
            SharedProgramLock::try_acquire(directory.path()).unwrap().is_none(),
            "one at a time"
        );
        assert!(lock.join_running().unwrap().is_none(), "nothing was started");
        let mut started = start(&lock);
        assert!(lock.join_running().unwrap().is_none(), "it is not ready");
        lock.write_record("how to reach it").unwrap();
        let (mut joined, record) = lock.join_running().unwrap().unwrap();
        assert_eq!(record, "how to reach it");
        started.program_use.send("one\n").unwrap();
        drop(started.program_use);
        // The starter has dropped its handle, but the other handle keeps the program running.
        joined.send("two\n").unwrap();
        assert!(joined.is_running());
        drop(joined);
        let mut log = String::new();
        started.log.read_to_string(&mut log).await.unwrap();
        assert_eq!(log, "one\ntwo\n");
        assert_eq!(started.process.wait_and_describe_exit().await, "exit status: 0");
        assert!(lock.join_running().unwrap().is_none(), "it has ended");
    }

    #[tokio::test]
    async fn a_program_without_a_user_is_not_joined_while_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        // A child that is being started also holds the lock until it executes its program.
        let take = || {
            loop {
                match SharedProgramLock::try_acquire(directory.path()).unwrap() {
                    Some(lock) => break lock,
                    None => std::thread::yield_now(),
                }
            }
        };
        // A program that reads its input to the end and then continues.
        let arguments =
            ["-c", "exec 3<&0; cat; echo over >&2; exec sleep 1000"].map(OsString::from);
        let lock = take();
        let mut started = lock.start(Path::new("/bin/sh"), &arguments).unwrap();
        lock.write_record("how to reach it").unwrap();
        drop(lock);
        let joined = take().join_running().unwrap().unwrap().0;
        drop(joined);
        let (joined, _) = take().join_running().unwrap().expect("the starter still uses it");
        drop((joined, started.program_use));
        let mut over = [0; 5];
        started.log.read_exact(&mut over).await.unwrap();
        assert!(take().join_running().unwrap().is_none(), "it still has its pipe open");
        // A user that is killed does not remove the record.
        take().write_record("how to reach it").unwrap();
        assert!(take().join_running().unwrap().is_none(), "it has no user");
        started.process.kill().await;
    }

    #[tokio::test]
    async fn a_program_that_has_ended_is_seen_and_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let lock = SharedProgramLock::try_acquire(directory.path()).unwrap().unwrap();
        let arguments = ["-c", "exit 3"].map(OsString::from);
        let mut ended = lock.start(Path::new("/bin/sh"), &arguments).unwrap();
        lock.write_record("stale").unwrap();
        assert_eq!(ended.process.wait_and_describe_exit().await, "exit status: 3");
        assert!(!ended.program_use.is_running());
        assert!(lock.join_running().unwrap().is_none());
        let again = start(&lock);
        assert!(again.program_use.is_running());
        assert!(lock.join_running().unwrap().is_none(), "the old record does not count");
    }

    #[test]
    fn a_record_is_for_its_user_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let lock = SharedProgramLock::try_acquire(directory.path()).unwrap().unwrap();
        lock.write_record("a token").unwrap();
        let mode = fs::metadata(directory.path().join(RECORD)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
        let error = SharedProgramLock::try_acquire(&directory.path().join("no/such")).unwrap_err();
        assert!(error.message().contains("no/such"), "{error}");
    }
}
