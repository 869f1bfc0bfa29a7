//! Shows the configuration to people and programs: every value with its origin, without secrets.

use std::path::PathBuf;
use std::time::Duration;

use ab_acp::catalog::AgentCatalogEntry;
use serde_json::{Map, Value, json};

use super::retention::{UNLIMITED, period_text, size_text};
use super::{Config, Origin, Setting};
use crate::secrets;

/// The text that replaces a secret value.
const REDACTED: &str = "(redacted)";

/// One value of the configuration with its key and origin.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) key: &'static str,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

impl Config {
    /// All values, in the order of the file.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let path = |path: &PathBuf| json!(path.display().to_string());
        let optional =
            |path: &Option<PathBuf>| json!(path.as_ref().map(|path| path.display().to_string()));
        let (sessions, commands) = (&self.sessions, &self.commands);
        let seconds = |time: &Duration| json!(time_text(*time));
        let retention = &self.retention;
        let period = |time: &Option<Duration>| json!(period_text(*time));
        let size = |size: &Option<u64>| json!(size_text(*size));
        let some_seconds = |time: &Option<Duration>| json!(time.map(time_text));
        vec![
            row("data-dir", &self.data_dir, path),
            row("host", &self.host, |host| json!(host.to_string())),
            row("port", &self.port, |port| json!(port)),
            row("tls-cert", &self.tls_cert, optional),
            row("tls-key", &self.tls_key, optional),
            row("auth-token-file", &self.auth_token_file, optional),
            self.token(),
            row("no-auth", &self.no_auth, |no_auth| json!(no_auth)),
            row("root", &self.root, optional),
            row("hide", &commands.hide, |paths| json!(paths)),
            row("read-only", &commands.read_only, |paths| json!(paths)),
            row("require-preinstall", &self.require_preinstall, |required| json!(required)),
            row("allowed-hosts", &self.allowed_hosts, |hosts| json!(hosts)),
            row("log-format", &self.log_format, |format| json!(format.as_str())),
            row("log-level", &self.log_level, |level| json!(level.to_string())),
            row("otlp-endpoint", &self.otlp_endpoint, |url| json!(url)),
            row("sessions.isolation", &sessions.isolation, |it| json!(it.as_str())),
            row("sessions.isolation-floor", &sessions.minimum_isolation, |it| json!(it.as_str())),
            row("sessions.network", &sessions.network, |network| json!(network.as_str())),
            row("sessions.toolchains", &sessions.toolchains, |choice| json!(choice.words)),
            row("sessions.keep", &sessions.keep, |keep| json!(keep)),
            row("sessions.idle-timeout", &sessions.idle_timeout, seconds),
            row("sessions.approval-timeout", &sessions.approval_timeout, seconds),
            row("sessions.approval-wait", &sessions.approval_wait, seconds),
            row("sessions.stop-grace", &sessions.stop_grace, seconds),
            row("sessions.max-running", &sessions.max_running, |most| json!(most)),
            row("sessions.allow-disabled-runtime", &sessions.allow_disabled_runtime, |allowed| {
                json!(allowed)
            }),
            row("sessions.rules", &sessions.rules, |rules| optional(&rules.path)),
            row("sessions.setup", &sessions.setup, |commands| json!(commands)),
            row("sessions.setup-timeout", &sessions.setup_timeout, seconds),
            row("sessions.templates", &sessions.templates, |it| json!(it.directories)),
            row("retention.workspaces", &retention.workspaces, period),
            row("retention.sessions", &retention.sessions, period),
            row("retention.cache", &retention.cache, period),
            row("retention.grace", &retention.grace, |it| json!(period_text(Some(*it)))),
            row("retention.disk-limit", &retention.disk_limit, size),
            row("retention.database-limit", &retention.database_limit, size),
            row("retention.free-space", &retention.free_space, |it| json!(size_text(Some(*it)))),
            // Show only the names, because the values may be secrets.
            row("sessions.env", &commands.env, |it| json!(it.0.keys().collect::<Vec<_>>())),
            row("sessions.bind", &commands.bind, |it| json!(it.words)),
            row("sessions.timeout", &commands.timeout, some_seconds),
            row("sessions.cpu", &commands.cpu, some_seconds),
            row("sessions.memory", &commands.memory, |limit| json!(limit)),
            row("sessions.processes", &commands.processes, |limit| json!(limit)),
            row("sessions.file-size", &commands.file_size, |limit| json!(limit)),
            row("sessions.open-files", &commands.open_files, |limit| json!(limit)),
            row("limits.tasks-per-minute", &self.limits.tasks_per_minute, |limit| match limit {
                Some(number) => json!(number),
                None => json!(UNLIMITED),
            }),
        ]
    }

    /// The row about the token. It shows the origin of the token and never the token itself.
    fn token(&self) -> Row {
        if self.no_auth.value {
            return Row {
                key: "auth-token",
                value: Value::Null,
                origin: self.no_auth.origin.clone(),
            };
        }
        let by_flag = self.auth_token_file.origin == Origin::Flag;
        let (value, origin) = match &self.auth_token_file.value {
            Some(_) if by_flag => (REDACTED.to_owned(), Origin::Flag),
            _ if secrets::token().is_some() => {
                let name = secrets::TOKEN_VARIABLE.to_owned();
                (REDACTED.to_owned(), Origin::Environment(name))
            }
            Some(_) => (REDACTED.to_owned(), self.auth_token_file.origin.clone()),
            None => {
                (format!("in {}", self.data_dir.value.join("token").display()), Origin::Default)
            }
        };
        Row { key: "auth-token", value: json!(value), origin }
    }

    pub(crate) fn as_json(&self) -> Value {
        let values: Map<String, Value> = self
            .rows()
            .into_iter()
            .map(|row| {
                let origin = origin(&row.origin);
                (row.key.to_owned(), json!({ "value": row.value, "origin": origin }))
            })
            .collect();
        let agents: Vec<Value> = self.catalog.entries().iter().map(agent).collect();
        json!({
            "file": self.file.as_ref().map(|path| path.display().to_string()),
            "values": values,
            "agents": agents,
        })
    }
}

fn row<T>(key: &'static str, setting: &Setting<T>, value: impl Fn(&T) -> Value) -> Row {
    Row { key, value: value(&setting.value), origin: setting.origin.clone() }
}

/// Formats a time as in the configuration file, in the largest unit in which it is a whole number.
pub(super) fn time_text(time: Duration) -> String {
    match (time.subsec_millis(), time.as_secs()) {
        (0, seconds) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (0, seconds) if seconds % 60 == 0 => format!("{}m", seconds / 60),
        (0, seconds) => format!("{seconds}s"),
        (_, _) => format!("{}ms", time.as_millis()),
    }
}

fn origin(origin: &Origin) -> Value {
    match origin {
        Origin::Flag => json!({ "kind": "flag" }),
        Origin::Environment(name) => json!({ "kind": "env", "variable": name }),
        Origin::File(path, line) => {
            json!({ "kind": "file", "path": path.display().to_string(), "line": line })
        }
        Origin::Default => json!({ "kind": "default" }),
    }
}

/// An agent as JSON. The values of its variables are redacted, because they may be secrets.
fn agent(entry: &AgentCatalogEntry) -> Value {
    let env: Map<String, Value> =
        entry.env.keys().map(|name| (name.clone(), json!(REDACTED))).collect();
    let toolchains: Vec<String> =
        entry.toolchains.iter().map(|path| path.display().to_string()).collect();
    json!({
        "id": entry.id,
        "aliases": entry.aliases,
        "title": entry.title(),
        "argv": entry.argv,
        "env": env,
        "inherit": entry.inherit,
        "credentials": entry.credentials,
        "loginFiles": entry.login_files,
        "authMethod": entry.auth_method,
        "toolchains": toolchains,
    })
}
