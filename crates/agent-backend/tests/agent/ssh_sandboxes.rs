//! Sandboxes on a host that runs OpenSSH's own server.

use std::fs;
use std::path::Path;

use ab_testkit::expect::expect_error;
use ab_testkit::sshd::Sshd;
use agent_backend::agent::{
    AgentDefinition, FilesystemToolset, SandboxPerSession, SandboxProvider, ShellToolset,
    SshSandboxProvider,
};
use agent_backend::remote::{Credential, HostKeyCheck};
use agent_backend::{ErrorKind, RemoteConfig};
use serde_json::json;

use super::{call, named, worked};

fn sandboxes(sshd: &Sshd, base: &Path) -> SshSandboxProvider {
    let url = format!("ssh://{}@{}", sshd.user(), sshd.address());
    let key = Credential::Key { text: sshd.user_key().into(), passphrase: None };
    let config = RemoteConfig::parse(&url).unwrap().ssh_credential(key).unwrap();
    let config = config.host_key_check(HostKeyCheck::Unchecked).unwrap();
    SshSandboxProvider::new(config, base.to_str().unwrap())
}

fn definition(sandboxes: SshSandboxProvider) -> AgentDefinition {
    AgentDefinition::builder()
        .backend(SandboxPerSession::new(sandboxes))
        .toolset(FilesystemToolset::new().allow_writes())
        .toolset(ShellToolset::new())
        .build()
}

#[tokio::test]
async fn openssh_makes_the_base_and_a_directory_for_a_session_and_finds_it_again() {
    let Some(sshd) = Sshd::start().await else { return };
    let base = sshd.workspace.path().join("not/there/yet");
    let sandboxes = sandboxes(&sshd, &base);
    let agents = definition(sandboxes.clone());
    let ada = agents.start(named("ada")).await.unwrap();
    let tools = ada.tools().await.unwrap();
    let write = json!({ "path": "notes.txt", "content": "by openssh" });
    worked(call(&tools, "write_file", write).await);
    let command = json!({ "command": "cat notes.txt; printf ' in '; pwd" });
    let home = base.join("ada");
    let ran = worked(call(&tools, "exec", command).await);
    assert_eq!(ran, format!("by openssh in {}", home.display()));
    assert_eq!(fs::read(home.join("notes.txt")).unwrap(), b"by openssh");

    let found = sandboxes.find_existing(ada.context()).await.unwrap().unwrap();
    assert_eq!(found.working_directory(), home.to_str().unwrap());
    let again = agents.start(named("ada")).await.unwrap();
    let text = again.require_backend().unwrap().read_text("notes.txt").await.unwrap();
    assert_eq!(text, "by openssh");
    // Another session has another directory, and the base is there now.
    let grace = agents.start(named("grace")).await.unwrap();
    assert!(!grace.require_backend().unwrap().exists("notes.txt").await.unwrap());
    assert!(base.join("grace").is_dir());
    let outside = grace.require_backend().unwrap().read("../ada/notes.txt").await;
    expect_error(outside, ErrorKind::PathEscape);
}

#[tokio::test]
async fn a_file_in_the_place_of_a_sandbox_or_its_base_is_an_error_that_names_it() {
    let Some(sshd) = Sshd::start().await else { return };
    let root = sshd.workspace.path();
    fs::write(root.join("ada"), "a file").unwrap();
    for (base, says) in
        [(root.to_owned(), "ada"), (root.join("ada"), "/ada"), (root.join("ada/x"), "ada/x")]
    {
        let agents = definition(sandboxes(&sshd, &base));
        let error = agents.start(named("ada")).await.unwrap_err();
        assert!(error.to_string().contains(says), "{base:?}: {error}");
    }
    assert_eq!(fs::read(root.join("ada")).unwrap(), b"a file");
}
