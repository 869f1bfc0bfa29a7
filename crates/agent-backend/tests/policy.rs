//! Commands of a local workspace are judged before they run, end to end.

use std::sync::Arc;

use ab_testkit::expect::expect_error;
use agent_backend::effective_policy::PolicyControlStrength;
use agent_backend::{
    ApprovalAnswer, Approver, ErrorCode, ErrorKind, Isolation, LocalWorkspaceConfig,
    PolicyControlKind, PolicyProfile, PolicyRuleFile, ScopeOptions,
};

fn config(root: &std::path::Path) -> LocalWorkspaceConfig {
    let mut config = LocalWorkspaceConfig::new(root);
    // Walls are other tests' business: what is refused here never comes to them.
    config.options.exec.isolation = Isolation::None;
    config
}

#[tokio::test]
async fn dangerous_commands_are_prevented_by_default() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("keep"), "kept").unwrap();
    let backend = agent_backend::local_with(config(root.path())).unwrap();
    let error = expect_error(backend.exec("rm -rf *").await, ErrorKind::DeniedByPolicy);
    assert_eq!((error.code(), error.command()), (ErrorCode::DangerousOperation, Some("rm -rf *")));
    assert!(error.hint().is_some(), "it says what to do instead");
    let error = expect_error(backend.exec("cd .. && ls").await, ErrorKind::DeniedByPolicy);
    assert_eq!(error.code(), ErrorCode::UnsafeCommand);
    expect_error(backend.exec("echo 'open").await, ErrorKind::DeniedByPolicy);
    assert_eq!(std::fs::read(root.path().join("keep")).unwrap(), b"kept");
    let output = backend.exec("cd . && cat keep").await.unwrap();
    assert_eq!(&output.stdout.bytes[..], b"kept");
    let absolute = format!("cd '{}' && cat ~/keep", root.path().canonicalize().unwrap().display());
    backend.exec(&absolute).await.unwrap();
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn software_looks_at_words_whatever_the_profile() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path()).prevent_dangerous_commands(false);
    config.options.exec.isolation = Isolation::Software;
    let backend = agent_backend::local_with(config).unwrap();
    backend.exec("cat < /dev/null > made; cat ~/made").await.unwrap();
    for line in ["cat /etc/hostname", "ls ..", "cat 'made", "bash -c \"cat ../$X\""] {
        let error = expect_error(backend.exec(line).await, ErrorKind::DeniedByPolicy);
        assert_eq!((error.code(), error.command()), (ErrorCode::UnsafeCommand, Some(line)));
    }
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn prevention_can_be_switched_off() {
    let root = tempfile::tempdir().unwrap();
    let off =
        agent_backend::local_with(config(root.path()).prevent_dangerous_commands(false)).unwrap();
    let output = off.exec("eval 'echo run'").await.unwrap();
    assert_eq!(&output.stdout.bytes[..], b"run\n");
    off.destroy().await.unwrap();
    let on =
        agent_backend::local_with(config(root.path()).prevent_dangerous_commands(true)).unwrap();
    expect_error(on.exec("eval 'echo run'").await, ErrorKind::DeniedByPolicy);
    on.destroy().await.unwrap();
}

#[tokio::test]
async fn profiles_rules_and_people_are_settings() {
    #[derive(Debug)]
    struct Agreeable;

    #[async_trait::async_trait]
    impl Approver for Agreeable {
        async fn ask(&self, asked: &agent_backend::ApprovalRequest) -> ApprovalAnswer {
            ApprovalAnswer::Yes(asked.principal.clone())
        }
    }

    let root = tempfile::tempdir().unwrap();
    let mut strict = config(root.path());
    strict.policy.profile = PolicyProfile::Strict;
    let strict = agent_backend::local_with(strict).unwrap();
    expect_error(strict.exec("true && true").await, ErrorKind::DeniedByPolicy);
    strict.exec("true").await.unwrap();
    let effective = strict.effective_policy().await.unwrap();
    let commands =
        effective.controls.iter().find(|line| line.kind == PolicyControlKind::Commands).unwrap();
    assert_eq!(
        (commands.in_force.as_str(), commands.strength),
        ("strict", PolicyControlStrength::Advisory)
    );
    strict.destroy().await.unwrap();

    let text = "[[rule]]\nid = \"own.true\"\nverdict = \"ask\"\ncommand = [\"true\"]\nreason = \"who knows\"\n";
    let mut asking = config(root.path());
    asking.policy.rules = PolicyRuleFile::from_toml(text).unwrap();
    let nobody = agent_backend::local_with(asking.clone()).unwrap();
    expect_error(nobody.exec("true").await, ErrorKind::DeniedByPolicy);
    nobody.destroy().await.unwrap();
    asking.policy.approver = Arc::new(Agreeable);
    let somebody = agent_backend::local_with(asking).unwrap();
    somebody.exec("true").await.unwrap();
    somebody.destroy().await.unwrap();
}

#[tokio::test]
async fn a_scope_cannot_name_its_neighbour() {
    let root = tempfile::tempdir().unwrap();
    let backend = agent_backend::local_with(config(root.path())).unwrap();
    backend.write("b/secret", "x").await.unwrap();
    let tenant = backend.scope("a", ScopeOptions::default()).unwrap();
    tenant.write("own", "y").await.unwrap();
    let neighbour = root.path().canonicalize().unwrap().join("b/secret");
    for command in ["cat ../b/secret".to_owned(), format!("cat '{}'", neighbour.display())] {
        expect_error(tenant.exec(&command).await, ErrorKind::DeniedByPolicy);
    }
    tenant.exec("cat own").await.unwrap();
    backend.destroy().await.unwrap();
}
