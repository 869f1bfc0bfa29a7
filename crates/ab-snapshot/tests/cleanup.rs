//! Removal of workspaces in every state.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use ab_snapshot::{
    PreparedWorkspaceNote, SessionWorkspaceStore, SnapshotSettings, WorkspaceCopyMethod,
    WorkspaceToken, caches_used_by_workspaces, replace_path_prefix_in_records,
};

use crate::fixture::{Fixture, Sandbox};

#[tokio::test]
async fn cleanup_is_idempotent_and_works_from_another_handle() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    assert_eq!(fixture.workspaces.list_tokens().unwrap(), vec![workspace.token.clone()]);
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect();
    let directory = fixture.path("data");
    let settings = SnapshotSettings { directory, path, git_environment: Vec::new() };
    let other = SessionWorkspaceStore::open(settings).unwrap();
    let token = WorkspaceToken::parse(workspace.token.as_str()).unwrap();
    for _ in 0..2 {
        other.remove_workspace(&token).await.unwrap();
        assert!(!workspace.tree.exists() && !workspace.home.exists());
    }
    assert_eq!(fixture.workspaces.list_tokens().unwrap(), []);
    assert_eq!(fixture.workspaces.find_workspace(&token).unwrap(), None);
    let unknown = WorkspaceToken::new(WorkspaceCopyMethod::Copy).unwrap();
    fixture.workspaces.remove_workspace(&unknown).await.unwrap();
    // The cache stays for the next task.
    assert_eq!(fixture.prepare(fixture.request()).await.notes, []);
}

#[tokio::test]
async fn half_made_workspace_is_made_again_or_removed() {
    let fixture = Fixture::new();
    let token = WorkspaceToken::new(WorkspaceCopyMethod::Git).unwrap();
    let root = fixture.path("data/workspaces").join(token.as_str());
    fs::create_dir_all(root.join("tree/.git")).unwrap();
    fs::write(root.join("tree/half"), "").unwrap();
    assert_eq!(fixture.workspaces.find_workspace(&token).unwrap(), None);
    assert_eq!(fixture.workspaces.list_tokens().unwrap(), vec![token.clone()]);
    let request = ab_snapshot::WorkspaceRequest::Git(fixture.request());
    let workspace = fixture.workspaces.prepare_workspace(&token, &request).await.unwrap();
    assert!(!workspace.tree.join("half").exists());
    // A server that was killed before it could record the workspace finds it again as it was.
    assert_eq!(workspace.notes, [PreparedWorkspaceNote::Fetched]);
    assert_eq!(fixture.workspaces.prepare_workspace(&token, &request).await.unwrap(), workspace);
    fs::remove_file(root.join("record")).unwrap();
    fixture.workspaces.remove_workspace(&token).await.unwrap();
    assert!(!root.exists());
}

#[tokio::test]
async fn workspace_whose_preparation_is_cancelled_does_not_come_back() {
    let fixture = Fixture::new();
    let request = ab_snapshot::WorkspaceRequest::Git(fixture.request());
    let is_prepared = async |steps: u32| {
        let token = WorkspaceToken::new(WorkspaceCopyMethod::Git).unwrap();
        let cancelled = async {
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
        };
        let is_prepared = tokio::select! {
            biased;
            () = cancelled => false,
            prepared = fixture.workspaces.prepare_workspace(&token, &request) => {
                prepared.unwrap();
                true
            }
        };
        // A git process that has just been killed may still be writing.
        while fixture.workspaces.remove_workspace(&token).await.is_err() {}
        is_prepared
    };
    let mut steps = 1;
    while !is_prepared(steps).await {
        steps += steps / 10 + 1;
    }
    // Every order that was waiting to be started has been handled after these.
    fixture.prepare(fixture.request()).await;
    let tokens = fixture.workspaces.list_tokens().unwrap();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
}

#[tokio::test]
async fn cleanup_removes_what_an_agent_closed_and_follows_no_link() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let outside: PathBuf = fixture.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "").unwrap();
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let script = "mkdir -p a/b/c && echo x >a/b/c/f && chmod 000 a/b/c a/b a && chmod 000 .git && \
                  mkdir -p $HOME/x && chmod 555 $HOME/x $HOME";
    sandbox.shell(script).await;
    symlink(&outside, workspace.tree.join("link")).unwrap();
    fixture.workspaces.remove_workspace(&workspace.token).await.unwrap();
    assert!(!workspace.tree.exists());
    assert!(outside.join("kept").exists());
}

#[tokio::test]
async fn cache_is_removed_once_no_workspace_borrows_from_it() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let workspaces = &fixture.workspaces;
    let caches = workspaces.list_caches().await.unwrap();
    let [cache] = caches.as_slice() else { panic!("{caches:?}") };
    assert!(cache.is_borrowed && cache.usage.bytes > 0, "{cache:?}");
    assert!(cache.last_used.elapsed().unwrap() < Duration::from_secs(3600));
    assert!(!workspaces.remove_cache(&cache.name).await.unwrap(), "a workspace borrows from it");
    assert!(workspaces.remove_cache("../other").await.unwrap(), "there is no such cache");
    assert_eq!(fixture.git_in(&workspace.tree, &["log", "--format=%s"]), "second\nfirst");

    workspaces.remove_workspace(&workspace.token).await.unwrap();
    assert!(!workspaces.list_caches().await.unwrap()[0].is_borrowed);
    // A workspace that is not complete may be about to borrow.
    let token = WorkspaceToken::new(WorkspaceCopyMethod::Git).unwrap();
    let incomplete = fixture.path("data/workspaces").join(token.as_str());
    fs::create_dir(&incomplete).unwrap();
    assert!(!workspaces.remove_cache(&cache.name).await.unwrap());
    fs::remove_dir(&incomplete).unwrap();
    assert!(workspaces.remove_cache(&cache.name).await.unwrap());
    assert_eq!(workspaces.list_caches().await.unwrap(), []);
    assert_eq!(fs::read_dir(fixture.path("data/cache")).unwrap().count(), 0);
    // The next task makes it again.
    let again = fixture.prepare(fixture.request()).await;
    assert_eq!(fixture.git_in(&again.tree, &["rev-list", "--count", "HEAD"]), "2");
}

#[tokio::test]
async fn records_are_moved_with_their_directory() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let data = fixture.path("data");
    let borrowed = caches_used_by_workspaces(&data).unwrap();
    assert_eq!(
        borrowed.iter().map(|it| it.join("objects")).collect::<Vec<_>>(),
        workspace.read_only
    );
    let (old, new) = (data.to_str().unwrap(), "/somewhere/else");
    let moved = replace_path_prefix_in_records(&data, old, new).unwrap();
    assert_eq!(moved, [data.join("workspaces").join(workspace.token.as_str())]);
    let found = fixture.workspaces.find_workspace(&workspace.token).unwrap().unwrap();
    assert!(found.read_only[0].starts_with(new), "{found:?}");
    assert_eq!((found.base, found.branch), (workspace.base, workspace.branch));
    assert_eq!(
        replace_path_prefix_in_records(&fixture.path("none"), old, new).unwrap(),
        [""; 0].map(PathBuf::from)
    );
}
