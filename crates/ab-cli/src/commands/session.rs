//! `session`: shows and controls the sessions of a server.

mod audit;
mod compare;
mod ide;
mod prompts;

use ab_api::{
    ContinueRequest, EnforcedLimits, PromptEdit, PromptRequest, Session, SessionId, SessionStatus,
    Time,
};
use agent_backend::ServeClient;
use agent_backend::serve_client::SessionQuery;
use clap::{Args, Subcommand};
use serde_json::json;

use super::task;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::follow::{self, Approve, FollowOptions, View, lines};
use crate::server::ServerFlags;
use crate::session_ref::SessionRef;
use crate::terminal::{Format, Terminal};

/// Maximum number of characters of a prompt in a table.
const MAX_PROMPT: usize = 48;

/// Show, continue and end sessions of the server
///
/// A session is the run of one task by one agent. `agent-backend task` starts one.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct SessionCommand {
    #[command(subcommand)]
    act: SessionAct,

    /// Print JSON; for events, logs and the audit, one value in each line
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Subcommand)]
enum SessionAct {
    /// List sessions, the newest first
    #[command(alias = "ls")]
    List(ListSessions),
    /// Show one session
    Get(OneSession),
    /// Show the events of a session
    Events(SessionEvents),
    /// Show the log of a session
    Logs(SessionLogs),
    /// Show who did what to a session, and which tools of the server its agent used
    Audit(OneSession),
    /// Print the changes of a session as a unified diff
    Diff(DiffSession),
    /// Show sessions side by side: their agents, results and changed files
    Compare(CompareSessions),
    /// Start a new session in the workspace of a stopped or failed one
    Continue(ContinueSession),
    /// Send another prompt to the agent of a session
    Prompt(PromptSession),
    /// List the prompts of a session and their state
    Prompts(OneSession),
    /// Remove a prompt from the queue
    Withdraw(WithdrawPrompt),
    /// Complete a session that waits for a prompt, and deliver its result
    Finish(OneSession),
    /// Open the workspace of a session in an IDE, or run a program in it
    ///
    /// The program runs on this machine, without a sandbox and as you.
    Run(ide::RunSession),
    /// Freeze the processes of a running session
    Pause(OneSession),
    /// Resume a paused session
    Resume(OneSession),
    /// Ask the agent to stop early; nothing is delivered, and the workspace is kept
    Stop(OneSession),
    /// End a session at once and remove its workspace
    Cancel(OneSession),
}

#[derive(Args, Debug)]
struct ListSessions {
    /// Only sessions with this status
    #[arg(long, value_name = "STATUS")]
    status: Option<SessionStatus>,

    /// Only sessions of this agent
    #[arg(long, value_name = "TYPE")]
    agent: Option<String>,

    /// Only sessions of this project
    #[arg(long, value_name = "ID")]
    project: Option<String>,

    /// Only sessions with this repository, written as in their task
    #[arg(long, value_name = "PATH|URL")]
    repo: Option<String>,

    /// Only sessions with this label
    #[arg(long, value_name = "NAME=VALUE", value_parser = label_filter)]
    label: Option<String>,

    /// Number of the page
    #[arg(long, default_value = "1", value_name = "N", value_parser = super::exec::amount::number(1..=u32::MAX))]
    page: u32,

    /// Number of sessions on a page
    #[arg(long, default_value = "20", value_name = "N", value_parser = super::exec::amount::number(1..=200))]
    per_page: u32,
}

fn label_filter(text: &str) -> Result<String, String> {
    if text.contains('=') { Ok(text.to_owned()) } else { Err("must be NAME=VALUE".to_owned()) }
}

#[derive(Args, Debug)]
struct OneSession {
    /// ID of the session, or its first characters
    #[arg(value_name = "SESSION")]
    id: SessionRef,
}

#[derive(Args, Debug)]
struct CompareSessions {
    /// IDs of the sessions, or their first characters; a single ID means all sessions of its task
    #[arg(value_name = "SESSION", required = true)]
    ids: Vec<SessionRef>,
}

#[derive(Args, Debug)]
struct DiffSession {
    /// ID of the session, or its first characters [default: the newest]
    #[arg(value_name = "SESSION")]
    id: Option<SessionRef>,
}

#[derive(Args, Debug)]
struct SessionEvents {
    /// ID of the session, or its first characters
    #[arg(value_name = "SESSION")]
    id: SessionRef,

    /// Print new lines until the session ends
    #[arg(long, short)]
    follow: bool,

    /// How to answer questions of the agent, with --follow; without a terminal, 'ask' leaves them open
    #[arg(long, value_enum, default_value = "ask", value_name = "ANSWER", requires = "follow")]
    approve: Approve,
}

#[derive(Args, Debug)]
struct ContinueSession {
    /// ID of the ended session, or its first characters
    #[arg(value_name = "SESSION")]
    id: SessionRef,

    /// New prompt; use '-' for standard input [default: the prompt of the session]
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,

    /// Print events until the new session ends
    #[arg(long, short)]
    follow: bool,

    /// How to answer questions of the agent, with --follow; without a terminal, 'ask' leaves them open
    #[arg(long, value_enum, default_value = "ask", value_name = "ANSWER", requires = "follow")]
    approve: Approve,
}

#[derive(Args, Debug)]
struct PromptSession {
    /// ID of the session, or its first characters
    #[arg(value_name = "SESSION")]
    id: SessionRef,

    /// The prompt; use '-' for standard input
    #[arg(value_name = "PROMPT")]
    prompt: String,

    /// Interrupt the agent and send this prompt at once
    #[arg(long, conflicts_with = "replace")]
    now: bool,

    /// Replace the text of this queued prompt
    #[arg(long, value_name = "NUMBER", value_parser = super::exec::amount::number(1..=u32::MAX))]
    replace: Option<u32>,

    /// Print all events of the session until it ends
    #[arg(long, short)]
    follow: bool,

    /// How to answer questions of the agent, with --follow; without a terminal, 'ask' leaves them open
    #[arg(long, value_enum, default_value = "ask", value_name = "ANSWER", requires = "follow")]
    approve: Approve,
}

#[derive(Args, Debug)]
struct WithdrawPrompt {
    /// ID of the session, or its first characters
    #[arg(value_name = "SESSION")]
    id: SessionRef,

    /// The number of the prompt in the list of prompts
    #[arg(value_name = "NUMBER", value_parser = super::exec::amount::number(1..=u32::MAX))]
    number: u32,
}

#[derive(Args, Debug)]
struct SessionLogs {
    /// ID of the session, or its first characters
    #[arg(value_name = "SESSION")]
    id: SessionRef,

    /// Print new lines until the session ends
    #[arg(long, short)]
    follow: bool,

    /// Number of lines to print, from the end of the log
    #[arg(long, default_value = "1000", value_name = "N", value_parser = super::exec::amount::number(1..=1000), conflicts_with = "follow")]
    tail: u32,
}

impl SessionCommand {
    pub(crate) fn is_following(&self) -> bool {
        match &self.act {
            SessionAct::Events(events) => events.follow,
            SessionAct::Logs(logs) => logs.follow,
            SessionAct::Continue(next) => next.follow,
            SessionAct::Prompt(prompt) => prompt.follow,
            SessionAct::List(_)
            | SessionAct::Get(_)
            | SessionAct::Audit(_)
            | SessionAct::Diff(_)
            | SessionAct::Compare(_)
            | SessionAct::Prompts(_)
            | SessionAct::Withdraw(_)
            | SessionAct::Finish(_)
            | SessionAct::Run(_)
            | SessionAct::Pause(_)
            | SessionAct::Resume(_)
            | SessionAct::Stop(_)
            | SessionAct::Cancel(_) => false,
        }
    }
}

impl CliCommand for SessionCommand {
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

async fn run(command: SessionCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = command.server.client()?;
    let server_flags = command.server.repeated();
    match command.act {
        SessionAct::List(list) => show_list(client, list, terminal).await,
        SessionAct::Get(one) => {
            let id = one.id.find(&client).await?;
            show_one(&client.session(id).await?, terminal)
        }
        SessionAct::Events(events) => {
            let id = events.id.find(&client).await?;
            let options = FollowOptions {
                session: id,
                approve: events.approve,
                logs_only: false,
                come_back: come_back("events", id, &server_flags),
                server_flags: server_flags.clone(),
            };
            if events.follow {
                let session = follow::follow(client, id, options, terminal).await?;
                return follow::end(&session, &server_flags, terminal);
            }
            let mut view = View::plain();
            for event in client.stored_events(id).await? {
                view.show(&event, &options, terminal)?;
            }
            Ok(())
        }
        SessionAct::Logs(logs) => {
            let id = logs.id.find(&client).await?;
            let options = FollowOptions {
                session: id,
                approve: Approve::Ask,
                logs_only: true,
                come_back: come_back("logs", id, &server_flags),
                server_flags: server_flags.clone(),
            };
            if logs.follow {
                let session = follow::follow(client, id, options, terminal).await?;
                return follow::end(&session, &server_flags, terminal);
            }
            let mut view = View::plain();
            for event in client.last_events(id, logs.tail).await? {
                view.show(&event, &options, terminal)?;
            }
            Ok(())
        }
        SessionAct::Audit(one) => {
            let id = one.id.find(&client).await?;
            audit::show(&client, id, terminal).await
        }
        SessionAct::Diff(DiffSession { id }) => {
            let id = match id {
                Some(id) => id.find(&client).await?,
                None => newest(&client).await?,
            };
            let diff = client.session_diff(id).await?;
            match terminal.format() {
                Format::Json => {
                    let text = String::from_utf8_lossy(&diff);
                    terminal.value(&json!({ "sessionId": id, "diff": text }))
                }
                Format::Text if terminal.is_watched() => {
                    let text = String::from_utf8_lossy(&diff).into_owned();
                    terminal.bytes(terminal.shown(&text).into_owned().as_bytes())
                }
                Format::Text => terminal.bytes(&diff),
            }
        }
        SessionAct::Compare(CompareSessions { ids }) => compare::run(&client, &ids, terminal).await,
        SessionAct::Continue(next) => {
            let prompt = match &next.prompt {
                Some(given) => Some(task::prompt(given, terminal).await?),
                None => None,
            };
            let id = next.id.find(&client).await?;
            let created = client.continue_session(id, &ContinueRequest { prompt }).await?;
            let follow = next.follow.then_some(next.approve);
            task::show_created(client, created, follow, &server_flags, terminal).await
        }
        SessionAct::Prompt(next) => {
            let prompt = task::prompt(&next.prompt, terminal).await?;
            let id = next.id.find(&client).await?;
            let sent = match next.replace {
                Some(number) => client.change_prompt(id, number, &PromptEdit { prompt }).await?,
                None => client.send_prompt(id, &PromptRequest { prompt, now: next.now }).await?,
            };
            if !next.follow {
                return prompts::show(&[sent], terminal);
            }
            let options = FollowOptions {
                session: id,
                approve: next.approve,
                logs_only: false,
                come_back: come_back("events", id, &server_flags),
                server_flags: server_flags.clone(),
            };
            let session = follow::follow(client, id, options, terminal).await?;
            follow::end(&session, &server_flags, terminal)
        }
        SessionAct::Prompts(one) => {
            let id = one.id.find(&client).await?;
            prompts::list(&client, id, terminal).await
        }
        SessionAct::Withdraw(WithdrawPrompt { id, number }) => {
            let id = id.find(&client).await?;
            prompts::show(&[client.withdraw_prompt(id, number).await?], terminal)
        }
        SessionAct::Finish(one) => {
            let id = one.id.find(&client).await?;
            client.finish_session(id).await?;
            show_one(&client.session(id).await?, terminal)
        }
        SessionAct::Run(run) => ide::run(&client, run, terminal).await,
        SessionAct::Pause(one) => {
            let id = one.id.find(&client).await?;
            client.pause_session(id).await?;
            show_one(&client.session(id).await?, terminal)
        }
        SessionAct::Resume(one) => {
            let id = one.id.find(&client).await?;
            client.resume_session(id).await?;
            show_one(&client.session(id).await?, terminal)
        }
        SessionAct::Stop(one) => {
            let id = one.id.find(&client).await?;
            client.stop_session(id).await?;
            show_one(&client.session(id).await?, terminal)
        }
        SessionAct::Cancel(one) => {
            let id = one.id.find(&client).await?;
            client.cancel_session(id).await?;
            show_one(&client.session(id).await?, terminal)
        }
    }
}

async fn newest(client: &ServeClient) -> Result<SessionId, Failure> {
    let query = SessionQuery { per_page: Some(1), ..SessionQuery::default() };
    let page = client.sessions(&query).await?;
    page.items.first().map(|session| session.id).ok_or_else(|| {
        Failure::usage("there are no sessions").with_hint("start one: agent-backend task")
    })
}

/// The command with which the user can follow a session again.
fn come_back(what: &str, id: SessionId, server_flags: &str) -> String {
    format!("agent-backend session {what} {id} --follow{server_flags}")
}

async fn show_list(
    client: ServeClient,
    list: ListSessions,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let is_whole = list.status.is_none()
        && list.page == 1
        && [&list.agent, &list.project, &list.repo, &list.label].iter().all(|it| it.is_none());
    let query = SessionQuery {
        task_id: None,
        status: list.status,
        agent: list.agent,
        project_id: list.project,
        repo: list.repo,
        label: list.label,
        page: Some(list.page),
        per_page: Some(list.per_page),
    };
    let page = client.sessions(&query).await?;
    match terminal.format() {
        Format::Json => terminal.value(&json!(page)),
        Format::Text => {
            if page.items.is_empty() {
                let text = if is_whole {
                    "there are no sessions; `agent-backend task` starts one"
                } else {
                    "no session matches"
                };
                terminal.note(text);
                return Ok(());
            }
            for line in table(&page.items, Time::now()).lines() {
                let line = terminal.shown(line).into_owned();
                terminal.line(&line)?;
            }
            if let Some(next) = page.next_page {
                let (shown, total) = (page.items.len(), page.total);
                terminal
                    .note(&format!("{shown} of {total} sessions; for more, pass --page {next}"));
            }
            Ok(())
        }
    }
}

fn show_one(session: &Session, terminal: &mut Terminal) -> Result<(), Failure> {
    match terminal.format() {
        Format::Json => terminal.value(&json!(session)),
        Format::Text => {
            for line in details(session).lines() {
                let line = terminal.shown(line).into_owned();
                terminal.line(&line)?;
            }
            Ok(())
        }
    }
}

/// Sessions as a table for people.
fn table(sessions: &[Session], now: Time) -> String {
    let mut rows = vec![["SESSION", "STATUS", "AGENT", "AGE", "PROMPT"].map(str::to_owned)];
    rows.extend(sessions.iter().map(|session| {
        let mut status = session.status.to_string();
        if session.open_approvals > 0 {
            status.push_str(" (asks)");
        }
        [
            session.id.to_string(),
            status,
            session.agent.kind.clone(),
            age(session.created_at, now),
            shortened(&session.prompt),
        ]
    }));
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// The fields of a session as text for people.
fn details(session: &Session) -> String {
    let mut status = session.status.to_string();
    if let Some(activity) = session.activity {
        status.push_str(&format!(", {}", lines::activity_text(activity)));
    }
    if let Some(detail) = &session.end_detail {
        status.push_str(&format!(": {detail}"));
    }
    let mut rows = vec![
        ("session", session.id.to_string()),
        ("status", status),
        ("prompt", session.prompt.clone()),
        ("agent", format!("{} {}", session.agent.kind, session.agent.version)),
        ("repository", session.repo.display_text().to_owned()),
    ];
    let text = |time: Option<Time>| time.map(|time| time.to_string());
    let optional = [
        ("branch", session.repo.branch.clone()),
        ("attached", attached_text(session)),
        ("settings", settings_text(session)),
        ("project", session.project_id.clone()),
        ("labels", labels_text(session)),
        ("base", session.vcs.base_commit.clone()),
        ("delivered", session.vcs.delivered_branch.clone()),
        ("workspace", session.workspace.mount_path.clone().filter(|_| has_workspace(session))),
        ("limits", session.limits.and_then(limits_text)),
        ("changes", session.changes.map(lines::changes_text)),
        ("used", compare::usage_text(session)),
        (
            "task",
            session
                .task_group
                .map(|group| format!("{} of {} of {}", group.number, group.size, group.id)),
        ),
        ("questions", (session.open_approvals > 0).then(|| session.open_approvals.to_string())),
        ("created", Some(session.created_at.to_string())),
        ("started", text(session.started_at)),
        ("ended", text(session.ended_at)),
    ];
    rows.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    rows.iter().map(|(name, value)| format!("{name:<11} {value}\n")).collect()
}

/// Whether the workspace of a session may still exist. It is removed after a delivery or a cancel.
fn has_workspace(session: &Session) -> bool {
    !matches!(session.status, SessionStatus::Completed | SessionStatus::Cancelled)
}

fn labels_text(session: &Session) -> Option<String> {
    let labels: Vec<String> =
        session.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (!labels.is_empty()).then(|| labels.join(", "))
}

fn attached_text(session: &Session) -> Option<String> {
    let names: Vec<&str> = session.task.attachments.iter().map(|it| it.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn settings_text(session: &Session) -> Option<String> {
    let settings = session.agent.settings.iter();
    let settings: Vec<String> = settings.map(|(name, value)| format!("{name}={value}")).collect();
    (!settings.is_empty()).then(|| settings.join(", "))
}

/// The limits that are enforced on the processes of a session, as text. `None` if there are none.
fn limits_text(limits: EnforcedLimits) -> Option<String> {
    let EnforcedLimits { cpu, memory_mib, processes } = limits;
    let parts = [
        cpu.map(|cpu| format!("{cpu} processors")),
        memory_mib.map(|mib| format!("{mib} MiB of memory")),
        processes.map(|count| format!("{count} processes")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub(super) fn shortened(text: &str) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match flat.char_indices().nth(MAX_PROMPT) {
        Some((end, _)) => format!("{}…", &flat[..end]),
        None => flat,
    }
}

/// The age of `then` in the largest unit that fits.
pub(crate) fn age(then: Time, now: Time) -> String {
    let seconds = (now.as_millis() - then.as_millis()).max(0) / 1000;
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use ab_api::{Task, TaskCapabilities, TaskRequest};

    use super::*;

    fn session(prompt: &str) -> Session {
        let body = json!({
            "prompt": prompt,
            "repo": { "mode": "git", "url": "/srv/project" },
            "agent": { "type": "scripted" },
        });
        let offers = TaskCapabilities {
            agents: [("scripted".to_owned(), Vec::new())].into(),
            allows_local_repositories: true,
            ..TaskCapabilities::default()
        };
        let task: Task = TaskRequest::parse(body.to_string().as_bytes(), &offers).unwrap();
        let id = "01HVZ6K9T1N8S6M3V3Q3F0X5B7".parse().unwrap();
        Session::new_queued(id, task, "2026-01-31T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn sessions_are_a_table() {
        let mut second =
            session("Describe the build, and everything that one has to install before it");
        second.status = SessionStatus::Running;
        second.open_approvals = 1;
        let now = "2026-01-31T14:30:00Z".parse().unwrap();
        let expect = "\
SESSION                     STATUS          AGENT     AGE  PROMPT
01HVZ6K9T1N8S6M3V3Q3F0X5B7  queued          scripted  2h   Fix it
01HVZ6K9T1N8S6M3V3Q3F0X5B7  running (asks)  scripted  2h   Describe the build, and everything that one has …
";
        assert_eq!(table(&[session("Fix\nit"), second], now), expect);
    }

    #[test]
    fn a_session_is_a_list_of_what_is_known() {
        let mut ended = session("Fix it");
        ended.status = SessionStatus::Failed;
        ended.end_detail = Some("the agent exited with 3".to_owned());
        let (cpu, memory_mib, processes) = (Some(1.5), Some(2048), Some(100));
        ended.limits = Some(EnforcedLimits { cpu, memory_mib, processes });
        let expect = "\
session     01HVZ6K9T1N8S6M3V3Q3F0X5B7
status      failed: the agent exited with 3
prompt      Fix it
agent       scripted latest
repository  /srv/project
limits      1.5 processors, 2048 MiB of memory, 100 processes
created     2026-01-31T12:00:00Z
";
        assert_eq!(details(&ended), expect);
    }

    #[test]
    fn ages_have_one_unit() {
        let then: Time = "2026-01-31T12:00:00Z".parse().unwrap();
        let after =
            |seconds| age(then, then.saturating_add(std::time::Duration::from_secs(seconds)));
        let ages = [after(0), after(59), after(60), after(7_200), after(200_000)];
        assert_eq!(ages, ["0s", "59s", "1m", "2h", "2d"]);
    }
}
