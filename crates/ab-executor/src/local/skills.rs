//! Copies the skills that a source directory names into the session's home, where agents look for
//! skills. A skill is a directory below the source directory, or a directory of a repository that
//! our own process fetches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use ab_acp::agent_readiness::AgentReadyToLaunch;
use ab_api::{SkillSource, SkillsConfig};
use ab_core::options::{EntryDetailLevel, ListOptions, ReadOptions, WriteOptions};
use ab_core::{Backend, FileKind, Isolation};
use ab_local::LocalWorkspace;
use ab_snapshot::{RepoFile, RepoFilesRequest, RepoSource, SessionWorkspaceStore, SnapshotError};
use tokio::time::Instant;

use super::configured::is_absent;

/// Where agents of several vendors look for skills, below their home.
const SHARED_DIRECTORY: &str = ".agents/skills";
/// The name of the file that marks a directory as a skill.
const SKILL_FILE: &str = "SKILL.md";
/// Maximum number of files of all skills of a session.
const MOST_FILES: usize = 2000;
/// Maximum size of one file in bytes.
const MOST_BYTES: u64 = 8 * 1024 * 1024;
/// Maximum size of all files of the repositories together in bytes.
const MOST_FETCHED_BYTES: u64 = 64 * 1024 * 1024;
/// How long a session waits for all repositories together.
const FETCH_TIME: Duration = Duration::from_secs(120);

/// Copies every skill. Skills that cannot be copied become notes.
pub(super) async fn copy(
    source: &Backend,
    directory: &Path,
    repositories: &SessionWorkspaceStore,
    entries: &BTreeMap<String, SkillsConfig>,
    agent: &AgentReadyToLaunch,
    home: &Path,
    notes: &mut Vec<String>,
) {
    if entries.is_empty() {
        return;
    }
    // Open the home through a workspace handle, because an earlier agent may have left links in it.
    let builder =
        LocalWorkspace::builder(home).isolation(Isolation::None).minimum_isolation(Isolation::None);
    let home = match builder.open().await {
        Ok(opened) => opened.backend,
        Err(error) => return notes.push(format!("Skills are left out: {error}")),
    };
    let own = agent.entry.skills_dir.as_deref();
    let targets: BTreeSet<&str> = own.into_iter().chain([SHARED_DIRECTORY]).collect();
    let copying = Copying {
        source,
        repositories,
        home: &home,
        targets,
        left: MOST_FILES,
        left_bytes: MOST_FETCHED_BYTES,
        deadline: Instant::now() + FETCH_TIME,
    };
    copying.all(directory, entries, notes).await;
    if let Err(error) = home.destroy().await {
        tracing::debug!(%error, "cannot close the home of a session");
    }
}

struct Copying<'a> {
    source: &'a Backend,
    repositories: &'a SessionWorkspaceStore,
    home: &'a Backend,
    targets: BTreeSet<&'a str>,
    /// How many more files may be copied.
    left: usize,
    /// How many more bytes may come from repositories.
    left_bytes: u64,
    /// The time at which fetching from repositories must have ended.
    deadline: Instant,
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
                    // A URL is shown without its password.
                    let from = RepoSource::parse(&source.source);
                    let from = from.map_or_else(|_| source.source.clone(), |it| it.to_string());
                    notes.push(format!("Skills {name:?} of {from:?} are left out: {why}."));
                }
            }
        }
    }

    async fn from(&mut self, directory: &Path, source: &SkillSource) -> Result<(), String> {
        match source.kind.as_str() {
            "local" => {}
            "git" => return self.add_repository(&source.source, source).await,
            "github" => return self.add_repository(&github_url(&source.source)?, source).await,
            kind => return Err(format!("the type {kind:?} is none of local, git and github")),
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
        for (name, path) in chosen(found, source.skills.as_deref(), &path)? {
            self.skill(&name, &path).await?;
        }
        Ok(())
    }

    /// Copies skills of a repository at a URL. Uses only HTTP, and not the operator's credentials
    /// for git, because the configuration may come from a hostile repository.
    async fn add_repository(&mut self, url: &str, source: &SkillSource) -> Result<(), String> {
        let told = |error: SnapshotError| SnapshotError { field: None, ..error }.to_string();
        let timeout = self.deadline.saturating_duration_since(Instant::now());
        if timeout.is_zero() {
            return Err(format!(
                "the repositories took longer than {} seconds",
                FETCH_TIME.as_secs()
            ));
        }
        let repository = RepoSource::parse(url).map_err(told)?;
        if !repository.is_http() {
            return Err("the address must begin with https:// or http://".to_owned());
        }
        let request = RepoFilesRequest {
            source: repository,
            reference: source.reference.clone(),
            directory: source.subpath.clone().unwrap_or_default(),
            timeout,
        };
        let repository = self.repositories.repo_files(&request).await.map_err(told)?;
        let last =
            |text: &str| text.trim_end_matches('/').rsplit(['/', ':']).next().map(str::to_owned);
        let top = last(&request.directory).filter(|name| !matches!(name.as_str(), "" | "."));
        let top = top.or_else(|| Some(last(url)?.trim_end_matches(".git").to_owned()));
        let found = skills_among(repository.files(), &top.unwrap_or_default());
        let shown = match request.directory.as_str() {
            "" => "its top",
            directory => directory,
        };
        for (name, below) in chosen(found, source.skills.as_deref(), shown)? {
            let is_inside = |file: &&RepoFile| file.path.starts_with(&below);
            let files: Vec<&RepoFile> = repository.files().iter().filter(is_inside).collect();
            self.take(&files)?;
            let contents = repository.read(&files).await.map_err(told)?;
            for (file, content) in files.iter().zip(contents) {
                let permissions = if file.is_executable { 0o755 } else { 0o644 };
                self.write(&name, &file.path[below.len()..], &content, Some(permissions)).await?;
            }
        }
        Ok(())
    }

    /// Counts the files of a skill towards the limits before they are read. Fails if a limit would
    /// be exceeded.
    fn take(&mut self, files: &[&RepoFile]) -> Result<(), String> {
        if let Some(file) = files.iter().find(|file| file.size > MOST_BYTES) {
            return Err(format!("{} has more than {MOST_BYTES} bytes", file.path));
        }
        let Some(left) = self.left.checked_sub(files.len()) else { return Err(too_many_files()) };
        let Some(bytes) = self.left_bytes.checked_sub(files.iter().map(|file| file.size).sum())
        else {
            return Err(format!(
                "all skills of repositories together have more than {MOST_FETCHED_BYTES} bytes"
            ));
        };
        (self.left, self.left_bytes) = (left, bytes);
        Ok(())
    }

    /// Writes a file of a skill where agents look for it.
    async fn write(
        &self,
        skill: &str,
        path: &str,
        content: &[u8],
        permissions: Option<u32>,
    ) -> Result<(), String> {
        for target in &self.targets {
            let to = format!("{target}/{skill}/{path}");
            let options = WriteOptions { permissions, ..WriteOptions::default() };
            let written = self.home.write_with(&to, content, options).await;
            written.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The skills at a path, by name. The directory itself is a skill, or its subdirectories may be
    /// skills.
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
        let options = ListOptions {
            max_depth: usize::MAX,
            max_entries: self.left + 1,
            detail: EntryDetailLevel::Kind,
        };
        let listing = self.source.list(path, options).await.map_err(told)?;
        if listing.truncated.is_some() || listing.entries.len() > self.left {
            return Err(too_many_files());
        }
        self.left -= listing.entries.len();
        let files = listing.entries.iter().filter(|entry| entry.kind == FileKind::File);
        for file in files {
            let from = file.path.as_str();
            let Some(below) = below(root.as_str(), from) else { continue };
            let options = ReadOptions { max_bytes: MOST_BYTES, ..ReadOptions::default() };
            let content = self.source.read_with(from, options).await.map_err(told)?;
            self.write(name, below, &content.bytes, content.stat.mode).await?;
        }
        Ok(())
    }
}

fn too_many_files() -> String {
    format!("all skills together have more than {MOST_FILES} files")
}

/// The address of `owner/repo`.
fn github_url(source: &str) -> Result<String, String> {
    let is_plain = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !part.starts_with(['-', '.']) && part.chars().all(allowed)
    };
    match source.trim_end_matches(".git").split_once('/') {
        Some((owner, name)) if is_plain(owner) && is_plain(name) => {
            Ok(format!("https://github.com/{owner}/{name}.git"))
        }
        _ => Err("it must be OWNER/REPOSITORY".to_owned()),
    }
}

/// Finds the skills among the files of a repository. Returns the name of each skill and the prefix
/// of the paths of its files. Either the whole directory is one skill with the name `top`, or each
/// of its subdirectories may be a skill.
fn skills_among(files: &[RepoFile], top: &str) -> Vec<(String, String)> {
    if files.iter().any(|file| file.path == SKILL_FILE) {
        return vec![(top.to_owned(), String::new())];
    }
    let names =
        files.iter().filter_map(|file| file.path.strip_suffix(SKILL_FILE)?.strip_suffix('/'));
    let names = names.filter(|name| !name.contains('/'));
    names.map(|name| (name.to_owned(), format!("{name}/"))).collect()
}

/// Returns the skills that a source names. If the source names none, returns all skills. Fails if
/// there is no skill or if a named skill is missing.
fn chosen(
    found: Vec<(String, String)>,
    wanted: Option<&[String]>,
    place: &str,
) -> Result<Vec<(String, String)>, String> {
    let is_wanted = |name: &String| wanted.is_none_or(|wanted| wanted.contains(name));
    let chosen: Vec<_> = found.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    let lacking = wanted.into_iter().flatten();
    let lacking = { lacking }.find(|name| !chosen.iter().any(|(known, _)| known == *name));
    if chosen.is_empty() || lacking.is_some() {
        let what = lacking.map_or("skill".to_owned(), |name| format!("skill {name:?}"));
        return Err(format!("there is no {what} with a {SKILL_FILE} in {place}"));
    }
    Ok(chosen)
}

/// Returns the part of `path` below `directory`, or `None` if it lies elsewhere.
fn below<'a>(directory: &str, path: &'a str) -> Option<&'a str> {
    match directory {
        "" | "." => Some(path),
        directory => path.strip_prefix(directory)?.strip_prefix('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_of_github_have_an_address() {
        for source in ["owner/repo", "owner/repo.git"] {
            assert_eq!(github_url(source).unwrap(), "https://github.com/owner/repo.git");
        }
        assert_eq!(github_url("a-b/c_d.e").unwrap(), "https://github.com/a-b/c_d.e.git");
        for source in [
            "",
            "repo",
            "owner/",
            "/repo",
            "owner/repo/tree",
            "../repo",
            "owner/..",
            "owner/-x",
            "owner/re po",
            "user@host/repo",
            "owner/repo?x",
            "https://github.com/owner/repo",
        ] {
            assert!(github_url(source).is_err(), "{source}");
        }
    }
}
