//! Turns a session's tree into commits in one of our own repositories.
//!
//! Inside the sandbox, git commits the uncommitted files and writes a bundle. Outside of the
//! sandbox, our process treats the bundle as data. It imports one reference into a new bare
//! repository, checks every object, and compares the commits there. It reads nothing that the agent
//! configured.

mod nested;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_core::ErrorKind;
use ab_host::directory::{copy_file, remove_directory};
use async_trait::async_trait;

use crate::area;
use crate::cache::FETCH;
use crate::changes::{CommitId, DiffStat, SessionChanges};
use crate::clone::GitAuthor;
use crate::error::{Result, SnapshotError};
use crate::git::{Authority, complaint, failure};
use crate::patch;
use crate::token::WorkspaceCopyMethod;
use crate::workspaces::{PreparedWorkspace, SessionWorkspaceStore};

/// The reference that the bundle contains.
const DELIVERY: &str = "refs/agent-backend/delivery";
/// The name of the delivered reference in our repository.
pub(crate) const IMPORTED: &str = "refs/heads/delivery";
const BUNDLE: &str = "work.bundle";
/// The name of the bare repository that git makes beside the bundle if the session's own repository
/// cannot be used, see [`Repository::Rescue`].
const RESCUE: &str = "rescue.git";
/// The names of our own repository and of our copy of the bundle.
const IMPORT: &str = "import.git";
const IMPORT_BUNDLE: &str = "import.bundle";
/// Maximum size of a bundle in bytes.
const MAX_BUNDLE: u64 = 1024 * 1024 * 1024;
const MAX_DIFF: usize = 2 * 1024 * 1024;
const MAX_PATCH: usize = 32 * 1024 * 1024;
const MAX_STAT: usize = 64 * 1024 * 1024;
/// Time limit for one command in the sandbox.
const INSIDE_TIME: Duration = Duration::from_secs(10 * 60);
/// Maximum size, in bytes, of the output of one command in the sandbox. The limit is this large
/// because git prints a warning for each file whose line endings it would change.
const INSIDE_OUTPUT: usize = 4 * 1024 * 1024;
/// Maximum number of paths in the list of left-out files.
const MAX_LEFT_OUT: usize = 100;
/// Maximum size of a commit message in bytes.
const MAX_MESSAGE: usize = 16 * 1024;

/// Runs commands inside a session's sandbox. In the sandbox, `tree`, `home`, `outbox` and the
/// read-only directories of the workspace are visible at their own paths.
#[async_trait]
pub trait SandboxedGitRunner: Send + Sync {
    /// Runs one command until it ends. An exit status other than 0 is not an error.
    async fn run(&self, command: SandboxedGitCommand) -> ab_core::Result<SandboxedGitOutput>;
}

/// A command for the sandbox, as a list of arguments. No shell is involved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxedGitCommand {
    /// The program and its arguments. The program is looked up in the sandbox's `PATH`.
    pub argv: Vec<String>,
    /// Environment variables for this command, in addition to the variables of every command of the
    /// session.
    pub environment: BTreeMap<String, String>,
    /// The working directory, which is the workspace's `tree`.
    pub directory: PathBuf,
    /// The time after which the command is killed.
    pub timeout: Duration,
    /// Maximum number of bytes of standard output and standard error together. A command that
    /// prints more fails.
    pub max_output: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxedGitOutput {
    /// The exit code. `None` if a signal ended the command.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// The launcher must be that of a workspace whose root is `tree`.
#[async_trait]
impl SandboxedGitRunner for ab_local::SandboxProgramLauncher {
    async fn run(&self, command: SandboxedGitCommand) -> ab_core::Result<SandboxedGitOutput> {
        let mut launch = ab_local::ProgramLaunchRequest::new(command.argv);
        launch.env = command.environment;
        launch.limits.wall_time = Some(command.timeout);
        let output = self.start(launch).await?.wait_with_output(command.max_output).await?;
        Ok(SandboxedGitOutput {
            code: output.exit.code,
            stdout: output.stdout.to_vec(),
            stderr: output.exit.stderr_tail,
        })
    }
}

/// The result of collecting a session's changes.
#[derive(Clone, Debug)]
pub enum CollectChangesOutcome {
    /// The files are the same as in the commit that the session started from.
    Unchanged {
        /// See [`SessionChanges::left_out_paths`].
        left_out_paths: Vec<String>,
    },
    Changed(Box<SessionChanges>),
}

impl SessionWorkspaceStore {
    /// Commits the uncommitted files in the session's tree and imports the session's commits. May
    /// be called again after the agent has done more work.
    ///
    /// If the workspace is a copy, or if git cannot use the repository that the agent left, the
    /// files become one commit on top of the base.
    ///
    /// # Errors
    /// Fails if git fails in the sandbox because of the files themselves, or if the bundle is too
    /// large or damaged. After a failure the written files are removed, because they may have
    /// filled the disk.
    pub async fn collect_changes(
        &self,
        workspace: &PreparedWorkspace,
        sandbox: &dyn SandboxedGitRunner,
        author: &GitAuthor,
        message: &str,
    ) -> Result<CollectChangesOutcome> {
        let collected = self.try_collect_changes(workspace, sandbox, author, message).await;
        if collected.is_err() {
            self.discard_partial_collection(workspace).await;
        }
        collected
    }

    /// Removes what a failed collection wrote. A rescue repository with the commit of an earlier collection stays.
    async fn discard_partial_collection(&self, workspace: &PreparedWorkspace) {
        let root = self.area.workspace(&workspace.token);
        let rescue = workspace.bundle_dir.join(RESCUE);
        let mut partial =
            vec![workspace.bundle_dir.join(BUNDLE), root.join(IMPORT), root.join(IMPORT_BUNDLE)];
        if !area::exists(&rescue.join(DELIVERY)) {
            partial.push(rescue);
        }
        for path in partial {
            // Ignore this error, because the error of the collection is more useful. Remaining
            // files are removed together with the workspace.
            let _ = remove_directory(&path).await;
        }
    }

    async fn try_collect_changes(
        &self,
        workspace: &PreparedWorkspace,
        sandbox: &dyn SandboxedGitRunner,
        author: &GitAuthor,
        message: &str,
    ) -> Result<CollectChangesOutcome> {
        let Some(base) = &workspace.base_commit else {
            let message = "the workspace has no commit to compare with";
            return Err(SnapshotError::failed(ErrorKind::Unsupported, message));
        };
        // Remove the bundle of an earlier call, so that it cannot be mistaken for the new bundle.
        remove_directory(&workspace.bundle_dir.join(BUNDLE)).await?;
        let session = Inside { workspace, base, inside: sandbox, author, message };
        let ((head, nested), history_lost) = match workspace.token.copy_method() {
            WorkspaceCopyMethod::Copy => (session.bundle(Repository::Rescue).await?, None),
            WorkspaceCopyMethod::Git => match session.bundle(Repository::Session).await {
                Ok(bundled) => (bundled, None),
                Err(error) => (session.bundle(Repository::Rescue).await?, Some(error.to_string())),
            },
        };
        // If git cannot use the repository, it cannot list the left-out files either.
        let mut left_out = match (workspace.token.copy_method(), &history_lost) {
            (WorkspaceCopyMethod::Git, None) => session.left_out().await?,
            (WorkspaceCopyMethod::Git | WorkspaceCopyMethod::Copy, _) => Vec::new(),
        };
        let histories = nested.iter().map(|directory| format!("{directory}/.git"));
        left_out.extend(histories.take(MAX_LEFT_OUT));
        if head == *base {
            return Ok(CollectChangesOutcome::Unchanged { left_out_paths: left_out });
        }
        let repository = self.import(workspace, base).await?;
        self.changes(base, repository, history_lost, left_out).await
    }

    /// Copies the bundle out of the sandbox and fetches its reference into a new repository of
    /// ours.
    async fn import(&self, workspace: &PreparedWorkspace, base: &CommitId) -> Result<PathBuf> {
        let root = self.area.workspace(&workspace.token);
        let (repository, bundle) = (root.join(IMPORT), root.join(IMPORT_BUNDLE));
        remove_directory(&repository).await?;
        remove_directory(&bundle).await?;
        copy_file(&workspace.bundle_dir, BUNDLE, &bundle, MAX_BUNDLE).await?;
        let format = format!("--object-format={}", base.object_format());
        self.git.init(&repository, &["--bare", &format]).await?;
        let info = repository.join("objects/info");
        if !area::exists(&info) {
            area::make_dir(&info)?;
        }
        let lent = workspace.read_only_dirs.iter().map(|path| format!("{}\n", path.display()));
        area::write(&info.join("alternates"), &lent.collect::<String>())?;
        let ours = || self.git.on(&repository, Authority::Clean);
        // With this reference, git does not check the objects of the base again.
        ours().args(["update-ref", "refs/heads/base", base.as_str()]).stdout().await?;
        let strict = ["-c", "fetch.fsckObjects=true", "-c", "fetch.unpackLimit=1"];
        let bounded = ["-c", "core.bigFileThreshold=16m", "-c", "pack.windowMemory=64m"];
        let run = ours().args(strict).args(bounded).args(FETCH).args(["--"]);
        let run = run.args([bundle.as_os_str()]).args([format!("+{DELIVERY}:{IMPORTED}")]);
        let output = run.run().await?;
        remove_directory(&bundle).await?;
        if output.code != Some(0) {
            let reason = complaint(&output.stderr);
            let message = format!("the session's commits were refused: {reason}");
            return Err(SnapshotError::failed(ErrorKind::Invalid, message));
        }
        Ok(repository)
    }

    async fn changes(
        &self,
        base: &CommitId,
        repository: PathBuf,
        history_lost: Option<String>,
        left_out: Vec<String>,
    ) -> Result<CollectChangesOutcome> {
        let ours = || self.git.on(&repository, Authority::Clean);
        let head = ours().args(["rev-parse", "--verify", IMPORTED]).stdout().await?;
        let Some(head) = CommitId::read(head.trim()) else {
            return Err(SnapshotError::failed(
                ErrorKind::Io,
                "git did not print the imported commit",
            ));
        };
        // Use an empty tree as the source of git attributes, because the agent's attributes must
        // not affect the diff that people see.
        let nothing = ours().args(["hash-object", "-t", "tree", "--stdin", "-w"]);
        let nothing = nothing.stdout().await?.trim().to_owned();
        // Before version 2.41, git ignores `GIT_ATTR_SOURCE`, so our attributes are in a file.
        let attributes = repository.join("patch.attributes");
        let ours_only = format!("core.attributesFile={}", attributes.display());
        let diff_with = |quote: &str, options: &[&str], most: usize| {
            let run = ours().env("GIT_ATTR_SOURCE", &nothing).max_output(most);
            let run = run.args(["-c", "core.bigFileThreshold=16m", "-c", quote, "-c", &ours_only]);
            let plain = ["diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--no-color"];
            let run = run.args(plain).args(options);
            run.args([base.as_str(), head.as_str(), "--"]).run()
        };
        let diff = |options, most| diff_with("core.quotePath=false", options, most);
        let stat = diff(&["-z", "--raw", "--numstat", "--no-renames"], MAX_STAT).await?;
        if stat.code != Some(0) && !stat.output_limit_exceeded {
            return Err(failure("diff-tree", &stat));
        }
        let (stat, files_cut) = (DiffStat::parse(&stat.stdout), stat.output_limit_exceeded);
        if stat.count == 0 {
            return Ok(CollectChangesOutcome::Unchanged { left_out_paths: left_out });
        }
        let text = diff(&["-p", "-M"], MAX_DIFF).await?;
        let exact = || {
            let options = ["-p", "-M", "--binary", "--full-index"];
            diff_with("core.quotePath=true", &options, MAX_PATCH)
        };
        let mut patch = exact().await?;
        if let Some(as_binary) = patch::binary_attributes(&patch.stdout) {
            area::write(&attributes, &as_binary)?;
            patch = exact().await?;
        }
        let is_whole = !patch.output_limit_exceeded && patch.code == Some(0);
        Ok(CollectChangesOutcome::Changed(Box::new(SessionChanges {
            base: base.clone(),
            head,
            files: stat.files,
            files_changed: stat.count,
            files_truncated: files_cut,
            lines_added: stat.added,
            lines_removed: stat.removed,
            diff: String::from_utf8_lossy(&text.stdout).into_owned(),
            diff_truncated: text.output_limit_exceeded,
            patch: String::from_utf8(patch.stdout).ok().filter(|_| is_whole),
            history_lost_reason: history_lost,
            left_out_paths: left_out,
            repository,
        })))
    }
}

/// The repository that a git command in the sandbox works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repository {
    /// The session's own repository with the agent's commits.
    Session,
    /// A new repository in the outbox. It is used if the session's own repository is unusable or
    /// the workspace is a copy.
    Rescue,
}

/// Runs git in a session's sandbox.
struct Inside<'a> {
    workspace: &'a PreparedWorkspace,
    base: &'a CommitId,
    inside: &'a dyn SandboxedGitRunner,
    author: &'a GitAuthor,
    message: &'a str,
}

impl Inside<'_> {
    /// Returns the last commit of the session, and the nested repositories whose files were added.
    /// Writes the bundle unless this commit is the base.
    async fn bundle(&self, repository: Repository) -> Result<(CommitId, Vec<String>)> {
        let base = self.base.as_str();
        if repository == Repository::Rescue {
            let rescue = self.rescue();
            self.git(Repository::Session, &["init", "--quiet", "--bare", "--template=", &rescue])
                .await?;
            // If an earlier call already made the rescue repository, continue from the last commit
            // in it, so that no delivered commit is made twice.
            let before = ["rev-parse", "--verify", "--quiet", &format!("{DELIVERY}^{{commit}}")];
            let last = self.git(repository, &before).await.unwrap_or_else(|_| base.to_owned());
            self.git(repository, &["update-ref", "--no-deref", "HEAD", &last]).await?;
            self.git(repository, &["read-tree", &last]).await?;
        }
        let last = self.git(repository, &["rev-parse", "--verify", "HEAD^{commit}"]).await?;
        let last_tree = self.git(repository, &["rev-parse", "--verify", "HEAD^{tree}"]).await?;
        let nested = self.add_all(repository).await?;
        let tree = self.git(repository, &["write-tree"]).await?;
        let mut head = last.clone();
        if tree != last_tree {
            let message: String = self.message.chars().take(MAX_MESSAGE / 4).collect();
            let commit = ["commit-tree", "-p", &last, "-m", &message, &tree];
            head = self.git(repository, &commit).await?;
            self.git(repository, &["update-ref", "HEAD", &head, &last]).await?;
        }
        let Some(commit) = CommitId::read(&head) else {
            return Err(SnapshotError::failed(ErrorKind::Invalid, "git printed no commit inside"));
        };
        if commit != *self.base {
            self.git(repository, &["update-ref", DELIVERY, &head]).await?;
            let bundle = self.workspace.bundle_dir.join(BUNDLE).display().to_string();
            let without = format!("^{base}");
            self.git(repository, &["bundle", "create", "--quiet", &bundle, DELIVERY, &without])
                .await?;
        }
        Ok((commit, nested))
    }

    /// Returns the files and directories that are neither committed nor ignored by the repository
    /// itself. Our own exclude list leaves these files out.
    async fn left_out(&self) -> Result<Vec<String>> {
        let words = [
            "ls-files",
            "--others",
            "--exclude-per-directory=.gitignore",
            "--directory",
            "--no-empty-directory",
            "-z",
        ];
        let listed = self.git(Repository::Session, &words).await?;
        let paths = listed.split('\0').filter(|path| !path.is_empty());
        // Paths that contain this text are our own temporary files.
        let paths = paths.filter(|path| !path.contains(".ab-tmp-"));
        Ok(paths.take(MAX_LEFT_OUT).map(str::to_owned).collect())
    }

    fn rescue(&self) -> String {
        self.workspace.bundle_dir.join(RESCUE).display().to_string()
    }

    /// Runs git in the sandbox and returns its output without the final newline.
    async fn git(&self, repository: Repository, words: &[&str]) -> Result<String> {
        let what = words.first().copied().unwrap_or_default();
        self.output(self.command(repository, words), &format!("git {what}")).await
    }

    async fn output(&self, command: SandboxedGitCommand, what: &str) -> Result<String> {
        let output = self.inside.run(command).await?;
        if output.code != Some(0) {
            let reason = complaint(&output.stderr);
            let message = format!("{what} failed in the sandbox: {reason}");
            return Err(SnapshotError::failed(ErrorKind::CommandFailed, message));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        Ok(printed.trim_end_matches('\n').to_owned())
    }

    /// Runs git in the repository that lies in a subdirectory of the tree.
    async fn git_of_nested(&self, directory: &str, words: &[&str]) -> Result<String> {
        let words = [&["-C", directory][..], words].concat();
        let command = self.command(Repository::Session, &words);
        self.output(command, &format!("git in {directory}")).await
    }

    /// Runs a program in the tree, with the environment that git gets, and returns its output.
    async fn program(&self, repository: Repository, words: &[&str]) -> Result<String> {
        let argv = words.iter().map(|&word| word.to_owned()).collect();
        let command = SandboxedGitCommand { argv, ..self.command(repository, &[]) };
        self.output(command, words.first().copied().unwrap_or_default()).await
    }

    /// Like [`program`](Self::program), but does not fail if the exit status is not 0. Some
    /// programs use another exit status to report that they found nothing.
    async fn program_or_empty(
        &self,
        repository: Repository,
        words: &[&str],
        paths: &[&str],
    ) -> Result<String> {
        let argv = words.iter().chain(paths).map(|&word| word.to_owned()).collect();
        let command = SandboxedGitCommand { argv, ..self.command(repository, &[]) };
        let output = self.inside.run(command).await?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self, repository: Repository, words: &[&str]) -> SandboxedGitCommand {
        // These settings only save time or output. They do not protect anything, because the
        // agent's own settings may take effect in the sandbox.
        let settings = [
            "safe.directory=*",
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "gc.auto=0",
            "maintenance.auto=false",
            "commit.gpgSign=false",
            "advice.addEmbeddedRepo=false",
        ];
        let mut argv = vec!["git".to_owned()];
        for setting in settings {
            argv.extend(["-c".to_owned(), setting.to_owned()]);
        }
        argv.extend(words.iter().map(|&word| word.to_owned()));
        let mut environment: BTreeMap<String, String> = BTreeMap::new();
        let mut set =
            |name: &str, value: &str| environment.insert(name.to_owned(), value.to_owned());
        for role in ["AUTHOR", "COMMITTER"] {
            set(&format!("GIT_{role}_NAME"), self.author.name());
            set(&format!("GIT_{role}_EMAIL"), self.author.email());
        }
        for (name, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("LC_ALL", "C"),
        ] {
            set(name, value);
        }
        let tree: &Path = &self.workspace.tree;
        if repository == Repository::Rescue {
            let lent: Vec<String> = self
                .workspace
                .read_only_dirs
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            set("GIT_DIR", &self.rescue());
            set("GIT_WORK_TREE", &tree.display().to_string());
            set("GIT_ALTERNATE_OBJECT_DIRECTORIES", &lent.join(":"));
        }
        SandboxedGitCommand {
            argv,
            environment,
            directory: tree.to_owned(),
            timeout: INSIDE_TIME,
            max_output: INSIDE_OUTPUT,
        }
    }
}
