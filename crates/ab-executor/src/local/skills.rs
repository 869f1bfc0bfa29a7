//! Skills of a source directory, copied into the session's home, where agents look for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ab_acp::agent_readiness::AgentReadyToLaunch;
use ab_api::{SkillSource, SkillsConfig};
use ab_core::options::{EntryDetailLevel, ListOptions, ReadOptions, WriteOptions};
use ab_core::{Backend, FileKind, Isolation};
use ab_local::LocalWorkspace;

use super::configured::is_absent;

/// Where agents of several vendors look for skills, below their home.
const SHARED_DIRECTORY: &str = ".agents/skills";
/// The name of the file that marks a directory as a skill.
const SKILL_FILE: &str = "SKILL.md";
/// Maximum number of files of all skills of a session.
const MOST_FILES: usize = 2000;
/// Maximum size of one file in bytes.
const MOST_BYTES: u64 = 8 * 1024 * 1024;

/// Copies every skill. Skills that cannot be copied become notes.
pub(super) async fn copy(
    source: &Backend,
    directory: &Path,
    entries: &BTreeMap<String, SkillsConfig>,
    agent: &AgentReadyToLaunch,
    home: &Path,
    notes: &mut Vec<String>,
) {
    if entries.is_empty() {
        return;
    }
    // Open the home through a workspace handle: an earlier agent may have left links in it.
    let builder =
        LocalWorkspace::builder(home).isolation(Isolation::None).minimum_isolation(Isolation::None);
    let home = match builder.open().await {
        Ok(opened) => opened.backend,
        Err(error) => return notes.push(format!("Skills are left out: {error}")),
    };
    let own = agent.entry.skills_dir.as_deref();
    let targets: BTreeSet<&str> = own.into_iter().chain([SHARED_DIRECTORY]).collect();
    let copying = Copying { source, home: &home, targets, left: MOST_FILES };
    copying.all(directory, entries, notes).await;
    if let Err(error) = home.destroy().await {
        tracing::debug!(%error, "cannot close the home of a session");
    }
}

struct Copying<'a> {
    source: &'a Backend,
    home: &'a Backend,
    targets: BTreeSet<&'a str>,
    /// How many more files may be copied.
    left: usize,
}

impl Copying<'_> {
    async fn all(
        mut self,
        directory: &Path,
        entries: &BTreeMap<String, SkillsConfig>,
        notes: &mut Vec<String>,
    ) {
        for (name, config) in entries {
            for source in &config.sources {
                if let Err(why) = self.from(directory, source).await {
                    let from = &source.source;
                    notes.push(format!("Skills {name:?} of {from:?} are left out: {why}."));
                }
            }
        }
    }

    async fn from(&mut self, directory: &Path, source: &SkillSource) -> Result<(), String> {
        if source.kind != "local" {
            let kind = &source.kind;
            return Err(format!(
                "sources of the type {kind:?} are not fetched; copy them into the directory and use \"local\""
            ));
        }
        let path = Path::new(&source.source);
        let path = path.strip_prefix(directory).unwrap_or(path);
        if path.is_absolute() {
            return Err("they lie outside of the directory".to_owned());
        }
        let path = source.subpath.as_ref().map_or_else(|| path.to_owned(), |sub| path.join(sub));
        let path = path.to_string_lossy().into_owned();
        let path = if path.is_empty() { ".".to_owned() } else { path };
        let found = self.skills_in(&path).await?;
        let wanted = source.skills.as_ref();
        let is_wanted = |name: &String| wanted.is_none_or(|wanted| wanted.contains(name));
        let chosen: Vec<_> = found.into_iter().filter(|(name, _)| is_wanted(name)).collect();
        let lacking = wanted.into_iter().flatten();
        let lacking = { lacking }.find(|name| !chosen.iter().any(|(known, _)| known == *name));
        if chosen.is_empty() || lacking.is_some() {
            let what = lacking.map_or("skill".to_owned(), |name| format!("skill {name:?}"));
            return Err(format!("there is no {what} with a {SKILL_FILE} in {path}"));
        }
        for (name, path) in chosen {
            self.skill(&name, &path).await?;
        }
        Ok(())
    }

    /// The skills at a path, by name: the directory itself, or its subdirectories.
    async fn skills_in(&self, path: &str) -> Result<Vec<(String, String)>, String> {
        let has_file = async |directory: &str| {
            let found = self.source.exists(&format!("{directory}/{SKILL_FILE}")).await;
            found.map_err(|error| error.to_string())
        };
        if has_file(path).await? {
            let name = self.source.parse_path(path).map_err(|error| error.to_string())?;
            let name = name.name().unwrap_or("skill").to_owned();
            return Ok(vec![(name, path.to_owned())]);
        }
        let names = match self.source.readdir(path).await {
            Ok(names) => names,
            Err(error) if is_absent(&error) => Vec::new(),
            Err(error) => return Err(error.to_string()),
        };
        let mut skills = Vec::new();
        for name in names {
            let below = format!("{path}/{name}");
            if has_file(&below).await? {
                skills.push((name, below));
            }
        }
        Ok(skills)
    }

    async fn skill(&mut self, name: &str, path: &str) -> Result<(), String> {
        let told = |error: ab_core::Error| error.to_string();
        let root = self.source.parse_path(path).map_err(told)?;
        let options =
            ListOptions { depth: usize::MAX, limit: self.left + 1, detail: EntryDetailLevel::Kind };
        let listing = self.source.list(path, options).await.map_err(told)?;
        if listing.truncated.is_some() || listing.entries.len() > self.left {
            return Err(format!("all skills together have more than {MOST_FILES} files"));
        }
        self.left -= listing.entries.len();
        let files = listing.entries.iter().filter(|entry| entry.kind == FileKind::File);
        for file in files {
            let from = file.path.as_str();
            let Some(below) = below(root.as_str(), from) else { continue };
            let options = ReadOptions { limit: MOST_BYTES, ..ReadOptions::default() };
            let content = self.source.read_with(from, options).await.map_err(told)?;
            for target in &self.targets {
                let to = format!("{target}/{name}/{below}");
                let permissions = content.stat.mode;
                let options = WriteOptions { permissions, ..WriteOptions::default() };
                let written = self.home.write_with(&to, content.bytes.clone(), options).await;
                written.map_err(told)?;
            }
        }
        Ok(())
    }
}

/// The part of `path` that is relative to `directory`.
fn below<'a>(directory: &str, path: &'a str) -> Option<&'a str> {
    match directory {
        "" | "." => Some(path),
        directory => path.strip_prefix(directory)?.strip_prefix('/'),
    }
}
