//! Runs a message in this process, without a store: for the command line and for programs that
//! embed the library.

use ab_api::{RunId, Time};
use ab_core::ApprovalRequest;
use ab_core::process::OutputChannel;
use async_trait::async_trait;
use serde_json::json;

use crate::event::{ApprovalDetails, ErrorCategory, EventsMessage, MessageStatus, ProtocolEvent};
use crate::operation::Operation;
use crate::perform::{self, Attempt, OperationContext};
use crate::validate::{InvalidMessage, parse_operations_bytes};
use crate::workspace::SpaceWorkspace;

/// Observes a run, and answers the questions of its policy.
#[async_trait]
pub trait RunObserver: Send + Sync {
    /// Called before an operation is judged and performed.
    fn on_operation(&self, operation: &Operation);
    /// Called when a command writes output.
    fn on_output(&self, channel: OutputChannel, bytes: &[u8]);
    /// Called when an event is recorded.
    fn on_event(&self, event: &ProtocolEvent);
    /// Asks for a decision about an operation that needs an approval.
    async fn decide_approval(
        &self,
        operation: &Operation,
        asked: &ApprovalRequest,
    ) -> OperationApprovalDecision;
}

/// The decision about an operation that needs an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationApprovalDecision {
    Approve,
    /// Refuse the operation, for this reason.
    Deny(String),
    /// Make no decision now. The run ends and reports which operation waits for an approval.
    LeavePending,
}

/// Runs the bytes of an operations message to its end. An invalid message results in the status
/// `error` and one `error` event of the category `validation`, and nothing is performed.
pub async fn run_operations_message(
    workspace: &SpaceWorkspace,
    bytes: &[u8],
    observer: &dyn RunObserver,
) -> EventsMessage {
    let run_id = RunId::generate();
    match parse_operations_bytes(bytes) {
        Ok(message) => run_operations(workspace, run_id, &message.operations, observer).await,
        Err(invalid) => {
            let event = event_for_invalid_message(&invalid);
            observer.on_event(&event);
            EventsMessage::new(run_id, MessageStatus::Error, vec![event])
        }
    }
}

/// The event for an invalid message.
pub fn event_for_invalid_message(invalid: &InvalidMessage) -> ProtocolEvent {
    let mut details = serde_json::Map::new();
    details.insert("issues".to_owned(), json!(invalid.issues));
    ProtocolEvent::Error {
        timestamp: Time::now(),
        category: ErrorCategory::Validation,
        message: invalid.to_string(),
        operation_id: None,
        details,
    }
}

async fn run_operations(
    workspace: &SpaceWorkspace,
    run: RunId,
    operations: &[Operation],
    observer: &dyn RunObserver,
) -> EventsMessage {
    let mut events = Vec::new();
    let mut status = MessageStatus::Completed;
    let mut add = |event: ProtocolEvent| {
        observer.on_event(&event);
        events.push(event);
    };
    for (index, operation) in operations.iter().enumerate() {
        observer.on_operation(operation);
        let output = |channel: OutputChannel, bytes: &[u8]| observer.on_output(channel, bytes);
        let context = |granted| OperationContext {
            workspace,
            name: format!("{run}/{index}"),
            operation,
            granted,
            output: &output,
        };
        let unrecorded =
            || -> crate::gate::StartRecord { Box::new(|| Box::pin(std::future::ready(Ok(())))) };
        let mut attempt = perform::attempt(context(None), unrecorded()).await;
        if let Attempt::Asked(asked) = attempt {
            match observer.decide_approval(operation, &asked).await {
                OperationApprovalDecision::Approve => {
                    attempt =
                        perform::attempt(context(Some(asked.digest.to_string())), unrecorded())
                            .await;
                }
                OperationApprovalDecision::Deny(why) => {
                    attempt = Attempt::Done(perform::rejected(operation, why));
                }
                OperationApprovalDecision::LeavePending => {
                    add(approval_required(operation, &asked));
                    status = MessageStatus::AwaitingApproval;
                    break;
                }
            }
        }
        match attempt {
            Attempt::Done(event) => add(event),
            // `attempt` does not ask again about an operation that was approved.
            Attempt::Asked(asked) => add(approval_required(operation, &asked)),
            Attempt::Broken(event) => {
                add(event);
                status = MessageStatus::Error;
                break;
            }
        }
    }
    EventsMessage::new(run, status, events)
}

pub(crate) fn approval_required(operation: &Operation, asked: &ApprovalRequest) -> ProtocolEvent {
    ProtocolEvent::ApprovalRequired {
        timestamp: Time::now(),
        operation_id: perform::id(operation),
        operation_type: operation.operation_type(),
        reason: asked.rule.reason.clone(),
        details: ApprovalDetails {
            command: asked.call.command(),
            path: None,
            policy: Some(asked.rule.rule.clone()),
        },
        approval_id: None,
    }
}
