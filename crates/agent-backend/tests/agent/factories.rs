//! The ready factories, each with what keeps sessions apart.

use std::path::PathBuf;
use std::sync::Arc;

use ab_testkit::expect::{assert_content, assert_missing, expect_error};
use agent_backend::agent::{
    AgentDefinition, BackendFactory, DirectoryPerSession, FilesystemToolset, MemoryPerSession,
    OverlayPerSession, PooledPerSession, RemotePerSession, ScopePerSession, ServeSessionWorkspace,
    SessionOptions, SubAgentBackend,
};
use agent_backend::serve_client::SessionId;
use agent_backend::{
    Backend, BackendPool, BackendPoolOptions, ErrorKind, MissingRootPolicy, RemoteConfig, Result,
    ServeClient, ServeClientSettings, memory,
};

use super::{config, local, named};

async fn started(
    factory: impl BackendFactory + 'static,
    ids: [&str; 2],
) -> [agent_backend::agent::AgentSession; 2] {
    let definition = AgentDefinition::builder().backend(factory).build();
    let [first, second] = ids.map(named);
    [definition.start(first).await.unwrap(), definition.start(second).await.unwrap()]
}

/// Two sessions do not see each other's files.
async fn apart(factory: impl BackendFactory + 'static) -> [Backend; 2] {
    let sessions = started(factory, ["ada", "grace"]).await;
    let [ada, grace] = sessions.map(|session| session.require_backend().unwrap());
    ada.write("own.txt", "ada's").await.unwrap();
    grace.write("own.txt", "grace's").await.unwrap();
    assert_content(&ada, "own.txt", "ada's").await;
    for path in ["../grace/own.txt", "/../grace/own.txt"] {
        expect_error(ada.read(path).await, ErrorKind::PathEscape);
    }
    [ada, grace]
}

#[tokio::test]
async fn a_directory_per_session_is_made_and_found_again() {
    let base = tempfile::tempdir().unwrap();
    let below = base.path().join("not/there/yet");
    let factory = || DirectoryPerSession::with_config(config(&below));
    let [ada, _] = apart(factory()).await;
    assert_eq!(std::fs::read(below.join("ada/own.txt")).unwrap(), b"ada's");
    assert_eq!(ada.exec("cat own.txt").await.unwrap().stdout_text(), "ada's");
    // A resumed session finds its files.
    let [ada, other] = started(factory(), ["ada", "other"]).await;
    assert_content(&ada.require_backend().unwrap(), "own.txt", "ada's").await;
    assert_missing(&other.require_backend().unwrap(), "own.txt").await;
}

#[tokio::test]
async fn a_scope_per_session_is_a_directory_of_one_workspace() {
    let workspace = memory();
    apart(ScopePerSession::new(workspace.clone())).await;
    assert_content(&workspace, "grace/own.txt", "grace's").await;
}

#[tokio::test]
async fn memory_per_session_is_empty_at_first() {
    let [ada, grace] = apart(MemoryPerSession).await;
    assert_eq!(ada.readdir(".").await.unwrap(), ["own.txt"]);
    assert_eq!(grace.readdir(".").await.unwrap(), ["own.txt"]);
}

#[tokio::test]
async fn an_overlay_per_session_keeps_changes_apart_until_they_are_committed() {
    let project = tempfile::tempdir().unwrap();
    let uppers = tempfile::tempdir().unwrap();
    std::fs::write(project.path().join("a.txt"), "as it was").unwrap();
    let lower = local(project.path());
    for keeps_in_directories in [false, true] {
        let factory = OverlayPerSession::new(lower.clone());
        let factory = if keeps_in_directories {
            factory.with_upper_factory(DirectoryPerSession::new(uppers.path()))
        } else {
            factory
        };
        let [ada, grace] = started(factory, ["ada", "grace"]).await;
        ada.require_backend().unwrap().write("a.txt", "ada's").await.unwrap();
        assert_content(&grace.require_backend().unwrap(), "a.txt", "as it was").await;
        assert_eq!(std::fs::read(project.path().join("a.txt")).unwrap(), b"as it was");
        let changes = ada.overlay().unwrap();
        assert_eq!(changes.diff().await.unwrap().len(), 1);
        changes.commit().await.unwrap();
        assert_eq!(std::fs::read(project.path().join("a.txt")).unwrap(), b"ada's");
        std::fs::write(project.path().join("a.txt"), "as it was").unwrap();
    }
    let [plain, _] = started(MemoryPerSession, ["a", "b"]).await;
    assert!(plain.overlay().is_none());
}

#[tokio::test]
async fn pooled_sessions_have_the_places_that_their_configuration_names() {
    async fn make(root: PathBuf) -> Result<Backend> {
        let mut config = config(&root);
        config.options.missing_root = MissingRootPolicy::Create;
        agent_backend::local_with(config)
    }
    let base = tempfile::tempdir().unwrap();
    let options = BackendPoolOptions::new(base.path().to_owned());
    let pool = Arc::new(BackendPool::new(make, options).unwrap());
    let factory = PooledPerSession::new(pool)
        .configure_if_created(|root: &mut PathBuf, context| root.push(context.session_id.as_str()));
    apart(factory).await;
    for id in ["ada", "grace"] {
        let own = std::fs::read_to_string(base.path().join(id).join("own.txt")).unwrap();
        assert_eq!(own, format!("{id}'s"));
    }
}

#[tokio::test]
async fn a_pooled_backend_is_in_use_as_long_as_its_session() {
    async fn make(base: PathBuf) -> Result<Backend> {
        agent_backend::local(base)
    }
    let base = tempfile::tempdir().unwrap();
    let options = BackendPoolOptions::new(base.path().to_owned());
    let pool = Arc::new(BackendPool::new(make, options).unwrap());
    let definition =
        AgentDefinition::builder().backend(PooledPerSession::new(pool.clone())).build();
    let first = definition.start(named("ada")).await.unwrap();
    let again = definition.start(named("ada")).await.unwrap();
    assert_eq!((pool.stats().active, pool.stats().idle), (1, 0), "one key, one backend");
    drop(first);
    assert_eq!((pool.stats().active, pool.stats().idle), (1, 0));
    drop(again);
    assert_eq!((pool.stats().active, pool.stats().idle), (0, 1));
    let later = definition.start(named("ada")).await.unwrap();
    later.require_backend().unwrap().write("a", "b").await.unwrap();
    pool.destroy_all().await.unwrap();
    expect_error(later.require_backend().unwrap().read("a").await, ErrorKind::Destroyed);
}

#[tokio::test]
async fn tools_and_sub_agents_keep_a_pooled_backend_in_use() {
    async fn make(base: PathBuf) -> Result<Backend> {
        agent_backend::local(base)
    }
    let base = tempfile::tempdir().unwrap();
    let options = BackendPoolOptions::new(base.path().to_owned());
    let pool = Arc::new(BackendPool::new(make, options).unwrap());
    let definition = AgentDefinition::builder()
        .backend(PooledPerSession::new(pool.clone()))
        .toolset(FilesystemToolset::new())
        .build();
    let session = definition.start(named("ada")).await.unwrap();
    let tools = session.tools().await.unwrap();
    let tool = tools.find_tool("list_directory").unwrap().clone();
    let scope = SubAgentBackend::Scope("docs".to_owned());
    let below = session.start_sub_agent(&definition, scope, named("below")).await.unwrap();
    let deeper = below
        .start_sub_agent(&definition, SubAgentBackend::Inherit, named("deeper"))
        .await
        .unwrap();
    drop((session, below));
    assert_eq!((pool.stats().active, pool.stats().idle), (1, 0), "a sub-agent uses it");
    drop(deeper);
    assert_eq!((pool.stats().active, pool.stats().idle), (1, 0), "tools use it");
    drop(tools);
    assert_eq!((pool.stats().active, pool.stats().idle), (1, 0), "one tool uses it");
    let calling = tool.run(serde_json::Map::new());
    drop(calling);
    drop(tool);
    assert_eq!((pool.stats().active, pool.stats().idle), (0, 1));
}

#[tokio::test]
async fn a_remote_that_cannot_be_reached_fails_when_the_session_starts() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/ssh", listener.local_addr().unwrap());
    drop(listener);
    let factory = RemotePerSession::new(RemoteConfig::parse(&url).unwrap());
    let definition = AgentDefinition::builder().backend(factory).build();
    let error = definition.start(SessionOptions::default()).await.unwrap_err();
    assert!(error.message().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn the_workspace_of_a_server_that_is_gone_is_an_error() {
    let client = ServeClient::new(ServeClientSettings::new("http://127.0.0.1:1")).unwrap();
    let factory = ServeSessionWorkspace::new(client, SessionId::generate());
    let definition = AgentDefinition::builder().backend(factory).build();
    let error = definition.start(SessionOptions::default()).await.unwrap_err();
    assert!(error.message().contains("127.0.0.1"), "{error}");
}
