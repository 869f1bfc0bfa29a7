//! Coding agents of vendors, installed by our own code and run in sessions against a scripted model.

use std::collections::BTreeMap;

use ab_acp::catalog::AgentCatalog;
use ab_acp::install::{AgentInstallDir, Reinstall};
use ab_acp::resolve::HostEnvironment;
use ab_api::{ApproveOrDeny, EventKind, SessionStatus};
use ab_store::EventLogScope;
use ab_testkit::peers::ThirdPartyPrograms;
use ab_testkit::scripted_model::{LanguageModelStep, ScriptedLanguageModel};

use crate::sessions::Server;
use crate::stage::Stage;

const KEY: &str = "sk-the-key-of-this-test";

/// A turn in which the agent makes a file with its shell and prints its key. The work shows in the delivered branch, the
/// key in no event.
async fn makes_a_file(
    agent: &str,
    key: &str,
    variables: impl Fn(&str) -> BTreeMap<String, String>,
) {
    let Some(peers) = ThirdPartyPrograms::find_or_skip(agent) else { return };
    let catalog = AgentCatalog::default();
    let entry = catalog.find(agent).unwrap();
    let agents = AgentInstallDir::new(peers.agents_dir());
    let host = HostEnvironment::new(std::env::vars_os());
    agents.install(entry, &host, Reinstall::No, &mut |_| {}).await.unwrap();

    let command = format!("printf 'made by {agent}\\n' > MADE.md; echo \"the key is ${key}\"");
    let steps =
        vec![LanguageModelStep::Run(command), LanguageModelStep::Say("It is made.".to_owned())];
    let model = ScriptedLanguageModel::start(steps).await;
    let server = Server::start_with(None, |settings| {
        settings.agents_dir = peers.agents_dir();
        let own = variables(&model.url());
        let own = own.into_iter().chain([(key.to_owned(), KEY.to_owned())]);
        settings.environment.extend(own.map(|(name, value)| (name.into(), value.into())));
    });
    let Some(server) = server.await else { return };
    let id = server.create(agent).await;
    let mut follow = server.control.subscribe(EventLogScope::Session(id), 0);
    loop {
        let record = follow.next().await.unwrap();
        if let EventKind::ApprovalRequested { approval_id, .. } = record.event().unwrap().kind {
            server.decide(approval_id, ApproveOrDeny::Approve).await;
        }
        if record.ends_session() {
            break;
        }
    }
    let session = server.ended(id).await;
    let story = server.story(id).await;
    assert_eq!(session.status, SessionStatus::Completed, "{:?} {story:#?}", session.end_detail);
    let branches = server.branches();
    assert_eq!(branches.len(), 1, "{branches:?} {story:#?}");
    assert_eq!(server.on_branch(&branches[0], "MADE.md"), format!("made by {agent}"));
    let events = format!("{:?}", server.events(id).await);
    assert!(!events.contains(KEY), "{events}");
    assert!(events.contains("the key is [credential]"), "{events}");
    let diff = server.control.store().artifact(id, "diff").await.unwrap();
    assert!(diff.contains("MADE.md"), "{diff}");
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_goose_edits_in_its_sandbox_and_delivers_a_branch() {
    makes_a_file("goose", "OPENAI_API_KEY", |url| {
        let variables = [
            ("GOOSE_PROVIDER", "openai"),
            ("GOOSE_MODEL", "scripted"),
            ("OPENAI_HOST", url),
            ("OPENAI_BASE_PATH", "v1/chat/completions"),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_gemini_edits_in_its_sandbox_and_delivers_a_branch() {
    makes_a_file("gemini", "GEMINI_API_KEY", |url| {
        let variables = [("GOOGLE_GEMINI_BASE_URL", url), ("GEMINI_MODEL", "gemini-2.5-flash")];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_is_not_installed_fails_its_session_and_says_how_to_install_it() {
    let server = Server::start_with(None, |settings| {
        settings.environment.push(("GEMINI_API_KEY".into(), KEY.into()));
    });
    let Some(server) = server.await else { return };
    for (agent, says) in [
        ("gemini", "is not installed: run `agent-backend agent install gemini`"),
        ("pi", "the program \"pi-acp\" was not found; it needs npm install"),
    ] {
        let id = server.create(agent).await;
        let detail = server.ended(id).await.end_detail.unwrap_or_default();
        assert!(detail.contains(says), "{detail}");
    }
}

#[test]
fn list_and_show_say_what_agents_need() {
    let stage = Stage::new();
    let data = stage.outside("data");
    let data = data.to_str().unwrap();
    let listed = stage.json(&["agent", "list", "--json", "--data-dir", data]);
    let agents = listed["agents"].as_array().unwrap();
    let find = |id: &str| agents.iter().find(|agent| agent["id"] == id).unwrap().clone();
    assert_eq!(find("scripted")["ready"], true);
    let goose = find("goose");
    assert_eq!((&goose["ready"], &goose["installed"]), (&false.into(), &serde_json::Value::Null));
    assert!(goose["missing"].to_string().contains("agent install goose"), "{goose}");
    let text = stage.out(&["agent", "show", "claude-code", "--data-dir", data]);
    assert!(text.contains("ANTHROPIC_API_KEY") && text.contains("22 or newer"), "{text}");
    stage.run(&["agent", "show", "nobody", "--data-dir", data]).expect_error(2, "known agents:");
    let refused = stage.run(&["agent", "install", "pi", "--data-dir", data]);
    refused.expect_error(4, "cannot be installed by agent-backend; it needs npm install");
}
