//! One value of the configuration: the sources that it may come from, and its origin.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::file::{ConfigFile, FileValue};
use crate::failure::Failure;

/// A value and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// The origin of a value. An earlier variant takes precedence over a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    /// An environment variable with this name.
    Environment(String),
    /// A file with this path, and the line number in the file.
    File(PathBuf, usize),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("flag"),
            Origin::Environment(name) => write!(f, "env {name}"),
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// The sources of values other than flags. They have lower precedence than flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    pub(crate) file: Option<&'a ConfigFile>,
}

impl Sources<'_> {
    /// Returns the value of the first source that has one: the flag, the variable, the file, the
    /// default.
    ///
    /// # Errors
    ///
    /// A usage error if the value of the variable or the file is invalid.
    pub(crate) fn pick<T>(
        &self,
        key: &str,
        flag: Option<T>,
        default: impl FnOnce() -> T,
        parse: impl Fn(&Words<'_>) -> Result<T, String>,
    ) -> Result<Setting<T>, Failure> {
        if let Some(value) = flag {
            return Ok(Setting { value, origin: Origin::Flag });
        }
        let name = variable(key);
        if let Some(text) = env::var_os(&name).filter(|text| !text.is_empty()) {
            let invalid = |why: String| Failure::usage(format!("invalid {name}: {why}"));
            let Ok(text) = text.into_string() else {
                return Err(invalid("it is not valid UTF-8".to_owned()));
            };
            let words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
            let value = parse(&Words { words: &words, whole: Some(&text), base: None });
            return Ok(Setting {
                value: value.map_err(invalid)?,
                origin: Origin::Environment(name),
            });
        }
        let found = self.file.and_then(|file| Some((file, file.values.get(key)?)));
        if let Some((file, FileValue { words, line })) = found {
            let base = file.path.parent();
            let value = parse(&Words { words, whole: None, base });
            let value =
                value.map_err(|why| file.failure(*line, format!("invalid {key}: {why}")))?;
            return Ok(Setting { value, origin: Origin::File(file.path.clone(), *line) });
        }
        Ok(Setting { value: default(), origin: Origin::Default })
    }
}

/// The name of the variable for a key. For `sessions.idle-timeout` it is
/// `AGENT_BACKEND_SESSIONS_IDLE_TIMEOUT`.
pub(crate) fn variable(key: &str) -> String {
    format!("AGENT_BACKEND_{}", key.replace(['.', '-'], "_").to_ascii_uppercase())
}

/// A value from one source: a single word or a list.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    words: &'a [String],
    /// The whole text of a variable. It is used for values that contain a comma.
    whole: Option<&'a str>,
    /// The directory of the configuration file. Relative paths in the file are resolved against it.
    base: Option<&'a Path>,
}

impl Words<'_> {
    pub(crate) fn one(&self) -> Result<&str, String> {
        match (self.whole, self.words) {
            (Some(whole), _) => Ok(whole),
            (None, [word]) => Ok(word),
            (None, _) => Err("must be one value, not a list".to_owned()),
        }
    }

    pub(crate) fn list(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str).filter(|word| !word.is_empty())
    }

    pub(crate) fn parsed<T: FromStr<Err: fmt::Display>>(&self) -> Result<T, String> {
        self.one()?.parse().map_err(|error: T::Err| error.to_string())
    }

    pub(crate) fn flag(&self) -> Result<bool, String> {
        match self.one()? {
            "true" | "1" | "yes" => Ok(true),
            "false" | "0" | "no" => Ok(false),
            _ => Err("must be true or false".to_owned()),
        }
    }

    pub(crate) fn path(&self) -> Result<PathBuf, String> {
        match self.one()? {
            "" => Err("must not be empty".to_owned()),
            text => Ok(self.resolved(text)),
        }
    }

    /// Resolves paths, and leaves the words `auto` and `none` unchanged.
    pub(crate) fn paths_or_words(&self) -> Vec<String> {
        let resolved = |word: &str| match word {
            "auto" | "none" => word.to_owned(),
            path => self.resolved(path).to_string_lossy().into_owned(),
        };
        self.list().map(resolved).collect()
    }

    pub(crate) fn resolved(&self, text: &str) -> PathBuf {
        resolved(text, self.base)
    }
}

/// Resolves a path. `~/` stands for the home directory. Other paths are relative to the directory
/// of the file that contains them.
pub(crate) fn resolved(text: &str, base: Option<&Path>) -> PathBuf {
    let home = env::var_os("HOME").filter(|home| !home.is_empty());
    match (text.strip_prefix("~/"), home, base) {
        (Some(below), Some(home), _) => PathBuf::from(home).join(below),
        // `-` means standard input.
        (_, _, Some(base)) if text != "-" => base.join(text),
        (_, _, _) => PathBuf::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_the_name_of_their_key() {
        assert_eq!(variable("port"), "AGENT_BACKEND_PORT");
        assert_eq!(variable("sessions.idle-timeout"), "AGENT_BACKEND_SESSIONS_IDLE_TIMEOUT");
    }

    #[test]
    fn paths_of_a_file_are_relative_to_it() {
        let base = Some(Path::new("/etc/ab"));
        assert_eq!(resolved("token", base), Path::new("/etc/ab/token"));
        assert_eq!(resolved("/srv/token", base), Path::new("/srv/token"));
        assert_eq!(resolved("-", base), Path::new("-"));
        assert_eq!(resolved("token", None), Path::new("token"));
    }
}
