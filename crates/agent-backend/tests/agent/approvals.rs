//! Tools that need a yes: by a callback, and by an approver that may answer later.

use std::sync::{Arc, Mutex};

use ab_testkit::expect::expect_error;
use agent_backend::agent::{
    AgentDefinition, AgentTool, AgentTools, FilesystemToolset, MemoryPerSession, SessionOptions,
    ShellToolset, SubAgentBackend, ToolApproval, ToolApprovalDecision, ToolApprovalQuestion,
    ToolResult,
};
use agent_backend::{
    ApprovalAnswer, ApprovalId, ApprovalRequest, Approver, Backend, ErrorKind, Principal,
    PrincipalKind, Verb, memory,
};
use async_trait::async_trait;
use serde_json::{Value, json};

use super::{call, failed, named, worked};

async fn tools(backend: &Backend, approval: ToolApproval) -> AgentTools {
    let schema = json!({ "type": "object" });
    let deploy =
        AgentTool::new("deploy", "Deploys", schema, |_| async { ToolResult::text("deployed") });
    let definition = AgentDefinition::builder()
        .backend(backend.clone())
        .toolset(FilesystemToolset::new().allow_writes())
        .tool(deploy)
        .approval(approval)
        .build();
    let session = definition.start(named("chat-1")).await.unwrap();
    session.tools().await.unwrap()
}

fn write(content: &str) -> Value {
    json!({ "path": "a.txt", "content": content })
}

#[tokio::test]
async fn a_callback_decides_each_call_of_the_named_tools_and_no_other() {
    let asked = Arc::new(Mutex::new(Vec::<ToolApprovalQuestion>::new()));
    let heard = asked.clone();
    let approval = ToolApproval::by_callback(move |question: ToolApprovalQuestion| {
        let allowed = question.arguments.get("content") != Some(&json!("secret"));
        heard.lock().unwrap().push(question);
        async move {
            if allowed {
                ToolApprovalDecision::Approve
            } else {
                ToolApprovalDecision::Refuse("not that".to_owned())
            }
        }
    });
    let backend = memory();
    let tools = tools(&backend, approval.require(["write_file", "deploy"])).await;
    worked(call(&tools, "list_directory", json!({ "path": "." })).await);
    assert_eq!(asked.lock().unwrap().len(), 0);
    let refused = call(&tools, "write_file", write("secret")).await;
    failed(refused, "a person refused this call of write_file: not that");
    assert!(!backend.exists("a.txt").await.unwrap());
    worked(call(&tools, "write_file", write("plain")).await);
    assert_eq!(backend.read_text("a.txt").await.unwrap(), "plain");
    assert_eq!(worked(call(&tools, "deploy", json!({})).await), "deployed");
    let asked = asked.lock().unwrap();
    let names: Vec<&str> = asked.iter().map(|question| question.tool.as_str()).collect();
    assert_eq!(names, ["write_file", "write_file", "deploy"]);
    assert_eq!(asked[0].session_id.as_str(), "chat-1");
    assert_eq!(asked[0].principal.to_string(), "agent:chat-1");
}

/// Stores questions and says yes to what was decided, once, as an inbox does.
#[derive(Debug, Default)]
struct Inbox {
    asked: Mutex<Vec<ApprovalRequest>>,
    granted: Mutex<Vec<String>>,
}

#[async_trait]
impl Approver for Inbox {
    async fn ask(&self, asked: &ApprovalRequest) -> ApprovalAnswer {
        self.asked.lock().unwrap().push(asked.clone());
        let digest = asked.digest.to_string();
        let mut granted = self.granted.lock().unwrap();
        match granted.iter().position(|it| *it == digest) {
            Some(at) => {
                granted.remove(at);
                ApprovalAnswer::Yes(Principal::new(PrincipalKind::Person, "ada"))
            }
            None => ApprovalAnswer::Pending(ApprovalId::new("apr-1")),
        }
    }
}

#[tokio::test]
async fn a_yes_that_comes_later_counts_for_the_same_call_once() {
    let inbox = Arc::new(Inbox::default());
    let backend = memory();
    let approval = ToolApproval::by_approver(inbox.clone()).require(["write_file"]);
    let tools = tools(&backend, approval).await;
    let waits = call(&tools, "write_file", write("one")).await;
    assert_eq!(waits.data, Some(json!({ "approvalId": "apr-1" })));
    failed(waits, "waits for the approval apr-1");
    let asked = inbox.asked.lock().unwrap()[0].clone();
    assert_eq!((asked.call.verb, asked.call.size), (Verb::Write, Some(3)));
    assert_eq!(asked.call.path.unwrap().as_str(), "a.txt");
    assert!(asked.rule.reason.contains("write_file"), "{:?}", asked.rule);
    inbox.granted.lock().unwrap().push(asked.digest.to_string());
    // Another text of the same length is another question.
    failed(call(&tools, "write_file", write("two")).await, "waits for");
    // The same arguments in another order are the same call.
    let reordered = json!({ "content": "one", "path": "a.txt" });
    worked(call(&tools, "write_file", reordered).await);
    assert_eq!(backend.read_text("a.txt").await.unwrap(), "one");
    failed(call(&tools, "write_file", write("one")).await, "waits for");
}

#[tokio::test]
async fn where_no_person_can_be_asked_the_answer_is_no() {
    #[derive(Debug)]
    struct Answers(ApprovalAnswer);
    #[async_trait]
    impl Approver for Answers {
        async fn ask(&self, _: &ApprovalRequest) -> ApprovalAnswer {
            self.0.clone()
        }
    }
    let ada = Principal::new(PrincipalKind::Person, "ada");
    for (answer, says) in [
        (ApprovalAnswer::NoPersonAvailable, "no person can be asked"),
        (
            ApprovalAnswer::No(ada, "too late".to_owned()),
            "person:ada refused this call of deploy: too late",
        ),
    ] {
        let approval = ToolApproval::by_approver(Arc::new(Answers(answer))).require(["deploy"]);
        let tools = tools(&memory(), approval).await;
        failed(call(&tools, "deploy", json!({})).await, says);
    }
}

#[tokio::test]
async fn a_mistyped_name_does_not_leave_a_tool_without_its_question() {
    let start = |name: &'static str| async move {
        let approval = ToolApproval::by_callback(|_| async { ToolApprovalDecision::Approve });
        let definition = AgentDefinition::builder()
            .backend(memory())
            .toolset(FilesystemToolset::new())
            .approval(approval.require([name]))
            .build();
        definition.start(SessionOptions::default()).await.unwrap().tools().await
    };
    let error = expect_error(start("exce").await, ErrorKind::Invalid);
    assert!(error.message().contains("\"exce\""), "{error}");
    // A tool that another backend would have is no mistake.
    start("exec").await.unwrap();
    start("write_file").await.unwrap();
    start("use_skill").await.unwrap();
}

#[tokio::test]
async fn a_prefix_does_not_leave_a_tool_without_its_question() {
    let approval =
        ToolApproval::by_callback(async |_| ToolApprovalDecision::Refuse("no".to_owned()));
    let definition = |approval: ToolApproval| {
        AgentDefinition::builder()
            .backend(memory())
            .toolset(FilesystemToolset::new().allow_writes().name_prefix("fs_"))
            .approval(approval)
            .build()
    };
    for name in ["write_file", "fs_write_file"] {
        let definition = definition(approval.clone().require([name]));
        let session = definition.start(named("chat-1")).await.unwrap();
        let tools = session.tools().await.unwrap();
        let refused = call(&tools, "fs_write_file", write("x")).await;
        failed(refused, "a person refused this call of fs_write_file: no");
    }
    // The old name of a tool that is not offered.
    let session = definition(approval.require(["read_file"])).start(named("chat-1")).await.unwrap();
    expect_error(session.tools().await, ErrorKind::Invalid);
}

#[tokio::test]
async fn questions_of_one_message_take_turns() {
    let open = Arc::new(Mutex::new(0));
    let counted = open.clone();
    let approval = ToolApproval::by_callback(move |_| {
        let counted = counted.clone();
        async move {
            *counted.lock().unwrap() += 1;
            tokio::task::yield_now().await;
            let at_once = std::mem::replace(&mut *counted.lock().unwrap(), 0);
            if at_once == 1 {
                ToolApprovalDecision::Approve
            } else {
                ToolApprovalDecision::Refuse(format!("{at_once} at once"))
            }
        }
    });
    let tools = tools(&memory(), approval.require(["deploy"])).await;
    let (first, second, third) = tokio::join!(
        call(&tools, "deploy", json!({})),
        call(&tools, "deploy", json!({})),
        call(&tools, "deploy", json!({})),
    );
    for answer in [first, second, third] {
        worked(answer);
    }
}

#[tokio::test]
async fn a_person_sees_the_whole_command_that_would_run() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("sub/deep")).unwrap();
    let inbox = Arc::new(Inbox::default());
    let definition = AgentDefinition::builder()
        .backend(super::local(root.path()))
        .toolset(ShellToolset::new().rooted_at("sub"))
        .approval(ToolApproval::by_approver(inbox.clone()).require(["exec"]))
        .build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    let tools = session.tools().await.unwrap();
    let command = json!({ "command": "touch \"$NAME\"", "cwd": "deep", "env": { "NAME": "made" } });
    failed(call(&tools, "exec", command.clone()).await, "waits for");
    let asked = inbox.asked.lock().unwrap()[0].clone();
    let request = asked.call.request.clone().unwrap();
    assert_eq!(asked.call.command().unwrap(), "touch \"$NAME\"");
    assert_eq!((request.cwd.as_str(), request.env["NAME"].as_str()), ("sub/deep", "made"));
    assert!(!root.path().join("sub/deep/made").exists());
    inbox.granted.lock().unwrap().push(asked.digest.to_string());
    worked(call(&tools, "exec", command).await);
    assert!(root.path().join("sub/deep/made").exists());
}

#[tokio::test]
async fn a_person_sees_the_path_in_the_workspace_whatever_the_root_of_the_toolset() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("docs/sub")).unwrap();
    let inbox = Arc::new(Inbox::default());
    let definition = AgentDefinition::builder()
        .backend(super::local(root.path()))
        .toolset(FilesystemToolset::new().allow_writes().rooted_at("sub"))
        .approval(ToolApproval::by_approver(inbox.clone()).require(["write_file", "move_file"]))
        .build();
    let parent = definition.start(SessionOptions::default()).await.unwrap();
    let tools = parent.tools().await.unwrap();
    let absolute = root.path().join("sub/a.txt").to_str().unwrap().to_owned();
    let long = "x".repeat(5000);
    for path in ["a.txt", "./a.txt", "/a.txt", &absolute] {
        let arguments = json!({ "path": path, "content": long });
        failed(call(&tools, "write_file", arguments).await, "waits for");
        let asked = inbox.asked.lock().unwrap().pop().unwrap();
        assert_eq!(asked.call.path.as_ref().unwrap().as_str(), "sub/a.txt", "{path}");
        assert!(asked.describe().contains(&long), "a person sees all arguments");
    }
    // The workspace of a sub-agent is a part of that of its parent.
    let scope = SubAgentBackend::Scope("docs".to_owned());
    let below =
        parent.start_sub_agent(&definition, scope, SessionOptions::default()).await.unwrap();
    let tools = below.tools().await.unwrap();
    let arguments = json!({ "source": "a", "destination": "b" });
    failed(call(&tools, "move_file", arguments).await, "waits for");
    let asked = inbox.asked.lock().unwrap().pop().unwrap();
    let shown = (asked.call.path.unwrap(), asked.call.to.unwrap());
    assert_eq!((shown.0.as_str(), shown.1.as_str()), ("docs/sub/a", "docs/sub/b"));
}

#[tokio::test]
async fn sub_agents_ask_as_their_parents_do() {
    let refusing = |name: &'static str| {
        let asked = Arc::new(Mutex::new(0));
        let counted = asked.clone();
        let approval = ToolApproval::by_callback(move |_| {
            *counted.lock().unwrap() += 1;
            async { ToolApprovalDecision::Approve }
        });
        (approval.require([name]), asked)
    };
    let (approval, asked) = refusing("fs_write_file");
    let definition = AgentDefinition::builder()
        .backend(MemoryPerSession)
        .toolset(FilesystemToolset::new().allow_writes().name_prefix("fs_"))
        .approval(approval)
        .build();
    // Other names, and no approval of its own.
    let plain = AgentDefinition::builder()
        .backend(MemoryPerSession)
        .toolset(FilesystemToolset::new().allow_writes())
        .build();
    let (own, own_asked) = refusing("write_file");
    let with_own = AgentDefinition::builder()
        .toolset(FilesystemToolset::new().allow_writes())
        .approval(own)
        .build();
    let parent = definition.start(named("parent")).await.unwrap();
    let start = |definition, place| {
        let parent = parent.clone();
        async move {
            let options = SessionOptions::default();
            let session = parent.start_sub_agent(definition, place, options).await.unwrap();
            (session.tools().await.unwrap(), session)
        }
    };
    let (tools, below) = start(&plain, SubAgentBackend::Inherit).await;
    worked(call(&tools, "write_file", write("one")).await);
    assert_eq!(*asked.lock().unwrap(), 1);
    let (tools, _) = start(&plain, SubAgentBackend::FromOwnFactory).await;
    worked(call(&tools, "write_file", write("one")).await);
    assert_eq!(*asked.lock().unwrap(), 2);
    // The same approval is asked once, also if both have it.
    let (tools, _) = start(&definition, SubAgentBackend::Scope("d".to_owned())).await;
    worked(call(&tools, "fs_write_file", write("one")).await);
    assert_eq!(*asked.lock().unwrap(), 3);
    // Another one is asked as well, also two levels below.
    let options = SessionOptions::default();
    let deeper = SubAgentBackend::Scope("e".to_owned());
    let deeper = below.start_sub_agent(&with_own, deeper, options).await.unwrap();
    worked(call(&deeper.tools().await.unwrap(), "write_file", write("one")).await);
    assert_eq!((*asked.lock().unwrap(), *own_asked.lock().unwrap()), (4, 1));
}

#[tokio::test]
async fn two_approvers_that_answer_later_are_both_heard() {
    let (first, second) = (Arc::new(Inbox::default()), Arc::new(Inbox::default()));
    let definition = |inbox: &Arc<Inbox>| {
        AgentDefinition::builder()
            .backend(MemoryPerSession)
            .toolset(FilesystemToolset::new().allow_writes())
            .approval(ToolApproval::by_approver(inbox.clone()).require(["write_file"]))
            .build()
    };
    let parent = definition(&first).start(named("parent")).await.unwrap();
    let sub = definition(&second);
    let sub = parent.start_sub_agent(&sub, SubAgentBackend::Inherit, named("sub")).await.unwrap();
    let tools = sub.tools().await.unwrap();
    let grant = |inbox: &Inbox| {
        let digest = inbox.asked.lock().unwrap().last().unwrap().digest.to_string();
        inbox.granted.lock().unwrap().push(digest);
    };
    failed(call(&tools, "write_file", write("one")).await, "waits for");
    assert!(second.asked.lock().unwrap().is_empty());
    grant(&first);
    failed(call(&tools, "write_file", write("one")).await, "waits for");
    grant(&second);
    worked(call(&tools, "write_file", write("one")).await);
    // Each yes counts once.
    failed(call(&tools, "write_file", write("one")).await, "waits for");
    assert_eq!(second.asked.lock().unwrap().len(), 2);
}
