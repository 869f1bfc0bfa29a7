//! Performs one operation on a workspace and returns its result.

use std::time::{Duration, Instant};

use ab_api::Time;
use ab_core::options::{
    LinkHandling, ReadOptions, RemoveOptions, StatOptions, WriteMode, WriteOptions,
};
use ab_core::path::PathStrictness;
use ab_core::process::{Command, ExitCause, OutputChannel, ProcessExit};
use ab_core::{
    ApprovalRequest, Backend, Edit, EditOptions, Error, ErrorCause, ErrorKind, ExecOptions,
    NarrowOptions, Principal, PrincipalKind, WriteContent,
};
use ab_policy::PolicyDocumentFileAccess;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::event::{ErrorCategory, ProtocolEvent};
use crate::gate::StartRecord;
use crate::operation::{ContentEncoding, Operation, TextEdit};
use crate::validate::MAX_FILE_BYTES;
use crate::workspace::SpaceWorkspace;

/// Maximum number of bytes of each output channel in an event.
pub(crate) const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// The exit code that is reported for a command that exceeded its timeout. The program `timeout`
/// uses the same.
const TIMED_OUT: i32 = 124;
/// Maximum number of characters that an error message quotes from a text.
const QUOTED_CHARS: usize = 50;

/// The result of an attempt to perform an operation.
pub(crate) enum Attempt {
    /// The operation ended, successfully or not.
    Done(ProtocolEvent),
    /// A person must decide first. The operation was not performed.
    Asked(Box<ApprovalRequest>),
    /// The workspace itself failed: no further operation can be performed in it.
    Broken(ProtocolEvent),
}

/// One operation of a run, with everything needed to perform it.
pub(crate) struct OperationContext<'a> {
    pub(crate) workspace: &'a SpaceWorkspace,
    /// The name under which the operation acts: the id of the run and the number of the operation.
    pub(crate) name: String,
    pub(crate) operation: &'a Operation,
    /// The digest of the operation that a person approved, if a person was asked.
    pub(crate) granted: Option<String>,
    /// Receives the output of a command as it arrives.
    pub(crate) output: &'a (dyn Fn(OutputChannel, &[u8]) + Send + Sync),
}

/// Judges the operation, writes its start record, and performs it.
pub(crate) async fn attempt(context: OperationContext<'_>, start: StartRecord) -> Attempt {
    let OperationContext { workspace, name, operation, granted, output } = context;
    let principal = Principal::new(PrincipalKind::Process, &name);
    let is_granted = granted.is_some();
    let gate = workspace.gate.open(&principal, granted, start);
    let narrow = NarrowOptions {
        path_strictness: PathStrictness::Strict,
        ..NarrowOptions::for_actor(principal)
    };
    let backend = match workspace.backend().narrow(narrow) {
        Ok(backend) => backend,
        Err(error) => return Attempt::Broken(broken(operation, &error)),
    };
    if let Some(denied) = denied_change(workspace, operation) {
        return Attempt::Done(denied);
    }
    let result = match directory(workspace, operation).await {
        Ok(cwd) => perform(&backend, operation, cwd, output).await,
        Err(error) => Err(error),
    };
    let error = match result {
        Ok(event) => return Attempt::Done(event),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::ApprovalPending => match gate.asked() {
            // The operation differs from the approved operation, because variables or rules have
            // changed since the approval.
            Some(_) if is_granted => {
                let message = "the approved operation has changed and was not performed";
                Attempt::Done(ProtocolEvent::error(
                    ErrorCategory::Policy,
                    message,
                    Some(id(operation)),
                ))
            }
            Some(asked) => Attempt::Asked(Box::new(asked)),
            None => Attempt::Done(failed(operation, text(&error))),
        },
        ErrorKind::DeniedByPolicy | ErrorKind::RejectedByPerson => {
            Attempt::Done(denied(operation, &error))
        }
        ErrorKind::Destroyed => Attempt::Broken(broken(operation, &error)),
        _ => Attempt::Done(failed(operation, told(operation, &error))),
    }
}

/// The event of an operation that a person refused.
pub(crate) fn rejected(operation: &Operation, reason: String) -> ProtocolEvent {
    ProtocolEvent::PolicyDenied {
        timestamp: Time::now(),
        operation_id: id(operation),
        operation_type: operation.operation_type(),
        reason,
        suggestion: None,
    }
}

/// The event of an operation that was interrupted by a crash or could not be performed.
pub(crate) fn failed(operation: &Operation, why: impl Into<String>) -> ProtocolEvent {
    let (timestamp, operation_id) = (Time::now(), id(operation));
    let (success, error) = (false, Some(why.into()));
    match operation {
        Operation::Message { .. } => ProtocolEvent::Message { timestamp, operation_id, success },
        Operation::CreateFile { path, .. } => ProtocolEvent::CreateFile {
            timestamp,
            operation_id,
            path: path.clone(),
            success,
            bytes_written: None,
            error,
        },
        Operation::ReadFile { path, .. } => ProtocolEvent::ReadFile {
            timestamp,
            operation_id,
            path: path.clone(),
            success,
            content: None,
            encoding: None,
            size: None,
            error,
        },
        Operation::EditFile { path, .. } => ProtocolEvent::EditFile {
            timestamp,
            operation_id,
            path: path.clone(),
            success,
            edits_applied: None,
            error,
        },
        Operation::DeleteFile { path, .. } => ProtocolEvent::DeleteFile {
            timestamp,
            operation_id,
            path: path.clone(),
            success,
            error,
        },
        Operation::Shell { command, .. } => ProtocolEvent::Shell {
            timestamp,
            operation_id,
            command: command.clone(),
            success,
            exit_code: None,
            stdout: None,
            stderr: None,
            duration_ms: None,
            timed_out: None,
            error,
        },
    }
}

pub(crate) fn id(operation: &Operation) -> String {
    operation.id().unwrap_or_default().to_owned()
}

fn denied(operation: &Operation, error: &Error) -> ProtocolEvent {
    // Remove the prefix, because the type of the event already says that this is a refusal.
    let reason = error.message().strip_prefix("refused: ").unwrap_or(error.message());
    ProtocolEvent::PolicyDenied {
        timestamp: Time::now(),
        operation_id: id(operation),
        operation_type: operation.operation_type(),
        reason: reason.to_owned(),
        suggestion: error.hint().map(str::to_owned),
    }
}

/// The event of a change that the policy document refuses. Judged before the file is read or found
/// missing, so that the event is the same whatever the file is.
fn denied_change(workspace: &SpaceWorkspace, operation: &Operation) -> Option<ProtocolEvent> {
    let (Operation::EditFile { path, .. } | Operation::DeleteFile { path, .. }) = operation else {
        return None;
    };
    let path = workspace.backend().parse_path(path.as_str()).ok()?;
    let access = PolicyDocumentFileAccess::Write;
    let hit = workspace.policy_document().judge_file(access, path.as_str(), None)?;
    Some(ProtocolEvent::PolicyDenied {
        timestamp: Time::now(),
        operation_id: id(operation),
        operation_type: operation.operation_type(),
        reason: format!("{} (rule {})", hit.reason, hit.rule),
        suggestion: Some(hit.suggestion),
    })
}

fn broken(operation: &Operation, error: &Error) -> ProtocolEvent {
    let message = format!("the workspace is not available: {}", error.message());
    ProtocolEvent::error(ErrorCategory::Execution, message, Some(id(operation)))
}

/// The working directory of a command with all links resolved. Resolves the links in the name of
/// the server and not of the operation, because the first call in the name of the operation writes
/// the operation's start record.
async fn directory(
    workspace: &SpaceWorkspace,
    operation: &Operation,
) -> Result<Option<String>, Error> {
    match operation {
        Operation::Shell { cwd: Some(cwd), .. } => {
            let backend = workspace.backend();
            let cwd = backend.parse_path(cwd.as_str())?;
            Ok(Some(backend.resolve_links(&cwd).await?.to_string()))
        }
        _ => Ok(None),
    }
}

/// Performs an operation. If it is a command, it runs in the directory `cwd`.
async fn perform(
    backend: &Backend,
    operation: &Operation,
    cwd: Option<String>,
    output: &(dyn Fn(OutputChannel, &[u8]) + Send + Sync),
) -> Result<ProtocolEvent, Error> {
    let operation_id = id(operation);
    let timestamp = Time::now;
    match operation {
        Operation::Message { .. } => {
            Ok(ProtocolEvent::Message { timestamp: timestamp(), operation_id, success: true })
        }
        Operation::CreateFile { path, content, encoding, overwrite, .. } => {
            let bytes = match encoding {
                ContentEncoding::Utf8 => Bytes::copy_from_slice(content.as_bytes()),
                ContentEncoding::Base64 => match STANDARD.decode(content) {
                    Ok(bytes) => bytes.into(),
                    Err(_) => return Ok(failed(operation, "the content is not base64")),
                },
            };
            let mode = if *overwrite { WriteMode::CreateOrReplace } else { WriteMode::CreateNew };
            let written = bytes.len() as u64;
            let options = WriteOptions { mode, ..WriteOptions::default() };
            backend.write_with(path.as_str(), WriteContent::from(bytes), options).await?;
            Ok(ProtocolEvent::CreateFile {
                timestamp: timestamp(),
                operation_id,
                path: path.clone(),
                success: true,
                bytes_written: Some(written),
                error: None,
            })
        }
        Operation::ReadFile { path, encoding, .. } => {
            let options =
                ReadOptions { max_bytes: MAX_FILE_BYTES as u64, ..ReadOptions::default() };
            let bytes = backend.read_with(path.as_str(), options).await?.bytes;
            let size = bytes.len() as u64;
            let content = match encoding {
                ContentEncoding::Base64 => STANDARD.encode(&bytes),
                ContentEncoding::Utf8 => match String::from_utf8(bytes.into()) {
                    Ok(text) => text,
                    Err(_) => {
                        let why = "the file is not UTF-8 text: read it with encoding base64";
                        return Ok(failed(operation, why));
                    }
                },
            };
            Ok(ProtocolEvent::ReadFile {
                timestamp: timestamp(),
                operation_id,
                path: path.clone(),
                success: true,
                content: Some(content),
                encoding: Some(*encoding),
                size: Some(size),
                error: None,
            })
        }
        Operation::EditFile { path, edits, .. } => {
            let replacements: Vec<Edit> = edits.iter().map(replacement).collect();
            backend.edit(path.as_str(), &replacements, EditOptions::default()).await?;
            Ok(ProtocolEvent::EditFile {
                timestamp: timestamp(),
                operation_id,
                path: path.clone(),
                success: true,
                edits_applied: Some(edits.len() as u64),
                error: None,
            })
        }
        Operation::DeleteFile { path, .. } => {
            let options = StatOptions { links: LinkHandling::NoFollow };
            if backend.stat_with(path.as_str(), options).await?.kind.is_dir() {
                return Ok(failed(operation, "Is a directory: deleteFile deletes files only"));
            }
            backend.rm(path.as_str(), RemoveOptions::default()).await?;
            Ok(ProtocolEvent::DeleteFile {
                timestamp: timestamp(),
                operation_id,
                path: path.clone(),
                success: true,
                error: None,
            })
        }
        Operation::Shell { command, timeout, env, .. } => {
            let options = ExecOptions {
                cwd,
                env: env.clone(),
                timeout: Some(Duration::from_millis(*timeout)),
                ..ExecOptions::default()
            };
            let began = Instant::now();
            let said = run(backend, command, options, output).await?;
            let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let timed_out = said.exit.cause == ExitCause::Timeout;
            let exit_code = if timed_out { TIMED_OUT } else { exit_code(&said.exit) };
            let error = match said.exit.cause {
                ExitCause::MemoryLimit => Some("the command needed more memory than its limit"),
                ExitCause::CpuLimit => Some("the command needed more CPU time than its limit"),
                ExitCause::FileSizeLimit => {
                    Some("the command wrote a file that is larger than its limit")
                }
                ExitCause::DroppedByCaller => Some("the command was ended with its run"),
                ExitCause::Exited | ExitCause::Timeout => None,
            };
            Ok(ProtocolEvent::Shell {
                timestamp: timestamp(),
                operation_id,
                command: command.clone(),
                success: said.exit.success() && said.exit.cause == ExitCause::Exited,
                exit_code: Some(exit_code),
                stdout: Some(said.stdout.into_text()),
                stderr: Some(said.stderr.into_text()),
                duration_ms: Some(duration_ms),
                timed_out: timed_out.then_some(true),
                error: error.map(str::to_owned),
            })
        }
    }
}

fn replacement(edit: &TextEdit) -> Edit {
    Edit::new(&edit.old_content, &edit.new_content).replace_first()
}

fn exit_code(exit: &ProcessExit) -> i32 {
    exit.code.or(exit.signal.map(|signal| 128 + signal)).unwrap_or(-1)
}

/// The output of a command that has ended, and its exit status.
struct Said {
    stdout: KeptOutput,
    stderr: KeptOutput,
    exit: ProcessExit,
}

/// The beginning of the output of one channel, and the total number of bytes.
#[derive(Default)]
struct KeptOutput {
    bytes: Vec<u8>,
    total: usize,
}

impl KeptOutput {
    fn add(&mut self, bytes: &[u8]) {
        let room = MAX_OUTPUT_BYTES - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.total += bytes.len();
    }

    fn into_text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.bytes).into_owned();
        if self.total > self.bytes.len() {
            let (kept, total) = (self.bytes.len(), self.total);
            text.push_str(&format!("\n[output truncated: the first {kept} of {total} bytes]\n"));
        }
        text
    }
}

async fn run(
    backend: &Backend,
    command: &str,
    options: ExecOptions,
    output: &(dyn Fn(OutputChannel, &[u8]) + Send + Sync),
) -> Result<Said, Error> {
    let request = backend.build_exec_request(Command::Shell(command.to_owned()), options)?;
    let mut process = backend.spawn(request).await?;
    let (mut stdout, mut stderr) = (KeptOutput::default(), KeptOutput::default());
    while let Some(chunk) = process.output.recv().await {
        match chunk.channel {
            OutputChannel::Stdout => stdout.add(&chunk.bytes),
            OutputChannel::Stderr => stderr.add(&chunk.bytes),
        }
        output(chunk.channel, &chunk.bytes);
    }
    match process.wait().await {
        Some(exit) => Ok(Said { stdout, stderr, exit }),
        None => Err(match process.exit_receiver().process_lost_error() {
            Some(why) => why.clone(),
            None => {
                Error::new(ab_core::ErrorCode::ExecError, ErrorKind::Io, "the process was lost")
            }
        }),
    }
}

/// The error text in the wording that clients of the protocol look for.
fn told(operation: &Operation, error: &Error) -> String {
    match error.kind() {
        ErrorKind::AlreadyExists => "File already exists".to_owned(),
        ErrorKind::NotFound if !matches!(operation, Operation::Shell { .. }) => {
            "File not found".to_owned()
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => match operation {
            Operation::Shell { cwd: Some(cwd), .. } => format!("cwd {cwd:?}: {}", text(error)),
            _ => text(error),
        },
        ErrorKind::PathEscape => "Path is outside workspace".to_owned(),
        ErrorKind::TextNotFound => match operation {
            Operation::EditFile { edits, .. } => not_found(edits, error),
            _ => text(error),
        },
        ErrorKind::TooLarge if matches!(operation, Operation::ReadFile { .. }) => {
            format!("the file is larger than {MAX_FILE_BYTES} bytes")
        }
        ErrorKind::Invalid if error.cause() == Some(ErrorCause::NotUtf8) => {
            "the file is not UTF-8 text, and edits are for text".to_owned()
        }
        _ => text(error),
    }
}

/// The error text for an edit whose old text was not found. It quotes that text.
fn not_found(edits: &[TextEdit], error: &Error) -> String {
    let [edit] = edits else { return text(error) };
    let mut quoted: String = edit.old_content.chars().take(QUOTED_CHARS).collect();
    if quoted.len() < edit.old_content.len() {
        quoted.push('…');
    }
    format!("Content not found: {quoted:?}")
}

fn text(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{}: {hint}", error.message()),
        None => error.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use ab_core::NoApprover;
    use ab_local::LocalWorkspaceConfig;
    use ab_policy::PolicyDocument;

    use super::*;

    /// The approval of an operation must not cover another command, directory or set of variables.
    #[tokio::test]
    async fn a_changed_operation_is_not_covered_by_the_yes() {
        let root = tempfile::tempdir().expect("a directory");
        let document = PolicyDocument::preset("standard").expect("a preset");
        let template = LocalWorkspaceConfig::new(root.path());
        let workspace = SpaceWorkspace::open_directory(
            root.path(),
            &template,
            document,
            BTreeMap::new(),
            Arc::new(NoApprover),
        )
        .expect("a space");
        let operation = Operation::Shell {
            id: Some("s".to_owned()),
            command: "rm -rf data".to_owned(),
            cwd: None,
            timeout: 30_000,
            env: BTreeMap::new(),
        };
        let context = OperationContext {
            workspace: &workspace,
            name: "run_1/0".to_owned(),
            operation: &operation,
            granted: Some("0".repeat(64)),
            output: &|_, _| {},
        };
        let start: StartRecord = Box::new(|| panic!("nothing may start"));
        let Attempt::Done(event) = attempt(context, start).await else { panic!("it is decided") };
        let is_policy =
            matches!(event, ProtocolEvent::Error { category: ErrorCategory::Policy, .. });
        assert!(is_policy, "{event:?}");
    }
}
