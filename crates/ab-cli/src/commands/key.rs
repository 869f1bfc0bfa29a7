//! `key`: manages the API keys of a server.

use ab_api::{ApiKey, ApiKeyId, Time};
use agent_backend::ServeClient;
use clap::{Args, Subcommand};
use serde_json::json;

use super::session::age;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::server::ServerFlags;
use crate::table;
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  agent-backend key create ci > ci.key
  agent-backend key revoke ci
  agent-backend session list --server https://box.example --token-file ci.key

Clients send the key in the header `Authorization: ApiKey KEY`, or with --token-file. A key permits
everything that the server's token permits, except creating and revoking keys.";

/// Create, list and revoke API keys of a server
#[derive(Args, Debug)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct KeyCommand {
    #[command(subcommand)]
    action: KeyAction,

    /// Print JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// Create a key and print its secret, which cannot be shown again
    Create {
        /// Name of the key, such as the program that will use it
        name: String,
    },
    /// List all keys, the newest first, without their secrets
    #[command(alias = "ls")]
    List,
    /// Revoke a key immediately
    Revoke {
        /// Name or ID of the key
        #[arg(value_name = "NAME|ID")]
        key: String,
    },
}

impl CliCommand for KeyCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(command: KeyCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = command.server.client()?;
    match command.action {
        KeyAction::Create { name } => {
            let created = client.create_api_key(&name).await?;
            match terminal.format() {
                Format::Json => terminal.value(&json!(created)),
                Format::Text => {
                    terminal.line(&created.secret)?;
                    terminal.note("the server keeps only a digest: this secret is not shown again");
                    Ok(())
                }
            }
        }
        KeyAction::List => {
            let keys = all(&client).await?;
            match terminal.format() {
                Format::Json => terminal.value(&json!(keys)),
                Format::Text if keys.is_empty() => {
                    terminal.note("there are no keys");
                    Ok(())
                }
                Format::Text => show(&keys, terminal),
            }
        }
        KeyAction::Revoke { key } => {
            let id = find(&client, &key).await?;
            let revoked = client.revoke_api_key(id).await?;
            match terminal.format() {
                Format::Json => terminal.value(&json!(revoked)),
                Format::Text => Ok(()),
            }
        }
    }
}

async fn all(client: &ServeClient) -> Result<Vec<ApiKey>, Failure> {
    let mut keys = Vec::new();
    let mut next = Some(1);
    while let Some(page) = next {
        let part = client.api_keys(page).await?;
        keys.extend(part.items);
        next = part.next_page;
    }
    Ok(keys)
}

/// Finds the key with this id, or the key with this name that is not revoked.
async fn find(client: &ServeClient, named: &str) -> Result<ApiKeyId, Failure> {
    if let Ok(id) = named.parse() {
        return Ok(id);
    }
    let keys = all(client).await?;
    let found = keys.iter().find(|key| key.name == named && key.revoked_at.is_none());
    found.map(|key| key.id).ok_or_else(|| {
        Failure::usage(format!("there is no active key named {named:?}"))
            .with_hint("list the keys: agent-backend key list")
    })
}

fn show(keys: &[ApiKey], terminal: &mut Terminal) -> Result<(), Failure> {
    let now = Time::now();
    let rows: Vec<[String; 4]> = keys
        .iter()
        .map(|key| {
            let state = if key.revoked_at.is_some() { "revoked" } else { "works" };
            let age = age(key.created_at, now);
            [key.name.clone(), state.to_owned(), age, key.id.to_string()]
        })
        .collect();
    table::print(["NAME", "STATE", "AGE", "ID"], &rows, terminal)
}
