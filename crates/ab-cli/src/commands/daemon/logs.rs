//! Log lines on standard error, as text for people or as JSON for programs.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, registry};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

/// The least severe level that is logged.
#[derive(Clone, Debug)]
pub(crate) struct Level(LevelFilter);

impl Level {
    pub(crate) fn warn() -> Level {
        Level(LevelFilter::WARN)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let level = LevelFilter::from_str(text);
        level.map(Level).map_err(|_| "must be error, warn, info, debug, trace or off".to_owned())
    }
}

/// Starts to log to standard error.
pub(crate) fn start(format: LogFormat, level: &Level) {
    // Of libraries, only warnings and errors are logged.
    let ours = ["ab_server", "ab_cli", "ab_remote", "ab_control", "ab_executor", "audit"];
    let ours = ours.map(|target| (target, level.0));
    let filter = Targets::new().with_default(LevelFilter::WARN).with_targets(ours);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        // Without this, the layer reports a failed write to standard error on standard error
        // itself, and panics.
        .log_internal_errors(false);
    // If the function is called again in the same process, the first subscriber stays in use.
    let _ = match format {
        LogFormat::Text => registry().with(lines.with_ansi(false).with_filter(filter)).try_init(),
        LogFormat::Json => {
            registry().with(lines.json().flatten_event(true).with_filter(filter)).try_init()
        }
    };
}
