//! `task`: gives the server a task, and shows the session that works on it.

mod pack;
mod upload;

use std::path::{Path, PathBuf};
use std::{env, io};

use ab_api::{
    DeliveryMode, NetworkMode, RepoMode, RequestedAgent, RequestedAgents, RequestedDelivery,
    RequestedLimits, RequestedRepo, RequestedRuntime, RuntimeType, SessionBudget,
    TaskCreatedResponse, TaskRequest,
};
use ab_core::Error;
use agent_backend::ServeClient;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::input;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::follow::{self, Approve, FollowOptions};
use crate::server::ServerFlags;
use crate::terminal::{Format, Terminal, talk};

/// Fields of the request and the arguments that set them, for error messages.
const TYPED_FIELDS: [(&str, &str); 18] = [
    ("prompt", "PROMPT"),
    ("repo.url", "--repo"),
    ("repo.branch", "--branch"),
    ("projectId", "--project"),
    ("repo.template", "--template"),
    ("repo.uploadId", "--upload"),
    ("agent.type", "--agent"),
    ("delivery.mode", "--delivery"),
    ("runtime.network", "--network"),
    ("runtime.type", "--runtime"),
    ("keepOpen", "--keep"),
    ("agents.0.type", "--agent"),
    ("runtime.resources.cpu", "--cpu"),
    ("runtime.resources.memoryMiB", "--memory"),
    ("budget.turns", "--max-turns"),
    ("budget.wallSeconds", "--max-minutes"),
    ("budget.tokens", "--max-tokens"),
    ("budget.costUsd", "--max-cost"),
];

/// Maximum number of minutes in the budget of a task: 366 days.
const MAX_MINUTES: u64 = 366 * 24 * 60;

/// The agent of tasks that name none.
pub(super) const DEFAULT_AGENT: &str = "scripted";

const EXAMPLES: &str = "\
Examples:
  agent-backend task 'Fix the failing test' --agent claude --follow
  agent-backend task --agent goose --follow - < prompt.md
  agent-backend task 'Speed up the parser' --agent goose --agent codex --count 2
  agent-backend task 'Describe the build' --repo https://example.com/project.git
  agent-backend task 'Explain the crash' --upload . --attach core.log
  agent-backend task 'Add a changelog' --json | jq -r .sessionId

By default, the repository is the one that contains the current directory. The agent works on a copy
of its committed files. Ctrl-C with --follow stops the output, not the session.";

/// Give an agent a task on a repository
///
/// The server creates a session: the agent works in a sandbox, on a copy of the repository. The result
/// is a branch or a patch. `agent-backend serve` starts a server.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TaskCommand {
    /// The task for the agent; use '-' for standard input
    #[arg(value_name = "PROMPT")]
    prompt: String,

    /// Repository: a URL, or a path on the server
    #[arg(long, value_name = "PATH|URL")]
    repo: Option<String>,

    /// Start from a copy of this template of the server instead of a repository; the result is a patch
    #[arg(long, value_name = "NAME", conflicts_with_all = ["repo", "branch"])]
    template: Option<String>,

    /// Send this directory and work on its files; the result is a patch
    ///
    /// In a git repository, the tracked files are sent with their uncommitted changes, and also new files that are not
    /// ignored. Otherwise, all files are sent.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["repo", "branch", "template"])]
    upload: Option<PathBuf>,

    /// Send this file for the agent to read; can be repeated
    ///
    /// The file is not in the workspace and not in the result.
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,

    /// Agent for the task; scripted is built in and uses no model
    ///
    /// The scripted agent plays a script, to try out a server without a model. `agent-backend agent list` lists all agents.
    /// Repeat the flag to create a session for each agent.
    #[arg(long, default_value = DEFAULT_AGENT, value_name = "TYPE")]
    agent: Vec<String>,

    /// A setting of the agent; can be repeated
    ///
    /// VALUE is parsed as JSON. A VALUE that is not valid JSON is used as text. `agent-backend agent show AGENT` lists the settings.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, serde_json::Value)>,

    /// Number of sessions for each agent
    #[arg(long, default_value = "1", value_name = "N", value_parser = super::exec::amount::number(1..=16))]
    count: u32,

    /// Form of the result [default: branch; patch if there is no git repository]
    #[arg(long, value_enum, value_name = "MODE")]
    delivery: Option<Delivery>,

    /// Branch to start from. If there is no such branch, the result gets this name
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,

    /// Network of the agent [default: set by the server]
    #[arg(long, value_enum, value_name = "NETWORK")]
    network: Option<NetworkChoice>,

    /// Where the agent runs: in a sandbox, or without one if the server allows 'disabled'
    #[arg(long, value_enum, default_value = "local", value_name = "RUNTIME")]
    runtime: Runtime,

    /// The project that the session belongs to
    #[arg(long, value_name = "ID")]
    project: Option<String>,

    /// A label of the session, to filter lists by; can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,

    /// Keep the session open for further prompts
    #[arg(long)]
    keep: bool,

    /// Print events until the session ends
    #[arg(long, short)]
    follow: bool,

    /// How to answer questions of the agent, with --follow; without a terminal, 'ask' leaves them open
    #[arg(long, value_enum, default_value = "ask", value_name = "ANSWER", requires = "follow")]
    approve: Approve,

    /// Print JSON: an object with sessionId; with --follow, one event in each line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    bounds: TaskBounds,

    #[command(flatten)]
    server: ServerFlags,
}

/// Limits and the budget of the sessions of a task
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
struct TaskBounds {
    /// Number of processors of the session, such as 2 or 0.5
    #[arg(long, value_name = "N", value_parser = finite)]
    cpu: Option<f64>,

    /// Memory of the session, in MiB
    #[arg(long, value_name = "MIB", value_parser = super::exec::amount::any_count)]
    memory: Option<u64>,

    /// After this many turns, ask you before the agent continues
    #[arg(long, value_name = "N", value_parser = super::exec::amount::any_count)]
    max_turns: Option<u64>,

    /// After turns that took this many minutes together, ask you before the agent continues
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    max_minutes: Option<u64>,

    /// After this many tokens, ask you before the agent continues, if the agent reports tokens
    #[arg(long, value_name = "N", value_parser = super::exec::amount::any_count)]
    max_tokens: Option<u64>,

    /// After this many US dollars, ask you before the agent continues, if the agent reports the cost
    #[arg(long, value_name = "USD", value_parser = finite)]
    max_cost: Option<f64>,
}

/// Parses a number. `nan` and `inf` are refused: JSON has no such numbers, and they would mean that
/// there is no limit.
fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "must be a number, such as 2 or 0.5".to_owned())
}

/// Parses a number of minutes. The server checks it in seconds, so its message would not fit.
fn minutes(text: &str) -> Result<u64, String> {
    let minutes = text.parse().ok().filter(|minutes| (1..=MAX_MINUTES).contains(minutes));
    minutes.ok_or_else(|| format!("must be a whole number from 1 to {MAX_MINUTES}"))
}

impl TaskBounds {
    fn limits(&self) -> Option<RequestedLimits> {
        let limits = RequestedLimits { cpu: self.cpu, memory_mib: self.memory };
        (limits != RequestedLimits::default()).then_some(limits)
    }

    fn budget(&self) -> Option<SessionBudget> {
        let budget = SessionBudget {
            turns: self.max_turns,
            wall_seconds: self.max_minutes.map(|minutes| minutes.saturating_mul(60)),
            tokens: self.max_tokens,
            cost_usd: self.max_cost,
        };
        (budget != SessionBudget::default()).then_some(budget)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Delivery {
    /// A branch in the repository
    Branch,
    /// A patch, which `agent-backend session diff` downloads
    Patch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NetworkChoice {
    /// The network of the server's machine
    Shared,
    /// No network at all
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Runtime {
    /// In a sandbox
    Local,
    /// Without a sandbox: the agent can act as the user who runs the server
    Disabled,
}

impl TaskCommand {
    pub(crate) fn is_following(&self) -> bool {
        self.follow
    }

    fn request(&self, prompt: String) -> Result<TaskRequest, Failure> {
        let delivery = self.delivery.map(|delivery| RequestedDelivery {
            mode: match delivery {
                Delivery::Branch => DeliveryMode::Branch,
                Delivery::Patch => DeliveryMode::Patch,
            },
            target_branch: None,
        });
        let repo = match (&self.template, &self.upload) {
            (_, Some(_)) => RequestedRepo { mode: RepoMode::Upload, ..RequestedRepo::default() },
            (Some(name), None) => RequestedRepo {
                mode: RepoMode::None,
                template: Some(name.clone()),
                ..RequestedRepo::default()
            },
            (None, None) => RequestedRepo {
                url: Some(repository(self.repo.as_deref())?),
                branch: self.branch.clone(),
                ..RequestedRepo::default()
            },
        };
        let settings: serde_json::Map<_, _> = self.settings.iter().cloned().collect();
        let named = |kind: &String| RequestedAgent {
            kind: kind.clone(),
            settings: settings.clone(),
            ..RequestedAgent::default()
        };
        let (agent, agents) = match self.agent.as_slice() {
            [only] if self.count == 1 => (named(only), Vec::new()),
            several => {
                let entry = |kind| RequestedAgents { agent: named(kind), count: Some(self.count) };
                (RequestedAgent::default(), several.iter().map(entry).collect())
            }
        };
        if self.follow && !agents.is_empty() {
            return Err(Failure::usage("--follow shows one session, and this task makes several")
                .with_hint(
                    "leave it out, and compare them: agent-backend session compare SESSION",
                ));
        }
        Ok(TaskRequest {
            prompt,
            repo,
            runtime: Some(RequestedRuntime {
                kind: match self.runtime {
                    Runtime::Local => RuntimeType::Local,
                    Runtime::Disabled => RuntimeType::Disabled,
                },
                network: self.network.map(|network| match network {
                    NetworkChoice::Shared => NetworkMode::Shared,
                    NetworkChoice::None => NetworkMode::None,
                }),
                resources: self.bounds.limits(),
                ..RequestedRuntime::default()
            }),
            agent,
            agents,
            budget: self.bounds.budget(),
            delivery,
            keep_open: self.keep.then_some(true),
            project_id: self.project.clone(),
            labels: self.label.iter().cloned().collect(),
            ..TaskRequest::default()
        })
    }
}

impl TaskCommand {
    /// If the result of the task cannot be a branch, returns the directory to work on. This is the
    /// case if the user names no form of the result and the directory is not in a git repository.
    fn directory_without_git<'a>(&self, request: &'a TaskRequest) -> Option<&'a str> {
        let url = request.repo.url.as_deref()?;
        let directory = Path::new(url);
        let is_free = self.delivery.is_none() && self.branch.is_none();
        (is_free && directory.is_dir() && !is_in_git_repository(directory)).then_some(url)
    }
}

impl CliCommand for TaskCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn handles_signals(&self) -> bool {
        self.is_following()
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(task: TaskCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let prompt = prompt(&task.prompt, terminal).await?;
    let mut request = task.request(prompt)?;
    if let Some(directory) = task.directory_without_git(&request) {
        terminal.note(&format!("{directory} is not in a git repository: the result is a patch"));
        let mode = DeliveryMode::Patch;
        request.delivery = Some(RequestedDelivery { mode, target_branch: None });
    }
    let client = task.server.client()?;
    let (directory, files) = (task.upload.as_deref(), &task.attach);
    let sent = upload::add_uploads(&client, &mut request, directory, files, terminal).await?;
    let created = match client.create_task(&request).await {
        Ok(created) => created,
        Err(error) => {
            upload::remove(&client, &sent).await;
            return Err(by_flags(error, &task.server.repeated()).into());
        }
    };
    let follow = task.follow.then_some(task.approve);
    show_created(client, created, follow, &task.server.repeated(), terminal).await
}

/// Rewrites an error of the server: replaces the names of request fields by the arguments that set
/// these fields. `server_flags` are the flags with which a later command reaches the same server.
pub(super) fn by_flags(error: Error, server_flags: &str) -> Error {
    let mut text = error.message().to_owned();
    for (field, typed) in TYPED_FIELDS {
        // The name of a field is at the start of the message, or follows the message of another
        // field.
        let places =
            ["", "; ", ": "].into_iter().flat_map(|before| [(before, ": "), (before, " ")]);
        for (before, after) in places {
            let named = format!("{before}{field}{after}");
            let shown = format!("{before}{typed}{after}");
            if before.is_empty() && text.starts_with(&named) {
                text.replace_range(..named.len(), &shown);
            } else if !before.is_empty() {
                text = text.replace(&named, &shown);
            }
        }
    }
    let mut hint = error.hint().map(str::to_owned);
    if text.starts_with("--agent \"") {
        hint.get_or_insert(format!("list the agents: agent-backend remote agents{server_flags}"));
    }
    // The server says in a whole sentence why it cannot use an agent, with a command for its machine.
    if let Some(why) = text.strip_prefix("--agent cannot be used: ") {
        let parts = why.strip_suffix('`').and_then(|why| why.split_once(": run `"));
        match parts.filter(|(_, command)| !command.contains('`')) {
            Some((what, command)) => {
                hint.get_or_insert(format!("run this on the server's machine: {command}"));
                text = format!("{what} on the server");
            }
            None => text = why.to_owned(),
        }
    }
    let typed = Error::new(error.code(), error.kind(), text);
    match hint {
        Some(hint) => typed.with_hint(hint),
        None => typed,
    }
}

/// Parses `KEY=VALUE`. The value is JSON if it is valid JSON, otherwise a text.
fn setting(text: &str) -> Result<(String, serde_json::Value), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    let parsed = serde_json::from_str(value);
    Ok((key.to_owned(), parsed.unwrap_or_else(|_| serde_json::Value::from(value))))
}

fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

/// The text of a prompt. If `given` is `-`, the text is read from standard input.
///
/// # Errors
///
/// A usage error if the text is empty or not UTF-8.
pub(super) async fn prompt(given: &str, terminal: &mut Terminal) -> Result<String, Failure> {
    let text = if given == "-" {
        input::announce(&io::stdin(), terminal);
        let bytes = input::standard().await?;
        String::from_utf8(bytes).map_err(|_| Failure::usage("the prompt is not valid UTF-8"))?
    } else {
        given.to_owned()
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("the prompt is empty")
            .with_hint("describe the task: agent-backend task 'Fix the failing test'"));
    }
    Ok(text)
}

/// Prints the session that was created. If the caller said how to answer the agent's questions,
/// also follows the session.
pub(super) async fn show_created(
    client: ServeClient,
    created: TaskCreatedResponse,
    follow: Option<Approve>,
    server_flags: &str,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let id = created.id;
    let come_back = format!("agent-backend session events {id} --follow{server_flags}");
    let Some(approve) = follow else {
        return match terminal.format() {
            Format::Json => terminal.value(&json!({
                "sessionId": id,
                "sessionIds": created.session_ids,
                "status": created.status,
                "links": created.links,
            })),
            Format::Text => {
                for id in &created.session_ids {
                    terminal.line(&id.to_string())?;
                }
                if created.session_ids.len() > 1 {
                    terminal.note(&format!(
                        "compare them: agent-backend session compare {id}{server_flags}"
                    ));
                } else {
                    terminal.note(&format!("follow it: {come_back}"));
                }
                Ok(())
            }
        };
    };
    if terminal.format() == Format::Json {
        let session = json!({ "sessionId": id, "sessionIds": created.session_ids });
        terminal.line(&session.to_string())?;
        terminal.finish()?;
    }
    if terminal.format() == Format::Text {
        talk(&format!("session {id}\n"));
    }
    let server_flags_again = server_flags.to_owned();
    let options = FollowOptions {
        session: id,
        approve,
        logs_only: false,
        come_back,
        server_flags: server_flags_again,
    };
    let session = follow::follow(client, id, options, terminal).await?;
    follow::end(&session, server_flags, terminal)
}

/// The URL or path of the repository. A URL is returned unchanged. The path of a directory is made
/// absolute. If `named` is `None`, this is the repository that contains the current directory.
pub(super) fn repository(named: Option<&str>) -> Result<String, Failure> {
    let found = match named {
        Some(url) if is_address(url) => return Ok(url.to_owned()),
        Some(path) => absolute(Path::new(path))?,
        None => {
            let here = env::current_dir()
                .map_err(|error| Failure::input("find the current directory", error))?;
            let around = here.ancestors().find(|directory| directory.join(".git").exists());
            around.map(Path::to_path_buf).ok_or_else(|| {
                Failure::usage(format!("{} is not in a git repository", here.display()))
                    .with_hint("run it in a git repository, pass --repo PATH, or send this directory with --upload .")
            })?
        }
    };
    found.into_os_string().into_string().map_err(|path| {
        Failure::usage(format!("the path {} is not valid UTF-8", Path::new(&path).display()))
    })
}

/// Whether git would find a repository in this directory or above it.
fn is_in_git_repository(directory: &Path) -> bool {
    let is_bare = |path: &Path| path.join("HEAD").is_file() && path.join("objects").is_dir();
    directory.ancestors().any(|above| above.join(".git").exists() || is_bare(above))
}

/// Whether the text is a URL, or an address in the scp form `host:path`.
fn is_address(text: &str) -> bool {
    let before_slash = text.split('/').next().unwrap_or_default();
    before_slash.contains(':') && !Path::new(text).exists()
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize()
        .map_err(|error| Failure::input(format!("find the repository {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use ab_core::{ErrorCode, ErrorKind};

    use super::*;

    #[test]
    fn errors_name_what_was_typed() {
        for (said, shown) in [
            ("prompt: must not be empty", "PROMPT: must not be empty"),
            (
                "repo.url: is missing; agent.type: is unknown",
                "--repo: is missing; --agent: is unknown",
            ),
            ("invalid task: repo.branch: exists", "invalid task: --branch: exists"),
            ("the prompt: x", "the prompt: x"),
            (
                "prompt must not be empty; agent.type cannot be used",
                "PROMPT must not be empty; --agent cannot be used",
            ),
        ] {
            let code = ErrorCode::InvalidConfiguration;
            let error = Error::new(code, ErrorKind::Invalid, said).with_hint("h");
            let typed = by_flags(error, "");
            assert_eq!((typed.message(), typed.hint()), (shown, Some("h")));
        }
    }

    #[test]
    fn errors_about_agents_say_what_to_do() {
        for (said, shown, hint) in [
            (
                "agent.type \"x\" is unknown; known agents: a, b",
                "--agent \"x\" is unknown; known agents: a, b",
                Some("list the agents: agent-backend remote agents --server S"),
            ),
            (
                "agent.type cannot be used: agent \"a\" 1.0 is not installed: run `agent-backend agent install a`",
                "agent \"a\" 1.0 is not installed on the server",
                Some("run this on the server's machine: agent-backend agent install a"),
            ),
            (
                "agent.type cannot be used: agent \"a\" has no credential: set KEY",
                "agent \"a\" has no credential: set KEY",
                None,
            ),
        ] {
            let code = ErrorCode::NotImplemented;
            let typed = by_flags(Error::new(code, ErrorKind::Unsupported, said), " --server S");
            assert_eq!((typed.message(), typed.hint()), (shown, hint));
        }
    }

    #[test]
    fn bare_repositories_and_directories_in_repositories_are_recognized() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for name in ["work/.git", "work/src", "bare.git/objects", "plain/src"] {
            std::fs::create_dir_all(path.join(name)).unwrap();
        }
        std::fs::write(path.join("bare.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        for (name, expect) in
            [("work", true), ("work/src", true), ("bare.git", true), ("plain", false)]
        {
            assert_eq!(is_in_git_repository(&path.join(name)), expect, "{name}");
        }
    }

    #[test]
    fn addresses_are_told_from_paths() {
        for (text, expect) in [
            ("https://example.com/a.git", true),
            ("git@example.com:a/b.git", true),
            ("file:///srv/a", true),
            ("/srv/a", false),
            ("a/b:c", false),
            (".", false),
        ] {
            assert_eq!(is_address(text), expect, "{text}");
        }
    }

    #[test]
    fn a_directory_becomes_an_absolute_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let given = directory.path().join(".");
        assert_eq!(repository(given.to_str()).unwrap(), path.to_str().unwrap());
        assert!(repository(Some("no/such/directory")).is_err());
    }
}
