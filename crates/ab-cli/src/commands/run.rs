//! `run`: performs the operations in a file, in a local directory or in a space of a server.

mod there;
mod view;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_api::{ApprovalDecision, ApproveOrDeny, DecisionChannel, Run, RunId, SpaceId};
use ab_core::error::escape_unprintable;
use ab_core::process::OutputChannel;
use ab_core::{ApprovalAnswer, ApprovalRequest, Approver, NoApprover};
use ab_host::LocalExecSettings;
use ab_local::LocalWorkspaceConfig;
use ab_policy::PolicyDocument;
use ab_spaces::{
    EventsMessage, InvalidMessage, MessageStatus, Operation, OperationApprovalDecision,
    ProtocolEvent, RunObserver, SpaceWorkspace, ValidationIssue,
};
use async_trait::async_trait;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::there::{FollowedRun, follow, parsed};
use self::view::{OutputSource, RunView};
use super::{CliCommand, RunningCommand, input};
use crate::approver::TerminalApprover;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::follow::Approve;
use crate::server::ServerFlags;
use crate::terminal::{Format, Terminal};
use crate::toolchains;

/// Maximum number of problems of a file that are printed.
const MAX_SHOWN_ISSUES: usize = 20;

const EXAMPLES: &str = "\
Examples:
  agent-backend run operations.json --root ./project
  agent-backend run - --root . --policy permissive --json < operations.json
  agent-backend run operations.json --root . --approve never
  agent-backend run operations.json --space spc_01…
  agent-backend run resume run_01…

The file is JSON: a list of operations (protocol 1.0). For example:
  { \"protocolVersion\": \"1.0\", \"operations\": [
      { \"type\": \"createFile\", \"path\": \"hello.txt\", \"content\": \"hello\" },
      { \"type\": \"shell\", \"command\": \"cat hello.txt\" } ] }

Exit codes:
  0  every operation succeeded
  1  an operation failed
  2  the file is not valid
  3  an operation waits for approval";

/// The usage lines, written by hand. clap's own would not show that FILE needs `--root` or
/// `--space`: both flags are optional for clap, because the subcommands need neither.
const USAGE: &str = "\
agent-backend run [OPTIONS] <--root <DIR>|--space <SPACE>> <FILE>
       agent-backend run <COMMAND>";

/// Perform a list of operations in a directory or in a space
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, override_usage = USAGE)]
pub(crate) struct RunCommand {
    /// JSON file with the operations; use '-' for standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Directory to work in, without a server
    #[arg(long, value_name = "DIR", conflicts_with = "space")]
    root: Option<PathBuf>,

    /// Space of the server to work in; `agent-backend space list` lists them
    ///
    /// A space is a set of files on the server, with a policy that decides which operations are allowed.
    #[arg(long, value_name = "SPACE")]
    space: Option<SpaceId>,

    /// Policy for --root: restrictive, standard, permissive, or a JSON file [default: standard]
    ///
    /// restrictive: files can only be read, and no commands run. standard: files can be changed, common commands such as
    /// cat and npm run without network, and rm -r needs an approval. permissive: all commands except sudo run, with
    /// network, and rm -r, chmod and chown need an approval. A space has its own policy.
    #[arg(long, value_name = "POLICY", conflicts_with = "space")]
    policy: Option<String>,

    /// How to answer approvals
    ///
    /// 'ask' asks only at a terminal, and not with --json. If it cannot ask, the first operation that needs an approval
    /// ends the command with exit code 3. With --root, the remaining operations are not performed. In a space, the run
    /// waits for an answer.
    #[arg(long, value_enum, default_value = "ask")]
    approve: Approve,

    /// Print one JSON value at the end, with the events of all operations
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,

    #[command(subcommand)]
    action: Option<RunAction>,
}

#[derive(Debug, Subcommand)]
enum RunAction {
    /// Show a run and its events
    Show {
        /// ID of the run
        run: RunId,
    },
    /// Approve or deny the operation that a run waits for
    Resume {
        /// ID of the run
        run: RunId,
        /// Deny the operation instead of approving it
        #[arg(long)]
        deny: bool,
        /// Reason for the decision, which is stored
        #[arg(long)]
        reason: Option<String>,
    },
    /// Cancel a run
    Cancel {
        /// ID of the run
        run: RunId,
    },
}

impl CliCommand for RunCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn handles_signals(&self) -> bool {
        // For a run on a server, Ctrl-C only ends the command. The run continues.
        self.root.is_none() && !matches!(self.action, Some(RunAction::Show { .. }))
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(command: RunCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    if let Some(action) = &command.action {
        return act(&command, action, terminal).await;
    }
    let Some(file) = &command.file else {
        return Err(Failure::usage("missing argument FILE")
            .with_hint("name a file, or '-' for standard input"));
    };
    match (&command.root, command.space) {
        (Some(root), _) => run_here(&command, file, root, terminal).await,
        (None, Some(space)) => run_there(&command, file, space, terminal).await,
        (None, None) => Err(Failure::usage("missing --root or --space")
            .with_hint("name a directory with --root, or a space of the server with --space")),
    }
}

/// Runs the operations in this process.
async fn run_here(
    command: &RunCommand,
    file: &Path,
    root: &Path,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let document = document(command.policy.as_deref().unwrap_or("standard"))?;
    let bytes = message(file, terminal).await?;
    if terminal.format() == Format::Text {
        // As JSON, an invalid message is answered with an events message.
        ab_spaces::parse_operations_bytes(&bytes).map_err(|invalid| not_valid(file, &invalid))?;
    }
    let mut template = LocalWorkspaceConfig::new(root);
    template.options.exec = LocalExecSettings {
        toolchains: toolchains::chosen(&[]).map_err(Failure::usage)?,
        temporary_dir: crate::workspace::temporary_dir(),
        ..LocalExecSettings::default()
    };
    let env = BTreeMap::new();
    let workspace =
        SpaceWorkspace::open_directory(root, &template, document, env, Arc::new(NoApprover))?;
    let format = terminal.format();
    let observer = TerminalObserver {
        approve: command.approve,
        approver: TerminalApprover::new(format),
        printer: Mutex::new(Printer {
            terminal,
            view: None,
            current: String::new(),
            failure: None,
        }),
        format,
    };
    let message = ab_spaces::run_operations_message(&workspace, &bytes, &observer).await;
    let failure = observer.lock().failure.take();
    drop(observer);
    workspace.backend().destroy().await?;
    let printed = match (failure, format) {
        (Some(failure), _) => Err(failure),
        (None, Format::Json) => terminal.value(&json!(message)).and_then(|()| terminal.finish()),
        (None, Format::Text) => Ok(()),
    };
    ignore_closed_pipe(printed)?;
    if message.status == MessageStatus::AwaitingApproval {
        let why = match format {
            Format::Json => "with --json, no question is asked",
            Format::Text => "there is no terminal to ask at",
        };
        terminal.note(&format!(
            "an operation needs an approval, and {why}: run it again with --approve always or --approve never, or \
             in a space with --space, where a person can decide later"
        ));
    }
    outcome(&message)
}

/// Runs the operations in a space of the server.
async fn run_there(
    command: &RunCommand,
    file: &Path,
    space: SpaceId,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = command.server.client()?;
    let bytes = message(file, terminal).await?;
    let parsed =
        ab_spaces::parse_operations_bytes(&bytes).map_err(|invalid| not_valid(file, &invalid))?;
    // Send the operations with the ids that this process assigned, so that this process can match
    // events with operations.
    let run = client.start_run(space, &json!(parsed)).await?;
    let followed = FollowedRun {
        client: &client,
        run: run.id,
        space,
        after: None,
        operations: parsed.operations,
        approve: command.approve,
        server_flags: &command.server.repeated(),
    };
    let message = follow(followed, terminal).await?;
    if terminal.format() == Format::Json {
        ignore_closed_pipe(terminal.value(&json!(message)))?;
    }
    outcome(&message)
}

async fn act(
    command: &RunCommand,
    action: &RunAction,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = command.server.client()?;
    let shown = match action {
        RunAction::Show { run } | RunAction::Resume { run, .. } => {
            client.send_request("GET", &format!("/v1/runs/{run}?operations=true"), None).await?
        }
        RunAction::Cancel { run } => {
            client.send_request("POST", &format!("/v1/runs/{run}/cancel"), None).await?
        }
    };
    let data = &shown["data"];
    let run: Run = parsed(data)?;
    let operations: Vec<Operation> = match data.get("operations") {
        Some(operations) => parsed(operations)?,
        None => Vec::new(),
    };
    if let RunAction::Resume { deny, reason, .. } = action {
        let choice = if *deny { ApproveOrDeny::Deny } else { ApproveOrDeny::Approve };
        let via = Some(DecisionChannel::Cli);
        let decision = ApprovalDecision { reason: reason.clone(), via, ..choice.into() };
        return resume(command, &run, operations, decision, terminal).await;
    }
    if terminal.format() == Format::Json {
        return terminal.value(data);
    }
    let events = data["events"].as_array().into_iter().flatten().map(parsed);
    let events: Vec<ProtocolEvent> = events.collect::<Result<_, _>>()?;
    let unperformed =
        if run.status.is_terminal() { view::unperformed(&operations, &events) } else { Vec::new() };
    let mut view = RunView::new(OutputSource::Server, operations);
    let shown = events.iter().flat_map(|event| view.event(event));
    for line in shown.collect::<Vec<_>>().into_iter().chain(unperformed) {
        terminal.line(&line)?;
    }
    terminal.line(run.status.as_str())
}

/// Makes the decision for which a run waits, and then follows the run.
async fn resume(
    command: &RunCommand,
    run: &Run,
    operations: Vec<Operation>,
    decision: ApprovalDecision,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let Some(pending) = &run.pending_approval else {
        let status = run.status.as_str();
        return Err(Failure::usage(format!("the run waits for no approval: it is {status}")));
    };
    let client = command.server.client()?;
    client.decide_approval(pending.approval_id, &decision).await?;
    let followed = FollowedRun {
        client: &client,
        run: run.id,
        space: run.space_id,
        after: Some(pending.approval_id),
        operations,
        approve: command.approve,
        server_flags: &command.server.repeated(),
    };
    let message = follow(followed, terminal).await?;
    let printed = match terminal.format() {
        Format::Json => terminal.value(&json!(message)),
        Format::Text => {
            let status = json!(message.status);
            terminal.line(status.as_str().unwrap_or_default())
        }
    };
    ignore_closed_pipe(printed)?;
    outcome(&message)
}

/// The value of the member `policy` in a request: a preset, or the document in a file.
pub(super) fn policy_value(policy: &str) -> Result<Value, Failure> {
    match PolicyDocument::preset(policy) {
        Some(_) => Ok(json!(policy)),
        None => Ok(json!(document(policy)?)),
    }
}

/// Reads a policy document. `policy` is the name of a preset or the path of a file.
fn document(policy: &str) -> Result<PolicyDocument, Failure> {
    if let Some(document) = PolicyDocument::preset(policy) {
        return Ok(document);
    }
    let presets = PolicyDocument::PRESETS.join(", ");
    let hint = format!("name a preset ({presets}) or a JSON file");
    let bytes = input::file(Path::new(policy)).map_err(|failure| failure.with_hint(&hint))?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::usage(format!("{policy} is not JSON: {error}")))?;
    PolicyDocument::resolve(Some(&value), None).map_err(|issues| {
        let issues: Vec<String> =
            issues.iter().map(|issue| format!("{} {}", issue.pointer, issue.message)).collect();
        Failure::usage(format!("invalid policy in {policy}: {}", issues.join("; ")))
    })
}

async fn message(file: &Path, terminal: &mut Terminal) -> Result<Vec<u8>, Failure> {
    if file == Path::new("-") {
        input::announce(&io::stdin(), terminal);
        return input::standard().await;
    }
    input::file(file)
}

/// The failure for a file with an invalid message. It has one line for each of the first problems.
fn not_valid(file: &Path, invalid: &InvalidMessage) -> Failure {
    let name = match file.to_string_lossy() {
        name if name == "-" => "standard input".to_owned(),
        name => escape_unprintable(&name),
    };
    let mut text = format!("{name} is not valid:");
    for ValidationIssue { pointer, message } in invalid.issues.iter().take(MAX_SHOWN_ISSUES) {
        let place = place(pointer);
        let message = escape_unprintable(message);
        text.push_str(&if place.is_empty() {
            format!("\n  the content {message}")
        } else {
            format!("\n  {place}: {message}")
        });
    }
    let rest = invalid.issues.len().saturating_sub(MAX_SHOWN_ISSUES);
    if rest > 0 {
        text.push_str(&format!("\n  and {rest} more"));
    }
    Failure::usage(text).with_hint("show an example: agent-backend run --help")
}

/// Converts a JSON pointer to the notation of JavaScript: `/operations/0/path` to
/// `operations[0].path`. A user could mistake a JSON pointer for the path of a file.
fn place(pointer: &str) -> String {
    let mut place = String::new();
    for part in pointer.split('/').skip(1) {
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            place.push_str(&format!("[{part}]"));
        } else {
            let dot = if place.is_empty() { "" } else { "." };
            let part = part.replace("~1", "/").replace("~0", "~");
            place.push_str(&format!("{dot}{}", escape_unprintable(&part)));
        }
    }
    place
}

/// Ignores that the reader of standard output has closed the pipe. The exit code of a run says what
/// became of its operations, whether or not they were printed.
fn ignore_closed_pipe(printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(Failure::ClosedPipe) => Ok(()),
        printed => printed,
    }
}

fn outcome(message: &EventsMessage) -> Result<(), Failure> {
    let failed = message.events.iter().any(|event| event.success() == Some(false));
    match message.status {
        MessageStatus::Completed if !failed => Ok(()),
        MessageStatus::Completed => Err(Failure::Told(Exit::Failed)),
        MessageStatus::AwaitingApproval => Err(Failure::Told(Exit::Refused)),
        MessageStatus::Error => {
            let is_invalid = message.events.iter().any(|event| {
                let validation = ab_spaces::ErrorCategory::Validation;
                matches!(event, ProtocolEvent::Error { category, .. } if *category == validation)
            });
            Err(Failure::Told(if is_invalid { Exit::Usage } else { Exit::Failed }))
        }
    }
}

/// Prints events as they happen, and asks the person at the terminal.
struct TerminalObserver<'a> {
    approve: Approve,
    approver: TerminalApprover,
    printer: Mutex<Printer<'a>>,
    format: Format,
}

struct Printer<'a> {
    terminal: &'a mut Terminal,
    view: Option<RunView>,
    /// The operation that is performed.
    current: String,
    failure: Option<Failure>,
}

impl Printer<'_> {
    /// Prints the lines that `shown` returns for the current operation.
    fn show(&mut self, shown: impl FnOnce(&mut RunView, &str) -> Vec<String>) {
        let view = self.view.get_or_insert_with(|| RunView::new(OutputSource::Process, Vec::new()));
        for line in shown(view, &self.current) {
            if self.failure.is_none() {
                let written = self.terminal.line(&line).and_then(|()| self.terminal.finish());
                self.failure = written.err();
            }
        }
    }
}

impl<'a> TerminalObserver<'a> {
    fn lock(&self) -> MutexGuard<'_, Printer<'a>> {
        self.printer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, shown: impl FnOnce(&mut RunView, &str) -> Vec<String>) {
        if self.format == Format::Text {
            self.lock().show(shown);
        }
    }
}

#[async_trait]
impl RunObserver for TerminalObserver<'_> {
    fn on_operation(&self, operation: &Operation) {
        let mut printer = self.lock();
        printer.current = operation.id().unwrap_or_default().to_owned();
        printer.view = Some(RunView::new(OutputSource::Process, vec![operation.clone()]));
        drop(printer);
        self.show(|view, id| view.begin(id));
    }

    fn on_output(&self, channel: OutputChannel, bytes: &[u8]) {
        self.show(|view, id| view.output(id, channel, bytes));
    }

    fn on_event(&self, event: &ProtocolEvent) {
        self.show(|view, _| view.event(event));
    }

    async fn decide_approval(
        &self,
        _: &Operation,
        asked: &ApprovalRequest,
    ) -> OperationApprovalDecision {
        match self.approve {
            Approve::Always => OperationApprovalDecision::Approve,
            Approve::Never => {
                OperationApprovalDecision::Deny(format!("{} (--approve never)", asked.rule.reason))
            }
            Approve::Ask if !io::stdin().is_terminal() => OperationApprovalDecision::LeavePending,
            Approve::Ask => match self.approver.ask(asked).await {
                ApprovalAnswer::Yes(_) => OperationApprovalDecision::Approve,
                ApprovalAnswer::No(by, why) if why.is_empty() => {
                    OperationApprovalDecision::Deny(format!("not approved by {by}"))
                }
                ApprovalAnswer::No(_, why) => OperationApprovalDecision::Deny(why),
                ApprovalAnswer::Pending(_) | ApprovalAnswer::NoPersonAvailable => {
                    OperationApprovalDecision::LeavePending
                }
            },
        }
    }
}
