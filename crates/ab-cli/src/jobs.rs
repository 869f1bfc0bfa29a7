//! Background commands on this machine: their descriptions, and how to find one by its id.
//!
//! `exec --detach` starts this program again as a [holder](holder). The holder runs the command,
//! writes its output to [files] below the state directory, and exits when the command ends. A
//! daemon manages its own background commands. [`Job`] describes both kinds.

pub(crate) mod files;
pub(crate) mod follow;
pub(crate) mod holder;

use std::time::SystemTime;

use ab_core::process::{ExitCause, ProcessExit, ProcessInfo};
use ab_core::{Error, ErrorCode, ErrorKind};

use crate::failure::Failure;

/// A background command.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) command: String,
    /// The directory of the command. For a command on this machine this is the workspace. For a
    /// remote command it is the directory in the remote workspace.
    pub(crate) directory: String,
    pub(crate) started: SystemTime,
    pub(crate) state: JobState,
}

#[derive(Clone, Debug)]
pub(crate) enum JobState {
    Running,
    Ended(ProcessExit),
    /// The end of the command is unknown, because its holder was killed or the machine was
    /// restarted.
    Lost,
}

impl JobState {
    /// The state in one or two words, for a table.
    pub(crate) fn words(&self) -> String {
        match self {
            JobState::Running => "running".to_owned(),
            JobState::Lost => "lost".to_owned(),
            JobState::Ended(exit) => ending_words(exit),
        }
    }
}

/// A short text about how a command ended.
pub(crate) fn ending_words(exit: &ProcessExit) -> String {
    match (exit.cause, exit.code, exit.signal) {
        (ExitCause::Timeout, _, _) => "timed out".to_owned(),
        (ExitCause::MemoryLimit, _, _) => "out of memory".to_owned(),
        (ExitCause::CpuLimit, _, _) => "out of CPU time".to_owned(),
        (ExitCause::FileSizeLimit, _, _) => "file too large".to_owned(),
        (_, Some(code), _) => format!("exited {code}"),
        (_, None, Some(signal)) => format!("signal {signal}"),
        (_, None, None) => "ended".to_owned(),
    }
}

impl From<ProcessInfo> for Job {
    fn from(info: ProcessInfo) -> Job {
        Job {
            id: info.id.as_str().to_owned(),
            command: info.command,
            directory: info.cwd.to_string(),
            started: info.started,
            state: info.exit.map_or(JobState::Running, JobState::Ended),
        }
    }
}

/// Finds the job whose id is `text` or begins with it.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such job, [`ErrorKind::TextNotUnique`] if several ids begin
/// with `text`.
pub(crate) fn named<'a>(jobs: &'a [Job], text: &str) -> Result<&'a Job, Failure> {
    if let Some(job) = jobs.iter().find(|job| job.id == text) {
        return Ok(job);
    }
    let begins = |job: &&Job| !text.is_empty() && job.id.starts_with(text);
    let found: Vec<&Job> = jobs.iter().filter(begins).collect();
    match found.as_slice() {
        [job] => Ok(job),
        [] => {
            let message = format!("there is no job '{text}'");
            let error = Error::new(ErrorCode::ExecError, ErrorKind::NotFound, message);
            Err(Failure::from(error).with_hint("list the jobs: agent-backend job list"))
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|job| job.id.as_str()).collect();
            let message = format!("several IDs start with '{text}': {}", ids.join(", "));
            let error = Error::new(ErrorCode::ExecError, ErrorKind::TextNotUnique, message);
            Err(Failure::from(error).with_hint("type more of the ID"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str) -> Job {
        Job {
            id: id.to_owned(),
            command: "true".to_owned(),
            directory: "/".to_owned(),
            started: SystemTime::UNIX_EPOCH,
            state: JobState::Running,
        }
    }

    #[test]
    fn a_job_is_named_by_a_unique_prefix_of_its_id() {
        let jobs = [job("3f2a"), job("3f2b"), job("91"), job("910")];
        let check = |text: &str, expect: Result<&str, &str>| match (named(&jobs, text), expect) {
            (Ok(job), Ok(id)) => assert_eq!(job.id, id),
            (Err(failure), Err(says)) => {
                let told = failure.error().map(ToString::to_string).unwrap_or_default();
                assert_eq!(told, says, "{text}");
            }
            (found, _) => panic!("{text}: {found:?}"),
        };
        check("3f2a", Ok("3f2a"));
        check("3f2b", Ok("3f2b"));
        check("91", Ok("91"));
        check("3f", Err("several IDs start with '3f': 3f2a, 3f2b"));
        check("x", Err("there is no job 'x'"));
        check("", Err("there is no job ''"));
    }
}
