//! Parses the command line: the definition of the commands, and the errors for invalid arguments.

use std::error::Error;
use std::ffi::OsString;

use ab_api::IdError;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde_json::json;

use crate::commands::{COMMANDS, CliCommand, CommandEntry};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::help;
use crate::json;
use crate::session_ref::InvalidReference;
use crate::terminal::{Format, talk};

const SHORT_AFTER_HELP: &str = "\
Example:
  agent-backend exec --timeout 5m make test

More examples and the exit codes: agent-backend --help";

const LONG_AFTER_HELP: &str = "\
Examples:
  agent-backend fs write notes/plan.md --content 'look around'
  agent-backend fs edit notes/plan.md --old around --new closer
  agent-backend fs tree --root ../project --depth 2
  agent-backend fs grep 'fn main' src --include '*.rs' -C 2
  agent-backend fs glob '**/*.toml' --exclude vendor
  agent-backend fs cat src/main.rs --offset 100 --limit 50 -n
  agent-backend fs diff old.toml new.toml
  agent-backend fs stat src/main.rs --json
  agent-backend fs ls --remote wss://box.example/ssh --token-file token
  agent-backend exec --timeout 5m make test
  agent-backend job list
  agent-backend policy check 'cd src && make'
  agent-backend mcp --root ../project
  agent-backend daemon --root ../project
  agent-backend serve
  agent-backend task 'Fix the failing test' --agent claude --follow
  agent-backend doctor

Results go to standard output, notes and errors to standard error. With --json, the result is one JSON
value, and an error is {\"error\": {\"code\", \"kind\", \"message\", \"path\", \"hint\"}}.

Exit codes:
  0    done
  1    failed, or a negative result: not found, conflict, no match, different
  2    invalid command line
  3    refused: the path leaves the workspace, or a rule forbids it
  4    unavailable: a program or server is missing or does not answer
  70   a bug in agent-backend
  130  interrupted (143: terminated)

exec exits with the exit code of its command; see `agent-backend exec --help`.";

/// Long-running commands that clients start often. They are parsed without the flags of the other
/// commands, which saves time and memory.
const SERVERS: &[&str] = &["daemon", "mcp"];

/// The definition of the whole command line.
pub(crate) fn definition() -> clap::Command {
    root(COMMANDS.iter())
        .about("Workspaces, sandboxes and sessions for AI agents")
        .after_help(SHORT_AFTER_HELP)
        .after_long_help(help::unwrapped(LONG_AFTER_HELP))
}

/// The definition of the program with only these commands.
fn root<'a>(entries: impl Iterator<Item = &'a CommandEntry>) -> clap::Command {
    clap::Command::new("agent-backend")
        .version(env!("CARGO_PKG_VERSION"))
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(entries.map(CommandEntry::definition))
}

/// A request for help, or an error about invalid arguments. The program exits with it.
#[derive(Debug)]
pub(crate) struct Refusal {
    error: clap::Error,
    /// The command that the arguments name, such as `agent-backend fs mv`.
    command: String,
    format: Format,
    exit: Exit,
}

pub(crate) fn parse(
    arguments: impl Iterator<Item = OsString>,
) -> Result<Box<dyn CliCommand>, Refusal> {
    let arguments = completed(arguments.collect());
    let refuse = |error| Refusal {
        error: explained(error, &arguments),
        command: named_command(&arguments).1,
        format: wanted_format(&arguments),
        exit: usage_exit(&arguments),
    };
    let word = arguments.get(1).and_then(|argument| argument.to_str());
    let entries = || COMMANDS.iter();
    let definition = match word {
        Some(word) if SERVERS.contains(&word) => root(entries().filter(|entry| entry.name == word)),
        _ => definition(),
    };
    let matches = definition
        .try_get_matches_from(&arguments)
        .map_err(|error| refuse(with_grouped_commands(error, &arguments)))?;
    let chosen = matches
        .subcommand()
        .and_then(|(name, matches)| Some((entries().find(|entry| entry.name == name)?, matches)));
    let Some((entry, matches)) = chosen else {
        let error = clap::Error::new(ErrorKind::MissingSubcommand).with_cmd(&self::definition());
        return Err(refuse(error));
    };
    entry.parse(matches).map_err(refuse)
}

/// Shortens the lists of commands in a short help. The long help describes every command.
fn with_grouped_commands(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let mut ours = arguments.iter().skip(1).take_while(|argument| *argument != "--");
    if !is_help || ours.any(|argument| argument == "--help" || argument == "help") {
        return error;
    }
    let mut command = definition();
    // The command `help` is added here.
    command.build();
    let grouped = help::with_grouped_commands(command).try_get_matches_from(arguments);
    grouped.err().unwrap_or(error)
}

/// Names that other programs use for one of our subcommands: the parent command, the other name,
/// and our name.
const OTHER_NAMES: &[(&str, &str, &str)] = &[
    ("fs", "find", "glob"),
    ("fs", "search", "grep"),
    ("fs", "rg", "grep"),
    ("fs", "head", "cat"),
    ("fs", "tail", "cat"),
    ("fs", "less", "cat"),
    ("fs", "read", "cat"),
    ("fs", "copy", "cp"),
    ("fs", "move", "mv"),
    ("fs", "rename", "mv"),
    ("fs", "delete", "rm"),
    ("fs", "remove", "rm"),
    ("fs", "list", "ls"),
    ("fs", "dir", "ls"),
    ("fs", "download", "get"),
    ("fs", "upload", "put"),
    ("job", "ps", "list"),
    ("job", "stop", "kill"),
    ("job", "end", "kill"),
    ("job", "watch", "attach"),
];

/// If clap found no similar subcommand, suggests our subcommand for the name that other programs
/// use.
fn with_other_name(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    // clap lists the most similar name last.
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
        let names = names.iter().rev().cloned().collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
    let given = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(given)) => given.as_str(),
        _ => return error,
    };
    let above = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let known = OTHER_NAMES.iter().find(|(command, other, _)| (*command, *other) == (above, given));
    if let (Some((.., name)), None) = (known, error.get(ContextKind::SuggestedSubcommand)) {
        let names = ContextValue::Strings(vec![(*name).to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, names);
    }
    error
}

/// What an id can refer to, and the command that lists these ids.
const LIST_COMMANDS: &[(&str, &str)] = &[
    ("approval", "list the approvals: agent-backend approvals list --status all"),
    ("draft", "list the drafts: agent-backend draft list"),
    ("key", "list the keys: agent-backend key list"),
    ("run", "list the runs of a space: agent-backend space show SPACE"),
    ("session", "list the sessions: agent-backend session list"),
    ("space", "list the spaces: agent-backend space list"),
    ("token", "list the tokens of a space: agent-backend space token SPACE --list"),
];

/// If an argument is not an id, names the command that lists the ids.
fn with_list_command(mut error: clap::Error) -> clap::Error {
    let kind = error.source().and_then(|cause| {
        let id = cause.downcast_ref::<IdError>().map(IdError::kind);
        id.or_else(|| Some(cause.downcast_ref::<InvalidReference>()?.kind))
    });
    let known = LIST_COMMANDS.iter().find(|(known, _)| Some(*known) == kind);
    if let Some((_, tip)) = known {
        let tips = ContextValue::StyledStrs(vec![StyledStr::from(*tip)]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// Flags of other programs. Each entry contains our flags with the same meaning. The first of our
/// flags that the command has is suggested.
const OTHER_FLAGS: &[(&str, &[&str])] = &[
    ("address", &["host"]),
    ("background", &["detach"]),
    ("bind-try", &["bind"]),
    ("chdir", &["cwd"]),
    ("directory", &["cwd", "root"]),
    ("dir", &["cwd", "root"]),
    ("environment", &["env"]),
    ("ignore", &["exclude"]),
    ("identity-file", &["identity"]),
    ("listen", &["host"]),
    ("log", &["log-level"]),
    ("max-depth", &["depth"]),
    ("maxdepth", &["depth"]),
    ("mem", &["memory"]),
    ("memory-limit", &["memory"]),
    ("mount", &["bind"]),
    ("net", &["network"]),
    ("pids-limit", &["processes"]),
    ("policy", &["profile"]),
    ("readonly", &["read-only"]),
    ("ro-bind", &["bind"]),
    ("sandbox", &["isolation"]),
    ("setenv", &["env"]),
    ("terminal", &["pty"]),
    ("time-limit", &["timeout"]),
    ("token", &["token-file", "auth-token-file"]),
    ("unshare-net", &["network"]),
    ("url", &["remote", "server"]),
    ("volume", &["bind"]),
    ("working-directory", &["cwd"]),
    ("workspace", &["root"]),
];

/// Suggests one of our flags if the user typed the flag of another program.
fn with_other_flag(error: &mut clap::Error, command: &clap::Command) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return };
    let given = given.trim_start_matches('-');
    let given = given.split('=').next().unwrap_or_default();
    let known = OTHER_FLAGS.iter().find(|(other, _)| *other == given);
    let ours = known.into_iter().flat_map(|(_, ours)| *ours);
    let is_known = |name: &&&str| {
        let mut flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        flags.any(|flag| flag.get_long() == Some(**name))
    };
    if let Some(ours) = ours.into_iter().find(is_known) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{ours}")));
    }
}

/// Improves the error for an unknown flag. Removes clap's advice to pass the flag as a value,
/// because the user never means this. Shows the usage of the command instead of the flag that clap
/// guessed.
fn explained(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if error.kind() == ErrorKind::ValueValidation {
        return with_list_command(error);
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return with_other_name(error, arguments);
    }
    error.remove(ContextKind::Suggested);
    let (mut command, _) = named_command(arguments);
    with_other_flag(&mut error, &command);
    error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    error
}

/// The command that the arguments name, and its full name, which includes its parent commands.
fn named_command(arguments: &[OsString]) -> (clap::Command, String) {
    let mut command = definition();
    command.build();
    let mut path = command.get_name().to_owned();
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(next) = command.find_subcommand(word).cloned() else { break };
        command = next;
        path = format!("{path} {}", command.get_name());
    }
    (command, path)
}

/// Adds `daemon --local-only` if the first argument is `--backend`. Clients that use a workspace in
/// memory start this program with flags only and communicate over its standard input and output.
fn completed(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let flag = arguments.get(1).and_then(|argument| argument.to_str()).unwrap_or_default();
    if flag == "--backend" || flag.starts_with("--backend=") {
        arguments.splice(1..1, ["daemon", "--local-only"].map(OsString::from));
    }
    arguments
}

/// The exit code for invalid arguments. Clients of the daemon expect 1. `exec` uses codes that
/// cannot be confused with the exit code of the command that it runs.
fn usage_exit(arguments: &[OsString]) -> Exit {
    match arguments.get(1).and_then(|argument| argument.to_str()) {
        Some("daemon") => Exit::Failed,
        Some("exec") => Exit::OWN_FAILURE,
        _ => Exit::Usage,
    }
}

impl Refusal {
    pub(crate) fn print(&self) -> Exit {
        let asked_for =
            matches!(self.error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        if asked_for {
            return match self.error.print() {
                Ok(()) => Exit::Success,
                Err(error) => Failure::output(error).exit(),
            };
        }
        match self.format {
            // Ignore an error, because standard error may be closed.
            Format::Text => drop(self.error.print()),
            Format::Json => talk(&format!("{}\n", self.as_json())),
        }
        self.exit
    }

    fn as_json(&self) -> serde_json::Value {
        let text = self.error.render().to_string();
        let message = text.lines().next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let tip = text.lines().find_map(|line| line.trim_start().strip_prefix("tip: "));
        let hint =
            tip.map_or_else(|| format!("show the usage: {} --help", self.command), str::to_owned);
        json!({ "error": Failure::usage(message).with_hint(hint).error().map(json::error) })
    }
}

/// The output format that the arguments request, although they could not be parsed.
fn wanted_format(arguments: &[OsString]) -> Format {
    let mut flags = arguments.iter().take_while(|argument| *argument != "--");
    Format::from_flag(flags.any(|argument| argument == "--json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn servers_are_the_same_beside_all_others_and_alone() {
        for name in SERVERS {
            let help = |mut all: clap::Command| {
                all.build();
                all.find_subcommand_mut(name).unwrap().render_long_help().to_string()
            };
            let alone = root(COMMANDS.iter().filter(|entry| entry.name == *name));
            assert_eq!(help(alone), help(definition()), "{name}");
        }
    }

    #[test]
    fn a_refusal_speaks_the_format_that_was_asked_for() {
        for (line, format) in [
            ("agent-backend fs nonsense", Format::Text),
            ("agent-backend fs nonsense --json", Format::Json),
            ("agent-backend fs cat -- --json --root", Format::Text),
        ] {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(wanted_format(&arguments), format, "{line}");
        }
        let line = ["agent-backend", "fs", "mv", "a", "--json"].map(OsString::from);
        let refusal = parse(line.into_iter()).unwrap_err();
        let value = refusal.as_json();
        assert_eq!(value["error"]["code"], "INVALID_CONFIGURATION");
        let message = value["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("required arguments"), "{message}");
        assert_eq!(value["error"]["hint"], "show the usage: agent-backend fs mv --help");
    }

    #[test]
    fn errors_about_ids_name_the_command_that_lists_them() {
        for (line, message, hint) in [
            (
                "wait nosuch --json",
                "this is not the ID of a session or its first characters",
                "list the sessions: agent-backend session list",
            ),
            (
                "wait 01 --json",
                "at least 4 characters of the ID of a session are needed",
                "list the sessions: agent-backend session list",
            ),
            (
                "approvals show nosuch --json",
                "this is not the ID of an approval or its first characters",
                "list the approvals: agent-backend approvals list --status all",
            ),
            (
                "space show x --json",
                "\"x\" is not the ID of a space, such as spc_01JZ7Q…",
                "list the spaces: agent-backend space list",
            ),
        ] {
            let arguments = format!("agent-backend {line}");
            let refusal = parse(arguments.split(' ').map(OsString::from)).unwrap_err();
            let value = refusal.as_json();
            let told = value["error"]["message"].as_str().unwrap_or_default();
            assert!(told.ends_with(message), "{line}: {told}");
            assert_eq!(value["error"]["hint"], hint, "{line}");
        }
    }

    #[test]
    fn the_most_similar_command_is_suggested_first() {
        let line = ["agent-backend", "remot"].map(OsString::from);
        let text = parse(line.into_iter()).unwrap_err().error.render().to_string();
        let tip = text.lines().find(|line| line.contains("tip:")).unwrap_or_default();
        assert!(tip.find("'remote'") < tip.find("'daemon'").or(Some(usize::MAX)), "{text}");
    }
}
