//! `remote`: lists what a server offers and what it has used.

use ab_api::{RepoImportRequest, SessionId, Time, WorkspaceDetail, WorkspaceState};
use agent_backend::ServeClient;
use agent_backend::serve_client::RepoCatalogueQuery;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::session::{age, shortened};
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::server::ServerFlags;
use crate::table;
use crate::terminal::{Format, Terminal};

/// Show what a server offers: agents, runtimes, executors, repositories, workspaces
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct RemoteCommand {
    #[command(subcommand)]
    what: RemoteList,

    /// Print JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Subcommand)]
enum RemoteList {
    /// List the agents that tasks can name
    Agents,
    /// List the runtimes that tasks can name
    Runtimes,
    /// List the machines that run sessions
    Executors,
    /// List the projects that sessions belong to
    Projects(RemoteFilter),
    /// List the repositories that sessions worked on or that were imported
    Repos(RemoteFilter),
    /// Add a repository to the list of repositories
    Import {
        /// Repository: a URL, or a path on the server
        #[arg(value_name = "PATH|URL")]
        repo: String,
        #[command(flatten)]
        filter: RemoteFilter,
    },
    /// List the branches of a repository
    Branches {
        /// Repository: a URL, or a path on the server
        #[arg(value_name = "PATH|URL")]
        repo: String,
    },
    /// List the workspaces that exist, the newest first
    Workspaces {
        /// Only workspaces that are active (a session uses them) or kept (their session has ended)
        #[arg(long, value_name = "STATUS")]
        status: Option<WorkspaceState>,
    },
    /// Show one workspace
    #[command(subcommand)]
    Workspace(RemoteWorkspace),
}

#[derive(Args, Debug)]
struct RemoteFilter {
    /// ID of the tenant
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,

    /// ID of the project
    #[arg(long, value_name = "ID")]
    project: Option<String>,
}

#[derive(Debug, Subcommand)]
enum RemoteWorkspace {
    /// Show a workspace with its storage use and the sessions that worked in it
    Show {
        /// ID of the workspace
        #[arg(value_name = "WORKSPACE", value_parser = workspace_id)]
        id: SessionId,
    },
}

fn workspace_id(text: &str) -> Result<SessionId, String> {
    let list = "`agent-backend remote workspaces` lists them";
    text.parse().map_err(|_| format!("must be the ID of a workspace; {list}"))
}

impl CliCommand for RemoteCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(command: RemoteCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = command.server.client()?;
    let now = Time::now();
    match command.what {
        RemoteList::Agents => {
            let agents = client.agents().await?;
            let rows = agents.iter().map(|agent| {
                let title = agent.title.clone();
                [agent.kind.clone(), agent.versions.join(", "), title]
            });
            show(&json!(agents), ["AGENT", "VERSIONS", "TITLE"], rows.collect(), terminal)
        }
        RemoteList::Runtimes => {
            let runtimes = client.runtimes().await?;
            let rows = runtimes.iter().map(|runtime| {
                let kind = json!(runtime.kind).as_str().unwrap_or_default().to_owned();
                [
                    kind,
                    or_dash(runtime.sandbox_profiles.join(", ")),
                    or_dash(runtime.images.join(", ")),
                ]
            });
            let rows = rows.collect();
            show(&json!(runtimes), ["RUNTIME", "PROFILES", "IMAGES"], rows, terminal)
        }
        RemoteList::Executors => {
            let executors = client.executors().await?;
            let rows = executors.iter().map(|executor| {
                let value = json!(executor);
                let names = value["snapshotCapabilities"].as_array().into_iter().flatten();
                let names: Vec<&str> = names.filter_map(Value::as_str).collect();
                let health = value["health"].as_str().unwrap_or_default().to_owned();
                let system = format!("{}/{}", executor.os, executor.arch);
                [executor.id.clone(), health, system, names.join(", ")]
            });
            let rows = rows.collect();
            show(&json!(executors), ["EXECUTOR", "HEALTH", "SYSTEM", "SNAPSHOTS"], rows, terminal)
        }
        RemoteList::Projects(filter) => {
            let mut projects = Vec::new();
            let mut query = filter.query();
            while query.page.is_some() {
                let part = client.projects(&query).await?;
                projects.extend(part.items);
                query.page = part.next_page;
            }
            let rows = projects.iter().map(|project| {
                let tenant = or_dash(project.tenant_id.clone().unwrap_or_default());
                let used = age(project.last_used_at, now);
                [project.id.clone(), tenant, project.sessions.to_string(), used]
            });
            let rows = rows.collect();
            show(&json!(projects), ["PROJECT", "TENANT", "SESSIONS", "USED"], rows, terminal)
        }
        RemoteList::Repos(filter) => {
            let mut repos = Vec::new();
            let mut query = filter.query();
            while query.page.is_some() {
                let part = client.repos(&query).await?;
                repos.extend(part.items);
                query.page = part.next_page;
            }
            let rows = repos.iter().map(|repo| {
                let branch = or_dash(repo.default_branch.clone().unwrap_or_default());
                let used = repo.last_used_at.map_or("-".to_owned(), |used| age(used, now));
                let (name, provider) = (repo.display_name.clone(), repo.scm_provider.clone());
                [name, provider, branch, used, repo.remote_url.clone()]
            });
            let headings = ["NAME", "PROVIDER", "BRANCH", "USED", "URL"];
            show(&json!(repos), headings, rows.collect(), terminal)
        }
        RemoteList::Import { repo, filter } => {
            let url = super::task::repository(Some(&repo))?;
            let RemoteFilter { tenant: tenant_id, project: project_id } = filter;
            let request = RepoImportRequest { url, tenant_id, project_id };
            let imported = client.import_repo(&request).await?;
            match terminal.format() {
                Format::Json => terminal.value(&json!(imported)),
                Format::Text => terminal.line(&imported.id),
            }
        }
        RemoteList::Branches { repo } => {
            let url = super::task::repository(Some(&repo))?;
            let refs = client.repo_refs(&url).await?;
            let rows = refs.items.iter().map(|branch| {
                let is_default = refs.default_branch.as_deref() == Some(&branch.name);
                let mark = if is_default { "default" } else { "" };
                [branch.name.clone(), branch.commit.clone(), mark.to_owned()]
            });
            show(&json!(refs), ["BRANCH", "COMMIT", ""], rows.collect(), terminal)
        }
        RemoteList::Workspaces { status } => {
            let status = status.map(WorkspaceState::as_str);
            let mut workspaces = Vec::new();
            let mut next = Some(1);
            while let Some(page) = next {
                let part = client.workspaces(status, page).await?;
                workspaces.extend(part.items);
                next = part.next_page;
            }
            let rows = workspaces.iter().map(|workspace| {
                let state = workspace.status.as_str().to_owned();
                let age = age(workspace.created_at, now);
                let (executor, url) = (workspace.executor.clone(), workspace.repo_url.clone());
                [workspace.id.to_string(), state, executor, age, url]
            });
            let headings = ["WORKSPACE", "STATE", "EXECUTOR", "AGE", "REPOSITORY"];
            show(&json!(workspaces), headings, rows.collect(), terminal)
        }
        RemoteList::Workspace(RemoteWorkspace::Show { id }) => {
            show_workspace(&client, id, terminal).await
        }
    }
}

impl RemoteFilter {
    fn query(self) -> RepoCatalogueQuery {
        RepoCatalogueQuery { tenant_id: self.tenant, project_id: self.project, page: Some(1) }
    }
}

/// Prints a list as JSON or as a table.
fn show<const COLUMNS: usize>(
    list: &Value,
    headings: [&str; COLUMNS],
    rows: Vec<[String; COLUMNS]>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    match terminal.format() {
        Format::Json => terminal.value(list),
        Format::Text if rows.is_empty() => {
            terminal.note("the list is empty");
            Ok(())
        }
        Format::Text => table::print(headings, &rows, terminal),
    }
}

async fn show_workspace(
    client: &ServeClient,
    id: SessionId,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let WorkspaceDetail { summary, storage, history } = client.session_workspace(id).await?;
    if terminal.format() == Format::Json {
        return terminal.value(&json!(WorkspaceDetail { summary, storage, history }));
    }
    let more = if storage.truncated { "at least " } else { "" };
    let used = format!("{more}{} bytes in {} files", storage.bytes, storage.files);
    let rows = [
        ("workspace", summary.id.to_string()),
        ("state", summary.status.as_str().to_owned()),
        ("session", summary.session_id.to_string()),
        ("executor", summary.executor),
        ("path", or_dash(summary.mount_path.unwrap_or_default())),
        ("repository", summary.repo_url),
        ("created", summary.created_at.to_string()),
        ("storage", used),
    ];
    for (name, value) in rows {
        let line = format!("{name:<11} {value}");
        let line = terminal.shown(&line).into_owned();
        terminal.line(&line)?;
    }
    terminal.line("")?;
    let now = Time::now();
    let rows: Vec<[String; 4]> = history
        .iter()
        .map(|task| {
            let (status, age) = (task.status.to_string(), age(task.created_at, now));
            [task.session_id.to_string(), status, age, shortened(&task.prompt)]
        })
        .collect();
    table::print(["SESSION", "STATUS", "AGE", "PROMPT"], &rows, terminal)
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}
