//! Removal of workspaces in every state.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use ab_snapshot::{
    SnapshotSettings, WorkspaceNote, WorkspaceProvider, WorkspaceStore, WorkspaceToken,
};

use crate::ground::{Ground, Sandbox};

#[tokio::test]
async fn cleanup_is_idempotent_and_works_from_another_handle() {
    let ground = Ground::new();
    let workspace = ground.prepare(ground.request()).await;
    assert_eq!(ground.workspaces.tokens().unwrap(), vec![workspace.token.clone()]);
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect();
    let directory = ground.path("data");
    let settings = SnapshotSettings { directory, path, git_environment: Vec::new() };
    let other = WorkspaceStore::open(settings).unwrap();
    let token = WorkspaceToken::parse(workspace.token.as_str()).unwrap();
    for _ in 0..2 {
        other.cleanup(&token).await.unwrap();
        assert!(!workspace.tree.exists() && !workspace.home.exists());
    }
    assert_eq!(ground.workspaces.tokens().unwrap(), []);
    assert_eq!(ground.workspaces.find(&token).unwrap(), None);
    let unknown = WorkspaceToken::new(WorkspaceProvider::Copy).unwrap();
    ground.workspaces.cleanup(&unknown).await.unwrap();
    // The cache stays for the next task.
    assert_eq!(ground.prepare(ground.request()).await.notes, []);
}

#[tokio::test]
async fn half_made_workspace_is_made_again_or_removed() {
    let ground = Ground::new();
    let token = WorkspaceToken::new(WorkspaceProvider::Git).unwrap();
    let root = ground.path("data/workspaces").join(token.as_str());
    fs::create_dir_all(root.join("tree/.git")).unwrap();
    fs::write(root.join("tree/half"), "").unwrap();
    assert_eq!(ground.workspaces.find(&token).unwrap(), None);
    assert_eq!(ground.workspaces.tokens().unwrap(), vec![token.clone()]);
    let request = ab_snapshot::WorkspaceRequest::Git(ground.request());
    let workspace = ground.workspaces.prepare(&token, &request).await.unwrap();
    assert!(!workspace.tree.join("half").exists());
    // A server that was killed before it could record the workspace finds it again as it was.
    assert_eq!(workspace.notes, [WorkspaceNote::Fetched]);
    assert_eq!(ground.workspaces.prepare(&token, &request).await.unwrap(), workspace);
    fs::remove_file(root.join("record")).unwrap();
    ground.workspaces.cleanup(&token).await.unwrap();
    assert!(!root.exists());
}

#[tokio::test]
async fn cleanup_removes_what_an_agent_closed_and_follows_no_link() {
    let ground = Ground::new();
    let workspace = ground.prepare(ground.request()).await;
    let outside: PathBuf = ground.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "").unwrap();
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let script = "mkdir -p a/b/c && echo x >a/b/c/f && chmod 000 a/b/c a/b a && chmod 000 .git && \
                  mkdir -p $HOME/x && chmod 555 $HOME/x $HOME";
    sandbox.shell(script).await;
    symlink(&outside, workspace.tree.join("link")).unwrap();
    ground.workspaces.cleanup(&workspace.token).await.unwrap();
    assert!(!workspace.tree.exists());
    assert!(outside.join("kept").exists());
}
