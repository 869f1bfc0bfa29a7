//! The files of background commands. `STATE/agent-backend/jobs/ID.json` describes a job and how it
//! ended. `ID.out` and `ID.old` contain its output.
//!
//! The holder of a job (the process that runs its command) locks the job's JSON file while it runs.
//! A job is lost if its file says that the job is running and the file is not locked. The output is
//! stored as a sequence of pieces. Each piece contains its offset. When `ID.out` is full, it
//! replaces `ID.old`, and the previous content of `ID.old` is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ab_core::process::{ExitCause, OutputChannel, OutputChunk, ProcessExit};
use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::{Job, JobState};
use crate::data_dir;
use crate::failure::Failure;

const DIRECTORY: &str = "jobs";
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Maximum number of bytes of each of the two output files.
const OUTPUT_FILE_BYTES: u64 = 32 * 1024 * 1024;
/// Maximum number of ended jobs that are kept. If there are more, the oldest are removed.
const MAX_ENDED: usize = 32;
/// Maximum number of jobs that run at the same time.
const MAX_RUNNING: usize = 256;
/// Number of header bytes before each piece: offset, channel and length.
const PIECE_HEADER: usize = 13;
/// Maximum length of a piece in bytes. If a file contains a longer piece, the file is damaged.
const MAX_PIECE: usize = 1024 * 1024;

/// The directory with the files of this user's jobs.
#[derive(Clone, Debug)]
pub(crate) struct JobDirectory {
    path: PathBuf,
}

/// A job with the process id of its holder.
#[derive(Clone, Debug)]
pub(crate) struct HeldJob {
    pub(crate) job: Job,
    pub(crate) holder: Option<u32>,
}

impl JobDirectory {
    /// Opens the directory below the state directory. Creates it if it is missing.
    ///
    /// # Errors
    ///
    /// A usage error if there is no state directory. Also fails if the directory cannot be created.
    pub(crate) fn open() -> Result<JobDirectory, Failure> {
        let state = data_dir::default()
            .map_err(|failure| failure.with_hint("set XDG_STATE_HOME to a directory"))?;
        let path = state.join(DIRECTORY);
        let made = fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(&path);
        made.map_err(|error| Failure::input(format!("create {}", path.display()), error))?;
        Ok(JobDirectory { path })
    }

    /// Lists all known jobs, newest first. Files that do not describe a job are skipped.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be read.
    pub(crate) fn list(&self) -> Result<Vec<HeldJob>, Failure> {
        let fails = |error| Failure::input(format!("read {}", self.path.display()), error);
        let mut jobs = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(fails)? {
            let path = entry.map_err(fails)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                jobs.extend(read(&path));
            }
        }
        jobs.sort_by_key(|held| std::cmp::Reverse(held.job.started));
        Ok(jobs)
    }

    /// Records a job whose holder is this process, and removes the oldest ended jobs.
    ///
    /// # Errors
    ///
    /// A usage error if too many jobs are running. Also fails if the files cannot be created.
    pub(crate) fn add(&self, command: &str, directory: &str) -> Result<JobWriter, Failure> {
        let known = self.list()?;
        let runs = |held: &&HeldJob| matches!(held.job.state, JobState::Running);
        if known.iter().filter(runs).count() >= MAX_RUNNING {
            return Err(Failure::usage(format!("{MAX_RUNNING} background commands run already"))
                .with_hint("end some of them: agent-backend job kill ID"));
        }
        for old in known.iter().filter(|held| !runs(held)).skip(MAX_ENDED - 1) {
            for extension in ["out", "old", "json"] {
                // Ignore an error: another process may have removed the file.
                let _ = fs::remove_file(self.file(&old.job.id, extension));
            }
        }
        let made = JobWriter::make(self, command, directory);
        made.map_err(|error| Failure::input(format!("write to {}", self.path.display()), error))
    }

    /// Reads the output of a job, starting at an offset.
    pub(crate) fn output(&self, id: &str, from: u64) -> OutputReader {
        OutputReader {
            old: self.file(id, "old"),
            current: self.file(id, "out"),
            file: None,
            started: false,
            next: from,
        }
    }

    /// The current state of a job. `None` if its file was removed.
    pub(crate) fn find(&self, id: &str) -> Option<HeldJob> {
        read(&self.file(id, "json"))
    }

    fn file(&self, id: &str, extension: &str) -> PathBuf {
        self.path.join(format!("{id}.{extension}"))
    }
}

/// Writes the files of a job. Used by the job's holder.
#[derive(Debug)]
pub(crate) struct JobWriter {
    pub(crate) id: String,
    json: File,
    record: Value,
    current: PathBuf,
    old: PathBuf,
    out: File,
    /// Number of bytes in the current output file.
    length: u64,
    /// The offset of the next byte of output.
    next: u64,
}

impl JobWriter {
    fn make(directory: &JobDirectory, command: &str, root: &str) -> io::Result<JobWriter> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE_FILE);
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let json = options.open(directory.file(&id, "json"))?;
        flock(&json, FlockOperation::LockExclusive)?;
        let current = directory.file(&id, "out");
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let record = json!({
            "id": id,
            "holder": std::process::id(),
            "command": command,
            "directory": root,
            "started_ms": u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
            "exit": null,
        });
        let out = options.open(&current)?;
        let old = directory.file(&id, "old");
        let mut writer = JobWriter { id, json, record, current, old, out, length: 0, next: 0 };
        writer.save()?;
        Ok(writer)
    }

    /// Appends a piece of output.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written, for example on a full disk. The piece is then lost.
    pub(crate) fn append(&mut self, channel: OutputChannel, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(MAX_PIECE) {
            let offset = self.next;
            self.next += piece.len() as u64;
            if self.length + piece.len() as u64 > OUTPUT_FILE_BYTES {
                fs::rename(&self.current, &self.old)?;
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(PRIVATE_FILE);
                self.out = options.open(&self.current)?;
                self.length = 0;
            }
            let mut record = Vec::with_capacity(PIECE_HEADER + piece.len());
            record.extend_from_slice(&offset.to_be_bytes());
            record.push(match channel {
                OutputChannel::Stdout => 0,
                OutputChannel::Stderr => 1,
            });
            record.extend_from_slice(&u32::try_from(piece.len()).unwrap_or(0).to_be_bytes());
            record.extend_from_slice(piece);
            self.length += record.len() as u64;
            self.out.write_all(&record)?;
        }
        Ok(())
    }

    /// Records how the job ended. Readers that see this record also see the complete output.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub(crate) fn finish(mut self, exit: &ProcessExit) -> io::Result<()> {
        self.record["exit"] = json!({
            "code": exit.code,
            "signal": exit.signal,
            "cause": cause_name(exit.cause),
        });
        self.save()
    }

    /// Overwrites the record in place. The text never becomes shorter, so readers see either the
    /// old record or the new record.
    fn save(&mut self) -> io::Result<()> {
        self.json.write_all_at(format!("{}\n", self.record).as_bytes(), 0)
    }
}

fn read(path: &Path) -> Option<HeldJob> {
    let file = File::open(path).ok()?;
    let locked = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    // Read the file only after the lock was tested. If the holder has released the lock, the file
    // already contains its last record.
    let mut text = String::new();
    (&file).read_to_string(&mut text).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    let state = match (&value["exit"], locked) {
        (Value::Null, true) => JobState::Running,
        (Value::Null, false) => JobState::Lost,
        (exit, _) => JobState::Ended(exit_of(exit)),
    };
    let number = |value: &Value| i32::try_from(value.as_i64()?).ok();
    let holder = number(&value["holder"]).and_then(|pid| u32::try_from(pid).ok());
    let job = Job {
        id: value["id"].as_str()?.to_owned(),
        command: value["command"].as_str()?.to_owned(),
        directory: value["directory"].as_str()?.to_owned(),
        started: UNIX_EPOCH + Duration::from_millis(value["started_ms"].as_u64()?),
        state,
    };
    Some(HeldJob { job, holder })
}

fn exit_of(value: &Value) -> ProcessExit {
    let number = |value: &Value| i32::try_from(value.as_i64()?).ok();
    ProcessExit {
        code: number(&value["code"]),
        signal: number(&value["signal"]),
        cause: match value["cause"].as_str() {
            Some("timeout") => ExitCause::Timeout,
            Some("memory") => ExitCause::MemoryLimit,
            Some("cpu") => ExitCause::CpuLimit,
            Some("file_size") => ExitCause::FileSizeLimit,
            Some("dropped") => ExitCause::DroppedByCaller,
            _ => ExitCause::Exited,
        },
        ..ProcessExit::default()
    }
}

/// The word for a cause in files and in JSON output.
pub(crate) fn cause_name(cause: ExitCause) -> &'static str {
    match cause {
        ExitCause::Exited => "itself",
        ExitCause::Timeout => "timeout",
        ExitCause::MemoryLimit => "memory",
        ExitCause::CpuLimit => "cpu",
        ExitCause::FileSizeLimit => "file_size",
        ExitCause::DroppedByCaller => "dropped",
    }
}

/// Reads the output files of a job piece by piece, even while they grow.
#[derive(Debug)]
pub(crate) struct OutputReader {
    old: PathBuf,
    current: PathBuf,
    file: Option<BufReader<File>>,
    /// Whether opening the older file was already attempted.
    started: bool,
    /// The offset of the next expected byte.
    next: u64,
}

impl OutputReader {
    /// Returns the next piece of output. `None` if the job has not written more output yet.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read. [`io::ErrorKind::InvalidData`] if a file is damaged.
    pub(crate) fn next(&mut self) -> io::Result<Option<OutputChunk>> {
        loop {
            if !self.started {
                self.started = true;
                self.file = opened(&self.old)?;
            }
            if self.file.is_none() {
                self.file = opened(&self.current)?;
            }
            let Some(file) = &mut self.file else { return Ok(None) };
            if let Some(piece) = piece(file)? {
                if OutputChunk::next_offset(&piece) <= self.next {
                    continue;
                }
                let lost_bytes = piece.offset.saturating_sub(self.next);
                let seen = self.next.saturating_sub(piece.offset);
                let bytes = piece.bytes.slice(usize::try_from(seen).unwrap_or(0)..);
                self.next = piece.next_offset();
                let offset = piece.offset + seen;
                return Ok(Some(OutputChunk {
                    offset,
                    bytes,
                    lost_bytes_before: lost_bytes,
                    ..piece
                }));
            }
            // The older file has been read completely. Continue with the current file.
            if same_file(file.get_ref(), &self.current) {
                return Ok(None);
            }
            match opened(&self.current)? {
                Some(file) => self.file = Some(file),
                None => return Ok(None),
            }
        }
    }
}

fn opened(path: &Path) -> io::Result<Option<BufReader<File>>> {
    match File::open(path) {
        Ok(file) => Ok(Some(BufReader::new(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    match (rustix::fs::fstat(file), rustix::fs::stat(path)) {
        (Ok(open), Ok(there)) => identity(open) == identity(there),
        _ => true,
    }
}

/// Reads the next complete piece. If the piece is still being written, a later call reads it again
/// from its start.
fn piece(file: &mut BufReader<File>) -> io::Result<Option<OutputChunk>> {
    let start = io::Seek::stream_position(file)?;
    let read = whole_piece(file)?;
    if read.is_none() {
        io::Seek::seek(file, io::SeekFrom::Start(start))?;
    }
    Ok(read)
}

/// Reads the next piece. `None` if it is incomplete.
fn whole_piece(file: &mut BufReader<File>) -> io::Result<Option<OutputChunk>> {
    let mut header = [0; PIECE_HEADER];
    if !filled(file, &mut header)? {
        return Ok(None);
    }
    let offset = u64::from_be_bytes(first(&header[..8]));
    let length = u32::from_be_bytes(first(&header[9..])) as usize;
    let channel = match header[8] {
        0 => OutputChannel::Stdout,
        1 => OutputChannel::Stderr,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    if length > MAX_PIECE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    let whole = filled(file, &mut bytes)?;
    let bytes = Bytes::from(bytes);
    Ok(whole.then_some(OutputChunk { offset, channel, bytes, lost_bytes_before: 0 }))
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or_default())
}

/// Reads until `buffer` is full. Returns `false` if the file ends before that.
fn filled(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, JobDirectory) {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().to_owned();
        (keep, JobDirectory { path })
    }

    fn all(reader: &mut OutputReader) -> Vec<OutputChunk> {
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    #[test]
    fn a_job_is_running_while_its_holder_lives() {
        let (_keep, jobs) = directory();
        let writer = jobs.add("make all", "/src").unwrap();
        let id = writer.id.clone();
        let held = jobs.find(&id).unwrap();
        assert!(matches!(held.job.state, JobState::Running));
        assert_eq!((held.job.command.as_str(), held.job.directory.as_str()), ("make all", "/src"));
        assert_eq!(held.holder, Some(std::process::id()));
        drop(writer);
        assert!(matches!(jobs.find(&id).unwrap().job.state, JobState::Lost));
        let writer = jobs.add("make", "/src").unwrap();
        let id = writer.id.clone();
        writer.finish(&ProcessExit { code: Some(3), ..ProcessExit::default() }).unwrap();
        let JobState::Ended(exit) = jobs.find(&id).unwrap().job.state else { panic!() };
        assert_eq!(exit.code, Some(3));
    }

    #[test]
    fn output_is_read_while_it_grows_and_the_oldest_is_lost() {
        let (_keep, jobs) = directory();
        let mut writer = jobs.add("yes", "/").unwrap();
        let mut reader = jobs.output(&writer.id, 0);
        assert!(all(&mut reader).is_empty());
        writer.append(OutputChannel::Stdout, b"out").unwrap();
        writer.append(OutputChannel::Stderr, b"err").unwrap();
        let read = all(&mut reader);
        assert_eq!(read[0].bytes.as_ref(), b"out");
        assert_eq!((read[1].offset, read[1].channel), (3, OutputChannel::Stderr));
        let later = all(&mut jobs.output(&writer.id, 2));
        assert_eq!((later[0].bytes.as_ref(), later[1].bytes.as_ref()), (&b"t"[..], &b"err"[..]));
        let block = vec![b'x'; MAX_PIECE];
        for _ in 0..3 * OUTPUT_FILE_BYTES / MAX_PIECE as u64 {
            writer.append(OutputChannel::Stdout, &block).unwrap();
        }
        let late = all(&mut jobs.output(&writer.id, 0));
        let shown: u64 = late.iter().map(|piece| piece.bytes.len() as u64).sum();
        let lost: u64 = late.iter().map(|piece| piece.lost_bytes_before).sum();
        assert!(lost > 0 && shown > OUTPUT_FILE_BYTES / 2, "{shown} {lost}");
        assert_eq!(shown + lost, 6 + 3 * OUTPUT_FILE_BYTES);
        let rest = all(&mut reader);
        assert_eq!(rest.last().unwrap().next_offset(), 6 + 3 * OUTPUT_FILE_BYTES);
    }

    #[test]
    fn only_the_newest_ended_jobs_are_kept() {
        let (_keep, jobs) = directory();
        let running = jobs.add("first", "/").unwrap();
        for _ in 0..MAX_ENDED + 3 {
            jobs.add("true", "/").unwrap().finish(&ProcessExit::default()).unwrap();
        }
        assert_eq!(jobs.list().unwrap().len(), MAX_ENDED + 1);
        assert!(jobs.find(&running.id).is_some());
    }
}
