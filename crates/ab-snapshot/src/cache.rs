//! The bare repository that caches each source, and the choice of the commit that a task starts
//! from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_core::ErrorKind;
use ab_host::directory::remove_directory;

use crate::area::{self, Area};
use crate::branch::BranchName;
use crate::changes::CommitId;
use crate::clone::GitWorkspaceRequest;
use crate::error::{GitTaskField, Result, SnapshotError};
use crate::git::{Authority, Git, LOCAL_TIME, TRANSFER_TIME, complaint, failure};
use crate::source::RepoSource;

/// The reference that a fetched branch gets until its commit is known.
const INCOMING: &str = "refs/agent-backend/incoming";
/// The prefix of the references that keep fetched commits from being removed. Each fetched commit
/// has one.
const COMMITS: &str = "refs/agent-backend/commits";
/// Time limit for listing the references of a source.
const REFS_TIME: Duration = Duration::from_secs(120);
/// How long a task waits while another task fetches the same source.
const LOCK_TIME: Duration = TRANSFER_TIME;

/// A commit in the cache, with the branches that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) commit: CommitId,
    /// The branch that the commit was taken from; `None` for a detached HEAD.
    pub(crate) branch: Option<BranchName>,
    /// The name of the branch to create. The source has no branch of this name.
    pub(crate) work: BranchName,
    pub(crate) cache: PathBuf,
    /// Whether anything was transferred from the source.
    pub(crate) fetched: bool,
}

/// The references of a source that a task may need.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceRefs {
    pub(crate) head: Option<CommitId>,
    /// The name of the branch that HEAD points to.
    pub(crate) default: Option<String>,
    pub(crate) branches: BTreeMap<String, CommitId>,
}

/// The commit and the reference that a workspace starts from, and the branch to create.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    commit: CommitId,
    reference: String,
    branch: Option<BranchName>,
    work: BranchName,
}

/// Finds the commit that `request` wants, and fetches it into the cache if the cache does not
/// contain it.
pub(crate) async fn provide(area: &Area, git: &Git, request: &GitWorkspaceRequest) -> Result<Base> {
    let source = Source::open(git, &request.source).await?;
    let refs = source.refs(request).await?;
    let plan = plan(&refs, request)?;
    let wanted = request.commit.as_ref().unwrap_or(&plan.commit);
    let key = request.source.key();
    let cache = area.cache(&key);
    let _lock = area.lock(&key, LOCK_TIME).await?;
    prepare(git, &cache, wanted).await?;
    let mut base = Base {
        commit: wanted.clone(),
        branch: plan.branch,
        work: plan.work,
        cache: cache.clone(),
        fetched: false,
    };
    if has(git, &cache, wanted).await? {
        return Ok(base);
    }
    base.fetched = true;
    let tip = source.fetch(&cache, &plan.reference, TRANSFER_TIME).await?;
    if request.commit.is_none() {
        // The branch may have moved after its commit was looked up.
        base.commit = tip;
        return Ok(base);
    }
    if !has(git, &cache, wanted).await? {
        source.fetch(&cache, wanted.as_str(), TRANSFER_TIME).await.map_err(|error| {
            let message = format!("the source has no commit {wanted}: {error}");
            SnapshotError::field(GitTaskField::RepoCommit, ErrorKind::NotFound, message)
        })?;
    }
    Ok(base)
}

/// Checks that the source can be used and contains what `request` asks for.
/// Returns the commit that a workspace would start from now.
pub(crate) async fn check(git: &Git, request: &GitWorkspaceRequest) -> Result<CommitId> {
    let source = Source::open(git, &request.source).await?;
    let refs = source.refs(request).await?;
    let plan = plan(&refs, request)?;
    Ok(request.commit.clone().unwrap_or(plan.commit))
}

/// Returns whether git finds a repository at `path` or in a parent directory. Also returns true if
/// git cannot tell.
pub(crate) async fn is_in_repository(git: &Git, path: &Path) -> bool {
    let run = git.at(path, Authority::Clean).timeout(LOCAL_TIME);
    match run.args(["rev-parse", "--git-dir"]).run().await {
        Ok(output) => output.code == Some(0) || !output.stderr.contains("not a git repository"),
        Err(_) => true,
    }
}

/// Creates the bare repository if it is missing. Also removes temporary files that a killed git
/// process left in it.
pub(crate) async fn prepare(git: &Git, cache: &Path, commit: &CommitId) -> Result<()> {
    if !area::exists(&cache.join("HEAD")) {
        let format = format!("--object-format={}", commit.object_format());
        // A killed git leaves lock files and half a configuration, so the repository gets its name
        // when it is complete.
        let new = cache.with_extension("new");
        for directory in [&new, cache] {
            remove_directory(directory).await?;
        }
        git.init(&new, &["--bare", &format]).await?;
        area::rename(&new, cache)?;
    }
    area::sweep(&cache.join("objects/pack"), "tmp_");
    for directory in ["", "refs/agent-backend", "refs/agent-backend/commits"] {
        area::sweep(&cache.join(directory), ".lock");
    }
    Ok(())
}

/// Returns whether the cache contains a commit. Fetches are atomic, so the cache then also contains
/// the history of the commit.
pub(crate) async fn has(git: &Git, cache: &Path, commit: &CommitId) -> Result<bool> {
    let run = git.on(cache, Authority::Clean);
    let found = run.args(["cat-file", "-e", &format!("{commit}^{{commit}}")]).run().await?;
    Ok(found.code == Some(0))
}

/// A source that was checked to be a usable repository.
pub(crate) struct Source<'a> {
    git: &'a Git,
    source: &'a RepoSource,
    authority: Authority,
    ssh: Option<std::ffi::OsString>,
}

impl<'a> Source<'a> {
    pub(crate) async fn open(git: &'a Git, source: &'a RepoSource) -> Result<Source<'a>> {
        let (authority, ssh) = match source {
            RepoSource::Local(path) => {
                check_local(git, path).await?;
                (Authority::Clean, None)
            }
            RepoSource::Remote(_) => (Authority::Operator, git.ssh_command().await?),
        };
        Ok(Source { git, source, authority, ssh })
    }

    async fn refs(&self, request: &GitWorkspaceRequest) -> Result<SourceRefs> {
        let mut names = vec!["HEAD".to_owned()];
        let GitWorkspaceRequest { branch, new_branch, target_branch: target, work_branch, .. } =
            request;
        let branches = [branch.as_ref(), new_branch.as_ref(), target.as_ref(), Some(work_branch)];
        names.extend(branches.into_iter().flatten().map(BranchName::reference));
        let made = [branch.as_ref(), new_branch.as_ref(), Some(work_branch)];
        let made = made.into_iter().flatten();
        names.extend(made.flat_map(|branch| {
            let around = branch.around().map(|name| format!("refs/heads/{name}"));
            around.chain([format!("refs/heads/{branch}/*")]).collect::<Vec<_>>()
        }));
        let mut refs = parse_refs(&self.list(&names, REFS_TIME).await?);
        let Some(default) = refs.default.clone() else {
            return if refs.head.is_none() && refs.branches.is_empty() {
                Err(self.nothing().await)
            } else {
                Ok(refs)
            };
        };
        if !refs.branches.contains_key(&default)
            && let Some(head) = &refs.head
        {
            refs.branches.insert(default, head.clone());
        }
        Ok(refs)
    }

    pub(crate) async fn list(&self, names: &[String], most: Duration) -> Result<String> {
        let run = self.git.at(&self.git.home, self.authority).timeout(most);
        let run = with_ssh(run, self.ssh.as_ref()).args(["ls-remote", "--symref", "--quiet", "--"]);
        let reason = match run.args([self.source.argument()]).args(names).run().await {
            Ok(output) if output.code == Some(0) => {
                return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            Ok(output) => complaint(&output.stderr),
            Err(error) if error.kind() == ErrorKind::Timeout => {
                format!("it did not answer within {} seconds", most.as_secs())
            }
            Err(error) => return Err(error),
        };
        let message = format!("cannot read {}: {reason}", self.source);
        Err(SnapshotError::field(GitTaskField::RepoUrl, ErrorKind::Unavailable, message))
    }

    /// Returns the error for a source that has none of the wanted references.
    async fn nothing(&self) -> SnapshotError {
        match self.list(&[], REFS_TIME).await {
            Ok(refs) if refs.is_empty() => {
                let message = format!("the repository {} has no commit", self.source);
                SnapshotError::field(GitTaskField::RepoUrl, ErrorKind::Invalid, message)
                    .with_hint("create a first commit")
            }
            Ok(_) => {
                let message = "the default branch does not exist, and no other was found";
                SnapshotError::field(GitTaskField::RepoBranch, ErrorKind::NotFound, message)
                    .with_hint("name an existing branch")
            }
            Err(error) => error,
        }
    }

    /// Fetches a reference or a commit into the cache.
    pub(crate) async fn fetch(
        &self,
        cache: &Path,
        wanted: &str,
        most: Duration,
    ) -> Result<CommitId> {
        let run = self.git.on(cache, self.authority).timeout(most);
        let run = with_ssh(run, self.ssh.as_ref());
        // Each fetch keeps its pack as one file. Git therefore does not compress the objects again,
        // and a failed fetch leaves files in one place only.
        let run = run.args(["-c", "fetch.unpackLimit=1"]).args(FETCH).args(["--"]);
        let run = run.args([self.source.argument()]);
        let output = run.args([format!("+{wanted}:{INCOMING}")]).run().await?;
        if output.code != Some(0) {
            // The fetch may have failed because the disk is full, so remove the incomplete pack.
            area::sweep(&cache.join("objects/pack"), "tmp_");
            let message = format!("cannot fetch {}: {}", self.source, complaint(&output.stderr));
            return Err(SnapshotError::field(
                GitTaskField::RepoUrl,
                ErrorKind::CommandFailed,
                message,
            ));
        }
        let clean = || self.git.on(cache, Authority::Clean);
        let printed = clean().args(["rev-parse", "--verify", INCOMING]).stdout().await?;
        let commit = CommitId::read(printed.trim()).ok_or_else(|| failure("rev-parse", &output))?;
        let keep = format!("{COMMITS}/{commit}");
        clean().args(["update-ref", keep.as_str(), commit.as_str()]).stdout().await?;
        Ok(commit)
    }
}

/// The arguments of every fetch. The fetch updates one reference and changes nothing else in the
/// repository.
pub(crate) const FETCH: &[&str] = &[
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-recurse-submodules",
    "--no-auto-maintenance",
    "--no-write-fetch-head",
    "--no-write-commit-graph",
    "--no-prune",
    "--refmap=",
];

pub(crate) fn with_ssh<'a>(
    run: crate::git::GitRun<'a>,
    ssh: Option<&std::ffi::OsString>,
) -> crate::git::GitRun<'a> {
    match ssh {
        Some(ssh) => run.env("GIT_SSH_COMMAND", ssh),
        None => run,
    }
}

/// Fails if the directory is not the top of a complete repository.
async fn check_local(git: &Git, path: &Path) -> Result<()> {
    let refused =
        |kind, message: String| SnapshotError::field(GitTaskField::RepoUrl, kind, message);
    let shown = path.display();
    let real = area::canonical(path)
        .map_err(|error| refused(ErrorKind::NotFound, format!("cannot open {shown}: {error}")))?;
    let at = || git.at(&real, Authority::Clean).timeout(LOCAL_TIME);
    let ask =
        ["rev-parse", "--is-bare-repository", "--is-shallow-repository", "--absolute-git-dir"];
    if !area::is_dir(&real) {
        return Err(refused(ErrorKind::NotADirectory, format!("{shown} is not a directory")));
    }
    let output = at().args(ask).run().await?;
    if output.code != Some(0) {
        let reason = complaint(&output.stderr);
        return Err(refused(
            ErrorKind::Invalid,
            format!("{shown} is not a git repository: {reason}"),
        )
        .with_hint("run git init there, or name another directory"));
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = printed.lines();
    let (bare, shallow) = (lines.next() == Some("true"), lines.next() == Some("true"));
    let top = if bare {
        lines.next().unwrap_or_default().to_owned()
    } else {
        let top = at().args(["rev-parse", "--show-toplevel"]).stdout().await;
        top.map_err(|_| refused(ErrorKind::Invalid, format!("{shown} is inside a .git directory")))?
    };
    let top = Path::new(top.trim_end_matches('\n'));
    if area::canonical(top).ok().as_deref() != Some(&real) {
        let message = format!("{shown} is not the top directory of its repository");
        return Err(
            refused(ErrorKind::Invalid, message).with_hint(format!("use {}", top.display()))
        );
    }
    if shallow {
        let message = format!("{shown} is a shallow clone, without its history");
        return Err(
            refused(ErrorKind::Unsupported, message).with_hint("run git fetch --unshallow there")
        );
    }
    Ok(())
}

pub(crate) fn parse_refs(text: &str) -> SourceRefs {
    let mut refs = SourceRefs::default();
    for line in text.lines() {
        let Some((value, name)) = line.split_once('\t') else { continue };
        if let Some(target) = value.strip_prefix("ref: ") {
            if name == "HEAD" {
                refs.default = target.strip_prefix("refs/heads/").map(str::to_owned);
            }
            continue;
        }
        let Some(commit) = CommitId::read(value) else { continue };
        match name.strip_prefix("refs/heads/") {
            Some(branch) => {
                refs.branches.insert(branch.to_owned(), commit);
            }
            None if name == "HEAD" => refs.head = Some(commit),
            None => {}
        }
    }
    refs
}

/// Chooses the commit to start from. If the branch of the request exists, it is the base. Otherwise
/// a new branch starts from the target branch or the default branch.
fn plan(refs: &SourceRefs, request: &GitWorkspaceRequest) -> Result<Plan> {
    let existing = |branch: &BranchName| refs.branches.get(branch.as_str()).cloned();
    let on = |branch: &BranchName, commit, work: &BranchName| Plan {
        commit,
        reference: branch.reference(),
        branch: Some(branch.clone()),
        work: work.clone(),
    };
    let mut work = &request.work_branch;
    if let Some(branch) = &request.branch {
        if let Some(commit) = existing(branch) {
            return free(refs, on(branch, commit, work));
        }
        work = request.new_branch.as_ref().unwrap_or(branch);
    }
    if let Some(target) = &request.target_branch {
        let Some(commit) = existing(target) else {
            let message = format!("the source has no branch {target}");
            return Err(SnapshotError::field(
                GitTaskField::TargetBranch,
                ErrorKind::NotFound,
                message,
            ));
        };
        return free(refs, on(target, commit, work));
    }
    if let Some(default) = &refs.default {
        let default = BranchName::parse(default, GitTaskField::RepoBranch)?;
        if let Some(commit) = existing(&default) {
            return free(refs, on(&default, commit, work));
        }
    }
    // HEAD is detached. It points to a commit and not to a branch.
    let Some(head) = &refs.head else {
        let message = "the default branch of the source does not exist";
        return Err(SnapshotError::field(GitTaskField::RepoBranch, ErrorKind::NotFound, message)
            .with_hint("name an existing branch"));
    };
    let commit = request.commit.as_ref().unwrap_or(head).clone();
    let reference = "HEAD".to_owned();
    free(refs, Plan { commit, reference, branch: None, work: work.clone() })
}

/// Fails if the source already has the new branch, or a branch that cannot exist together with it.
fn free(refs: &SourceRefs, plan: Plan) -> Result<Plan> {
    if refs.branches.contains_key(plan.work.as_str()) {
        let message = format!("the source already has the branch {}", plan.work);
        return Err(SnapshotError::field(
            GitTaskField::RepoBranch,
            ErrorKind::AlreadyExists,
            message,
        ));
    }
    // Git stores branches as files, so the branches `a` and `a/b` cannot both exist.
    let below = format!("{}/", plan.work);
    let in_the_way = |name: &&String| {
        name.starts_with(&below) || plan.work.around().any(|around| around == name.as_str())
    };
    if let Some(other) = refs.branches.keys().find(in_the_way) {
        let message =
            format!("the branch {} cannot be made: the source has the branch {other}", plan.work);
        return Err(SnapshotError::field(
            GitTaskField::RepoBranch,
            ErrorKind::AlreadyExists,
            message,
        )
        .with_hint("name another branch"));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(name: &str) -> BranchName {
        BranchName::parse(name, GitTaskField::RepoBranch).unwrap()
    }

    fn commit(digit: char) -> CommitId {
        CommitId::read(&digit.to_string().repeat(40)).unwrap()
    }

    fn refs() -> SourceRefs {
        let (a, b, c) = (commit('a'), commit('b'), commit('c'));
        parse_refs(&format!(
            "ref: refs/heads/main\tHEAD\n{a}\tHEAD\n{a}\trefs/heads/main\n{b}\trefs/heads/dev\n\
             {c}\trefs/heads/taken\n{c}\trefs/tags/main\n"
        ))
    }

    fn request(branch_name: Option<&str>, target: Option<&str>, work: &str) -> GitWorkspaceRequest {
        let source = RepoSource::parse("/srv/repo").unwrap();
        let mut request = GitWorkspaceRequest::new(source, branch(work));
        request.branch = branch_name.map(branch);
        request.target_branch = target.map(branch);
        request
    }

    #[track_caller]
    fn check(request: GitWorkspaceRequest, expected: (&str, char, &str)) {
        let plan = plan(&refs(), &request).unwrap();
        let (base, digit, work) = expected;
        assert_eq!(plan.reference, format!("refs/heads/{base}"));
        assert_eq!((plan.commit, plan.work.as_str()), (commit(digit), work));
    }

    #[test]
    fn branch_that_exists_is_the_base_and_one_that_does_not_is_made() {
        check(request(None, None, "ah/1"), ("main", 'a', "ah/1"));
        check(request(Some("dev"), None, "ah/1"), ("dev", 'b', "ah/1"));
        check(request(Some("dev"), Some("main"), "ah/1"), ("dev", 'b', "ah/1"));
        check(request(Some("new"), None, "ah/1"), ("main", 'a', "new"));
        check(request(Some("new"), Some("dev"), "ah/1"), ("dev", 'b', "new"));
        check(request(None, Some("dev"), "ah/1"), ("dev", 'b', "ah/1"));
    }

    #[test]
    fn what_cannot_be_planned_names_the_field() {
        let error = plan(&refs(), &request(Some("new"), Some("none"), "ah/1")).unwrap_err();
        assert_eq!(error.field, Some(GitTaskField::TargetBranch));
        let error = plan(&refs(), &request(None, None, "taken")).unwrap_err();
        assert_eq!(error.field, Some(GitTaskField::RepoBranch));
        for (work, other) in [("taken/x", "taken"), ("de", "none"), ("ah", "ah/old")] {
            let refs = parse_refs(&format!("{0}\tHEAD\n{0}\trefs/heads/{other}\n", commit('a')));
            let planned = plan(&refs, &request(Some(work), None, "unused"));
            assert_eq!(planned.is_ok(), work == "de", "{work} beside {other}");
        }
        let detached = parse_refs(&format!("{}\tHEAD\n", commit('a')));
        let planned = plan(&detached, &request(Some("new"), None, "ah/1")).unwrap();
        assert_eq!((planned.commit, planned.work.as_str()), (commit('a'), "new"));
        let error = plan(&SourceRefs::default(), &request(None, None, "ah/1")).unwrap_err();
        assert_eq!(error.field, Some(GitTaskField::RepoBranch), "{error}");
        let mut at_commit = request(None, None, "ah/1");
        at_commit.commit = Some(commit('d'));
        let planned = plan(&detached, &at_commit).unwrap();
        assert_eq!((planned.reference.as_str(), planned.branch), ("HEAD", None));
    }
}
