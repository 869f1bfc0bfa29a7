//! The table of ways out of a sandbox, through `shell` operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use ab_core::NoApprover;
use ab_core::effective_policy::{PolicyControlKind, PolicyControlStrength};
use ab_local::LocalWorkspaceConfig;
use ab_spaces::{OperationApprovalDecision, SpaceWorkspace};
use ab_testkit::escapes::{
    self, CommandReport, CommandRunner, EscapeAttempt, EscapeTestbed, SandboxOption,
};
use ab_testkit::host::report_skip;
use serde_json::json;

use crate::stage::{Decider, document, run};

struct Operations {
    runtime: tokio::runtime::Runtime,
}

impl Operations {
    fn space(testbed: &EscapeTestbed, wishes: &[SandboxOption]) -> SpaceWorkspace {
        let network = !wishes.contains(&SandboxOption::NoNetwork);
        let policy = document(json!("permissive"), json!({ "network": { "enabled": network } }));
        let root = testbed.workspace_dir();
        let template = LocalWorkspaceConfig::new(&root);
        let (env, nobody) = (BTreeMap::new(), Arc::new(NoApprover));
        SpaceWorkspace::open_directory(&root, &template, policy, env, nobody).expect("a space")
    }
}

impl CommandRunner for Operations {
    fn run(&self, testbed: &EscapeTestbed, wishes: &[SandboxOption], line: &str) -> CommandReport {
        self.runtime.block_on(async {
            let space = Self::space(testbed, wishes);
            let operations = json!([{ "type": "shell", "command": line, "timeout": 60_000 }]);
            let message =
                run(&space, operations, &Decider::new(OperationApprovalDecision::Approve)).await;
            space.backend().destroy().await.expect("its end");
            let event = json!(message.events[0]);
            let said = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            let refused = event["exitCode"].is_null();
            CommandReport { refused, stdout: said("stdout"), stderr: said("stderr") }
        })
    }

    fn claimed_control_strength(
        &self,
        testbed: &EscapeTestbed,
        wishes: &[SandboxOption],
        subject: PolicyControlKind,
    ) -> PolicyControlStrength {
        self.runtime.block_on(async {
            let space = Self::space(testbed, wishes);
            let policy = space.backend().effective_policy().await.expect("a policy");
            space.backend().destroy().await.expect("its end");
            policy
                .control(subject)
                .map_or(PolicyControlStrength::NotEnforced, |control| control.strength)
        })
    }

    fn is_unconfined(&self) -> bool {
        false
    }
}

#[test]
fn nothing_gets_out_by_operations_that_the_sandbox_claims_to_hold() {
    let python = std::process::Command::new("python3").arg("-V").output();
    if !python.is_ok_and(|out| out.status.success()) {
        return report_skip("attempts to get out", "there is no python3");
    }
    // The other options are not those of an operation, and a command has at most 4,096 characters.
    let fits = |attempt: &&EscapeAttempt| {
        attempt.sandbox_options.iter().all(|option| *option == SandboxOption::NoNetwork)
            && attempt.script.len() < 3000
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let surface = Operations { runtime };
    let (mut wrong, mut made) = (Vec::new(), 0);
    for attempt in escapes::all_attempts().filter(fits) {
        let base = tempfile::tempdir().expect("a directory");
        made += 1;
        if let Err(cause) =
            escapes::run_attempt(attempt, &surface, &EscapeTestbed::new(base.path()))
        {
            wrong.push(cause);
        }
    }
    assert!(made > 10, "{made} attempts");
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}
