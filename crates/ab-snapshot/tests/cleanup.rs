//! Removal of workspaces in every state.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use ab_snapshot::{
    PreparedWorkspaceNote, SessionWorkspaceStore, SnapshotSettings, WorkspaceCopyMethod,
    WorkspaceToken,
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
