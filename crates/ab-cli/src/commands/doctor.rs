//! `doctor`: what this host offers, and why it does not offer the rest.

use std::env;
use std::path::PathBuf;

use ab_host::facilities::{self, Facility, Isolation, Name, Probe, State};
use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

const GOOD: Style = AnsiColor::Green.on_default();
const FAIR: Style = AnsiColor::Yellow.on_default();
const POOR: Style = AnsiColor::Red.on_default();
const HEADING: Style = Style::new().bold();
const ASIDE: Style = Style::new().dimmed();

/// Say what this host offers for isolating commands
///
/// Everything is tried on a small scale and nothing is left behind. What does not work is listed
/// with its cause and what to do. Something missing is an answer, not an error: the exit code is 0.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// The directory whose file system is tried [default: the current directory]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Print one JSON value
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(command: Doctor, terminal: &mut Terminal) -> Result<(), Failure> {
    let directory = command.root.unwrap_or_else(|| PathBuf::from("."));
    let surroundings = Probe {
        path: env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default(),
        directory: std::path::absolute(&directory).unwrap_or(directory),
    };
    let probed = tokio::task::spawn_blocking(move || facilities::probe(&surroundings)).await;
    let facilities = match probed {
        Ok(facilities) => facilities,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let isolation = Isolation::possible(&facilities);
    match terminal.format() {
        Format::Json => terminal.value(&json!({
            "facilities": facilities.iter().map(value).collect::<Vec<_>>(),
            "isolation": isolation.as_str(),
            "summary": summary(isolation),
        })),
        Format::Text => {
            print(&facilities, terminal)?;
            terminal.line("")?;
            let summary = terminal.painted(HEADING, summary(isolation));
            terminal.line(&summary)
        }
    }
}

/// What it all means, in one line.
fn summary(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Namespaces => {
            "Files are jailed. Commands can be isolated by namespaces, with bwrap."
        }
        Isolation::Landlock => {
            "Files are jailed. Commands can be isolated by landlock and seccomp, not by namespaces."
        }
        Isolation::Nothing => {
            "Files are jailed. Commands cannot be isolated here: see the causes above."
        }
    }
}

fn value(facility: &Facility) -> Value {
    json!({
        "name": facility.name.as_str(),
        "state": facility.state.as_str(),
        "detail": facility.detail,
        "cause": facility.cause,
        "remedy": facility.remedy,
    })
}

/// One row for each facility, and what lacks below it. A person gets a heading and colours.
fn print(facilities: &[Facility], terminal: &mut Terminal) -> Result<(), Failure> {
    let width = Name::ALL.iter().map(|name| name.as_str().len()).max().unwrap_or(0);
    if terminal.is_watched() {
        let heading = format!("{:<6}  {:<width$}  {}", "WORKS", "FACILITY", "DETAIL");
        let heading = terminal.painted(HEADING, &heading);
        terminal.line(&heading)?;
    }
    for facility in facilities {
        let (word, style) = verdict(facility.state);
        let word = terminal.painted(style, &format!("{word:<6}"));
        let detail = terminal.shown(&facility.detail).into_owned();
        terminal.line(&format!("{word}  {:<width$}  {detail}", facility.name.as_str()))?;
        for (label, text) in [("cause", &facility.cause), ("do", &facility.remedy)] {
            let Some(text) = text else { continue };
            let text = terminal.shown(text).into_owned();
            let aside = terminal.painted(ASIDE, &format!("{label}: {text}"));
            terminal.line(&format!("{:<6}  {:<width$}  {aside}", "", ""))?;
        }
    }
    Ok(())
}

fn verdict(state: State) -> (&'static str, Style) {
    match state {
        State::Working => ("yes", GOOD),
        State::Partial => ("partly", FAIR),
        State::Missing => ("no", POOR),
    }
}
