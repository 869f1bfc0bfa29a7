//! Repositories on other hosts: git's own SSH transport, with a program of the operator as `ssh`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ab_core::ErrorKind;
use ab_snapshot::{GitTaskField, GitWorkspaceRequest, PreparedWorkspaceNote, RepoSource};
use ab_testkit::http_remote::HttpRemote;

use crate::fixture::{Fixture, Sandbox, branch};

/// Makes an `ssh` that runs the command here and writes it down, and configures it for the operator.
fn operator_ssh(fixture: &Fixture) -> PathBuf {
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
    assert!(!deliver("ah/work").await.unwrap().was_already_delivered);
    assert_eq!(fixture.git_in(&bare, &["rev-parse", "ah/work"]), changes.head.as_str());
    assert!(deliver("ah/work").await.unwrap().was_already_delivered);
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

/// A program of the operator that would ask a person, as editors configure one.
#[tokio::test]
async fn remote_that_wants_a_password_is_an_error_without_a_prompt() {
    let fixture = Fixture::new();
    let (program, canary) = (fixture.path("askpass"), fixture.path("canary"));
    fs::write(&program, format!("#!/bin/sh\ntouch '{}'\necho guess\n", canary.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let home = fixture.path("home");
    fixture.git_in(&home, &["config", "--global", "core.askPass", program.to_str().unwrap()]);
    let remote = HttpRemote::start(&fixture.path("."), "nothing is right");
    let url = remote.url("bare.git");
    // The operator's own git runs the program.
    let mut own = std::process::Command::new("git");
    own.args(["ls-remote", &url]).env_clear().env("HOME", &home);
    own.env("PATH", std::env::var_os("PATH").unwrap());
    assert!(!own.output().unwrap().status.success());
    assert!(fs::remove_file(&canary).is_ok());
    assert!(!remote.credentials().is_empty());

    let source = RepoSource::parse(&url).unwrap();
    let error = fixture.workspaces.list_branches(&source).await.unwrap_err();
    assert_eq!((error.field, error.kind()), (Some(GitTaskField::RepoUrl), ErrorKind::Unavailable));
    let error =
        fixture.try_prepare(GitWorkspaceRequest::new(source, branch("ah/work"))).await.unwrap_err();
    assert_eq!((error.field, error.kind()), (Some(GitTaskField::RepoUrl), ErrorKind::Unavailable));
    assert!(!canary.exists(), "{error}");
    assert_eq!(remote.credentials(), [] as [String; 0]);
}

#[tokio::test]
async fn credential_helper_of_the_operator_answers_the_remote_and_nobody_else() {
    let fixture = Fixture::new();
    let home = fixture.path("home");
    let helper = "!f() { echo username=ann; echo password=hunter-secret; }; f";
    fixture.git_in(&home, &["config", "--global", "credential.helper", helper]);
    let bare = fixture.path("bare.git");
    fixture.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let basic = "Basic YW5uOmh1bnRlci1zZWNyZXQ=";
    let remote = HttpRemote::start(&fixture.path("."), basic);
    let source = RepoSource::parse(&remote.url("bare.git")).unwrap();
    let workspace =
        fixture.prepare(GitWorkspaceRequest::new(source.clone(), branch("ah/work"))).await;
    let sent = remote.credentials();
    assert!(!sent.is_empty() && sent.iter().all(|header| header == basic), "{sent:?}");
    let assert_unknown = || {
        for file in files_below(&fixture.path("data")) {
            let bytes = fs::read(&file).unwrap();
            let is_known = bytes.windows(13).any(|window| window == b"hunter-secret");
            assert!(!is_known, "{}", file.display());
        }
    };
    assert_unknown();
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let filled = "printf 'protocol=http\\nhost=127.0.0.1\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill 2>&1; true";
    let filled = sandbox.shell(filled).await;
    assert!(!filled.contains("hunter-secret"), "{filled}");
    sandbox.shell("echo x >x").await;
    let changes = fixture.changes(&sandbox).await;
    let name = branch("ah/work");
    let delivered =
        fixture.workspaces.deliver_branch(&workspace.token, &changes, &source, &name).await;
    assert!(!delivered.unwrap().was_already_delivered);
    assert_eq!(fixture.git_in(&bare, &["rev-parse", "ah/work"]), changes.head.as_str());
    let sent = remote.credentials();
    assert!(!sent.is_empty() && sent.iter().all(|header| header == basic), "{sent:?}");
    assert_unknown();

    // A remote that does not accept them.
    let other = HttpRemote::start(&fixture.path("."), "nothing is right");
    let source = RepoSource::parse(&other.url("bare.git")).unwrap();
    let error = fixture.workspaces.list_branches(&source).await.unwrap_err();
    assert_eq!(error.field, Some(GitTaskField::RepoUrl));
    assert!(other.credentials().contains(&basic.to_owned()));
    let refused =
        fixture.workspaces.deliver_branch(&workspace.token, &changes, &source, &name).await;
    for text in [error.to_string(), refused.unwrap_err().to_string()] {
        let is_told = text.contains("hunter-secret") || text.contains("YW5uOmh1");
        assert!(!is_told, "{text}");
    }
    assert_unknown();
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files_below(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
