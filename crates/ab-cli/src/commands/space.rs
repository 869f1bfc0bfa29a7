//! `space`: spaces of a server.

use std::path::PathBuf;

use ab_api::SpaceId;
use ab_core::error::escape_unprintable;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::run::policy_value;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::server::ServerFlags;
use crate::terminal::{Format, Terminal};

/// Make, list, show and remove spaces of a server
#[derive(Args, Debug)]
pub(crate) struct SpaceCommand {
    #[command(subcommand)]
    action: SpaceAction,

    /// Print JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Subcommand)]
enum SpaceAction {
    /// Make a space and print its id
    Create {
        /// A name for people
        #[arg(long)]
        name: Option<String>,
        /// A preset (restrictive, standard, permissive), or a JSON file with a policy document
        #[arg(long, value_name = "POLICY", default_value = "standard")]
        policy: String,
        /// Keep the files in the memory of the server; such a space has no commands
        #[arg(long, conflicts_with = "copy")]
        memory: bool,
        /// Start with a copy of this directory of the server's machine
        #[arg(long, value_name = "DIR")]
        copy: Option<PathBuf>,
        /// Remove the space after this many seconds
        #[arg(long, value_name = "SECONDS")]
        ttl: Option<u64>,
    },
    /// List spaces, newest first
    List,
    /// Show a space with its policy
    Show { space: SpaceId },
    /// Remove a space and its files
    Rm { space: SpaceId },
}

impl CliCommand for SpaceCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(command: SpaceCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = command.server.client()?;
    match command.action {
        SpaceAction::Create { name, policy, memory, copy, ttl } => {
            let mut body = Map::new();
            body.insert("policy".to_owned(), policy_value(&policy)?);
            if let Some(name) = name {
                body.insert("name".to_owned(), json!(name));
            }
            if memory {
                body.insert("backend".to_owned(), json!("memory"));
            }
            if let Some(copy) = copy {
                let path = std::path::absolute(copy)
                    .map_err(|error| Failure::input("find the directory to copy", error))?;
                body.insert("copyOf".to_owned(), json!(path));
            }
            if let Some(ttl) = ttl {
                body.insert("ttlSeconds".to_owned(), json!(ttl));
            }
            let made = client.call("POST", "/v1/spaces", Some(&Value::Object(body))).await?;
            print(terminal, &made["data"], |space| text(&space["id"]))
        }
        SpaceAction::List => {
            let spaces = client.call("GET", "/v1/spaces", None).await?;
            print(terminal, &spaces["data"], |spaces| {
                let spaces = spaces.as_array().into_iter().flatten();
                let lines = spaces.map(|space| {
                    let (id, status) = (text(&space["id"]), text(&space["status"]));
                    let (policy, name) = (text(&space["policy"]["name"]), text(&space["name"]));
                    format!("{id}  {status:<8} {policy:<12} {name}").trim_end().to_owned()
                });
                lines.collect::<Vec<_>>().join("\n")
            })
        }
        SpaceAction::Show { space } => {
            let shown = client.call("GET", &format!("/v1/spaces/{space}"), None).await?;
            print(terminal, &shown["data"], |space| {
                serde_json::to_string_pretty(space).unwrap_or_default()
            })
        }
        SpaceAction::Rm { space } => {
            client.call("DELETE", &format!("/v1/spaces/{space}"), None).await?;
            Ok(())
        }
    }
}

/// Prints a value as JSON, or as the text that `shown` makes of it.
pub(super) fn print(
    terminal: &mut Terminal,
    value: &Value,
    shown: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    match terminal.format() {
        Format::Json => terminal.value(value),
        Format::Text => match shown(value) {
            text if text.is_empty() => Ok(()),
            text => terminal.line(&text),
        },
    }
}

/// A string of a JSON value. Nothing in it can move the cursor.
pub(super) fn text(value: &Value) -> String {
    escape_unprintable(value.as_str().unwrap_or_default())
}
