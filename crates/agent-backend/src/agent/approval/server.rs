//! Asks a server for approvals. The questions of tools appear in the server's list of approvals.

use std::future::Future;
use std::time::Duration;

use ab_api::{Approval, ApprovalId, ApprovalQuestion, ApprovalStatus, DeciderKind};
use ab_core::error::escape_unprintable;
use ab_core::{
    ApprovalAnswer, ApprovalRequest, Approver, Error, ErrorKind, Principal, PrincipalKind, Result,
    Verb,
};
use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use crate::ServeClient;

/// Maximum number of characters of a question's title.
const MAX_TITLE: usize = 100;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Asks `agent-backend serve` for approvals.
///
/// A question is stored as an approval of the server. It appears in the list of
/// `agent-backend approvals` and on the web page, where a person decides it. The tool call waits
/// for the decision, even if the server restarts during the wait. A decision can be used once, for
/// the same tool with the same arguments. A question whose caller has gone expires.
#[derive(Clone, Debug)]
pub struct ServerApprover {
    client: ServeClient,
    expires_after: Option<Duration>,
    wait_at_most: Option<Duration>,
}

impl ServerApprover {
    pub fn new(client: ServeClient) -> Self {
        Self { client, expires_after: None, wait_at_most: None }
    }

    /// Sets the time after which a question expires. An expired question counts as refused. The
    /// server has a default, and a maximum of one week.
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.expires_after = Some(time);
        self
    }

    /// Sets how long a call waits for the decision. After this time the model is told to repeat the
    /// call once the question is decided. By default a call waits until the question is decided or
    /// expires.
    pub fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait_at_most = Some(time);
        self
    }

    async fn answer(&self, asked: &ApprovalRequest) -> Result<ApprovalAnswer> {
        let until = self.wait_at_most.map(|wait| Instant::now() + wait);
        let digest = asked.digest.to_string();
        let question = ApprovalQuestion {
            requester: asked.principal.to_string(),
            title: title(asked),
            action: action(asked).map(str::to_owned),
            detail: asked.describe(),
            digest: digest.clone(),
            expires_in: self.expires_after.map(|time| time.as_secs().max(1)),
        };
        loop {
            let approval = self.reaching(|| self.client.request_approval(&question)).await?;
            let id = approval.id;
            let Some(decided) = self.decided(approval, until).await? else {
                return Ok(ApprovalAnswer::Pending(ab_core::ApprovalId::new(id.to_string())));
            };
            if decided.status == ApprovalStatus::Expired {
                return Ok(answer_of(&decided));
            }
            match self.reaching(|| self.client.use_approval(id, &digest)).await {
                Ok(used) => return Ok(answer_of(&used)),
                // Ask again, because another call with the same arguments has used the decision, or
                // the decision expired before it was used.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the approval is decided. Returns `None` if it is still pending at the time
    /// `until`.
    async fn decided(&self, asked: Approval, until: Option<Instant>) -> Result<Option<Approval>> {
        let id: ApprovalId = asked.id;
        let mut approval = asked;
        while approval.status == ApprovalStatus::Pending {
            let left = until.map_or(Duration::MAX, |until| until.duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            approval = self.reaching(|| self.client.wait_for_approval(id, left)).await?;
        }
        Ok(Some(approval))
    }

    /// Repeats a request while the server cannot be reached, until the reconnect timeout of the
    /// client is over.
    async fn reaching<F>(&self, request: impl Fn() -> F) -> Result<Approval>
    where
        F: Future<Output = Result<Approval>>,
    {
        let mut lost_since = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match request().await {
                Err(error) if is_out_of_reach(&error) => error,
                other => return other,
            };
            let since = *lost_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.client.reconnect_for {
                return Err(error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

#[async_trait]
impl Approver for ServerApprover {
    async fn ask(&self, asked: &ApprovalRequest) -> ApprovalAnswer {
        self.answer(asked).await.unwrap_or_else(|error| {
            let server = Principal::new(PrincipalKind::Process, "agent-backend");
            ApprovalAnswer::No(server, format!("cannot ask for an approval: {error}"))
        })
    }
}

fn is_out_of_reach(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Disconnected | ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Io
    )
}

fn answer_of(decided: &Approval) -> ApprovalAnswer {
    let (kind, name) = match &decided.decided_by {
        Some(by) if by.kind == DeciderKind::Person => (PrincipalKind::Person, by.name.as_str()),
        Some(by) => (PrincipalKind::Process, by.name.as_str()),
        None => (PrincipalKind::Process, "agent-backend"),
    };
    let by = Principal::new(kind, name);
    if decided.status == ApprovalStatus::Approved {
        ApprovalAnswer::Yes(by)
    } else {
        ApprovalAnswer::No(by, decided.reason.clone().unwrap_or_default())
    }
}

/// The title of the question: the command, or the first line of the description of the call.
fn title(asked: &ApprovalRequest) -> String {
    let line = match asked.call.command() {
        Some(command) => format!("Run {command}"),
        // For a tool that the caller wrote, only the rule's reason names the tool.
        None if asked.call.verb == Verb::Exec => asked.rule.reason.clone(),
        None => asked.call.describe().trim_end().to_owned(),
    };
    let line = escape_unprintable(&line);
    let mut title: String = line.chars().take(MAX_TITLE).collect();
    if title.len() < line.len() {
        title.push('…');
    }
    title
}

/// The word with which the web page describes the kind of action.
fn action(asked: &ApprovalRequest) -> Option<&'static str> {
    match asked.call.verb {
        Verb::Exec if asked.call.request.is_some() => Some("execute"),
        Verb::Write | Verb::Mkdir => Some("edit"),
        Verb::Delete => Some("delete"),
        Verb::Rename => Some("move"),
        Verb::Read => Some("read"),
        _ => None,
    }
}
