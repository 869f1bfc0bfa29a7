//! `config`: shows the settings that `serve` would use, and where each value comes from.

use ab_core::error::escape_unprintable;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::{CliCommand, RunningCommand};
use crate::config::{Config, ServeFlags};
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  agent-backend config show
  agent-backend config show --port 4000 --json
  agent-backend config show --config ./config.toml

A configuration file:
  port = 4000
  log-level = \"info\"

  [sessions]
  idle-timeout = \"10m\"

  [[agents]]
  id = \"goose\"
  argv = [\"goose\", \"acp\"]
  credentials = [\"OPENAI_API_KEY\"]
  toolchains = [\"~/.local/share/goose\"]

A flag overrides an environment variable, a variable overrides the file, and the file overrides the
default. The variable of a key has its name in capitals: AGENT_BACKEND_LOG_LEVEL for log-level.
In the source repository, docs/operations.md describes every key.";

/// Show the configuration of serve
#[derive(Args, Debug)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct ConfigCommand {
    #[command(subcommand)]
    act: ConfigAct,

    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ConfigAct {
    /// Print every value with its origin: flag, variable, file or default
    #[command(after_help = EXAMPLES)]
    Show(Box<ServeFlags>),
}

impl CliCommand for ConfigCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(async move { run(*self, terminal) })
    }
}

fn run(command: ConfigCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let ConfigAct::Show(flags) = command.act;
    let config = Config::load(&flags)?;
    match terminal.format() {
        Format::Json => terminal.value(&config.as_json()),
        Format::Text => {
            for line in text(&config).lines() {
                let line = terminal.shown(line).into_owned();
                terminal.line(&line)?;
            }
            if config.file.is_none() {
                terminal.note("there is no configuration file; see `agent-backend config --help`");
            }
            Ok(())
        }
    }
}

/// A table of keys, values and origins, then the agents.
fn text(config: &Config) -> String {
    let rows: Vec<[String; 3]> = config
        .rows()
        .into_iter()
        .map(|row| [row.key.to_owned(), shown(&row.value), row.origin.to_string()])
        .collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let (key, value) = (width(0), width(1));
    let mut text: String = rows
        .iter()
        .map(|[name, held, origin]| format!("{name:<key$}  {held:<value$}  {origin}\n"))
        .collect();
    text.push_str("\nagents\n");
    let entries = config.catalog.entries();
    let width = entries.iter().map(|entry| entry.id.chars().count()).max().unwrap_or_default();
    for entry in entries {
        let argv = entry.argv.join(" ");
        text.push_str(&format!("  {:<width$}  {}\n", entry.id, escape_unprintable(&argv)));
    }
    text
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}
