//! Log lines on standard error, for people or for programs.

use std::str::FromStr;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// From which level on.
#[derive(Clone, Debug)]
pub(crate) struct Level(LevelFilter);

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let level = LevelFilter::from_str(text);
        level.map(Level).map_err(|_| "one of error, warn, info, debug, trace or off".to_owned())
    }
}

/// From here on, what happens is written.
pub(crate) fn start(format: LogFormat, level: &Level) {
    // What libraries have to say matters when it is bad.
    let filter = EnvFilter::new(format!("warn,ab_server={0},ab_cli={0},ab_remote={0}", level.0));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would tell of a line that cannot be written on the stream that takes none, and panic.
        .log_internal_errors(false);
    // A second call in one process keeps the first one's way.
    let _ = match format {
        LogFormat::Text => lines.with_ansi(false).with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_target(false).try_init(),
    };
}
