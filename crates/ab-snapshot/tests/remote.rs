//! Repositories on other hosts: git's own SSH transport, with a program of the operator as `ssh`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ab_core::ErrorKind;
use ab_snapshot::{GitTaskField, GitWorkspaceRequest, PreparedWorkspaceNote, RepoSource};

use crate::fixture::{Fixture, Sandbox, branch};

/// Makes an `ssh` that runs the command here and writes it down, and configures it for the operator.
fn operator_ssh(fixture: &Fixture) -> std::path::PathBuf {
    let (program, log) = (fixture.path("ssh.sh"), fixture.path("ssh.log"));
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = -G ] && exit 1\nwhile [ $# -gt 1 ]; do shift; done\n\
         echo \"$1\" >>{}\nexec sh -c \"$1\"\n",
        log.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fixture.git_in(
        &fixture.path("home"),
        &["config", "--global", "core.sshCommand", program.to_str().unwrap()],
    );
    log
}

#[tokio::test]
async fn remote_source_is_fetched_once_and_gets_a_new_branch() {
    let fixture = Fixture::new();
    let log = operator_ssh(&fixture);
    let commands = || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let kinds = text.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned());
        let kinds: Vec<String> = kinds.collect();
        fs::write(&log, "").unwrap();
        kinds
    };
    let bare = fixture.path("bare.git");
    fixture.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let url = format!("ssh://git@example.org{}", bare.display());
    let source = RepoSource::parse(&url).unwrap();
    let request = || GitWorkspaceRequest::new(source.clone(), branch("ah/work"));
    let workspace = fixture.prepare(request()).await;
    assert_eq!(workspace.notes, [PreparedWorkspaceNote::Fetched]);
    assert_eq!(commands(), ["git-upload-pack", "git-upload-pack"]);
    assert_eq!(fixture.prepare(request()).await.notes, []);
    assert_eq!(commands(), ["git-upload-pack"], "only the references are asked for");
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    sandbox.shell("echo x >x").await;
    let changes = fixture.changes(&sandbox).await;
    let deliver = |name| {
        let (workspaces, changes) = (fixture.workspaces.clone(), changes.clone());
        let (token, to) = (workspace.token.clone(), source.clone());
        async move { workspaces.deliver_branch(&token, &changes, &to, &branch(name)).await }
    };
    assert!(!deliver("ah/work").await.unwrap().already_there);
    assert_eq!(fixture.git_in(&bare, &["rev-parse", "ah/work"]), changes.head.as_str());
    assert!(deliver("ah/work").await.unwrap().already_there);
    let refs = fixture.git_in(&bare, &["for-each-ref"]);
    for existing in ["main", "dev"] {
        let error = deliver(existing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    }
    assert_eq!(fixture.git_in(&bare, &["for-each-ref"]), refs);
    // The session's repository knows nothing of the operator.
    assert_eq!(sandbox.shell("git config --get core.sshCommand || echo none").await, "none\n");
}

#[tokio::test]
async fn unreachable_remote_is_an_error_without_a_prompt() {
    let fixture = Fixture::new();
    let source = RepoSource::parse("http://user:hidden@127.0.0.1:1/a.git").unwrap();
    let error =
        fixture.try_prepare(GitWorkspaceRequest::new(source, branch("ah/work"))).await.unwrap_err();
    assert_eq!((error.field, error.kind()), (Some(GitTaskField::RepoUrl), ErrorKind::Unavailable));
    assert!(!error.to_string().contains("hidden"), "{error}");
}

#[tokio::test]
async fn remote_that_never_answers_is_said_to_be_silent() {
    let fixture = Fixture::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.git", silent.local_addr().unwrap());
    let source = RepoSource::parse(&url).unwrap();
    let error = fixture.workspaces.list_branches(&source).await.unwrap_err();
    assert_eq!((error.field, error.kind()), (Some(GitTaskField::RepoUrl), ErrorKind::Unavailable));
    assert!(error.to_string().contains("it did not answer within 20 seconds"), "{error}");
}
