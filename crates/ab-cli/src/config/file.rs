//! The configuration file: parses TOML into values with line numbers.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use ab_acp::catalog::AgentCatalogEntry;
use ab_core::error::escape_unprintable;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

use super::CONFIG_VARIABLE;
use super::limits::LIMIT_KEYS;
use super::retention::RETENTION_KEYS;
use crate::failure::Failure;

/// Maximum size of the file in bytes. Larger files are refused.
const MAX_BYTES: u64 = 1024 * 1024;

/// Keys at the top level of the file. [`TABLES`] and `agents` are tables.
const KEYS: &[&str] = &[
    "data-dir",
    "host",
    "port",
    "tls-cert",
    "tls-key",
    "auth-token-file",
    "root",
    "hide",
    "read-only",
    "require-preinstall",
    "allowed-hosts",
    "log-format",
    "log-level",
    "otlp-endpoint",
];

/// Keys of the table `sessions`.
const SESSION_KEYS: &[&str] = &[
    "isolation",
    "isolation-floor",
    "network",
    "toolchains",
    "keep",
    "idle-timeout",
    "approval-timeout",
    "approval-wait",
    "stop-grace",
    "max-running",
    "allow-disabled-runtime",
    "rules",
    "setup",
    "setup-timeout",
    "templates",
    "env",
    "bind",
    "timeout",
    "cpu",
    "memory",
    "processes",
    "file-size",
    "open-files",
];

/// The tables and the keys of each.
const TABLES: &[(&str, &[&str])] =
    &[("sessions", SESSION_KEYS), ("retention", RETENTION_KEYS), ("limits", LIMIT_KEYS)];

/// A configuration file that was read and contains only known keys.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    /// Values by key. A key of the table `sessions` is prefixed by `sessions.`, and so on.
    pub(crate) values: BTreeMap<String, FileValue>,
    /// The entries of `agents`, each with its line number.
    pub(crate) agents: Vec<(AgentCatalogEntry, usize)>,
}

/// A value as a list of words, with the line number of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileValue {
    pub(crate) words: Vec<String>,
    pub(crate) line: usize,
}

impl ConfigFile {
    /// Finds the configuration file. This is the file that a flag or the environment names. If
    /// neither names a file, it is the file in the XDG configuration directory, if it exists.
    ///
    ///
    /// # Errors
    ///
    ///
    /// A usage error if the named file does not exist.
    pub(crate) fn find(named: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
        let variable =
            |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = named.map(Path::to_path_buf).or_else(|| variable(CONFIG_VARIABLE)) {
            let absolute = std::path::absolute(&path)
                .map_err(|error| Failure::input(format!("find {}", path.display()), error))?;
            return Ok(Some(absolute));
        }
        let directory = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
        let directory = directory.or_else(|| Some(variable("HOME")?.join(".config")));
        let path = directory.map(|directory| directory.join("agent-backend/config.toml"));
        Ok(path.filter(|path| path.exists()))
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    ///
    /// A usage error that contains the path of the file, the line and the key.
    pub(crate) fn read(path: &Path) -> Result<ConfigFile, Failure> {
        let fails = |error| {
            Failure::input(format!("read the configuration file {}", path.display()), error)
                .into_usage()
        };
        let size = fs::metadata(path).map_err(fails)?.len();
        if size > MAX_BYTES {
            return Err(Failure::usage(format!(
                "the configuration file {} has {size} bytes, more than {MAX_BYTES}",
                path.display()
            )));
        }
        ConfigFile::parse(path, &fs::read_to_string(path).map_err(fails)?)
    }

    fn parse(path: &Path, text: &str) -> Result<ConfigFile, Failure> {
        let mut file =
            ConfigFile { path: path.to_owned(), values: BTreeMap::new(), agents: Vec::new() };
        let lines = Lines { text };
        let table = DeTable::parse(text).map_err(|error| file.unreadable(&lines, &error))?;
        for (key, value) in table.into_inner() {
            let line = lines.of(key.span().start);
            let table = TABLES.iter().find(|(name, _)| *name == key.get_ref().as_ref());
            if let Some(&(name, keys)) = table {
                let DeValue::Table(table) = value.into_inner() else {
                    let message = format!("{name} must be a table: [{name}]");
                    return Err(file.failure(line, message));
                };
                file.add_table(&lines, name, keys, table)?;
                continue;
            }
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("agents", DeValue::Array(_)) => file.add_agents(&lines, value)?,
                ("agents", _) => {
                    return Err(file.failure(line, "agents must be tables: [[agents]]".to_owned()));
                }
                (key, value) if KEYS.contains(&key) => file.add(key.to_owned(), value, line)?,
                (unknown, _) => {
                    let tables = TABLES.iter().map(|(name, _)| *name);
                    let known = KEYS.iter().copied().chain(tables).chain(["agents"]);
                    return Err(file.unknown(unknown, line, "", known));
                }
            }
        }
        Ok(file)
    }

    fn add_table(
        &mut self,
        lines: &Lines<'_>,
        table: &str,
        keys: &[&'static str],
        entries: DeTable<'_>,
    ) -> Result<(), Failure> {
        for (key, value) in entries {
            let (name, line) = (key.get_ref().as_ref(), lines.of(key.span().start));
            if !keys.contains(&name) {
                let place = format!(" in [{table}]");
                return Err(self.unknown(name, line, &place, keys.iter().copied()));
            }
            self.add(format!("{table}.{name}"), value.get_ref(), line)?;
        }
        Ok(())
    }

    fn add_agents(
        &mut self,
        lines: &Lines<'_>,
        entries: Spanned<DeValue<'_>>,
    ) -> Result<(), Failure> {
        let DeValue::Array(entries) = entries.into_inner() else { return Ok(()) };
        for entry in entries {
            let line = lines.of(entry.span().start);
            let parsed = AgentCatalogEntry::deserialize(ValueDeserializer::from(entry));
            let parsed = parsed.map_err(|error| {
                let line = error.span().map_or(line, |span| lines.of(span.start));
                let message = format!("[[agents]]: {}", error.message());
                self.failure(line, message).with_hint(
                    "keys: id, aliases, title, argv, env, settings, credentials, auth-method, toolchains",
                )
            })?;
            self.agents.push((parsed, line));
        }
        Ok(())
    }

    fn add(&mut self, key: String, value: &DeValue<'_>, line: usize) -> Result<(), Failure> {
        let words = match value {
            DeValue::Array(items) => list(items),
            value => word(value).map(|word| vec![word]),
        };
        let Some(words) = words else {
            let message = format!(
                "invalid {key}: must be a string, a number, true, false, or a list of strings"
            );
            return Err(self.failure(line, message));
        };
        self.values.insert(key, FileValue { words, line });
        Ok(())
    }

    /// A usage error about a line of the file.
    pub(crate) fn failure(&self, line: usize, message: String) -> Failure {
        Failure::usage(format!("{} (line {line} of {})", message, self.path.display()))
    }

    fn unknown<'k>(
        &self,
        key: &str,
        line: usize,
        place: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> Failure {
        let known: Vec<&str> = known.collect();
        self.failure(line, format!("unknown key \"{}\"{place}", escape_unprintable(key)))
            .with_hint(format!("valid keys: {}", known.join(", ")))
    }

    fn unreadable(&self, lines: &Lines<'_>, error: &toml::de::Error) -> Failure {
        let line = error.span().map_or(1, |span| lines.of(span.start));
        self.failure(line, format!("invalid TOML: {}", error.message()))
    }
}

/// The text of the file, with a function that converts byte offsets to line numbers.
struct Lines<'a> {
    text: &'a str,
}

impl Lines<'_> {
    /// The number of the line that contains this byte, counted from 1.
    fn of(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        1 + before.filter(|byte| **byte == b'\n').count()
    }
}

fn list(items: &DeArray<'_>) -> Option<Vec<String>> {
    let word = |item: &Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
    items.iter().map(word).collect()
}

fn word(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        let parsed = ConfigFile::parse(Path::new("/etc/ab.toml"), text);
        parsed.map_err(|failure| failure.error().map(ToString::to_string).unwrap_or_default())
    }

    #[test]
    fn values_are_words_with_their_lines() {
        let text = "port = 4000\nallowed-hosts = [\"a\", \"b\"]\n\n[sessions]\nkeep = true\n\
                    idle-timeout = \"5m\"\n[[agents]]\nid = \"g\"\nargv = [\"goose\"]\n";
        let file = parse(text).unwrap();
        let value = |words: &[&str], line| {
            let words = words.iter().map(|&word| word.to_owned()).collect();
            Some(FileValue { words, line })
        };
        assert_eq!(file.values.get("port").cloned(), value(&["4000"], 1));
        assert_eq!(file.values.get("allowed-hosts").cloned(), value(&["a", "b"], 2));
        assert_eq!(file.values.get("sessions.keep").cloned(), value(&["true"], 5));
        assert_eq!(file.values.get("sessions.idle-timeout").cloned(), value(&["5m"], 6));
        assert_eq!((file.agents[0].0.id.as_str(), file.agents[0].1), ("g", 7));
    }

    #[test]
    fn mistakes_name_the_key_the_line_and_the_file() {
        for (text, expect) in [
            ("host = \"::1\"\nprot = 1\n", "unknown key \"prot\" (line 2 of /etc/ab.toml)"),
            (
                "\n[sessions]\nkepp = true",
                "unknown key \"kepp\" in [sessions] (line 3 of /etc/ab.toml)",
            ),
            ("[server]\nport = 1", "unknown key \"server\" (line 1 of /etc/ab.toml)"),
            ("sessions = 1", "sessions must be a table: [sessions] (line 1 of /etc/ab.toml)"),
            ("agents = 1", "agents must be tables: [[agents]] (line 1 of /etc/ab.toml)"),
            (
                "\nport = {}\n",
                "invalid port: must be a string, a number, true, false, or a list of strings (line 2 of /etc/ab.toml)",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expect);
        }
        for (text, says, line) in [
            ("a = 1\nport = = 2", "invalid TOML", 2),
            ("port = 1\nport = 2", "duplicate key", 2),
            (
                "[[agents]]\nid = \"x\"\nargv = [\"x\"]\narguments = []",
                "unknown field `arguments`",
                4,
            ),
            ("[[agents]]\nargv = [\"x\"]\n", "missing field `id`", 1),
            ("[[agents]]\nid = 5\nargv = []", "invalid type", 2),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{error}");
            assert!(error.contains(&format!("(line {line} of /etc/ab.toml)")), "{error}");
        }
    }
}
