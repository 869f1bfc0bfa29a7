//! A space in a directory of its own, and a way to run operations in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use ab_core::process::OutputChannel;
use ab_core::{ApprovalRequest, NoApprover};
use ab_local::LocalWorkspaceConfig;
use ab_policy::PolicyDocument;
use ab_spaces::{
    EventsMessage, Operation, OperationApprovalDecision, ProtocolEvent, RunObserver,
    SpaceWorkspace, events_message_schema, run_operations_message,
};
use ab_testkit::schema::schema_problems;
use async_trait::async_trait;
use serde_json::{Value, json};

pub(crate) struct Stage {
    pub(crate) root: tempfile::TempDir,
    pub(crate) space: SpaceWorkspace,
}

pub(crate) fn document(policy: Value, overrides: Value) -> PolicyDocument {
    PolicyDocument::resolve(Some(&policy), Some(&overrides)).expect("a valid policy")
}

impl Stage {
    pub(crate) fn new(document: PolicyDocument) -> Self {
        Self::with_env(document, BTreeMap::new())
    }

    pub(crate) fn with_env(document: PolicyDocument, env: BTreeMap<String, String>) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let template = LocalWorkspaceConfig::new(root.path());
        let space = SpaceWorkspace::open_directory(
            root.path(),
            &template,
            document,
            env,
            Arc::new(NoApprover),
        );
        Self { root, space: space.expect("a space") }
    }

    pub(crate) fn permissive() -> Self {
        // Without network: the sandbox of the test machine may not be able to share it.
        Self::new(document(json!("permissive"), json!({ "network": { "enabled": false } })))
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    pub(crate) async fn run(&self, operations: Value) -> EventsMessage {
        run(&self.space, operations, &Decider::new(OperationApprovalDecision::LeavePending)).await
    }

    /// The events of a run as JSON.
    pub(crate) async fn events(&self, operations: Value) -> Vec<Value> {
        let message = self.run(operations).await;
        message.events.iter().map(|event| json!(event)).collect()
    }
}

pub(crate) async fn run(
    space: &SpaceWorkspace,
    operations: Value,
    observer: &Decider,
) -> EventsMessage {
    let message = json!({ "protocolVersion": "1.0", "operations": operations });
    let message = run_operations_message(space, message.to_string().as_bytes(), observer).await;
    fits(&json!(message));
    message
}

/// The events message fits its schema.
#[track_caller]
pub(crate) fn fits(message: &Value) {
    static SCHEMA: LazyLock<Value> = LazyLock::new(events_message_schema);
    let problems = schema_problems(&SCHEMA, &SCHEMA, message);
    assert!(problems.is_empty(), "{problems:?}: {message:#}");
}

pub(crate) fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("a directory").next().is_none()
}

/// Decides every question in the same way, and counts them.
pub(crate) struct Decider {
    decision: OperationApprovalDecision,
    pub(crate) asked: AtomicUsize,
}

impl Decider {
    pub(crate) fn new(decision: OperationApprovalDecision) -> Self {
        Self { decision, asked: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl RunObserver for Decider {
    fn on_operation(&self, _: &Operation) {}

    fn on_output(&self, _: OutputChannel, _: &[u8]) {}

    fn on_event(&self, _: &ProtocolEvent) {}

    async fn decide_approval(
        &self,
        _: &Operation,
        _: &ApprovalRequest,
    ) -> OperationApprovalDecision {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.decision.clone()
    }
}
