//! Tools that run only after a person has approved the call.

mod server;

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use ab_core::call::Call;
use ab_core::process::{Command, ExecRequest};
use ab_core::{
    Actor, ApprovalAnswer, ApprovalRequest, Approver, Backend, CallDigest, Error, ErrorCode,
    ErrorKind, ExecOptions, Principal, Result, TriggeringRule, Verb, WsPath,
};
use ab_mcp::WorkspaceTools;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::context::AgentSessionId;
use super::filesystem::OLD_NAME;
use super::session::AgentSession;
use super::skills::USE_SKILL;
use super::tool::{AgentTool, ToolResult};
use crate::ServeClient;

pub use server::ServerApprover;

/// Maximum number of granted approvals that are remembered for calls that still wait for another
/// approval.
const MAX_GIVEN: usize = 1000;
/// The tool that starts commands, and the tool that sends input to running commands.
const EXEC: &str = "exec";
const PROCESS_INPUT: &str = "process_input";
/// The rule id under which a question is stored.
const RULE: &str = "agent.approval";

/// The tools that need an approval, and who decides about their calls.
#[derive(Clone)]
pub struct ToolApproval {
    names: BTreeSet<String>,
    route: Route,
}

#[derive(Clone)]
enum Route {
    Approver(Arc<dyn Approver>),
    /// The lock ensures that only one question is asked at a time. Otherwise an answer could reach
    /// the wrong question.
    Callback(Arc<Callback>, Arc<Mutex<()>>),
}

type Deciding = Pin<Box<dyn Future<Output = ToolApprovalDecision> + Send>>;
type Callback = dyn Fn(ToolApprovalQuestion) -> Deciding + Send + Sync;

/// A tool call that waits for a decision.
#[derive(Clone, Debug)]
pub struct ToolApprovalQuestion {
    pub session_id: AgentSessionId,
    pub principal: Principal,
    pub tool: String,
    pub arguments: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolApprovalDecision {
    /// The call may run. The decision covers only this call.
    Approve,
    /// The call must not run. The model gets this reason.
    Refuse(String),
}

impl ToolApproval {
    /// Asks an approver. If the approver does not decide at once, the call ends, and the model is
    /// told to repeat the call later. The stored question covers the tool and all its arguments.
    pub fn by_approver(approver: Arc<dyn Approver>) -> Self {
        Self { names: BTreeSet::new(), route: Route::Approver(approver) }
    }

    /// Asks at a server. The question appears in the list of `agent-backend approvals` and on the
    /// web page, and the call waits for the decision. [`ServerApprover`] has settings.
    pub fn by_server(client: ServeClient) -> Self {
        Self::by_approver(Arc::new(ServerApprover::new(client)))
    }

    /// Calls your function and waits for its decision. Only one question is asked at a time, even
    /// if a model calls several tools at once.
    pub fn by_callback<F, Deciding>(decide: F) -> Self
    where
        F: Fn(ToolApprovalQuestion) -> Deciding + Send + Sync + 'static,
        Deciding: Future<Output = ToolApprovalDecision> + Send + 'static,
    {
        let callback: Arc<Callback> = Arc::new(move |question| Box::pin(decide(question)));
        Self { names: BTreeSet::new(), route: Route::Callback(callback, Arc::default()) }
    }

    /// Adds names of tools that need an approval, with or without the prefix of their toolset. The
    /// name `exec` also covers `process_input`, which sends input to a running command.
    pub fn require<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Checks that every name is the name of a tool. A mistyped name would leave a tool without its
    /// approval.
    ///
    /// # Errors
    ///
    /// Fails if no tool can have one of the names.
    pub(super) fn check_names(&self, tools: &[AgentTool]) -> Result<()> {
        let known = |name: &str| {
            tools.iter().any(|tool| tool.name() == name)
                || (WorkspaceTools::is_tool_name(name) && name != OLD_NAME)
                || name == USE_SKILL
        };
        if let Some(name) = self.names.iter().find(|name| !known(name)) {
            let message = format!("approval is required for \"{name}\", and there is no such tool");
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
        }
        Ok(())
    }

    fn covers(&self, tool: &AgentTool) -> bool {
        let original = tool.original_name();
        let is_named = |name: &str| self.names.contains(name);
        is_named(tool.name()) || is_named(original) || (original == PROCESS_INPUT && is_named(EXEC))
    }

    /// Whether an approval of the parent session covers a tool of its sub-agent. Prefixes of names
    /// are ignored, because the toolsets of a sub-agent have their own prefixes.
    fn covers_in_sub_agent(&self, tool: &AgentTool) -> bool {
        let original = tool.original_name();
        let covered = |original: &str| self.names.iter().any(|name| name.ends_with(original));
        let is_command = original == PROCESS_INPUT;
        self.covers(tool)
            || tool.origin().is_some() && (covered(original) || is_command && covered(EXEC))
    }

    /// Whether both approvals ask the same approver or callback.
    fn asks_like(&self, other: &ToolApproval) -> bool {
        match (&self.route, &other.route) {
            (Route::Approver(one), Route::Approver(other)) => Arc::ptr_eq(one, other),
            (Route::Callback(one, _), Route::Callback(other, _)) => Arc::ptr_eq(one, other),
            (Route::Approver(_), Route::Callback(..))
            | (Route::Callback(..), Route::Approver(_)) => false,
        }
    }

    async fn decide(
        &self,
        session: &AgentSession,
        tool: &AgentTool,
        arguments: &Map<String, Value>,
    ) -> Result<(), Box<ToolResult>> {
        let name = tool.name();
        let context = session.context();
        let approver = match &self.route {
            Route::Approver(approver) => approver,
            Route::Callback(callback, turn) => {
                let _turn = turn.lock().await;
                let question = ToolApprovalQuestion {
                    session_id: context.session_id.clone(),
                    principal: context.principal.clone(),
                    tool: name.to_owned(),
                    arguments: arguments.clone(),
                };
                return match callback(question).await {
                    ToolApprovalDecision::Approve => Ok(()),
                    ToolApprovalDecision::Refuse(why) => Err(refused(name, None, &why)),
                };
            }
        };
        match approver.ask(&request(session, tool, arguments)).await {
            ApprovalAnswer::Yes(_) => Ok(()),
            ApprovalAnswer::No(by, why) => Err(refused(name, Some(&by), &why)),
            ApprovalAnswer::Pending(id) => {
                let text = format!(
                    "{name} waits for the approval {id}. Repeat the same call when it is decided."
                );
                let data = Some(json!({ "approvalId": id.as_str() }));
                Err(Box::new(ToolResult { data, ..ToolResult::error(text) }))
            }
            ApprovalAnswer::NoPersonAvailable => {
                let text = format!("{name} needs an approval, and no person can be asked");
                Err(Box::new(ToolResult::error(text)))
            }
        }
    }
}

impl fmt::Debug for ToolApproval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolApproval").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Wraps a tool, so that each call first waits for all its approvals. These are the approvals that
/// cover the tool, from the session's own definition and from its parent sessions.
pub(super) fn asking_first(session: &AgentSession, tool: &AgentTool) -> AgentTool {
    let inherited = session.inherited_approvals().iter();
    let inherited = inherited.filter(|approval| approval.covers_in_sub_agent(tool));
    let own = session.own_approval().filter(|approval| approval.covers(tool));
    let mut approvals: Vec<ToolApproval> = Vec::new();
    for approval in inherited.chain(own) {
        if !approvals.iter().any(|other| other.asks_like(approval)) {
            approvals.push(approval.clone());
        }
    }
    if approvals.is_empty() {
        return tool.clone();
    }
    let questions = Arc::new(Questions { approvals, given: Default::default() });
    let session = session.clone();
    tool.wrapped(move |tool, arguments| {
        let (questions, session) = (questions.clone(), session.clone());
        async move {
            match questions.decide(&session, &tool, &arguments).await {
                Ok(()) => tool.run(arguments).await,
                Err(refusal) => *refusal,
            }
        }
    })
}

/// The approvals that one tool needs. A call runs only if all of them approve it.
struct Questions {
    approvals: Vec<ToolApproval>,
    /// The granted approvals of calls that still wait for another approval. An entry contains the
    /// index of the approval and the arguments of the call. They are remembered until the call
    /// runs, because an approver's decision can be used only once.
    given: std::sync::Mutex<BTreeSet<(usize, String)>>,
}

impl Questions {
    async fn decide(
        &self,
        session: &AgentSession,
        tool: &AgentTool,
        arguments: &Map<String, Value>,
    ) -> Result<(), Box<ToolResult>> {
        let [only] = self.approvals.as_slice() else {
            return self.decide_in_turn(session, tool, arguments).await;
        };
        only.decide(session, tool, arguments).await
    }

    async fn decide_in_turn(
        &self,
        session: &AgentSession,
        tool: &AgentTool,
        arguments: &Map<String, Value>,
    ) -> Result<(), Box<ToolResult>> {
        let whole = sorted(&Value::Object(arguments.clone())).to_string();
        let given = || self.given.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, approval) in self.approvals.iter().enumerate() {
            if given().contains(&(number, whole.clone())) {
                continue;
            }
            approval.decide(session, tool, arguments).await?;
            let mut given = given();
            if given.len() >= MAX_GIVEN {
                given.clear();
            }
            given.insert((number, whole.clone()));
        }
        given().retain(|(_, arguments)| *arguments != whole);
        Ok(())
    }
}

fn refused(name: &str, by: Option<&Principal>, why: &str) -> Box<ToolResult> {
    let by = by.map_or("a person".to_owned(), ToString::to_string);
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    Box::new(ToolResult::error(format!("{by} refused this call of {name}{why}")))
}

/// The question in the form that an approver stores and shows.
fn request(
    session: &AgentSession,
    tool: &AgentTool,
    arguments: &Map<String, Value>,
) -> ApprovalRequest {
    let principal = &session.context().principal;
    // Include all arguments, because a person must see what the decision covers.
    let whole = sorted(&Value::Object(arguments.clone()));
    let rule = TriggeringRule {
        rule: RULE.to_owned(),
        reason: format!("the tool {} requires an approval: {whole}", tool.name()),
        suggestion: None,
    };
    let actor = Actor::from(principal.clone());
    let acts = Acts::of(session, tool, arguments);
    let call = Call {
        path: acts.path.as_ref(),
        to: acts.to.as_ref(),
        request: acts.request.as_ref(),
        size: acts.size,
        modifies_workspace: true,
        recursive: arguments.get("recursive") == Some(&Value::Bool(true)),
        ..Call::new(&actor, acts.verb)
    };
    let mut request = ApprovalRequest::new(&call, rule);
    // The session is part of the digest, because the same call in another session may affect other
    // files.
    let session_id = session.context().session_id.to_string();
    let payload = json!([session_id, tool.name(), whole]);
    let payload = payload.to_string();
    request.digest = CallDigest::compute_with_payload(principal, &request.call, payload.as_bytes());
    request
}

/// What a tool call does to the workspace: the verbs and paths that a person is asked about.
struct Acts {
    verb: Verb,
    path: Option<WsPath>,
    to: Option<WsPath>,
    request: Option<ExecRequest>,
    size: Option<u64>,
}

impl Acts {
    fn of(session: &AgentSession, tool: &AgentTool, arguments: &Map<String, Value>) -> Acts {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        // Parse the paths relative to the tool's own directory, as the tool does when it runs.
        let place = match tool.origin() {
            Some(origin) => Some((origin.workspace.clone(), origin.root.clone())),
            None => session.backend().map(|backend| (backend, WsPath::root())),
        };
        let place = place.map(|(workspace, root)| (workspace, session.directory().join(&root)));
        let path = |name: &str| {
            let (workspace, root) = place.as_ref()?;
            Some(root.join(&workspace.parse_path(text(name)?).ok()?))
        };
        let plain = |verb, argument: &str| Acts {
            verb,
            path: path(argument),
            to: None,
            request: None,
            size: None,
        };
        match tool.original_name() {
            "exec" => {
                let request = place.as_ref().and_then(|(workspace, root)| {
                    let mut request = exec_request(workspace, arguments)?;
                    request.cwd = root.join(&request.cwd);
                    Some(request)
                });
                Acts { request, ..plain(Verb::Exec, "cwd") }
            }
            "write_file" => Acts {
                size: text("content").map(|content| content.len() as u64),
                ..plain(Verb::Write, "path")
            },
            "edit_file" => plain(Verb::Write, "path"),
            "create_directory" => plain(Verb::Mkdir, "path"),
            "move_file" => Acts { to: path("destination"), ..plain(Verb::Rename, "source") },
            "delete" => plain(Verb::Delete, "path"),
            name if WorkspaceTools::is_tool_name(name) => plain(Verb::Read, "path"),
            // A tool that the caller wrote may do anything, so it is treated like a command.
            _ => plain(Verb::Exec, "path"),
        }
    }
}

/// The command as it would be executed in `backend`, with its environment and working directory.
fn exec_request(backend: &Backend, arguments: &Map<String, Value>) -> Option<ExecRequest> {
    let command = Command::Shell(arguments.get("command")?.as_str()?.to_owned());
    let variables = arguments.get("env").and_then(Value::as_object);
    let env = variables
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    let cwd = arguments.get("cwd").and_then(Value::as_str).map(str::to_owned);
    let options = ExecOptions { cwd, env, ..ExecOptions::default() };
    backend.build_exec_request(command, options).ok()
}

/// Returns the value with the keys of all objects sorted, because a model may change their order
/// when it repeats a call.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> =
                fields.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        plain => plain.clone(),
    }
}
