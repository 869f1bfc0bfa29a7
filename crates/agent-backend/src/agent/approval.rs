//! Tools that run only after a person has approved the call.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

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

/// Maximum number of characters of the arguments that a question shows.
const SHOWN_ARGUMENTS: usize = 500;
/// A tool that starts commands, and the one that types into those that it left running.
const EXEC: &str = "exec";
const PROCESS_INPUT: &str = "process_input";
/// The rule id of a stored question.
const RULE: &str = "agent.approval";

/// Which tools need an approval, and who decides.
#[derive(Clone)]
pub struct ToolApproval {
    names: BTreeSet<String>,
    route: Route,
}

#[derive(Clone)]
enum Route {
    Approver(Arc<dyn Approver>),
    /// The lock lets questions take turns: an answer must not reach another question that a person
    /// was asked at the same time.
    Callback(Arc<Callback>, Arc<Mutex<()>>),
}

type Deciding = Pin<Box<dyn Future<Output = ToolDecision> + Send>>;
type Callback = dyn Fn(ToolQuestion) -> Deciding + Send + Sync;

/// A call that waits for a decision.
#[derive(Clone, Debug)]
pub struct ToolQuestion {
    pub session_id: AgentSessionId,
    pub principal: Principal,
    pub tool: String,
    pub arguments: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolDecision {
    /// This one call may run.
    Approve,
    /// The call may not run. The model gets the reason.
    Refuse(String),
}

impl ToolApproval {
    /// Asks an approver, such as the inbox of a server. If the approver answers later, the call
    /// ends and the model is told to repeat it. The stored question covers the tool and all its
    /// arguments.
    pub fn by_approver(approver: Arc<dyn Approver>) -> Self {
        Self { names: BTreeSet::new(), route: Route::Approver(approver) }
    }

    /// Calls your function and waits for its decision. Calls take turns, also if a model calls several
    /// tools at once.
    pub fn by_callback<F, Deciding>(decide: F) -> Self
    where
        F: Fn(ToolQuestion) -> Deciding + Send + Sync + 'static,
        Deciding: Future<Output = ToolDecision> + Send + 'static,
    {
        let callback: Arc<Callback> = Arc::new(move |question| Box::pin(decide(question)));
        Self { names: BTreeSet::new(), route: Route::Callback(callback, Arc::default()) }
    }

    /// The names of the tools that need an approval, with or without the prefix of their toolset. The
    /// name `exec` stands for `process_input` too, which types into a running command.
    pub fn require<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Wraps the tools that need an approval.
    ///
    /// # Errors
    ///
    /// A name that no tool can have: a mistyped name must not leave a tool without its question.
    pub(super) fn applied(
        &self,
        session: &AgentSession,
        tools: Vec<AgentTool>,
    ) -> Result<Vec<AgentTool>> {
        let known = |name: &str| {
            tools.iter().any(|tool| tool.name() == name)
                || (WorkspaceTools::is_tool_name(name) && name != OLD_NAME)
                || name == USE_SKILL
        };
        if let Some(name) = self.names.iter().find(|name| !known(name)) {
            let message = format!("approval is required for \"{name}\", and there is no such tool");
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
        }
        let asking = tools.into_iter().map(|tool| {
            if !self.covers(&tool) {
                return tool;
            }
            let (approval, session) = (self.clone(), session.clone());
            tool.wrapped(move |tool, arguments| {
                let (approval, session) = (approval.clone(), session.clone());
                async move {
                    match approval.decide(&session, &tool, &arguments).await {
                        Ok(()) => tool.call(arguments).await,
                        Err(refusal) => *refusal,
                    }
                }
            })
        });
        Ok(asking.collect())
    }

    fn covers(&self, tool: &AgentTool) -> bool {
        let original = tool.original_name();
        let is_named = |name: &str| self.names.contains(name);
        is_named(tool.name()) || is_named(original) || (original == PROCESS_INPUT && is_named(EXEC))
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
                let question = ToolQuestion {
                    session_id: context.session_id.clone(),
                    principal: context.principal.clone(),
                    tool: name.to_owned(),
                    arguments: arguments.clone(),
                };
                return match callback(question).await {
                    ToolDecision::Approve => Ok(()),
                    ToolDecision::Refuse(why) => Err(refused(name, None, &why)),
                };
            }
        };
        match approver.ask(&request(session, tool, arguments)).await {
            ApprovalAnswer::Yes(_) => Ok(()),
            ApprovalAnswer::No(by, why) => Err(refused(name, Some(&by), &why)),
            ApprovalAnswer::Later(id) => {
                let text = format!(
                    "{name} waits for the approval {id}. Repeat the same call when it is decided."
                );
                let data = Some(json!({ "approvalId": id.as_str() }));
                Err(Box::new(ToolResult { data, ..ToolResult::error(text) }))
            }
            ApprovalAnswer::Nobody => {
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
    let whole = Value::Object(arguments.clone()).to_string();
    let mut shown: String = whole.chars().take(SHOWN_ARGUMENTS).collect();
    if let Some(more) = whole.chars().count().checked_sub(SHOWN_ARGUMENTS).filter(|more| *more > 0)
    {
        shown.push_str(&format!("… ({more} more characters)"));
    }
    let rule = TriggeringRule {
        rule: RULE.to_owned(),
        reason: format!("the tool {} needs a yes: {shown}", tool.name()),
        suggestion: None,
    };
    let actor = Actor::from(principal.clone());
    let acts = Acts::of(session.backend().as_ref(), tool, arguments);
    let call = Call {
        path: acts.path.as_ref(),
        to: acts.to.as_ref(),
        request: acts.request.as_ref(),
        size: acts.size,
        modifies: true,
        recursive: arguments.get("recursive") == Some(&Value::Bool(true)),
        ..Call::new(&actor, acts.verb)
    };
    let mut request = ApprovalRequest::new(&call, rule);
    // A yes counts in the session that asked: another one may have other files.
    let session_id = session.context().session_id.to_string();
    let payload = json!([session_id, tool.name(), sorted(&Value::Object(arguments.clone()))]);
    let payload = payload.to_string();
    request.digest = CallDigest::with_payload(principal, &request.call, payload.as_bytes());
    request
}

/// The effect of a tool call, in terms of workspace calls.
struct Acts {
    verb: Verb,
    path: Option<WsPath>,
    to: Option<WsPath>,
    request: Option<ExecRequest>,
    size: Option<u64>,
}

impl Acts {
    fn of(backend: Option<&Backend>, tool: &AgentTool, arguments: &Map<String, Value>) -> Acts {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let path = |name: &str| {
            let below = backend?.parse_path(text(name)?).ok()?;
            Some(tool.root().join(&below))
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
                let request = backend.and_then(|backend| exec_request(backend, tool, arguments));
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
            // The caller's own tool may do anything.
            _ => plain(Verb::Exec, "path"),
        }
    }
}

/// The command as it would run, with its environment and working directory.
fn exec_request(
    backend: &Backend,
    tool: &AgentTool,
    arguments: &Map<String, Value>,
) -> Option<ExecRequest> {
    let command = Command::Shell(arguments.get("command")?.as_str()?.to_owned());
    let variables = arguments.get("env").and_then(Value::as_object);
    let env = variables
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    let cwd = arguments.get("cwd").and_then(Value::as_str).map(str::to_owned);
    let options = ExecOptions { cwd, env, ..ExecOptions::default() };
    let mut request = backend.exec_request(command, options).ok()?;
    request.cwd = tool.root().join(&request.cwd);
    Some(request)
}

/// The same value with the keys of its objects sorted: a model may change their order when it
/// repeats a call.
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
