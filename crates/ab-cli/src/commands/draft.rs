//! `draft`: edits tasks before they start.

use std::path::PathBuf;

use ab_api::{Draft, DraftContent, DraftId, Time};
use ab_core::ErrorKind;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::session::{age, shortened};
use super::task::DEFAULT_AGENT;
use super::{CliCommand, RunningCommand, input};
use crate::failure::Failure;
use crate::server::ServerFlags;
use crate::table;
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  agent-backend draft create 'Fix the login' --repo ./shop --agent goose
  agent-backend draft list
  agent-backend draft update draft-01K… --file task.json
  agent-backend draft start draft-01K…

The file contains fields of a task in JSON, as in the body of
POST /api/v1/tasks.";

/// Save tasks that are not complete yet, and start them later
#[derive(Args, Debug)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct DraftCommand {
    #[command(subcommand)]
    action: DraftAction,

    /// Print JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Subcommand)]
enum DraftAction {
    /// Save a draft and print its ID
    Create(DraftFields),
    /// List your drafts, the newest first
    #[command(alias = "ls")]
    List,
    /// Show one draft
    Show {
        /// ID of the draft
        draft: DraftId,
    },
    /// Change fields of a draft; other fields are not changed
    Update {
        /// ID of the draft
        draft: DraftId,

        #[command(flatten)]
        fields: DraftFields,
    },
    /// Create the task of a draft, and remove the draft; without an agent, the task uses scripted
    Start {
        /// ID of the draft
        draft: DraftId,
    },
    /// Remove a draft
    Rm {
        /// ID of the draft
        draft: DraftId,
    },
}

#[derive(Args, Debug)]
struct DraftFields {
    /// The task for the agent
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,

    /// Repository: a URL, or a path on the server
    #[arg(long, value_name = "PATH|URL")]
    repo: Option<String>,

    /// Agent for the task
    #[arg(long, value_name = "TYPE")]
    agent: Option<String>,

    /// Project that the session will belong to
    #[arg(long, value_name = "ID")]
    project: Option<String>,

    /// JSON file with fields of a task; use '-' for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl CliCommand for DraftCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

impl DraftFields {
    /// Applies the fields that were given on the command line to the content of a draft.
    async fn apply(self, content: DraftContent) -> Result<DraftContent, Failure> {
        let mut content = match &self.file {
            Some(path) if path.as_os_str() == "-" => merged(content, &input::standard().await?)?,
            Some(path) => merged(content, &input::file(path)?)?,
            None => content,
        };
        let text = |name: &str, value: String| [(name.to_owned(), Value::from(value))];
        if let Some(repo) = self.repo {
            content
                .repo
                .get_or_insert_default()
                .extend(text("url", super::task::repository(Some(&repo))?));
        }
        if let Some(agent) = self.agent {
            content.agent.get_or_insert_default().extend(text("type", agent));
        }
        content.prompt = self.prompt.or(content.prompt);
        content.project_id = self.project.or(content.project_id);
        Ok(content)
    }
}

/// Replaces fields of the content by the fields of a JSON object.
fn merged(content: DraftContent, text: &[u8]) -> Result<DraftContent, Failure> {
    let invalid =
        |error: serde_json::Error| Failure::usage(format!("invalid fields of a task: {error}"));
    let given: Value = serde_json::from_slice(text).map_err(invalid)?;
    let Value::Object(given) = given else {
        return Err(Failure::usage("invalid fields of a task: must be a JSON object"));
    };
    let mut all = json!(content);
    if let Value::Object(members) = &mut all {
        members.extend(given);
    }
    serde_json::from_value(all).map_err(invalid)
}

async fn run(command: DraftCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = command.server.client()?;
    match command.action {
        DraftAction::Create(fields) => {
            let content = fields.apply(DraftContent::default()).await?;
            let created = client.create_draft(&content).await?;
            match terminal.format() {
                Format::Json => terminal.value(&json!(created)),
                Format::Text => terminal.line(&created.id.to_string()),
            }
        }
        DraftAction::List => {
            let mut drafts = Vec::new();
            let mut next = Some(1);
            while let Some(page) = next {
                let part = client.drafts(page).await?;
                drafts.extend(part.items);
                next = part.next_page;
            }
            match terminal.format() {
                Format::Json => terminal.value(&json!(drafts)),
                Format::Text if drafts.is_empty() => {
                    terminal.note("there are no drafts");
                    Ok(())
                }
                Format::Text => show_list(&drafts, terminal),
            }
        }
        DraftAction::Show { draft } => {
            let draft = client.draft(draft).await?;
            show(&draft, terminal)
        }
        DraftAction::Update { draft, fields } => {
            let before = client.draft(draft).await?;
            let content = fields.apply(before.content).await?;
            show(&client.update_draft(draft, &content).await?, terminal)
        }
        DraftAction::Start { draft } => {
            let mut content = client.draft(draft).await?.content;
            if content.agent.is_none() && content.agents.as_ref().is_none_or(Vec::is_empty) {
                let default = [("type".to_owned(), Value::from(DEFAULT_AGENT))];
                content.agent = Some(default.into_iter().collect());
                client.update_draft(draft, &content).await?;
            }
            let flags = command.server.repeated();
            let created = client.start_draft(draft).await.map_err(|error| {
                let error = super::task::by_flags(error, &flags);
                match error.hint() {
                    None if error.kind() == ErrorKind::Invalid => error.with_hint(format!(
                        "change the draft: agent-backend draft update {draft}{flags}"
                    )),
                    _ => error,
                }
            })?;
            super::task::show_created(client, created, None, &flags, terminal).await
        }
        DraftAction::Rm { draft } => Ok(client.remove_draft(draft).await?),
    }
}

fn show(draft: &Draft, terminal: &mut Terminal) -> Result<(), Failure> {
    match terminal.format() {
        Format::Json => terminal.value(&json!(draft)),
        Format::Text => {
            let text = serde_json::to_string_pretty(draft).unwrap_or_default();
            let text = terminal.shown(&text).into_owned();
            terminal.line(&text)
        }
    }
}

fn show_list(drafts: &[Draft], terminal: &mut Terminal) -> Result<(), Failure> {
    let now = Time::now();
    let member = |map: &Option<serde_json::Map<String, Value>>, name: &str| {
        let value = map.as_ref().and_then(|map| map.get(name)).and_then(Value::as_str);
        value.unwrap_or("-").to_owned()
    };
    let rows: Vec<[String; 5]> = drafts
        .iter()
        .map(|draft| {
            let content = &draft.content;
            [
                draft.id.to_string(),
                member(&content.agent, "type"),
                age(draft.updated_at, now),
                member(&content.repo, "url"),
                shortened(content.prompt.as_deref().unwrap_or("-")),
            ]
        })
        .collect();
    table::print(["DRAFT", "AGENT", "AGE", "REPOSITORY", "PROMPT"], &rows, terminal)
}
