//! Finds skills, and all problems with them.

use std::collections::BTreeMap;
use std::fmt;

use ab_core::error::escape_unprintable;
use ab_core::options::{ByteRange, EntryDetailLevel, ListOptions, ReadOptions};
use ab_core::{Backend, ErrorKind, FileKind, WsPath};
use serde_json::Value;

use super::frontmatter::{self, Frontmatter};

/// The name of the file that marks a directory as a skill.
pub(super) const SKILL_FILE: &str = "SKILL.md";
/// Maximum size of a `SKILL.md` in bytes.
pub const MAX_SKILL_BYTES: u64 = 10 * 1024 * 1024;
/// Maximum number of bytes that discovery reads of a `SKILL.md`. Its frontmatter must end within
/// them.
const HEAD_BYTES: u64 = 64 * 1024;
/// Maximum number of entries of one directory that are examined.
const MAX_ENTRIES: usize = 1000;
/// Maximum number of characters in the message about a problem.
const MAX_PROBLEM: usize = 1000;

/// A skill that can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    pub name: String,
    /// A description of when to use the skill.
    pub description: String,
    /// The directory with the files of the skill.
    pub directory: WsPath,
    pub license: Option<String>,
    pub compatibility: Option<String>,
    /// The tools that the skill declares in its frontmatter.
    pub allowed_tools: Vec<String>,
    pub metadata: BTreeMap<String, Value>,
}

/// A reason why a skill cannot be used, or is not used as intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillProblem {
    /// The directory or file with the problem.
    pub path: String,
    pub message: String,
}

impl fmt::Display for SkillProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// The skills that were found, and the problems with others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiscoveredSkills {
    /// The skills, sorted by name.
    pub skills: Vec<Skill>,
    pub problems: Vec<SkillProblem>,
}

/// How a missing directory is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The caller named the directory, so it must exist. If it is missing, a problem is reported.
    Problem,
    Fine,
}

impl DiscoveredSkills {
    /// Looks for skills in these directories of a workspace. If two skills have the same name, the
    /// skill in the later directory is used, and a problem reports this.
    pub async fn discover<P: AsRef<str>>(backend: &Backend, directories: &[P]) -> DiscoveredSkills {
        let places: Vec<(&str, Missing)> =
            directories.iter().map(|directory| (directory.as_ref(), Missing::Problem)).collect();
        DiscoveredSkills::find_in(backend, &places).await
    }

    pub(super) async fn find_in(backend: &Backend, places: &[(&str, Missing)]) -> DiscoveredSkills {
        let mut search = Search { backend, found: BTreeMap::new(), problems: Vec::new() };
        for (place, missing) in places {
            search.place(place, *missing).await;
        }
        let skills = search.found.into_values().collect();
        DiscoveredSkills { skills, problems: search.problems }
    }
}

struct Search<'a> {
    backend: &'a Backend,
    found: BTreeMap<String, Skill>,
    problems: Vec<SkillProblem>,
}

impl Search<'_> {
    fn problem(&mut self, path: impl fmt::Display, message: impl fmt::Display) {
        let shorten =
            |text: String| escape_unprintable(&text.chars().take(MAX_PROBLEM).collect::<String>());
        let (path, message) = (shorten(path.to_string()), shorten(message.to_string()));
        self.problems.push(SkillProblem { path, message });
    }

    async fn place(&mut self, place: &str, missing: Missing) {
        let options = ListOptions {
            detail: EntryDetailLevel::Kind,
            max_entries: MAX_ENTRIES,
            ..ListOptions::default()
        };
        let listing = match self.backend.list(place, options).await {
            Ok(listing) => listing,
            Err(error) if error.kind() == ErrorKind::NotFound && missing == Missing::Fine => return,
            Err(error) => {
                return self.problem(place, format!("cannot be listed: {}", error.message()));
            }
        };
        if listing.truncated.is_some() {
            self.problem(place, format!("only the first {MAX_ENTRIES} entries were looked at"));
        }
        for entry in listing.entries {
            let hidden = entry.path.name().is_none_or(|name| name.starts_with('.'));
            if !hidden && matches!(entry.kind, FileKind::Dir | FileKind::Symlink) {
                self.directory(entry.path).await;
            }
        }
    }

    async fn directory(&mut self, directory: WsPath) {
        let file = match directory.child(SKILL_FILE) {
            Ok(file) => file,
            Err(error) => return self.problem(&directory, error.message()),
        };
        let range = Some(ByteRange { start: 0, length: HEAD_BYTES });
        let options = ReadOptions { range, ..ReadOptions::default() };
        let content = match self.backend.read_with(&file, options).await {
            Ok(content) => content,
            // The directory has no such file, or the entry is a link to a file.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return;
            }
            Err(error) => {
                return self.problem(&file, format!("cannot be read: {}", error.message()));
            }
        };
        if content.stat.size > MAX_SKILL_BYTES {
            let size = content.stat.size;
            let message = format!("too large: {size} bytes; at most {MAX_SKILL_BYTES}");
            return self.problem(&file, message);
        }
        match head(&content.bytes).and_then(|yaml| frontmatter::parse(&yaml)) {
            Ok(frontmatter) => self.add(directory, frontmatter),
            Err(message) => self.problem(&file, message),
        }
    }

    fn add(&mut self, directory: WsPath, frontmatter: Frontmatter) {
        let Frontmatter { name, description, license, compatibility, metadata, allowed_tools } =
            frontmatter;
        if directory.name() != Some(name.as_str()) {
            let message = format!("the skill in it is called {name}; both names must be the same");
            self.problem(&directory, message);
        }
        let skill = Skill {
            name: name.clone(),
            description: description.split_whitespace().collect::<Vec<_>>().join(" "),
            directory,
            license,
            compatibility,
            allowed_tools: allowed_tools.map(|tools| tools.names()).unwrap_or_default(),
            metadata,
        };
        let later = skill.directory.clone();
        if let Some(earlier) = self.found.insert(name.clone(), skill) {
            let message = format!("the skill {name} of {later} is used instead of this one");
            self.problem(&earlier.directory, message);
        }
    }
}

/// Reads the frontmatter from the first bytes of a file.
fn head(bytes: &[u8]) -> Result<String, String> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // The read may have ended in the middle of a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Err("not UTF-8 text".to_owned()),
    };
    Ok(frontmatter::split(text)?.frontmatter.to_owned())
}
