//! `space`: manages the spaces of a server.

use std::path::PathBuf;

use ab_api::{SpaceId, SpaceTokenId};
use ab_core::Error;
use ab_core::error::escape_unprintable;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::run::policy_value;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::server::ServerFlags;
use crate::terminal::{Format, Terminal};

/// Create, list, show and remove spaces of a server
///
/// A space is a set of files on the server, with a policy that decides which operations are allowed.
/// `agent-backend run` performs operations in it. An agent gets a token for one space, with which it cannot answer
/// approvals.
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
    /// Create a space and print its ID
    Create {
        /// Name of the space, shown in lists
        #[arg(long)]
        name: Option<String>,
        /// Policy: restrictive, standard, permissive, or a JSON file
        #[arg(long, value_name = "POLICY", default_value = "standard")]
        policy: String,
        /// Keep the files in memory; commands cannot run in such a space
        #[arg(long, conflicts_with = "copy")]
        memory: bool,
        /// Copy this directory of the server's machine into the space
        #[arg(long, value_name = "DIR")]
        copy: Option<PathBuf>,
        /// Remove the space after this many seconds
        #[arg(long, value_name = "SECONDS", value_parser = super::exec::amount::count)]
        ttl: Option<u64>,
    },
    /// List spaces, the newest first
    List,
    /// Show a space with its policy
    Show {
        /// ID of the space
        space: SpaceId,
    },
    /// Create a token with which an agent works in a space, and print it
    ///
    /// The token opens the runs, files and tools of this space. It cannot answer approvals, change policies or reach
    /// other spaces, as the token of the server can.
    Token {
        /// ID of the space
        space: SpaceId,
        /// List the tokens of the space instead, the newest first
        #[arg(long, conflicts_with = "revoke")]
        list: bool,
        /// Revoke the token with this ID instead
        #[arg(long, value_name = "TOKEN")]
        revoke: Option<SpaceTokenId>,
    },
    /// Remove a space and its files
    Rm {
        /// ID of the space
        space: SpaceId,
    },
}

impl CliCommand for SpaceCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

/// Replaces a field of the request at the start of an error by the flag that sets it.
fn by_flags(error: Error) -> Error {
    const FLAGS: [(&str, &str); 4] = [
        ("/name", "--name"),
        ("/policy", "--policy"),
        ("/copyOf", "--copy"),
        ("/ttlSeconds", "--ttl"),
    ];
    let found = FLAGS.iter().find_map(|(field, flag)| {
        let rest = error.message().strip_prefix(field)?;
        rest.starts_with([' ', '/']).then(|| format!("{flag}{rest}"))
    });
    let Some(message) = found else { return error };
    let by_flag = Error::new(error.code(), error.kind(), message);
    match error.hint() {
        Some(hint) => by_flag.with_hint(hint),
        None => by_flag,
    }
}

async fn run(command: SpaceCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = command.server.client()?;
    let server_flags = command.server.repeated();
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
            let made = client.send_request("POST", "/v1/spaces", Some(&Value::Object(body))).await;
            let made = made.map_err(by_flags)?;
            print(terminal, &made["data"], |space| text(&space["id"]))?;
            if terminal.is_watched() && terminal.format() == Format::Text {
                let id = text(&made["data"]["id"]);
                terminal.note(&format!(
                    "run operations in it: agent-backend run FILE --space {id}{server_flags}"
                ));
            }
            Ok(())
        }
        SpaceAction::List => {
            let spaces = client.send_request("GET", "/v1/spaces?perPage=200", None).await?;
            if terminal.format() == Format::Text && spaces["data"] == json!([]) {
                terminal.note("there are no spaces; create one: agent-backend space create");
                return Ok(());
            }
            print(terminal, &spaces["data"], list)?;
            if spaces["meta"]["hasMore"] == true {
                terminal.note("the newest 200 are shown");
            }
            Ok(())
        }
        SpaceAction::Show { space } => {
            let shown = client.send_request("GET", &format!("/v1/spaces/{space}"), None).await?;
            if terminal.format() == Format::Json {
                return terminal.value(&shown["data"]);
            }
            let runs =
                client.send_request("GET", &format!("/v1/spaces/{space}/runs"), None).await?;
            terminal.line(details(&shown["data"], &runs["data"]).trim_end())
        }
        SpaceAction::Token { space, list: true, .. } => {
            let path = format!("/v1/spaces/{space}/tokens");
            let tokens = client.send_request("GET", &path, None).await?;
            if terminal.format() == Format::Text && tokens["data"] == json!([]) {
                terminal.note("the space has no tokens");
                return Ok(());
            }
            print(terminal, &tokens["data"], token_list)
        }
        SpaceAction::Token { space, revoke: Some(token), .. } => {
            let path = format!("/v1/spaces/{space}/tokens/{token}");
            client.send_request("DELETE", &path, None).await?;
            Ok(())
        }
        SpaceAction::Token { space, .. } => {
            let path = format!("/v1/spaces/{space}/tokens");
            let created = client.send_request("POST", &path, None).await?;
            print(terminal, &created["data"], |token| text(&token["secret"]))?;
            if terminal.format() == Format::Text {
                let id = text(&created["data"]["id"]);
                terminal.note(&format!(
                    "the server keeps only a digest: this token is not shown again; to revoke it: \
                     agent-backend space token {space} --revoke {id}{server_flags}"
                ));
            }
            Ok(())
        }
        SpaceAction::Rm { space } => {
            client.send_request("DELETE", &format!("/v1/spaces/{space}"), None).await?;
            Ok(())
        }
    }
}

/// Spaces as a table for people.
fn list(spaces: &Value) -> String {
    let line = |id: &str, status: &str, policy: &str, name: &str| {
        format!("{id:<30}  {status:<8}  {policy:<12}  {name}").trim_end().to_owned()
    };
    let mut lines = vec![line("SPACE", "STATUS", "POLICY", "NAME")];
    for space in spaces.as_array().into_iter().flatten() {
        let (id, status) = (text(&space["id"]), text(&space["status"]));
        lines.push(line(&id, &status, &text(&space["policy"]["name"]), &text(&space["name"])));
    }
    lines.join("\n")
}

/// Tokens as a table for people.
fn token_list(tokens: &Value) -> String {
    let mut lines = vec![format!("{:<30}  CREATED", "TOKEN")];
    for token in tokens.as_array().into_iter().flatten() {
        lines.push(format!("{:<30}  {}", text(&token["id"]), text(&token["createdAt"])));
    }
    lines.join("\n")
}

/// A space as text for people, with its policy and its latest runs.
fn details(space: &Value, runs: &Value) -> String {
    let mut lines = Vec::new();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{name:<11} {value}"));
        }
    };
    for (name, member) in
        [("space", "id"), ("name", "name"), ("about", "description"), ("status", "status")]
    {
        row(name, text(&space[member]));
    }
    row("backend", text(&space["backend"]));
    let policy = &space["policy"];
    row("policy", format!("{}: {}", text(&policy["name"]), text(&policy["description"])));
    let names = |list: &Value| {
        let names = list.as_array().into_iter().flatten().map(text);
        names.collect::<Vec<_>>().join(" ")
    };
    row("blocked", names(&policy["filesystem"]["blockedPaths"]));
    row("commands", names(&policy["shell"]["allowedCommands"]));
    row("asked", names(&policy["shell"]["approvalRequired"]));
    let advisory: Vec<String> = space["policyControls"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|control| control["commands"] == "advisory")
        .map(|control| text(&control["rule"]))
        .collect();
    row("advisory", advisory.join(" "));
    let variables = space["env"].as_object().into_iter().flatten();
    row("variables", variables.map(|(name, _)| text(&json!(name))).collect::<Vec<_>>().join(" "));
    row("created", text(&space["createdAt"]));
    row("expires", text(&space["expiresAt"]));
    for run in runs.as_array().into_iter().flatten() {
        let (id, status) = (text(&run["id"]), text(&run["status"]));
        let count = run["operationCount"].as_u64().unwrap_or_default();
        let plural = if count == 1 { "" } else { "s" };
        row("run", format!("{id}  {status}, {count} operation{plural}"));
    }
    lines.join("\n")
}

/// Prints a value as JSON, or as the text that `shown` returns for it.
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

/// The text of a JSON string, with control characters escaped so that it cannot move the cursor.
pub(super) fn text(value: &Value) -> String {
    escape_unprintable(value.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ab_core::{ErrorCode, ErrorKind};

    use super::*;

    #[test]
    fn errors_name_the_flag_that_sets_a_field() {
        let check = |message: &str, expect: &str| {
            let error = Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message);
            assert_eq!(by_flags(error).message(), expect);
        };
        check("/copyOf is not a directory", "--copy is not a directory");
        check("/policy/foo is not a known field", "--policy/foo is not a known field");
        check("/names is odd", "/names is odd");
    }

    #[test]
    fn a_space_is_shown_with_its_policy_and_runs() {
        let space = json!({
            "id": "spc_1", "name": "mi\u{1b}ne", "status": "ready", "backend": "directory",
            "policy": { "name": "standard", "description": "Common", "shell": { "approvalRequired": ["rm -r"] } },
            "policyControls": [
                { "rule": "shell.timeout", "commands": "enforced" },
                { "rule": "shell.allowedCommands", "commands": "advisory" },
            ],
            "env": { "KEY": "secret" }, "createdAt": "2026-01-31T12:00:00Z",
        });
        let runs = json!([{ "id": "run_1", "status": "completed", "operationCount": 1 }]);
        let expect = "\
space       spc_1
name        mi\\u{1b}ne
status      ready
backend     directory
policy      standard: Common
asked       rm -r
advisory    shell.allowedCommands
variables   KEY
created     2026-01-31T12:00:00Z
run         run_1  completed, 1 operation";
        assert_eq!(details(&space, &runs), expect);
        let listed = "\
SPACE                           STATUS    POLICY        NAME
spc_1                           ready     standard      mi\\u{1b}ne";
        assert_eq!(list(&json!([space])), listed);
    }
}
