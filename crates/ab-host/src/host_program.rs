//! Runs programs of the operator, such as git, until they end. A program is started without a
//! shell, with a list of arguments and a given environment. Its time and output are limited.
//!
//! Such a program, also called a tool here, runs without a sandbox and with our privileges. A tool
//! must never work on files that an agent can write, because such files can make the tool run code.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use bytes::BytesMut;
use rustix::fs::{Mode, OFlags};
use tokio::time::{Instant, sleep, sleep_until};

use crate::blocking;
use crate::host_features::program::is_program;
use crate::process::child::{Bond, Devices, Family, Image, Privileges, Terminal};
use crate::process::running::{Reach, Running};
use crate::process::stream::{ReadEnd, WriteEnd, input_pipe, output_pipe};
use crate::process::{incarnation, spawner, strays};

/// Number of bytes that are kept from the end of standard error.
const STDERR_TAIL: usize = 16 * 1024;
/// How long to wait without output for the pipes of a tool that has ended, if another process still
/// holds them open.
const SILENCE: Duration = Duration::from_millis(200);

/// A program of the host, given by its absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProgram {
    program: PathBuf,
}

/// One run of a [`HostProgram`].
#[derive(Clone, Debug)]
pub struct HostProgramRequest {
    pub arguments: Vec<OsString>,
    pub directory: PathBuf,
    /// All environment variables of the tool. It inherits none.
    pub environment: Vec<(OsString, OsString)>,
    /// The bytes for standard input, which is closed after them.
    pub input: Vec<u8>,
    /// The time after which the tool and its process group are killed.
    pub timeout: Duration,
    /// Maximum number of bytes of standard output. A tool that prints more is killed.
    pub max_output: usize,
}

/// How a tool ended, and what it printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostProgramOutput {
    /// The exit code. `None` if a signal ended the tool, or if the tool was killed because it
    /// printed too much.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    /// Whether the tool was killed because it printed more than `max_output`.
    pub output_limit_exceeded: bool,
    /// The last part of standard error.
    pub stderr: String,
}

impl HostProgram {
    /// Looks for an executable file with the name `name` in the directories of `path`. Relative
    /// directories are ignored.
    pub fn find(name: &str, path: &[PathBuf]) -> Result<HostProgram> {
        let directories = path.iter().filter(|directory| directory.is_absolute());
        let found = directories.map(|directory| directory.join(name)).find(|file| is_program(file));
        let Some(program) = found else {
            let message = format!("cannot find the program {name} on the path");
            return Err(Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, message)
                .with_hint(format!("install {name}")));
        };
        Ok(HostProgram { program })
    }

    pub fn path(&self) -> &Path {
        &self.program
    }

    /// Runs the tool in its own session and process group, without a controlling terminal. If the
    /// returned future is dropped, the group is killed.
    ///
    /// # Errors
    /// Fails if the tool cannot be started, or if it exceeds its time limit. It is not an error
    /// here if the tool ends with a status other than 0.
    pub async fn run(&self, request: HostProgramRequest) -> Result<HostProgramOutput> {
        let started = self.start(&request).await;
        let mut started = started.map_err(|error| self.unstarted(&error))?;
        let mut output = HostProgramOutput::default();
        let mut stderr = BytesMut::new();
        let feeding = feed(started.stdin.take(), request.input);
        tokio::pin!(feeding);
        let deadline = sleep_until(Instant::now() + request.timeout);
        tokio::pin!(deadline);
        let (mut feeds, mut ended) = (true, false);
        let Started { running, stdout, stderr: errors, .. } = &mut started;
        while !ended || stdout.is_some() || errors.is_some() {
            tokio::select! {
                // The deadline comes first, so that a program with endless output cannot delay it.
                // Output comes before the silence timeout, because both may be ready on a busy
                // host.
                biased;
                () = &mut deadline => {
                    if ended {
                        break;
                    }
                    return Err(self.too_slow(request.timeout));
                }
                bytes = read(stdout), if stdout.is_some() => {
                    let room = request.max_output.saturating_sub(output.stdout.len());
                    output.stdout.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    if bytes.len() > room {
                        output.output_limit_exceeded = true;
                        running.kill();
                        *stdout = None;
                    }
                }
                bytes = read(errors), if errors.is_some() => {
                    stderr.extend_from_slice(&bytes);
                    let surplus = stderr.len().saturating_sub(STDERR_TAIL);
                    let _ = stderr.split_to(surplus);
                }
                status = running.ended(), if !ended => {
                    let status = status.map_err(|error| self.unstarted(&error))?;
                    ended = true;
                    output.code = status.code;
                    running.kill_rest();
                }
                () = &mut feeding, if feeds => feeds = false,
                () = sleep(SILENCE), if ended => {
                    // A process that left the process group still holds the pipes. Kill such
                    // processes.
                    blocking::finish(running.kill_strays()).await;
                    break;
                }
            }
        }
        if output.output_limit_exceeded {
            output.code = None;
        }
        output.stderr = String::from_utf8_lossy(&stderr).into_owned();
        Ok(output)
    }

    async fn start(&self, run: &HostProgramRequest) -> io::Result<Started> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cookie = format!("{}-tool-{number}", incarnation::mark());
        let (stdout, tool_stdout) = output_pipe()?;
        let (stderr, tool_stderr) = output_pipe()?;
        let (stdin, tool_stdin) = if run.input.is_empty() {
            (None, null()?)
        } else {
            let (ours, theirs) = input_pipe()?;
            (Some(WriteEnd::new(ours)), theirs)
        };
        let program = text(self.program.as_os_str())?;
        let mut arguments = vec![program.clone()];
        for argument in &run.arguments {
            arguments.push(text(argument)?);
        }
        let mut environment = vec![assignment(OsStr::new(strays::COOKIE), OsStr::new(&cookie))?];
        for (name, value) in &run.environment {
            environment.push(assignment(name, value)?);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let image = Image {
            program,
            executable: None,
            arguments,
            environment,
            directory: rustix::fs::open(&run.directory, flags, Mode::empty()).map_err(|error| {
                let message = format!("the directory {}: {error}", run.directory.display());
                io::Error::new(io::Error::from(error).kind(), message)
            })?,
            devices: Devices::Shared,
            overlays: Arc::default(),
            handles: vec![tool_stdin, tool_stdout, tool_stderr],
            terminal: Terminal::None,
            bond: Bond::EndsWithUs,
            family: Family::Shared,
            ignored: &[],
            rlimits: Vec::new(),
            groups: Vec::new(),
            privileges: Privileges::Keep,
            ruleset: None,
            filter: None,
        };
        // The image contains the tool's ends of the pipes. It is dropped here, which closes them.
        let (started, _) = spawner::start(image).await?;
        let running = Running::new(started, Reach::Leader, None, cookie)?;
        let (stdout, stderr) = (Some(ReadEnd::new(stdout)?), Some(ReadEnd::new(stderr)?));
        Ok(Started { running, stdin, stdout, stderr })
    }

    fn unstarted(&self, error: &io::Error) -> Error {
        let message = format!("cannot run {}: {error}", self.program.display());
        Error::new(ErrorCode::ExecError, ErrorKind::Io, message)
    }

    fn too_slow(&self, timeout: Duration) -> Error {
        let message = format!("{} was killed after {timeout:?}", self.program.display());
        Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message)
    }
}

impl Default for HostProgramRequest {
    fn default() -> Self {
        Self {
            arguments: Vec::new(),
            directory: PathBuf::from("/"),
            environment: Vec::new(),
            input: Vec::new(),
            timeout: Duration::from_secs(60),
            max_output: 1024 * 1024,
        }
    }
}

/// A running tool, with our ends of its pipes.
struct Started {
    running: Running,
    stdin: Option<WriteEnd>,
    stdout: Option<ReadEnd>,
    stderr: Option<ReadEnd>,
}

/// Returns the next bytes of a pipe. At the end of the pipe, drops it.
async fn read(pipe: &mut Option<ReadEnd>) -> bytes::Bytes {
    let Some(end) = pipe else { return bytes::Bytes::new() };
    let bytes = end.read().await.unwrap_or_default();
    if bytes.is_empty() {
        *pipe = None;
    }
    bytes
}

async fn feed(pipe: Option<WriteEnd>, input: Vec<u8>) {
    if let Some(pipe) = pipe {
        // An error means that the tool has closed its input and does not want the rest.
        let _ = pipe.write_all(&input).await;
    }
}

fn null() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn assignment(name: &OsStr, value: &OsStr) -> io::Result<CString> {
    let mut pair = name.to_owned();
    pair.push("=");
    pair.push(value);
    text(&pair)
}

fn text(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system_path() -> Vec<PathBuf> {
        vec!["/usr/bin".into(), "/bin".into()]
    }

    fn script(text: &str) -> (HostProgram, HostProgramRequest) {
        let tool = HostProgram::find("sh", &system_path()).unwrap();
        let arguments = vec!["-c".into(), text.into()];
        (tool, HostProgramRequest { arguments, ..HostProgramRequest::default() })
    }

    /// Returns whether a killed process has ended. Waits, because the kernel may need a moment to
    /// end it.
    fn has_ended(pid: &str) -> bool {
        (0..1000).any(|_| {
            std::thread::yield_now();
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
        })
    }

    #[tokio::test]
    async fn tool_gets_exactly_what_it_is_given() {
        let (tool, run) = script("cat; pwd; echo $NAME $HOME; echo oops >&2; exit 3");
        let directory = std::env::temp_dir().canonicalize().unwrap();
        let run = HostProgramRequest {
            input: b"in\n".to_vec(),
            directory: directory.clone(),
            environment: vec![("NAME".into(), "value".into())],
            ..run
        };
        let output = tool.run(run).await.unwrap();
        assert_eq!(output.code, Some(3));
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed, format!("in\n{}\nvalue\n", directory.display()));
        assert_eq!((output.stderr.as_str(), output.output_limit_exceeded), ("oops\n", false));
    }

    #[tokio::test]
    async fn tool_that_prints_too_much_is_killed() {
        let (tool, run) = script("while :; do echo 0123456789; done");
        let output = tool.run(HostProgramRequest { max_output: 100_000, ..run }).await.unwrap();
        assert_eq!(
            (output.code, output.output_limit_exceeded, output.stdout.len()),
            (None, true, 100_000)
        );
    }

    #[tokio::test]
    async fn tool_that_takes_too_long_is_killed_with_its_children() {
        let place = tempfile::tempdir().unwrap();
        let (tool, run) = script("sleep 600 & echo $! >child; echo started; wait");
        let directory = place.path().to_owned();
        let path = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let run = HostProgramRequest {
            timeout: Duration::from_secs(1),
            directory,
            environment: path,
            ..run
        };
        let error = tool.run(run).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let child = std::fs::read_to_string(place.path().join("child")).unwrap();
        assert!(has_ended(child.trim()), "{child}");
    }

    #[tokio::test]
    async fn child_that_keeps_the_pipes_open_does_not_delay_the_end() {
        let (tool, run) = script("setsid sleep 600 & echo $!");
        let path = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let output = tool.run(HostProgramRequest { environment: path, ..run }).await.unwrap();
        assert_eq!(output.code, Some(0));
        let child = String::from_utf8(output.stdout).unwrap();
        assert!(has_ended(child.trim()), "{child}");
    }

    #[tokio::test]
    async fn missing_programs_and_directories_are_errors() {
        let error = HostProgram::find("no-such-program", &system_path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            HostProgram::find("sh", &["bin".into()]).is_err(),
            "a relative directory was searched"
        );
        let (tool, run) = script("true");
        let error =
            tool.run(HostProgramRequest { directory: "/no/such".into(), ..run }).await.unwrap_err();
        assert!(error.message().contains("the directory /no/such: no such file"), "{error}");
    }
}
