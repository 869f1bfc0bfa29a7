//! A source repository, a data directory, and a sandbox on a workspace.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ab_core::driver::Driver;
use ab_core::process::{self, ExecRequest, HostDirectory, HostDirectoryAccess, OutputChannel};
use ab_core::{Isolation, Result};
use ab_host::{LocalDriver, LocalDriverOptions, LocalExecSettings};
use ab_snapshot::{
    BranchName, CollectChangesOutcome, GitAuthor, GitTaskField, GitWorkspaceRequest,
    PreparedWorkspace, RepoSource, SandboxedGitCommand, SandboxedGitOutput, SandboxedGitRunner,
    SessionChanges, SessionWorkspaceStore, SnapshotSettings, WorkspaceCopyMethod, WorkspaceRequest,
    WorkspaceToken,
};
use ab_testkit::commands::{channel_bytes, read_to_exit};
use async_trait::async_trait;

pub(crate) struct Fixture {
    place: tempfile::TempDir,
    pub(crate) source: PathBuf,
    pub(crate) workspaces: SessionWorkspaceStore,
}

pub(crate) fn branch(name: &str) -> BranchName {
    BranchName::parse(name, GitTaskField::RepoBranch).unwrap()
}

fn search_path() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect()
}

impl Fixture {
    /// A source with two commits on `main` and one more on `dev`.
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture::empty();
        fixture.git(&["init", "-q", "-b", "main", "."]);
        fixture.write("README.md", "first\n");
        fixture.write("src/main.rs", "fn main() {}\n");
        fixture.commit("first");
        fixture.git(&["checkout", "-q", "-b", "dev"]);
        fixture.write("dev.txt", "dev\n");
        fixture.commit("on dev");
        fixture.git(&["checkout", "-q", "main"]);
        fixture.write("README.md", "first\nsecond\n");
        fixture.commit("second");
        fixture
    }

    /// A source directory without a repository.
    pub(crate) fn empty() -> Fixture {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().canonicalize().unwrap().join("source");
        fs::create_dir(&source).unwrap();
        fs::create_dir(place.path().join("home")).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let home = place.path().join("home").into_os_string();
        let settings = SnapshotSettings {
            data_dir: place.path().join("data"),
            program_search_path: search_path(),
            git_environment: vec![("PATH".into(), path), ("HOME".into(), home)],
        };
        let workspaces = SessionWorkspaceStore::open(settings).unwrap();
        Fixture { place, source, workspaces }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.source.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        self.git_in(&self.source, arguments)
    }

    /// Git as the operator runs it.
    pub(crate) fn git_in(&self, directory: &Path, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {stderr}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(crate) fn commit(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", message]);
    }

    pub(crate) fn repo(&self) -> RepoSource {
        RepoSource::parse(self.source.to_str().unwrap()).unwrap()
    }

    pub(crate) fn request(&self) -> GitWorkspaceRequest {
        GitWorkspaceRequest::new(self.repo(), branch("ah/work"))
    }

    pub(crate) async fn try_prepare(
        &self,
        request: GitWorkspaceRequest,
    ) -> Result<PreparedWorkspace, ab_snapshot::SnapshotError> {
        let token = WorkspaceToken::new(WorkspaceCopyMethod::Git).unwrap();
        self.workspaces.prepare_workspace(&token, &WorkspaceRequest::Git(request)).await
    }

    pub(crate) async fn prepare(&self, request: GitWorkspaceRequest) -> PreparedWorkspace {
        self.try_prepare(request).await.unwrap()
    }

    pub(crate) async fn collect(&self, sandbox: &Sandbox) -> CollectChangesOutcome {
        self.try_collect(sandbox).await.unwrap()
    }

    pub(crate) async fn try_collect(
        &self,
        sandbox: &Sandbox,
    ) -> Result<CollectChangesOutcome, ab_snapshot::SnapshotError> {
        let author = GitAuthor::new("Agent", "agent@example.org").unwrap();
        self.workspaces.collect_changes(&sandbox.workspace, sandbox, &author, "Do the task").await
    }

    pub(crate) async fn changes(&self, sandbox: &Sandbox) -> Box<SessionChanges> {
        match self.collect(sandbox).await {
            CollectChangesOutcome::Changed(changes) => changes,
            CollectChangesOutcome::Unchanged { .. } => panic!("nothing was changed"),
        }
    }
}

/// A session's sandbox as the executor makes it: the tree, the home, the outbox, and the cache.
pub(crate) struct Sandbox {
    driver: LocalDriver,
    pub(crate) workspace: PreparedWorkspace,
    _temporary: tempfile::TempDir,
}

impl Sandbox {
    /// Nothing where the host has no bwrap.
    pub(crate) async fn open(workspace: &PreparedWorkspace) -> Option<Sandbox> {
        let temporary = tempfile::tempdir().unwrap();
        let exec = LocalExecSettings {
            isolation: Isolation::Bwrap,
            temporary_dir: temporary.path().to_owned(),
            ..LocalExecSettings::default()
        };
        let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
        let driver = LocalDriver::open(&workspace.tree, options).unwrap();
        if let Err(error) = driver.effective_policy().await {
            ab_testkit::host::report_skip("a session's sandbox", error.message());
            return None;
        }
        Some(Sandbox { driver, workspace: workspace.clone(), _temporary: temporary })
    }

    /// What an agent does.
    pub(crate) async fn shell(&self, script: &str) -> String {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        let output = self.run(self.command(argv)).await.unwrap();
        assert_eq!(output.code, Some(0), "{script}: {}", output.stderr);
        String::from_utf8(output.stdout).unwrap()
    }

    fn command(&self, argv: Vec<String>) -> SandboxedGitCommand {
        SandboxedGitCommand {
            argv,
            environment: BTreeMap::new(),
            directory: self.workspace.tree.clone(),
            timeout: Duration::from_secs(120),
            max_output: 1024 * 1024,
        }
    }
}

#[async_trait]
impl SandboxedGitRunner for Sandbox {
    async fn run(&self, command: SandboxedGitCommand) -> Result<SandboxedGitOutput> {
        let bind = |path: &PathBuf, access| HostDirectory {
            path: path.to_str().unwrap().to_owned(),
            access,
        };
        let mut request = ExecRequest::new(process::Command::Argv(command.argv));
        request.env = command.environment;
        let home = self.workspace.home.to_str().unwrap().to_owned();
        request.env.insert("HOME".to_owned(), home);
        request.limits.wall_time = Some(command.timeout);
        let writable = [&self.workspace.home, &self.workspace.bundle_dir];
        request.restrictions.host_directories =
            writable.into_iter().map(|path| bind(path, HostDirectoryAccess::ReadWrite)).collect();
        let lent = self
            .workspace
            .read_only_dirs
            .iter()
            .map(|path| bind(path, HostDirectoryAccess::ReadOnly));
        request.restrictions.host_directories.extend(lent);
        let mut process = self.driver.exec(request).await?;
        let (pieces, exit) = read_to_exit(&mut process).await;
        Ok(SandboxedGitOutput {
            code: exit.code,
            stdout: channel_bytes(&pieces, OutputChannel::Stdout),
            stderr: exit.stderr_tail,
        })
    }
}

/// Every file below a directory with its content, mode and modification time.
pub(crate) fn fingerprint(root: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = path.symlink_metadata().unwrap();
            let content = match stat.file_type() {
                kind if kind.is_dir() => {
                    directories.push(path.clone());
                    Vec::new()
                }
                kind if kind.is_symlink() => {
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                }
                _ => fs::read(&path).unwrap(),
            };
            let mode = stat.permissions().mode();
            found.insert(path, (mode, stat.mtime(), stat.mtime_nsec(), content));
        }
    }
    found
}

/// A program that leaves a file when it runs.
pub(crate) fn canary(fixture: &Fixture, name: &str) -> (PathBuf, PathBuf) {
    let (program, mark) =
        (fixture.path(&format!("{name}.sh")), fixture.path(&format!("{name}.ran")));
    fs::write(&program, format!("#!/bin/sh\necho ran >>{}\nexit 0\n", mark.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (program, mark)
}
