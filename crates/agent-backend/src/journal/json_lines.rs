//! A journal for machines: one JSON object on one line for each call.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::journal::{JournalRecord, JournalWriter};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::sink::Sink;

/// Writes each record as one line of JSON. Absent fields are omitted.
#[derive(Debug)]
pub struct JsonLinesJournalWriter(Sink);

impl JsonLinesJournalWriter {
    /// Appends to a file. Creates the file if it is missing. Lines are not mixed even if several
    /// processes append to the same file.
    pub fn open_append(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(|error| {
            let message = format!("cannot open the journal {}: {error}", path.display());
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
                .with_source(error)
        })?;
        Ok(Self::new(file))
    }

    pub fn new(writer: impl Write + Send + 'static) -> Self {
        Self(Sink::new(writer))
    }

    /// The number of lines that could not be written.
    pub fn lost_line_count(&self) -> u64 {
        self.0.lost()
    }
}

impl JournalWriter for JsonLinesJournalWriter {
    fn write(&self, record: &JournalRecord) {
        self.0.line(object(record).to_string());
    }
}

fn object(record: &JournalRecord) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(key.to_owned(), value);
        }
    };
    let at = Timestamp::try_from(record.at).map(|at| at.to_string()).ok();
    put("timestamp", at.map(Value::from));
    put("operation", Some(record.verb.as_str().into()));
    put("actor", Some(record.actor.clone().into()));
    put("workspace", record.workspace.clone().map(Value::from));
    put("path", record.path.clone().map(Value::from));
    put("to", record.to.clone().map(Value::from));
    put("command", record.command.clone().map(Value::from));
    put("success", Some(record.success.into()));
    let failure = record.failure.as_ref().map(|failure| {
        json!({ "code": failure.code.map(|code| code.as_str()), "message": failure.message })
    });
    put("error", failure);
    put("exitCode", record.exit_code.map(Value::from));
    put("stdout", record.stdout.clone().map(Value::from));
    put("stderr", record.stderr.clone().map(Value::from));
    put("bytes", Some(record.bytes.into()));
    put("durationMs", Some((record.duration.as_secs_f64() * 1000.0).into()));
    Value::Object(object)
}
