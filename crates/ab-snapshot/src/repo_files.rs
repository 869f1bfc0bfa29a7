//! Reads files of a repository without making a workspace. They are read from a cache, without a
//! checkout.

use std::time::Duration;

use ab_core::ErrorKind;
use tokio::time::Instant;

use crate::area::Lock;
use crate::branch::BranchName;
use crate::cache::{self, Source};
use crate::changes::CommitId;
use crate::error::{GitTaskField, Result, SnapshotError};
use crate::git::{Authority, Git};
use crate::source::RepoSource;
use crate::workspaces::SessionWorkspaceStore;

/// Which files to read, and from where.
#[derive(Clone, Debug)]
pub struct RepoFilesRequest {
    pub source: RepoSource,
    /// A branch, a tag or a complete commit id. `None` means the commit of HEAD.
    pub reference: Option<String>,
    /// The directory in the repository. Empty for its root.
    pub directory: String,
    /// Time limit for all requests to the source together.
    pub timeout: Duration,
}

/// A file of the repository. Links and submodules are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFile {
    /// The path relative to the directory of the request. It contains no `.`, `..`, `.git` or empty
    /// components.
    pub path: String,
    pub is_executable: bool,
    pub size: u64,
    blob: String,
}

/// The files of one commit. While this value exists, the cache with these files is locked and not
/// removed.
#[derive(Debug)]
pub struct RepoFiles<'a> {
    git: &'a Git,
    cache: std::path::PathBuf,
    files: Vec<RepoFile>,
    _lock: Lock,
}

impl SessionWorkspaceStore {
    /// Fetches a commit into a cache and lists the files below a directory. Does not use the
    /// operator's credentials. Does not use the caches of sessions, because they may contain
    /// objects that were fetched with credentials.
    ///
    /// # Errors
    /// Fails if the source cannot be read without credentials within the time limit, or if it has
    /// no such reference or directory.
    pub async fn repo_files(&self, request: &RepoFilesRequest) -> Result<RepoFiles<'_>> {
        let RepoFilesRequest { source, reference, timeout, .. } = request;
        let directory = directory(&request.directory)?;
        let deadline = Instant::now() + *timeout;
        let left = || deadline.saturating_duration_since(Instant::now()).max(LEAST_TIME);
        if let Some(path) = source.local_path() {
            self.refuse_own(path, GitTaskField::RepoUrl)?;
        }
        let anonymous = self.git.anonymous();
        let open = Source::open(&anonymous, source).await?;
        let wanted = Wanted::find(&open, reference.as_deref(), left()).await?;
        let key = source.anonymous_key();
        let cache = self.area.cache(&key);
        let lock = self.area.lock(&key, left()).await?;
        cache::prepare(&self.git, &cache, &wanted.commit).await?;
        let mut commit = wanted.commit;
        if !cache::has(&self.git, &cache, &commit).await? {
            let fetched = open.fetch(&cache, &wanted.name, left()).await?;
            // A branch may have moved since it was looked up, so use the commit that was fetched.
            commit = if wanted.is_fixed { commit } else { fetched };
        }
        let files = list(&self.git, &cache, &commit, &directory).await?;
        Ok(RepoFiles { git: &self.git, cache, files, _lock: lock })
    }
}

/// Minimum time limit of one step. It is used when the time of the request is already over.
const LEAST_TIME: Duration = Duration::from_millis(1);
/// Maximum size of a list of files in bytes.
const MAX_LIST: usize = 8 * 1024 * 1024;
/// Maximum number of bytes that git prints around the content of each file.
const HEADER: usize = 128;

impl RepoFiles<'_> {
    pub fn files(&self) -> &[RepoFile] {
        &self.files
    }

    /// Returns the contents of these files, in the same order. The caller must limit their total
    /// size.
    ///
    /// # Errors
    /// Fails if git fails or an object is damaged.
    pub async fn read(&self, files: &[&RepoFile]) -> Result<Vec<Vec<u8>>> {
        let ids: String = files.iter().map(|file| format!("{}\n", file.blob)).collect();
        let size = |file: &&RepoFile| usize::try_from(file.size).unwrap_or(usize::MAX);
        let most = files
            .iter()
            .map(size)
            .fold(0_usize, |all, size| all.saturating_add(size).saturating_add(HEADER));
        let run = self.git.on(&self.cache, Authority::Clean).input(ids).max_output(most);
        let output = run.args(["cat-file", "--batch"]).run().await?;
        let mut rest = output.stdout.as_slice();
        let mut contents = Vec::new();
        for file in files {
            let content = next_content(&mut rest, file).filter(|_| output.code == Some(0));
            contents.push(content.ok_or_else(|| {
                let message = format!("cannot read {} from the cache", file.path);
                SnapshotError::failed(ErrorKind::CommandFailed, message)
            })?);
        }
        Ok(contents)
    }
}

/// Takes the content of one file from the output of `git cat-file --batch`.
fn next_content(rest: &mut &[u8], file: &RepoFile) -> Option<Vec<u8>> {
    let line = rest.iter().position(|byte| *byte == b'\n')?;
    let header = std::str::from_utf8(&rest[..line]).ok()?;
    let size = header.strip_prefix(file.blob.as_str())?.strip_prefix(" blob ")?;
    let size: usize = size.parse().ok()?;
    let content = rest.get(line + 1..line + 1 + size)?.to_vec();
    *rest = rest.get(line + 1 + size + 1..)?;
    Some(content)
}

/// The commit that a request names, and how to fetch it.
struct Wanted {
    commit: CommitId,
    /// The name of the reference, or the commit id, to fetch.
    name: String,
    /// Whether the request named the commit by its id, so that it cannot move.
    is_fixed: bool,
}

impl Wanted {
    async fn find(source: &Source<'_>, reference: Option<&str>, most: Duration) -> Result<Wanted> {
        let Some(reference) = reference else {
            let refs = cache::parse_refs(&source.list(&["HEAD".to_owned()], most).await?);
            let commit =
                refs.head.ok_or_else(|| absent("the repository has no HEAD".to_owned()))?;
            return Ok(Wanted { commit, name: "HEAD".to_owned(), is_fixed: false });
        };
        if let Some(commit) = CommitId::read(reference) {
            return Ok(Wanted { commit, name: reference.to_owned(), is_fixed: true });
        }
        // Names of tags follow the same rules as names of branches.
        BranchName::parse(reference, GitTaskField::RepoBranch)?;
        let (branch, tag) = (format!("refs/heads/{reference}"), format!("refs/tags/{reference}"));
        // A tag with a message is an object of its own. This name refers to the commit of the tag.
        let commit_of_tag = format!("{tag}^{{}}");
        let names = [branch.clone(), tag.clone(), commit_of_tag.clone()];
        let text = source.list(&names, most).await?;
        let find = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('\t'));
            lines.find(|(_, found)| *found == name).and_then(|(id, _)| CommitId::read(id))
        };
        let (commit, name) = match (find(&branch), find(&commit_of_tag).or_else(|| find(&tag))) {
            (Some(commit), _) => (commit, branch),
            (None, Some(commit)) => (commit, tag),
            (None, None) => {
                return Err(absent(format!("the repository has no branch or tag {reference}")));
            }
        };
        Ok(Wanted { commit, name, is_fixed: false })
    }
}

fn absent(message: String) -> SnapshotError {
    SnapshotError::failed(ErrorKind::NotFound, message)
}

/// Normalizes the path of a directory to the form that git uses. Fails if the path is absolute or
/// contains `..`.
fn directory(text: &str) -> Result<String> {
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if text.starts_with('/') || !parts.iter().all(|part| is_plain(part)) {
        let message =
            format!("invalid directory {text:?}: must be below the top of the repository");
        return Err(SnapshotError::failed(ErrorKind::InvalidPath, message));
    }
    Ok(parts.join("/"))
}

/// Whether a path component is an ordinary file name. It must not be `.`, `..` or `.git`, and must
/// not contain control characters or backslashes.
fn is_plain(part: &str) -> bool {
    let is_reserved = matches!(part, "" | "." | "..") || part.eq_ignore_ascii_case(".git");
    !is_reserved && !part.chars().any(|c| c.is_control() || c == '\\')
}

async fn list(
    git: &Git,
    cache: &std::path::Path,
    commit: &CommitId,
    directory: &str,
) -> Result<Vec<RepoFile>> {
    let tree = format!("{commit}:{directory}");
    let run = git.on(cache, Authority::Clean).max_output(MAX_LIST);
    let output = run.args(["ls-tree", "-r", "-z", "--long", "--full-tree", &tree]).run().await?;
    if output.output_limit_exceeded {
        let message = "the repository has too many files: name a directory of it";
        return Err(SnapshotError::failed(ErrorKind::TooLarge, message));
    }
    if output.code != Some(0) {
        let shown = if directory.is_empty() { "files" } else { directory };
        return Err(absent(format!("there is no directory {shown:?} in commit {commit}")));
    }
    let entries = output.stdout.split(|byte| *byte == 0);
    let lines = entries.filter_map(|entry| std::str::from_utf8(entry).ok());
    Ok(lines.filter_map(file).collect())
}

/// Parses one line of `git ls-tree`. Returns `None` for links, for submodules, and for paths with
/// components that are not plain names.
fn file(entry: &str) -> Option<RepoFile> {
    let (head, path) = entry.split_once('\t')?;
    let [mode, "blob", blob, size] = head.split_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    let is_executable = match mode {
        "100755" => true,
        "100644" | "100664" => false,
        _ => return None,
    };
    if !path.split('/').all(is_plain) {
        return None;
    }
    let (path, blob) = (path.to_owned(), blob.to_owned());
    Some(RepoFile { path, is_executable, size: size.parse().ok()?, blob })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_stay_in_the_repository() {
        for (text, expect) in [("", ""), (".", ""), ("a/b", "a/b"), ("./a//b/", "a/b")] {
            assert_eq!(directory(text).unwrap(), expect, "{text}");
        }
        for text in ["/a", "..", "a/../b", "a/.git", "a\\b", "a\nb"] {
            let error = directory(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidPath, "{text}: {error}");
        }
    }

    #[test]
    fn only_plain_files_are_listed() {
        let blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        let check = |entry: &str, expect: Option<(&str, bool, u64)>| {
            let found = file(&entry.replace("ID", blob));
            let found = found.as_ref().map(|it| (it.path.as_str(), it.is_executable, it.size));
            assert_eq!(found, expect, "{entry}");
        };
        check("100644 blob ID      12\ta/b", Some(("a/b", false, 12)));
        check("100755 blob ID       0\trun it", Some(("run it", true, 0)));
        check("120000 blob ID       5\tlink", None);
        check("160000 commit ID       -\tsubmodule", None);
        for name in ["..", "a/../b", ".git/config", ".GIT/hooks/x", "a//b", "a\\b"] {
            check(&format!("100644 blob ID 1\t{name}"), None);
        }
    }
}
