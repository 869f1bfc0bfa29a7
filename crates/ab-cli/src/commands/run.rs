//! `run`: performs the operations of a file, in a directory or in a space of a server.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_api::{RunId, SpaceId};
use ab_core::error::escape_unprintable;
use ab_core::process::OutputChannel;
use ab_core::{ApprovalAnswer, ApprovalRequest, Approver, NoApprover};
use ab_host::ExecSettings;
use ab_local::LocalWorkspaceConfig;
use ab_policy::PolicyDocument;
use ab_spaces::{
    EventsMessage, MessageStatus, Operation, OperationDecision, ProtocolEvent, RunObserver,
    SpaceWorkspace,
};
use async_trait::async_trait;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::space::text;
use super::{CliCommand, RunningCommand, input};
use crate::approver::TerminalApprover;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::server::ServerFlags;
use crate::terminal::{Format, Terminal};
use crate::toolchains;

const EXAMPLES: &str = "\
Examples:
  agent-backend run operations.json --root ./project
  agent-backend run - --root . --policy permissive --json < operations.json
  agent-backend run operations.json --root . --approve never
  agent-backend run operations.json --space spc_01…
  agent-backend run resume run_01…

The file holds an operations message of the protocol 1.0, see docs/protocol.md. Exits with 0 if every
operation succeeded, 1 if one failed, 2 for a message that is not valid, and 3 if an operation still
waits for an approval.";

/// Perform the operations of a message in a directory, or in a space of a server
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct RunCommand {
    /// The operations message; - is standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// The directory in which the operations are performed, in this process
    #[arg(long, value_name = "DIR", conflicts_with = "space")]
    root: Option<PathBuf>,

    /// The space of the server in which the operations are performed
    #[arg(long, value_name = "SPACE")]
    space: Option<SpaceId>,

    /// A preset (restrictive, standard, permissive), or a JSON file with a policy document; for --root
    #[arg(long, value_name = "POLICY", default_value = "standard")]
    policy: String,

    /// What becomes of operations that need an approval
    #[arg(long, value_enum, default_value = "ask")]
    approve: Approve,

    /// Print the events message as JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,

    #[command(subcommand)]
    action: Option<RunAction>,
}

#[derive(Debug, Subcommand)]
enum RunAction {
    /// Show a run of a server with its events
    Show { run: RunId },
    /// Decide the operation that a run waits with, and wait for what follows
    Resume {
        run: RunId,
        /// Deny it instead of approving it
        #[arg(long)]
        deny: bool,
        /// Why, for the record
        #[arg(long)]
        reason: Option<String>,
    },
    /// Cancel a run
    Cancel { run: RunId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Approve {
    /// Ask at the terminal; without one the run ends and says what it waits for
    Ask,
    /// Approve everything that the policy asks about
    Always,
    /// Deny everything that the policy asks about
    Never,
}

impl CliCommand for RunCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(command: RunCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    if let Some(action) = &command.action {
        return act(&command.server, action, terminal).await;
    }
    let Some(file) = &command.file else {
        return Err(
            Failure::usage("no file is named").with_hint("name a file, or - for standard input")
        );
    };
    match (&command.root, command.space) {
        (Some(root), _) => run_here(&command, file, root, terminal).await,
        (None, Some(space)) => run_there(&command, file, space, terminal).await,
        (None, None) => Err(Failure::usage("neither a directory nor a space is named").with_hint(
            "name a directory with --root DIR, or a space of the server with --space ID",
        )),
    }
}

/// Runs the operations in this process.
async fn run_here(
    command: &RunCommand,
    file: &Path,
    root: &Path,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let document = document(&command.policy)?;
    let bytes = message(file, terminal).await?;
    let mut template = LocalWorkspaceConfig::new(root);
    template.options.exec = ExecSettings {
        toolchains: toolchains::chosen(&[]).map_err(Failure::usage)?,
        temporary_dir: crate::workspace::temporary_dir(),
        ..ExecSettings::default()
    };
    let env = BTreeMap::new();
    let workspace =
        SpaceWorkspace::open_directory(root, &template, document, env, Arc::new(NoApprover))?;
    let format = terminal.format();
    let observer = TerminalObserver {
        approve: command.approve,
        approver: TerminalApprover::new(format),
        printer: Mutex::new(Printer { terminal, failure: None }),
        format,
    };
    let message = ab_spaces::run_message(&workspace, &bytes, &observer).await;
    let failure = observer.lock().failure.take();
    drop(observer);
    workspace.backend().destroy().await?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    if format == Format::Json {
        terminal.value(&json!(message))?;
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
    let body: Value = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::usage(format!("the message is not JSON: {error}")))?;
    let path = format!("/v1/spaces/{space}/runs");
    let mut answer = client.call("POST", &path, Some(&body)).await?;
    loop {
        let message: EventsMessage = parsed(&answer["data"])?;
        if terminal.format() == Format::Text {
            for event in &message.events {
                show(terminal, event)?;
            }
        }
        let waiting = message.events.iter().rev().find_map(|event| match event {
            ProtocolEvent::ApprovalRequired { operation_id, .. } => Some(operation_id.clone()),
            _ => None,
        });
        let decision = match (message.status, waiting, command.approve) {
            (MessageStatus::AwaitingApproval, Some(id), Approve::Always) => (id, "approved"),
            (MessageStatus::AwaitingApproval, Some(id), Approve::Never) => (id, "denied"),
            _ => {
                if terminal.format() == Format::Json {
                    terminal.value(&answer["data"])?;
                }
                return outcome(&message);
            }
        };
        let (id, run) = (decision.0, message.run_id);
        let body = json!({ "approval": { "operationId": id, "decision": decision.1 } });
        answer = client.call("POST", &format!("/v1/runs/{run}/resume"), Some(&body)).await?;
    }
}

async fn act(
    server: &ServerFlags,
    action: &RunAction,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = server.client()?;
    let answer = match action {
        RunAction::Show { run } => client.call("GET", &format!("/v1/runs/{run}"), None).await?,
        RunAction::Cancel { run } => {
            client.call("POST", &format!("/v1/runs/{run}/cancel"), None).await?
        }
        RunAction::Resume { run, deny, reason } => {
            let shown = client.call("GET", &format!("/v1/runs/{run}"), None).await?;
            let id = &shown["data"]["pendingApproval"]["operationId"];
            let Some(id) = id.as_str() else {
                let status = text(&shown["data"]["status"]);
                let message = format!("the run waits for no approval: it is {status}");
                return Err(Failure::usage(message));
            };
            let decision = if *deny { "denied" } else { "approved" };
            let body = json!({
                "approval": { "operationId": id, "decision": decision, "reason": reason }
            });
            client.call("POST", &format!("/v1/runs/{run}/resume"), Some(&body)).await?
        }
    };
    let data = &answer["data"];
    match terminal.format() {
        Format::Json => terminal.value(data),
        Format::Text => {
            for event in data["events"].as_array().into_iter().flatten() {
                show(terminal, &parsed(event)?)?;
            }
            terminal.line(&text(&data["status"]))
        }
    }
}

fn parsed<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, Failure> {
    serde_json::from_value(value.clone())
        .map_err(|error| Failure::usage(format!("the server sent an unknown event: {error}")))
}

/// Prints an event of a run on a server: commands with their output, other operations as one line.
fn show(terminal: &mut Terminal, event: &ProtocolEvent) -> Result<(), Failure> {
    if let ProtocolEvent::Shell { command, stdout, stderr, .. } = event {
        terminal.line(&format!("$ {}", escape_unprintable(command)))?;
        for output in [stdout, stderr].into_iter().flatten() {
            for line in output.lines() {
                terminal.line(&format!("  {}", escape_unprintable(line)))?;
            }
        }
    }
    match ended(event) {
        Some(line) => terminal.line(&line),
        None => Ok(()),
    }
}

/// The member `policy` of a request: a preset, or the document in a file.
pub(super) fn policy_value(policy: &str) -> Result<Value, Failure> {
    match PolicyDocument::preset(policy) {
        Some(_) => Ok(json!(policy)),
        None => Ok(json!(document(policy)?)),
    }
}

/// A preset, or the document in a file.
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
    failure: Option<Failure>,
}

impl Printer<'_> {
    fn line(&mut self, text: &str) {
        if self.failure.is_none() {
            let written = self.terminal.line(text).and_then(|()| self.terminal.finish());
            self.failure = written.err();
        }
    }
}

impl<'a> TerminalObserver<'a> {
    fn lock(&self) -> MutexGuard<'_, Printer<'a>> {
        self.printer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, text: &str) {
        if self.format == Format::Text {
            self.lock().line(text);
        }
    }
}

#[async_trait]
impl RunObserver for TerminalObserver<'_> {
    fn on_operation(&self, operation: &Operation) {
        if let Some(text) = begun(operation) {
            self.say(&text);
        }
    }

    fn on_output(&self, _: OutputChannel, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        for line in text.lines() {
            self.say(&format!("  {}", escape_unprintable(line)));
        }
    }

    fn on_event(&self, event: &ProtocolEvent) {
        if let Some(text) = ended(event) {
            self.say(&text);
        }
    }

    async fn decide(&self, _: &Operation, asked: &ApprovalRequest) -> OperationDecision {
        match self.approve {
            Approve::Always => OperationDecision::Approve,
            Approve::Never => {
                OperationDecision::Deny(format!("{} (--approve never)", asked.rule.reason))
            }
            Approve::Ask if !io::stdin().is_terminal() => OperationDecision::Leave,
            Approve::Ask => match self.approver.ask(asked).await {
                ApprovalAnswer::Yes(_) => OperationDecision::Approve,
                ApprovalAnswer::No(by, why) if why.is_empty() => {
                    OperationDecision::Deny(format!("not approved by {by}"))
                }
                ApprovalAnswer::No(_, why) => OperationDecision::Deny(why),
                ApprovalAnswer::Later(_) | ApprovalAnswer::Nobody => OperationDecision::Leave,
            },
        }
    }
}

/// The line before an operation. Nothing in it can move the cursor.
fn begun(operation: &Operation) -> Option<String> {
    match operation {
        Operation::Message { content, .. } => Some(format!("# {}", escape_unprintable(content))),
        Operation::Shell { command, .. } => Some(format!("$ {}", escape_unprintable(command))),
        Operation::EditFile { path, edits, .. } => {
            let mut text = format!("~ {}", escape_unprintable(path));
            for edit in edits {
                for line in edit.old_content.lines() {
                    text.push_str(&format!("\n  - {}", escape_unprintable(line)));
                }
                for line in edit.new_content.lines() {
                    text.push_str(&format!("\n  + {}", escape_unprintable(line)));
                }
            }
            Some(text)
        }
        Operation::CreateFile { .. }
        | Operation::ReadFile { .. }
        | Operation::DeleteFile { .. } => None,
    }
}

/// The line after an operation.
fn ended(event: &ProtocolEvent) -> Option<String> {
    let failed = |what: String, error: &Option<String>| {
        let why = error.as_deref().unwrap_or("failed");
        Some(format!("{what}: {}", escape_unprintable(why)))
    };
    match event {
        ProtocolEvent::Message { .. } => None,
        ProtocolEvent::CreateFile { path, bytes_written: Some(bytes), .. } => {
            Some(format!("+ {} ({bytes} bytes)", escape_unprintable(path)))
        }
        ProtocolEvent::ReadFile { path, size: Some(bytes), .. } => {
            Some(format!("= {} ({bytes} bytes)", escape_unprintable(path)))
        }
        ProtocolEvent::EditFile { success: true, .. } => None,
        ProtocolEvent::DeleteFile { path, success: true, .. } => {
            Some(format!("- {}", escape_unprintable(path)))
        }
        ProtocolEvent::CreateFile { path, error, .. }
        | ProtocolEvent::ReadFile { path, error, .. }
        | ProtocolEvent::EditFile { path, error, .. }
        | ProtocolEvent::DeleteFile { path, error, .. } => {
            failed(format!("! {}", escape_unprintable(path)), error)
        }
        ProtocolEvent::Shell { success: true, .. } => None,
        ProtocolEvent::Shell { timed_out: Some(true), duration_ms, .. } => {
            Some(format!("! timed out after {} ms", duration_ms.unwrap_or_default()))
        }
        ProtocolEvent::Shell { exit_code: Some(code), .. } => Some(format!("! exit code {code}")),
        ProtocolEvent::Shell { error, .. } => failed("!".to_owned(), error),
        ProtocolEvent::ApprovalRequired { reason, details, .. } => {
            let command = escape_unprintable(details.command.as_deref().unwrap_or_default());
            Some(format!("? waits for approval: {command}: {}", escape_unprintable(reason)))
        }
        ProtocolEvent::PolicyDenied { reason, suggestion, .. } => {
            let hint = suggestion.as_deref().map(|it| format!("; {it}")).unwrap_or_default();
            Some(format!("! denied: {}", escape_unprintable(&format!("{reason}{hint}"))))
        }
        ProtocolEvent::Error { message, .. } => {
            Some(format!("! error: {}", escape_unprintable(message)))
        }
    }
}
