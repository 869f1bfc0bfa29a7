//! A session has at most one backend, which it never destroys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ab_testkit::expect::expect_error;
use agent_backend::agent::{
    AgentDefinition, AgentSession, AgentTool, FilesystemToolset, MemoryPerSession, SessionContext,
    SessionOptions, SessionToolset, ShellToolset, SubAgentBackend, ToolResult, Toolset,
};
use agent_backend::{
    Backend, Error, ErrorCode, ErrorKind, Principal, PrincipalKind, Result, memory,
};
use serde_json::json;

use super::{call, failed, named, worked};

#[tokio::test]
async fn nothing_is_attached_unless_it_is_configured() {
    let definition = AgentDefinition::builder().toolset(FilesystemToolset::new()).build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    assert!(session.backend().is_none());
    let error = expect_error(session.require_backend(), ErrorKind::Unavailable);
    assert!(error.message().contains("has no backend"), "{error}");
    // A toolset never falls back to the current directory.
    expect_error(session.tools().await, ErrorKind::Unavailable);
    session.attach_backend(memory()).unwrap();
    session.tools().await.unwrap();
}

#[tokio::test]
async fn a_second_backend_is_a_conflict_and_replaces_nothing() {
    let definition = AgentDefinition::builder().backend(MemoryPerSession).build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    session.require_backend().unwrap().write("a", "first").await.unwrap();
    let error = expect_error(session.attach_backend(memory()), ErrorKind::Conflict);
    assert!(error.message().contains("already has a backend"), "{error}");
    assert_eq!(session.require_backend().unwrap().read_text("a").await.unwrap(), "first");
}

#[tokio::test]
async fn a_backend_given_to_the_definition_is_shared_by_its_sessions() {
    let shared = memory();
    let definition = AgentDefinition::builder().backend(shared.clone()).build();
    let first = definition.start(SessionOptions::default()).await.unwrap();
    let second = definition.start(SessionOptions::default()).await.unwrap();
    assert_ne!(first.id(), second.id());
    first.require_backend().unwrap().write("a", "seen").await.unwrap();
    assert_eq!(second.require_backend().unwrap().read_text("a").await.unwrap(), "seen");
}

#[tokio::test]
async fn the_factory_is_called_once_with_what_is_known_of_the_session() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let factory = move |context: SessionContext| {
        let counted = counted.clone();
        async move {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let backend = memory();
            let SessionContext { session_id, snapshot_id, principal, parent, context } = context;
            assert_eq!(parent, None);
            let told = json!([session_id.as_str(), snapshot_id, principal.to_string(), context]);
            backend.write("told.json", told.to_string()).await?;
            Ok(backend)
        }
    };
    let definition =
        AgentDefinition::builder().backend(factory).toolset(FilesystemToolset::new()).build();
    let options = SessionOptions {
        snapshot_id: Some("turn-3".to_owned()),
        principal: Some(Principal::new(PrincipalKind::Person, "ada")),
        context: json!({ "plan": "pro" }),
        ..named("chat-1")
    };
    let session = definition.start(options).await.unwrap();
    let tools = session.tools().await.unwrap();
    let text = worked(call(&tools, "read_text_file", json!({ "path": "told.json" })).await);
    assert_eq!(text, r#"["chat-1","turn-3","person:ada",{"plan":"pro"}]"#);
    session.tools().await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    // Who acts on the backend is the principal of the session.
    let actor = session.require_backend().unwrap().actor().principal().to_string();
    assert_eq!(actor, "person:ada");
}

#[tokio::test]
async fn a_factory_that_fails_says_why_and_there_is_no_session() {
    let factory = |_: SessionContext| async {
        let message = "no sandbox is free";
        Err::<Backend, _>(Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message))
    };
    let definition = AgentDefinition::builder().backend(factory).build();
    let error =
        expect_error(definition.start(SessionOptions::default()).await, ErrorKind::Unavailable);
    assert_eq!(error.message(), "no sandbox is free");
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_takes_too_long_is_a_timeout() {
    let factory = |_: SessionContext| std::future::pending::<Result<Backend>>();
    let definition =
        AgentDefinition::builder().backend(factory).factory_timeout(Duration::from_secs(7)).build();
    let error = expect_error(definition.start(named("slow")).await, ErrorKind::Timeout);
    assert_eq!(error.code(), ErrorCode::Timeout);
    assert!(error.message().contains("session slow") && error.message().contains("7s"), "{error}");
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_ends_the_factory() {
    struct Ended(Arc<AtomicUsize>);
    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let ended = Arc::new(AtomicUsize::new(0));
    let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
    let counter = ended.clone();
    let factory = move |_: SessionContext| {
        let (guard, begun) = (Ended(counter.clone()), begun.clone());
        async move {
            let _guard = guard;
            begun.send(()).await.unwrap();
            std::future::pending::<Result<Backend>>().await
        }
    };
    let definition = AgentDefinition::builder().backend(factory).build();
    let starting = tokio::spawn(async move { definition.start(SessionOptions::default()).await });
    has_begun.recv().await.unwrap();
    starting.abort();
    assert!(starting.await.unwrap_err().is_cancelled());
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_session_never_destroys_its_backend() {
    let backend = memory();
    let definition = AgentDefinition::builder().backend(backend.clone()).build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    // Not even by its own handle.
    session.require_backend().unwrap().destroy().await.unwrap();
    drop(session);
    backend.write("a", "alive").await.unwrap();
    backend.destroy().await.unwrap();
    let error = definition.start(SessionOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Destroyed, "what was destroyed cannot be attached");
}

#[tokio::test]
async fn sub_agents_inherit_narrow_or_bring_their_own() {
    let definition = AgentDefinition::builder()
        .backend(MemoryPerSession)
        .toolset(FilesystemToolset::new().allow_writes())
        .build();
    let parent = definition.start(named("parent")).await.unwrap();
    let place = parent.require_backend().unwrap();
    place.write("top.txt", "top").await.unwrap();
    place.write("docs/a.txt", "a").await.unwrap();
    let start = |place| parent.start_sub_agent(&definition, place, SessionOptions::default());

    let inherits = start(SubAgentBackend::Inherit).await.unwrap();
    assert_eq!(inherits.require_backend().unwrap().read_text("top.txt").await.unwrap(), "top");
    assert_eq!(inherits.context().parent.as_ref(), Some(parent.id()));

    let narrowed = start(SubAgentBackend::Scope("docs".to_owned())).await.unwrap();
    let tools = narrowed.tools().await.unwrap();
    assert_eq!(worked(call(&tools, "read_text_file", json!({ "path": "a.txt" })).await), "a");
    failed(call(&tools, "read_text_file", json!({ "path": "../top.txt" })).await, "workspace");

    let own = start(SubAgentBackend::FromOwnFactory).await.unwrap();
    assert!(!own.require_backend().unwrap().exists("top.txt").await.unwrap());
    assert_eq!(own.context().parent.as_ref(), Some(parent.id()));

    let outside = start(SubAgentBackend::Scope("../..".to_owned())).await;
    expect_error(outside, ErrorKind::PathEscape);
}

#[tokio::test]
async fn tools_of_your_own_stand_beside_the_others_and_names_are_checked() {
    let tool = |name: &str| {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        AgentTool::new(name, "Doubles n", schema, |arguments| async move {
            match arguments.get("n").and_then(serde_json::Value::as_i64) {
                Some(n) => ToolResult::data(json!({ "doubled": 2 * n })),
                None => ToolResult::error("'n' must be a whole number"),
            }
        })
    };
    let definition = |tool: AgentTool| {
        let builder = AgentDefinition::builder().backend(MemoryPerSession);
        builder.toolset(FilesystemToolset::new()).tool(tool).instructions("Be brief.").build()
    };
    let session = definition(tool("double")).start(SessionOptions::default()).await.unwrap();
    let tools = session.tools().await.unwrap();
    let doubled = call(&tools, "double", json!({ "n": 21 })).await;
    assert_eq!(doubled.data, Some(json!({ "doubled": 42 })));
    failed(call(&tools, "double", json!({})).await, "'n' must be");
    failed(call(&tools, "double", json!([21])).await, "must be a JSON object");
    failed(
        call(&tools, "dobule", json!({})).await,
        "there is no tool 'dobule'; the tools are double",
    );
    assert_eq!(tools.instructions(), "Be brief.");
    for (name, kind) in [
        ("read_text_file", ErrorKind::Conflict),
        ("no spaces", ErrorKind::Invalid),
        ("", ErrorKind::Invalid),
    ] {
        let session = definition(tool(name)).start(SessionOptions::default()).await.unwrap();
        expect_error(session.tools().await, kind);
    }
}

#[tokio::test]
async fn a_long_result_of_your_own_tool_goes_to_a_file_as_well() {
    let schema = json!({ "type": "object" });
    let talks = AgentTool::new("talks", "Says much", schema, |_| async {
        ToolResult::text("ä line\n".repeat(50_000))
    });
    for has_backend in [true, false] {
        let definition = AgentDefinition::builder().tool(talks.clone()).build();
        let session = definition.start(SessionOptions::default()).await.unwrap();
        if has_backend {
            session.attach_backend(memory()).unwrap();
        }
        let tools = session.tools().await.unwrap();
        let text = worked(call(&tools, "talks", json!({})).await);
        assert!(text.len() < 110 * 1024 && text.starts_with("ä line\n"), "{}", text.len());
        assert!(text.contains("bytes left out"), "the middle is left out");
        let Some(backend) = session.backend() else {
            assert!(text.ends_with("[the result was cut: it had 400000 bytes]"));
            continue;
        };
        let (_, path) = text.rsplit_once("are in '").unwrap();
        let (path, _) = path.split_once('\'').unwrap();
        assert!(path.starts_with(".agent-output/talks-"), "{path}");
        assert_eq!(backend.read(path).await.unwrap().len(), 400_000);
    }
}

#[derive(Debug)]
struct OwnToolset(AgentTool);

#[async_trait::async_trait]
impl Toolset for OwnToolset {
    async fn open(&self, _: &AgentSession) -> Result<SessionToolset> {
        Ok(SessionToolset { tools: vec![self.0.clone()], instructions: None })
    }
}

#[tokio::test]
async fn the_limit_applies_to_values_and_to_every_toolset() {
    let schema = json!({ "type": "object" });
    let long = json!({ "rows": vec!["a row of some length"; 20_000] });
    let (value, beside) = (long.clone(), long.clone());
    let rows = AgentTool::new("rows", "Rows", schema.clone(), move |_| {
        std::future::ready(ToolResult::data(value.clone()))
    });
    let brief = AgentTool::new("brief", "Rows, and few words", schema, move |_| {
        std::future::ready(ToolResult { data: Some(beside.clone()), ..ToolResult::text("done") })
    });
    let definition = AgentDefinition::builder()
        .backend(MemoryPerSession)
        .toolset(FilesystemToolset::new().rooted_at("docs").name_prefix("fs_"))
        .toolset(OwnToolset(rows))
        .tool(brief)
        .build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    let backend = session.require_backend().unwrap();
    backend.write("docs/long.txt", "a line of a file\n".repeat(60_000)).await.unwrap();
    let tools = session.tools().await.unwrap();
    for name in ["rows", "brief"] {
        let result = call(&tools, name, json!({})).await;
        assert_eq!(result.data, None);
        let text = worked(result);
        assert!(text.len() < 110 * 1024, "{}", text.len());
        // The path is as the tool that is named takes it.
        assert!(text.contains("'; fs_read_text_file and fs_grep show more of it"), "{name}");
        let (_, path) = text.rsplit_once("are in '").unwrap();
        let (path, _) = path.split_once('\'').unwrap();
        let stored = backend.read_text(&format!("docs/{path}")).await.unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&stored).unwrap(), long);
        let read = json!({ "path": path, "head": 1 });
        worked(call(&tools, "fs_read_text_file", read).await);
    }
    // A model that asks for many lines gets as many as fit, and is told how to go on.
    let read = json!({ "path": "long.txt", "limit": 60_000 });
    let result = call(&tools, "fs_read_text_file", read).await;
    assert!(result.data.as_ref().unwrap()["nextOffset"].is_u64(), "{:?}", result.data);
    let text = worked(result);
    assert!(text.len() < 104 * 1024 && !text.contains("left out"), "{}", text.len());
}

#[tokio::test]
async fn a_schema_that_models_refuse_is_an_error_of_the_definition() {
    let tools = |schema: serde_json::Value| async move {
        let tool = AgentTool::new("own", "Own", schema, |_| async { ToolResult::text("done") });
        let definition = AgentDefinition::builder().tool(tool).build();
        definition.start(SessionOptions::default()).await.unwrap().tools().await
    };
    for (schema, says) in [
        (json!("object"), "must be a JSON object"),
        (json!({}), "type must be"),
        (json!({ "type": "string" }), "type must be"),
        (json!({ "type": "object", "anyOf": [] }), "'anyOf'"),
        (json!({ "type": "object", "properties": [] }), "'properties' must be"),
        (json!({ "type": "object", "properties": { "a": "string" } }), "'a' must be a schema"),
        (json!({ "type": "object", "properties": {}, "required": ["a"] }), "not a property"),
        (json!({ "type": "object", "required": "a" }), "'required' must be"),
    ] {
        let error = expect_error(tools(schema).await, ErrorKind::Invalid);
        assert!(error.message().contains("tool own") && error.message().contains(says), "{error}");
    }
    let tools = tools(json!({ "type": "object" })).await.unwrap();
    assert_eq!(tools.openai_tools()[0]["function"]["parameters"]["properties"], json!({}));
    assert_eq!(tools.anthropic_tools()[0]["input_schema"]["properties"], json!({}));
}

#[tokio::test]
async fn a_tool_of_your_own_gets_its_session() {
    let definition = AgentDefinition::builder()
        .backend(MemoryPerSession)
        .tool_for_session(|session| {
            let session = session.clone();
            let schema = json!({ "type": "object" });
            AgentTool::new("note", "Notes the session", schema, move |_| {
                let session = session.clone();
                async move {
                    let id = session.id().to_string();
                    match session.require_backend() {
                        Ok(backend) => match backend.write("note.txt", id).await {
                            Ok(_) => ToolResult::text("noted"),
                            Err(error) => error.into(),
                        },
                        Err(error) => error.into(),
                    }
                }
            })
        })
        .build();
    for id in ["ada", "grace"] {
        let session = definition.start(named(id)).await.unwrap();
        worked(call(&session.tools().await.unwrap(), "note", json!({})).await);
        let noted = session.require_backend().unwrap().read_text("note.txt").await.unwrap();
        assert_eq!(noted, id);
    }
}

fn end(text: &str) -> &str {
    &text[text.floor_char_boundary(text.len().saturating_sub(300))..]
}

#[tokio::test]
async fn a_read_only_sub_agent_reads_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("docs")).unwrap();
    std::fs::write(root.path().join("docs/a.txt"), "a").unwrap();
    let talks = AgentTool::new("talks", "Says much", json!({ "type": "object" }), |_| async {
        ToolResult::text("a line\n".repeat(60_000))
    });
    let definition = AgentDefinition::builder()
        .backend(super::local(root.path()))
        .tool(talks)
        .toolset(FilesystemToolset::new().allow_writes())
        .toolset(ShellToolset::new())
        .build();
    let parent = definition.start(named("parent")).await.unwrap();
    assert!(parent.tools().await.unwrap().find_tool("exec").is_some());
    let start = |session: AgentSession, place| {
        let definition = definition.clone();
        async move {
            let options = SessionOptions::default();
            session.start_sub_agent(&definition, place, options).await.unwrap()
        }
    };
    let whole = start(parent.clone(), SubAgentBackend::ReadOnly).await;
    let part = start(parent.clone(), SubAgentBackend::ReadOnlyScope("docs".to_owned())).await;
    // A sub-agent of a sub-agent can do no more than that.
    let below = start(whole.clone(), SubAgentBackend::Scope("docs".to_owned())).await;
    for (session, directory, path) in
        [(whole, ".", "docs/a.txt"), (part, "docs", "a.txt"), (below, "docs", "a.txt")]
    {
        let tools = session.tools().await.unwrap();
        assert!(tools.find_tool("exec").is_none());
        assert_eq!(worked(call(&tools, "read_text_file", json!({ "path": path })).await), "a");
        for name in ["write_file", "edit_file", "create_directory", "move_file", "delete"] {
            assert!(tools.find_tool(name).is_none(), "{name}");
        }
        // A tool of your own has the same handle.
        let backend = session.require_backend().unwrap();
        for refused in [
            backend.write(path, "b").await.unwrap_err(),
            backend.write("new", "b").await.unwrap_err(),
            backend.rename(path, "moved").await.unwrap_err(),
            backend.rm(path, Default::default()).await.unwrap_err(),
        ] {
            assert!(refused.message().contains("this handle cannot change it"), "{refused}");
        }
        // Only a result that is too long is stored, in the directory of the sub-agent.
        let text = worked(call(&tools, "talks", json!({})).await);
        let (_, stored) = text.rsplit_once("are in '").unwrap_or_else(|| panic!("{}", end(&text)));
        let (stored, _) = stored.split_once('\'').unwrap();
        let kept = std::fs::read(root.path().join(directory).join(stored)).unwrap();
        assert_eq!(kept.len(), 420_000);
        let part = json!({ "path": stored, "limit": 1 });
        worked(call(&tools, "read_text_file", part).await);
        assert!(backend.write(".agent-output/mine", "b").await.is_err());
    }
    assert_eq!(std::fs::read(root.path().join("docs/a.txt")).unwrap(), b"a");
}
