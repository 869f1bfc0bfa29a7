//! `/v1/config`: MCP servers and skills that are stored in a directory. They are not added to
//! messages.

pub(super) mod mcp;
pub(super) mod skills;

use std::collections::BTreeMap;

use ab_api::{MAX_CONFIG_FILE_BYTES, MCP_CONFIG_FILE, SKILLS_CONFIG_FILE};
use ab_core::options::{ReadOptions, WriteMode, WriteOptions};
use ab_core::{ErrorKind, FileVersion};
use axum::http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, Response as Described};

use super::AgentGatewayRoutes;
use super::files::{CallerFiles, ServedDirectory, failed};
use super::problems::described;
use crate::app::HttpApp;
use crate::extract::json_terms;
use crate::problem::{Problem, ProblemKind};

const MAX_NAME: usize = 256;
/// How often a change is attempted if another program changes the file at the same time.
const ATTEMPTS: usize = 20;

/// Describes the errors of every configuration route.
pub(crate) struct ConfigProblems;

impl IntoResponses for ConfigProblems {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        described(&[
            (StatusCode::NOT_FOUND, "There is no such entry, or this server serves no files"),
            (StatusCode::CONFLICT, "Other programs change the file at the same time"),
            (StatusCode::GONE, "The server is closing"),
            (StatusCode::PAYLOAD_TOO_LARGE, "The entry or the file of entries is too large"),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The Content-Type is not JSON"),
            (StatusCode::UNPROCESSABLE_ENTITY, "The file of entries cannot be used"),
            (StatusCode::SERVICE_UNAVAILABLE, "The file system is not available"),
            (StatusCode::GATEWAY_TIMEOUT, "The file system took too long"),
            (StatusCode::INSUFFICIENT_STORAGE, "There is no space left"),
        ])
    }
}

/// The kind of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Mcp,
    Skills,
}

impl EntryKind {
    fn as_str(self) -> &'static str {
        match self {
            EntryKind::Mcp => "mcp",
            EntryKind::Skills => "skills",
        }
    }

    /// The file with the entries, relative to the directory.
    fn file(self) -> &'static str {
        match self {
            EntryKind::Mcp => MCP_CONFIG_FILE,
            EntryKind::Skills => SKILLS_CONFIG_FILE,
        }
    }

    fn name_parameter(self) -> &'static str {
        match self {
            EntryKind::Mcp => "mcpName",
            EntryKind::Skills => "skillName",
        }
    }
}

/// The file with the entries of one kind in one directory.
struct ConfigFile<'a> {
    surface: &'a AgentGatewayRoutes,
    files: &'a ServedDirectory,
    kind: EntryKind,
    /// The path of the file, relative to the served root.
    path: String,
}

impl<'a> ConfigFile<'a> {
    async fn find(
        app: &'a HttpApp,
        files: &'a ServedDirectory,
        kind: EntryKind,
        directory: Option<&str>,
    ) -> Result<ConfigFile<'a>, Problem> {
        let surface = app.gateway()?;
        let directory = required("directory", directory)?;
        let directory = files.inside(directory)?;
        let stat = files.backend.stat(&directory).await.map_err(failed)?;
        if !stat.kind.is_dir() {
            let detail = format!("invalid directory: {directory} is not a directory");
            return Err(Problem::new(ProblemKind::Invalid, detail));
        }
        let path = format!("{directory}/{}", kind.file());
        Ok(ConfigFile { surface, files, kind, path })
    }

    async fn load(&self) -> Result<(Map<String, Value>, Option<FileVersion>), Problem> {
        let options = ReadOptions { max_bytes: MAX_CONFIG_FILE_BYTES, ..ReadOptions::default() };
        let content = match self.files.backend.read_with(&self.path, options).await {
            Ok(content) => content,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok((Map::new(), None));
            }
            Err(error) => return Err(failed(error)),
        };
        match serde_json::from_slice(&content.bytes) {
            Ok(Value::Object(entries)) => Ok((entries, Some(content.stat.version))),
            Ok(_) => Err(self.unusable("it is not a JSON object of entries")),
            Err(error) => Err(self.unusable(&format!("it is not JSON: {error}"))),
        }
    }

    /// Changes the entries. Changes by this server run one at a time. If another program changes
    /// the file at the same time, the server detects this and repeats the change.
    async fn change(&self, change: impl Fn(&mut Map<String, Value>)) -> Result<(), Problem> {
        let _turn = self.surface.config_turn.acquire().await;
        for _ in 0..ATTEMPTS {
            let (mut entries, version) = self.load().await?;
            let before = entries.len();
            change(&mut entries);
            if version.is_none() && entries.is_empty() && before == 0 {
                return Ok(());
            }
            let mut text = serde_json::to_vec_pretty(&entries)
                .map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
            text.push(b'\n');
            if text.len() as u64 > MAX_CONFIG_FILE_BYTES {
                let detail =
                    format!("all entries together have more than {MAX_CONFIG_FILE_BYTES} bytes");
                return Err(Problem::new(ProblemKind::TooLarge, detail));
            }
            let mode = match version {
                Some(_) => WriteMode::Replace,
                None => WriteMode::CreateNew,
            };
            let options =
                WriteOptions { mode, expected_version: version, ..WriteOptions::default() };
            match self.files.backend.write_with(&self.path, text, options).await {
                Ok(_) => return Ok(()),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Conflict | ErrorKind::AlreadyExists | ErrorKind::NotFound
                    ) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let detail = format!("other programs keep changing {}", self.path);
        Err(Problem::new(ProblemKind::Conflict, detail))
    }

    async fn read<T: DeserializeOwned>(&self, name: Option<&str>) -> Result<T, Problem> {
        let name = self.name(name)?;
        let (mut entries, _) = self.load().await?;
        let Some(entry) = entries.shift_remove(name) else {
            let id = format!("{}:{name}", self.kind.as_str());
            let detail = format!("there is no entry {name:?} in {}", self.path);
            return Err(Problem::new(ProblemKind::NotFound, detail)
                .coded("session_not_found")
                .titled("Session Not Found")
                .with_member("sessionId", id));
        };
        self.parsed(name, entry)
    }

    async fn list<T: DeserializeOwned>(&self) -> Result<BTreeMap<String, T>, Problem> {
        let (entries, _) = self.load().await?;
        let parsed = |(name, entry): (String, Value)| {
            let entry = self.parsed(&name, entry)?;
            Ok((name, entry))
        };
        entries.into_iter().map(parsed).collect()
    }

    async fn write<T: Serialize>(&self, name: Option<&str>, entry: &T) -> Result<(), Problem> {
        let name = self.name(name)?;
        let entry = serde_json::to_value(entry)
            .map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
        self.change(|entries| {
            entries.insert(name.to_owned(), entry.clone());
        })
        .await
    }

    async fn delete(&self, name: Option<&str>) -> Result<(), Problem> {
        let name = self.name(name)?;
        self.change(|entries| {
            entries.shift_remove(name);
        })
        .await
    }

    fn name<'n>(&self, name: Option<&'n str>) -> Result<&'n str, Problem> {
        let parameter = self.kind.name_parameter();
        let name = required(parameter, name)?;
        if name.len() > MAX_NAME {
            let detail = format!("invalid {parameter}: must have at most {MAX_NAME} bytes");
            return Err(Problem::new(ProblemKind::Invalid, detail));
        }
        Ok(name)
    }

    /// Parses an entry of the file, which may have been written by another program.
    fn parsed<T: DeserializeOwned>(&self, name: &str, entry: Value) -> Result<T, Problem> {
        serde_json::from_value(entry).map_err(|error| {
            let why = json_terms(&error.to_string());
            self.unusable(&format!("the entry {name:?} is not valid: {why}"))
        })
    }

    /// The problem for an invalid file, which may have been written by another program.
    fn unusable(&self, why: &str) -> Problem {
        let detail = format!("cannot use {}: {why}; correct the file or remove it", self.path);
        Problem::new(ProblemKind::Unprocessable, detail)
            .coded("invalid_config")
            .titled("Invalid Config")
    }
}

fn required<'a>(parameter: &str, value: Option<&'a str>) -> Result<&'a str, Problem> {
    match value.map(str::trim) {
        Some(value) if !value.is_empty() => Ok(value),
        Some(_) | None => {
            Err(Problem::new(ProblemKind::Invalid, format!("missing {parameter} in the query")))
        }
    }
}
