//! Workspaces from good and bad sources.

use std::fs;

use ab_core::ErrorKind;
use ab_host::directory::CopyLimits;
use ab_snapshot::{
    CommitId, GitWorkspaceRequest, RepoSource, TaskField, WorkspaceNote, WorkspaceProvider,
    WorkspaceRequest, WorkspaceToken,
};

use crate::ground::{Ground, Sandbox, branch, fingerprint};

#[tokio::test]
async fn clone_starts_at_the_tip_on_a_new_branch() {
    let ground = Ground::new();
    let workspace = ground.prepare(ground.request()).await;
    assert_eq!(fs::read_to_string(workspace.tree.join("README.md")).unwrap(), "first\nsecond\n");
    let tip = ground.git(&["rev-parse", "main"]);
    assert_eq!(workspace.base.as_ref().unwrap().as_str(), tip);
    assert_eq!(workspace.base_branch, Some(branch("main")));
    assert_eq!(workspace.branch, Some(branch("ah/work")));
    assert_eq!(workspace.notes, [WorkspaceNote::Fetched]);
    let tree = &workspace.tree;
    assert_eq!(ground.git_in(tree, &["symbolic-ref", "HEAD"]), "refs/heads/ah/work");
    assert_eq!(ground.git_in(tree, &["status", "--porcelain"]), "");
    assert_eq!(ground.git_in(tree, &["rev-list", "--count", "HEAD"]), "2");
    assert_eq!(ground.git_in(tree, &["rev-parse", "origin/main"]), tip);
    assert_eq!(ground.git_in(tree, &["config", "--local", "user.name"]), "agent-backend");
    assert!(!workspace.home.starts_with(&workspace.tree));
    let objects = tree.join(".git/objects/pack");
    assert!(fs::read_dir(objects).unwrap().next().is_none(), "objects were copied");
    // Found again, as after a restart.
    let found = ground.workspaces.find(&workspace.token).unwrap().unwrap();
    assert_eq!((&found.base, &found.branch), (&workspace.base, &workspace.branch));
    assert_eq!(found.read_only, workspace.read_only);
    let request = WorkspaceRequest::Git(ground.request());
    let again = ground.workspaces.prepare(&workspace.token, &request).await.unwrap();
    assert_eq!(again, found);
}

#[tokio::test]
async fn source_stays_untouched_and_its_uncommitted_changes_are_counted() {
    let ground = Ground::new();
    ground.write("README.md", "changed\n");
    ground.write("staged.txt", "staged\n");
    ground.git(&["add", "staged.txt"]);
    ground.write("untracked one", "1");
    ground.write("untracked/two", "2");
    ground.write(".gitignore", "ignored\n");
    ground.write("ignored", "not counted");
    let before = fingerprint(&ground.source);
    let workspace = ground.prepare(ground.request()).await;
    assert_eq!(fingerprint(&ground.source), before);
    let uncommitted = WorkspaceNote::Uncommitted { changed: 2, untracked: 3 };
    assert_eq!(workspace.notes, [WorkspaceNote::Fetched, uncommitted]);
    assert_eq!(fs::read_to_string(workspace.tree.join("README.md")).unwrap(), "first\nsecond\n");
    assert!(!workspace.tree.join("staged.txt").exists());
}

#[tokio::test]
async fn second_task_fetches_nothing_and_new_commits_are_seen() {
    let ground = Ground::new();
    let fetched = |notes: &[WorkspaceNote]| notes.contains(&WorkspaceNote::Fetched);
    assert!(fetched(&ground.prepare(ground.request()).await.notes));
    assert!(!fetched(&ground.prepare(ground.request()).await.notes));
    ground.write("new.txt", "new");
    ground.commit("third");
    let third = ground.prepare(ground.request()).await;
    assert!(fetched(&third.notes));
    assert!(third.tree.join("new.txt").exists());
    // Many at once use one cache.
    ground.write("newer.txt", "newer");
    ground.commit("fourth");
    let all =
        [ground.request(), ground.request(), ground.request()].map(|it| ground.try_prepare(it));
    let [one, two, three] = all;
    let (one, two, three) = tokio::join!(one, two, three);
    let made = [one.unwrap(), two.unwrap(), three.unwrap()];
    assert_eq!(made.iter().filter(|it| fetched(&it.notes)).count(), 1);
    assert!(made.iter().all(|it| it.tree.join("newer.txt").exists()));
}

#[tokio::test]
async fn branch_rule_holds_for_real_sources() {
    let ground = Ground::new();
    let dev = GitWorkspaceRequest { branch: Some(branch("dev")), ..ground.request() };
    let workspace = ground.prepare(dev).await;
    assert!(workspace.tree.join("dev.txt").exists());
    assert_eq!(workspace.branch, Some(branch("ah/work")));
    let new = GitWorkspaceRequest {
        branch: Some(branch("topic")),
        target: Some(branch("dev")),
        ..ground.request()
    };
    let workspace = ground.prepare(new).await;
    assert!(workspace.tree.join("dev.txt").exists());
    assert_eq!(workspace.branch, Some(branch("topic")));
    let first = CommitId::parse(&ground.git(&["rev-parse", "main~1"])).unwrap();
    let old = GitWorkspaceRequest { commit: Some(first.clone()), ..ground.request() };
    let workspace = ground.prepare(old).await;
    assert_eq!(workspace.base, Some(first));
    assert_eq!(fs::read_to_string(workspace.tree.join("README.md")).unwrap(), "first\n");
}

#[tokio::test]
async fn bare_sources_and_linked_worktrees_work() {
    let ground = Ground::new();
    let bare = ground.path("bare.git");
    ground.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let linked = ground.path("linked");
    ground.git(&["worktree", "add", "-q", "-b", "linked", linked.to_str().unwrap()]);
    for (path, base) in [(bare, "main"), (linked, "linked")] {
        let source = RepoSource::parse(path.to_str().unwrap()).unwrap();
        let request = GitWorkspaceRequest::new(source, branch("ah/work"));
        let workspace = ground.prepare(request).await;
        assert_eq!(workspace.base_branch, Some(branch(base)));
        assert_eq!(workspace.notes, [WorkspaceNote::Fetched]);
    }
}

#[tokio::test]
async fn unusable_sources_are_named_by_their_field() {
    let ground = Ground::new();
    let check = async |request: GitWorkspaceRequest, field, kind, part: &str| {
        let error = ground.try_prepare(request).await.unwrap_err();
        assert_eq!((error.field, error.kind()), (Some(field), kind), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    let at =
        |path: &str| GitWorkspaceRequest::new(RepoSource::parse(path).unwrap(), branch("ah/work"));
    let dir = |name: &str| {
        let path = ground.path(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let plain = dir("plain");
    let empty = dir("empty");
    ground.git_in(&empty, &["init", "-q", "."]);
    let shallow = ground.path("shallow");
    let url = format!("file://{}", ground.source.display());
    ground.git(&["clone", "-q", "--depth", "1", &url, shallow.to_str().unwrap()]);
    let file = ground.source.join("README.md");
    let inside = ground.source.join("src");
    let (url, name) = (TaskField::RepoUrl, TaskField::RepoBranch);
    check(at("/no/such/directory"), url, ErrorKind::NotFound, "No such file").await;
    check(at(file.to_str().unwrap()), url, ErrorKind::NotADirectory, "not a directory").await;
    check(at(plain.to_str().unwrap()), url, ErrorKind::Invalid, "not a git repository").await;
    check(at(empty.to_str().unwrap()), url, ErrorKind::Invalid, "is empty").await;
    check(at(shallow.to_str().unwrap()), url, ErrorKind::Unsupported, "shallow").await;
    check(at(inside.to_str().unwrap()), url, ErrorKind::Invalid, "top directory").await;
    let data = ground.path("data");
    check(at(data.to_str().unwrap()), url, ErrorKind::Denied, "overlap").await;
    let request = GitWorkspaceRequest { work_branch: branch("dev"), ..ground.request() };
    check(request, name, ErrorKind::AlreadyExists, "already has the branch dev").await;
    let request = GitWorkspaceRequest { target: Some(branch("none")), ..ground.request() };
    check(request, TaskField::TargetBranch, ErrorKind::NotFound, "no branch none").await;
    let commit = CommitId::parse(&"1".repeat(40)).unwrap();
    let request = GitWorkspaceRequest { commit: Some(commit), ..ground.request() };
    check(request, TaskField::RepoCommit, ErrorKind::NotFound, "no commit").await;
    ground.git(&["checkout", "-q", "--detach", "main"]);
    let workspace = ground.prepare(ground.request()).await;
    let main = ground.git(&["rev-parse", "main"]);
    let base = workspace.base.map(|base| base.to_string());
    assert_eq!((base, workspace.base_branch), (Some(main), None));
    let request = GitWorkspaceRequest { branch: Some(branch("main")), ..ground.request() };
    ground.prepare(request).await;
}

#[tokio::test]
async fn agent_that_rewrites_every_object_changes_neither_cache_nor_source() {
    let ground = Ground::new();
    let workspace = ground.prepare(ground.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let cache = workspace.read_only[0].clone();
    let before = (fingerprint(&cache), fingerprint(&ground.source));
    let attack = format!(
        "for f in $(find {0} .git/objects -type f); do chmod u+w $f; echo x >$f; : >$f; rm -f $f; \
         done; touch {0}/new; rm -rf {0}; chmod 700 {0}; mv {0} {0}.old; true",
        cache.display()
    );
    sandbox.shell(&format!("( {attack} ) 2>/dev/null; true")).await;
    assert_eq!((fingerprint(&cache), fingerprint(&ground.source)), before);
    // The next task is not affected.
    let next = ground.prepare(ground.request()).await;
    assert_eq!(next.notes, []);
    assert_eq!(ground.git_in(&next.tree, &["fsck", "--full", "--strict"]), "");
}

#[tokio::test]
async fn sessions_see_neither_each_other_nor_the_source() {
    let ground = Ground::new();
    let one = ground.prepare(ground.request()).await;
    let two = ground.prepare(ground.request()).await;
    let Some(sandbox) = Sandbox::open(&one).await else { return };
    fs::write(two.home.join("secret"), "secret").unwrap();
    for path in [&two.tree, &two.home.join("secret"), &ground.source, &ground.path("data/git")] {
        let script = format!("if [ -e {} ]; then echo seen; fi", path.display());
        assert_eq!(sandbox.shell(&script).await, "", "{}", path.display());
    }
    let log = sandbox.shell("git log --format=%s && git config user.email").await;
    assert_eq!(log, "second\nfirst\nagent@localhost\n");
}

#[tokio::test]
async fn copy_is_independent_of_its_original() {
    let ground = Ground::new();
    let token = WorkspaceToken::new(WorkspaceProvider::Copy).unwrap();
    let bounds = CopyLimits::default();
    let request = WorkspaceRequest::Copy { from: ground.source.clone(), bounds };
    let before = fingerprint(&ground.source);
    let workspace = ground.workspaces.prepare(&token, &request).await.unwrap();
    assert_eq!((workspace.branch.is_none(), workspace.read_only.len()), (true, 1));
    assert_eq!(ground.workspaces.find(&token).unwrap(), Some(workspace.clone()));
    fs::write(workspace.tree.join("README.md"), "changed").unwrap();
    assert_eq!(fingerprint(&ground.source), before);
    ground.workspaces.cleanup(&token).await.unwrap();
    fs::create_dir_all(ground.source.join("below/.git")).unwrap();
    let nested = ground.workspaces.prepare(&token, &request).await;
    ground.git(&["init", "-q", "below"]);
    ground.git_in(&ground.source.join("below"), &["commit", "-q", "--allow-empty", "-m", "Own"]);
    ground.workspaces.cleanup(&token).await.unwrap();
    assert!(nested.is_ok(), "a directory that is called .git is not a repository: {nested:?}");
    let error = ground.workspaces.prepare(&token, &request).await.unwrap_err();
    assert!(error.to_string().contains("contains a git repository: below"), "{error}");
    ground.workspaces.cleanup(&token).await.unwrap();
    let request = WorkspaceRequest::Copy { from: ground.path(""), bounds };
    let error = ground.workspaces.prepare(&token, &request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let other = WorkspaceToken::new(WorkspaceProvider::Git).unwrap();
    assert!(ground.workspaces.prepare(&other, &request).await.is_err(), "another provider's token");
}
