//! `doctor`: shows which features this host offers, why others are missing, and which policy is in
//! force for commands.

mod elsewhere;
pub(crate) mod sentences;

use std::env;
use std::path::{Path, PathBuf};

use ab_core::effective_policy::{EffectivePolicy, Isolation};
use ab_host::host_features::{
    self, HostFeature, HostFeatureProbeSettings, HostFeatureReport, HostFeatureState,
};
use agent_backend::LocalWorkspaceConfig;
use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::{Value, json};

use super::agent::catalog;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::json as shapes;
use crate::remote::RemoteFlags;
use crate::terminal::{Format, Terminal};
use crate::toolchains::{self, FoundToolchain, Surroundings};
use crate::workspace::{Starter, local_root, temporary_dir};
use sentences::{LimitsOf, print_policy};

const EXAMPLE: &str = "\
Example:
  agent-backend doctor";

const EXAMPLES: &str = "\
Examples:
  agent-backend doctor
  agent-backend doctor --root ../project --json
  agent-backend doctor --remote wss://box.example/ssh --token-file token";

const GOOD: Style = AnsiColor::Green.on_default();
const FAIR: Style = AnsiColor::Yellow.on_default();
const POOR: Style = AnsiColor::Red.on_default();
const HEADING: Style = Style::new().bold();
const ASIDE: Style = Style::new().dimmed();

/// Show how commands are isolated on this machine
///
/// Lists the features of this machine that isolation needs, with the cause and a remedy for each
/// one that does not work. Then describes how commands in the directory are isolated, and lists
/// toolchains and agents. A missing feature is not an error: the exit code is 0.
///
/// With --remote, describes the remote workspace and measures its round-trip time.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, after_long_help = EXAMPLES)]
pub(crate) struct Doctor {
    /// Directory to examine, here or with --remote on the other machine [default: .]
    ///
    /// The environment variable AGENT_BACKEND_ROOT sets it too.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Print one JSON value
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    elsewhere: RemoteFlags,
}

impl CliCommand for Doctor {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(command: Doctor, terminal: &mut Terminal) -> Result<(), Failure> {
    if let Some(url) = command.elsewhere.url()? {
        let backend = command.elsewhere.connect(&url, command.root.as_deref()).await?;
        let told = elsewhere::tell(&url, &backend, terminal).await;
        backend.destroy().await?;
        return told;
    }
    // Choose the directory in the same way as `exec`, so that both describe the same policy.
    let (directory, policy) = match local_root(command.root, Starter::Person) {
        Ok(directory) => {
            let policy = in_force(&directory).await;
            (directory, policy)
        }
        Err(Failure::Usage(error) | Failure::Call(error)) => (PathBuf::from("."), Err(error)),
        Err(failure) => return Err(failure),
    };
    let surroundings = HostFeatureProbeSettings {
        program_search_path: env::var_os("PATH")
            .map(|path| env::split_paths(&path).collect())
            .unwrap_or_default(),
        tested_directory: std::path::absolute(&directory).unwrap_or(directory),
    };
    let probed =
        tokio::task::spawn_blocking(move || host_features::probe_host_features(&surroundings))
            .await;
    let facilities = match probed {
        Ok(facilities) => facilities,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    // Use the isolation that commands really get. The host features may suggest a different
    // isolation.
    let isolation = policy.as_ref().ok().and_then(|policy| policy.isolation);
    let toolchains = toolchains::find(&Surroundings::of_process());
    match terminal.format() {
        Format::Json => terminal.value(&json!({
            "facilities": facilities.iter().map(value).collect::<Vec<_>>(),
            "isolation": isolation.map(Isolation::as_str),
            "summary": summary(isolation),
            "toolchains": toolchains.iter().map(toolchain_value).collect::<Vec<_>>(),
            "agents": agents_value(),
            "in_force": match &policy {
                Ok(policy) => shapes::effective(policy),
                Err(error) => json!({ "error": shapes::error(error) }),
            },
        })),
        Format::Text => {
            print(&facilities, terminal)?;
            terminal.line("")?;
            match &policy {
                Ok(policy) => print_policy(policy, LimitsOf::AnyCommand, terminal)?,
                Err(error) => {
                    terminal.line(&format!("Commands cannot run here: {error}"))?;
                    if let Some(hint) = error.hint() {
                        terminal.line(&format!("hint: {hint}"))?;
                    }
                }
            }
            terminal.line("")?;
            print_toolchains(&toolchains, terminal)?;
            terminal.line("")?;
            print_agents(terminal)?;
            terminal.line("")?;
            let summary = terminal.painted(HEADING, summary(isolation));
            terminal.line(&summary)
        }
    }
}

/// The policy that would be in force for a command in this directory.
async fn in_force(directory: &Path) -> Result<EffectivePolicy, ab_core::Error> {
    let mut config = LocalWorkspaceConfig::new(directory);
    config.options.exec.temporary_dir = temporary_dir();
    let backend = agent_backend::local_with(config)?;
    let policy = backend.effective_policy().await;
    backend.destroy().await?;
    policy
}

/// Prints one row for each toolchain of the user that commands may use.
fn print_toolchains(found: &[FoundToolchain], terminal: &mut Terminal) -> Result<(), Failure> {
    if found.is_empty() {
        let none = "No toolchains were found outside the system's directories.";
        return terminal.line(none);
    }
    let width = found.iter().map(|found| found.name.len()).max().unwrap_or(0);
    for FoundToolchain { name, toolchain } in found {
        let shown = if toolchain.program_dirs.is_empty() {
            &toolchain.readable_paths
        } else {
            &toolchain.program_dirs
        };
        let paths: Vec<String> = shown.iter().map(|path| path.display().to_string()).collect();
        let paths = terminal.shown(&paths.join(", ")).into_owned();
        terminal.line(&format!("toolchain  {name:<width$}  {paths}"))?;
    }
    terminal.line("Commands can read these toolchains. To exclude them, pass --toolchain none.")
}

/// Prints the state of each agent. An agent that is ready has one row. An agent that is not ready
/// has one row for each thing that it needs.
fn print_agents(terminal: &mut Terminal) -> Result<(), Failure> {
    let agents = match catalog::readiness() {
        Ok(agents) => agents,
        Err(failure) => {
            let cause = failure.error().map(ToString::to_string).unwrap_or_default();
            return terminal.line(&format!("agents: the configuration cannot be read: {cause}"));
        }
    };
    let width = agents.iter().map(|(id, _)| id.len()).max().unwrap_or(0);
    for (id, missing) in agents {
        let (word, style) = if missing.is_empty() { ("ready", GOOD) } else { ("no", FAIR) };
        let word = terminal.painted(style, &format!("{word:<5}"));
        let mut needs = missing.iter();
        let first = needs.next().map(String::as_str).unwrap_or_default();
        let first = terminal.shown(first).into_owned();
        terminal.line(format!("agent  {word}  {id:<width$}  {first}").trim_end())?;
        for need in needs {
            let need = terminal.shown(need).into_owned();
            terminal.line(&format!("{:12}  {:<width$}  {need}", "", ""))?;
        }
    }
    Ok(())
}

fn agents_value() -> Value {
    let row = |(id, missing): (String, Vec<String>)| json!({ "id": id, "ready": missing.is_empty(), "missing": missing });
    match catalog::readiness() {
        Ok(agents) => agents.into_iter().map(row).collect(),
        Err(_) => Value::Null,
    }
}

fn toolchain_value(FoundToolchain { name, toolchain }: &FoundToolchain) -> Value {
    let texts = |paths: &[PathBuf]| -> Vec<String> {
        paths.iter().map(|path| path.display().to_string()).collect()
    };
    json!({ "name": name, "bin": texts(&toolchain.program_dirs), "readable": texts(&toolchain.readable_paths) })
}

/// One line with the overall result.
fn summary(isolation: Option<Isolation>) -> &'static str {
    match isolation {
        Some(Isolation::Bwrap) => {
            "File operations stay in the workspace. Commands are isolated by namespaces, with bwrap."
        }
        Some(Isolation::Landlock) => {
            "File operations stay in the workspace. Commands are isolated by landlock and seccomp, not \
             by namespaces. Agents of sessions can use MCP servers over HTTP only."
        }
        Some(Isolation::Software | Isolation::None | Isolation::Auto) => {
            "File operations stay in the workspace. Commands are not isolated here: see the causes \
             above."
        }
        None => {
            "File operations stay in the workspace. Commands cannot run here: see the cause above."
        }
    }
}

fn value(facility: &HostFeatureReport) -> Value {
    json!({
        "name": facility.feature.as_str(),
        "state": facility.state.as_str(),
        "detail": facility.detail,
        "cause": facility.cause,
        "remedy": facility.remedy,
    })
}

/// Prints one row for each host feature, and below it what is missing. On a terminal it adds a
/// heading and colours.
fn print(facilities: &[HostFeatureReport], terminal: &mut Terminal) -> Result<(), Failure> {
    let width = HostFeature::ALL.iter().map(|name| name.as_str().len()).max().unwrap_or(0);
    if terminal.is_watched() {
        let heading = format!("{:<6}  {:<width$}  {}", "WORKS", "FACILITY", "DETAIL");
        let heading = terminal.painted(HEADING, &heading);
        terminal.line(&heading)?;
    }
    for facility in facilities {
        let (word, style) = verdict(facility.state);
        let word = terminal.painted(style, &format!("{word:<6}"));
        let detail = terminal.shown(&facility.detail).into_owned();
        terminal.line(&format!("{word}  {:<width$}  {detail}", facility.feature.as_str()))?;
        for (label, text) in [("cause", &facility.cause), ("do", &facility.remedy)] {
            let Some(text) = text else { continue };
            let text = terminal.shown(text).into_owned();
            let aside = terminal.painted(ASIDE, &format!("{label}: {text}"));
            terminal.line(&format!("{:<6}  {:<width$}  {aside}", "", ""))?;
        }
    }
    Ok(())
}

fn verdict(state: HostFeatureState) -> (&'static str, Style) {
    match state {
        HostFeatureState::Working => ("yes", GOOD),
        HostFeatureState::Partial => ("partly", FAIR),
        HostFeatureState::Missing => ("no", POOR),
    }
}
