//! Workspaces from good and bad sources.

use std::fs;

use ab_core::ErrorKind;
use ab_host::directory::DirectoryCopyLimits;
use ab_snapshot::{
    CommitId, GitTaskField, GitWorkspaceRequest, PreparedWorkspaceNote, RepoSource,
    WorkspaceCopyMethod, WorkspaceRequest, WorkspaceToken,
};

use crate::fixture::{Fixture, Sandbox, branch, fingerprint};

#[tokio::test]
async fn clone_starts_at_the_tip_on_a_new_branch() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    assert_eq!(fs::read_to_string(workspace.tree.join("README.md")).unwrap(), "first\nsecond\n");
    let tip = fixture.git(&["rev-parse", "main"]);
    assert_eq!(workspace.base_commit.as_ref().unwrap().as_str(), tip);
    assert_eq!(workspace.base_branch, Some(branch("main")));
    assert_eq!(workspace.branch, Some(branch("ah/work")));
    assert_eq!(workspace.notes, [PreparedWorkspaceNote::Fetched]);
    let tree = &workspace.tree;
    assert_eq!(fixture.git_in(tree, &["symbolic-ref", "HEAD"]), "refs/heads/ah/work");
    assert_eq!(fixture.git_in(tree, &["status", "--porcelain"]), "");
    assert_eq!(fixture.git_in(tree, &["rev-list", "--count", "HEAD"]), "2");
    assert_eq!(fixture.git_in(tree, &["rev-parse", "origin/main"]), tip);
    assert_eq!(fixture.git_in(tree, &["config", "--local", "user.name"]), "agent-backend");
    assert!(!workspace.home.starts_with(&workspace.tree));
    let objects = tree.join(".git/objects/pack");
    assert!(fs::read_dir(objects).unwrap().next().is_none(), "objects were copied");
    // Found again, as after a restart.
    let found = fixture.workspaces.find_workspace(&workspace.token).unwrap().unwrap();
    assert_eq!((&found.base_commit, &found.branch), (&workspace.base_commit, &workspace.branch));
    assert_eq!(found.read_only_dirs, workspace.read_only_dirs);
    let request = WorkspaceRequest::Git(fixture.request());
    let again = fixture.workspaces.prepare_workspace(&workspace.token, &request).await.unwrap();
    assert_eq!(again, found);
}

#[tokio::test]
async fn source_stays_untouched_and_its_uncommitted_changes_are_counted() {
    let fixture = Fixture::new();
    fixture.write("README.md", "changed\n");
    fixture.write("staged.txt", "staged\n");
    fixture.git(&["add", "staged.txt"]);
    fixture.write("untracked one", "1");
    fixture.write("untracked/two", "2");
    fixture.write(".gitignore", "ignored\n");
    fixture.write("ignored", "not counted");
    let before = fingerprint(&fixture.source);
    let workspace = fixture.prepare(fixture.request()).await;
    assert_eq!(fingerprint(&fixture.source), before);
    let uncommitted = PreparedWorkspaceNote::Uncommitted { changed: 2, untracked: 3 };
    assert_eq!(workspace.notes, [PreparedWorkspaceNote::Fetched, uncommitted]);
    assert_eq!(fs::read_to_string(workspace.tree.join("README.md")).unwrap(), "first\nsecond\n");
    assert!(!workspace.tree.join("staged.txt").exists());
}

#[tokio::test]
async fn second_task_fetches_nothing_and_new_commits_are_seen() {
    let fixture = Fixture::new();
    let fetched = |notes: &[PreparedWorkspaceNote]| notes.contains(&PreparedWorkspaceNote::Fetched);
    assert!(fetched(&fixture.prepare(fixture.request()).await.notes));
    assert!(!fetched(&fixture.prepare(fixture.request()).await.notes));
    fixture.write("new.txt", "new");
    fixture.commit("third");
    let third = fixture.prepare(fixture.request()).await;
    assert!(fetched(&third.notes));
    assert!(third.tree.join("new.txt").exists());
    // Many at once use one cache.
    fixture.write("newer.txt", "newer");
    fixture.commit("fourth");
    let all =
        [fixture.request(), fixture.request(), fixture.request()].map(|it| fixture.try_prepare(it));
    let [one, two, three] = all;
    let (one, two, three) = tokio::join!(one, two, three);
    let made = [one.unwrap(), two.unwrap(), three.unwrap()];
    assert_eq!(made.iter().filter(|it| fetched(&it.notes)).count(), 1);
    assert!(made.iter().all(|it| it.tree.join("newer.txt").exists()));
}

#[tokio::test]
async fn branch_rule_holds_for_real_sources() {
    let fixture = Fixture::new();
    let dev = GitWorkspaceRequest { branch: Some(branch("dev")), ..fixture.request() };
    let workspace = fixture.prepare(dev).await;
    assert!(workspace.tree.join("dev.txt").exists());
    assert_eq!(workspace.branch, Some(branch("ah/work")));
    let new = GitWorkspaceRequest {
        branch: Some(branch("topic")),
        target_branch: Some(branch("dev")),
        ..fixture.request()
    };
    let workspace = fixture.prepare(new).await;
    assert!(workspace.tree.join("dev.txt").exists());
    assert_eq!(workspace.branch, Some(branch("topic")));
    let first = CommitId::parse(&fixture.git(&["rev-parse", "main~1"])).unwrap();
    let old = GitWorkspaceRequest { commit: Some(first.clone()), ..fixture.request() };
    let workspace = fixture.prepare(old).await;
    assert_eq!(workspace.base_commit, Some(first));
    assert_eq!(fs::read_to_string(workspace.tree.join("README.md")).unwrap(), "first\n");
}

#[tokio::test]
async fn bare_sources_and_linked_worktrees_work() {
    let fixture = Fixture::new();
    let bare = fixture.path("bare.git");
    fixture.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let linked = fixture.path("linked");
    fixture.git(&["worktree", "add", "-q", "-b", "linked", linked.to_str().unwrap()]);
    for (path, base) in [(bare, "main"), (linked, "linked")] {
        let source = RepoSource::parse(path.to_str().unwrap()).unwrap();
        let request = GitWorkspaceRequest::new(source, branch("ah/work"));
        let workspace = fixture.prepare(request).await;
        assert_eq!(workspace.base_branch, Some(branch(base)));
        assert_eq!(workspace.notes, [PreparedWorkspaceNote::Fetched]);
    }
}

#[tokio::test]
async fn unusable_sources_are_named_by_their_field() {
    let fixture = Fixture::new();
    let check = async |request: GitWorkspaceRequest, field, kind, part: &str| {
        let error = fixture.try_prepare(request).await.unwrap_err();
        assert_eq!((error.field, error.kind()), (Some(field), kind), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    let at =
        |path: &str| GitWorkspaceRequest::new(RepoSource::parse(path).unwrap(), branch("ah/work"));
    let dir = |name: &str| {
        let path = fixture.path(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let plain = dir("plain");
    let empty = dir("empty");
    fixture.git_in(&empty, &["init", "-q", "."]);
    let shallow = fixture.path("shallow");
    let url = format!("file://{}", fixture.source.display());
    fixture.git(&["clone", "-q", "--depth", "1", &url, shallow.to_str().unwrap()]);
    let file = fixture.source.join("README.md");
    let inside = fixture.source.join("src");
    let (url, name) = (GitTaskField::RepoUrl, GitTaskField::RepoBranch);
    check(at("/no/such/directory"), url, ErrorKind::NotFound, "no such file").await;
    check(at(file.to_str().unwrap()), url, ErrorKind::NotADirectory, "not a directory").await;
    check(at(plain.to_str().unwrap()), url, ErrorKind::Invalid, "not a git repository").await;
    check(at(empty.to_str().unwrap()), url, ErrorKind::Invalid, "has no commit").await;
    check(at(shallow.to_str().unwrap()), url, ErrorKind::Unsupported, "shallow").await;
    check(at(inside.to_str().unwrap()), url, ErrorKind::Invalid, "top directory").await;
    let data = fixture.path("data");
    check(
        at(data.to_str().unwrap()),
        url,
        ErrorKind::DeniedByPolicy,
        "contains the data directory",
    )
    .await;
    let request = GitWorkspaceRequest { work_branch: branch("dev"), ..fixture.request() };
    check(request, name, ErrorKind::AlreadyExists, "already has the branch dev").await;
    let request = GitWorkspaceRequest { target_branch: Some(branch("none")), ..fixture.request() };
    check(request, GitTaskField::TargetBranch, ErrorKind::NotFound, "no branch none").await;
    let commit = CommitId::parse(&"1".repeat(40)).unwrap();
    let request = GitWorkspaceRequest { commit: Some(commit), ..fixture.request() };
    check(request, GitTaskField::RepoCommit, ErrorKind::NotFound, "no commit").await;
    fixture.git(&["checkout", "-q", "--detach", "main"]);
    let workspace = fixture.prepare(fixture.request()).await;
    let main = fixture.git(&["rev-parse", "main"]);
    let base = workspace.base_commit.map(|base| base.to_string());
    assert_eq!((base, workspace.base_branch), (Some(main), None));
    let request = GitWorkspaceRequest { branch: Some(branch("main")), ..fixture.request() };
    fixture.prepare(request).await;
}

#[tokio::test]
async fn agent_that_rewrites_every_object_changes_neither_cache_nor_source() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let cache = workspace.read_only_dirs[0].clone();
    let before = (fingerprint(&cache), fingerprint(&fixture.source));
    let attack = format!(
        "for f in $(find {0} .git/objects -type f); do chmod u+w $f; echo x >$f; : >$f; rm -f $f; \
         done; touch {0}/new; rm -rf {0}; chmod 700 {0}; mv {0} {0}.old; true",
        cache.display()
    );
    sandbox.shell(&format!("( {attack} ) 2>/dev/null; true")).await;
    assert_eq!((fingerprint(&cache), fingerprint(&fixture.source)), before);
    // The next task is not affected.
    let next = fixture.prepare(fixture.request()).await;
    assert_eq!(next.notes, []);
    assert_eq!(fixture.git_in(&next.tree, &["fsck", "--full", "--strict"]), "");
}

#[tokio::test]
async fn sessions_see_neither_each_other_nor_the_source() {
    let fixture = Fixture::new();
    let one = fixture.prepare(fixture.request()).await;
    let two = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&one).await else { return };
    fs::write(two.home.join("secret"), "secret").unwrap();
    for path in [&two.tree, &two.home.join("secret"), &fixture.source, &fixture.path("data/git")] {
        let script = format!("if [ -e {} ]; then echo seen; fi", path.display());
        assert_eq!(sandbox.shell(&script).await, "", "{}", path.display());
    }
    let log = sandbox.shell("git log --format=%s && git config user.email").await;
    assert_eq!(log, "second\nfirst\nagent@localhost\n");
}

#[tokio::test]
async fn copy_is_independent_of_its_original() {
    let fixture = Fixture::new();
    let token = WorkspaceToken::new(WorkspaceCopyMethod::Copy).unwrap();
    let bounds = DirectoryCopyLimits::default();
    let request = WorkspaceRequest::Copy { from: fixture.source.clone(), bounds };
    let before = fingerprint(&fixture.source);
    let workspace = fixture.workspaces.prepare_workspace(&token, &request).await.unwrap();
    assert_eq!((workspace.branch.is_none(), workspace.read_only_dirs.len()), (true, 1));
    assert_eq!(fixture.workspaces.find_workspace(&token).unwrap(), Some(workspace.clone()));
    fs::write(workspace.tree.join("README.md"), "changed").unwrap();
    assert_eq!(fingerprint(&fixture.source), before);
    fixture.workspaces.remove_workspace(&token).await.unwrap();
    fs::create_dir_all(fixture.source.join("below/.git")).unwrap();
    let nested = fixture.workspaces.prepare_workspace(&token, &request).await;
    fixture.git(&["init", "-q", "below"]);
    fixture.git_in(&fixture.source.join("below"), &["commit", "-q", "--allow-empty", "-m", "Own"]);
    fixture.workspaces.remove_workspace(&token).await.unwrap();
    assert!(nested.is_ok(), "a directory that is called .git is not a repository: {nested:?}");
    let error = fixture.workspaces.prepare_workspace(&token, &request).await.unwrap_err();
    assert!(error.to_string().contains("contains a git repository: below"), "{error}");
    fixture.workspaces.remove_workspace(&token).await.unwrap();
    let request = WorkspaceRequest::Copy { from: fixture.path(""), bounds };
    let error = fixture.workspaces.prepare_workspace(&token, &request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeniedByPolicy, "{error}");
    let other = WorkspaceToken::new(WorkspaceCopyMethod::Git).unwrap();
    assert!(
        fixture.workspaces.prepare_workspace(&other, &request).await.is_err(),
        "another provider's token"
    );
}
