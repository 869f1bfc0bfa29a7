//! Limits the number of concurrent commands in a workspace, for all callers together.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::call::{Call, CallOutcome, Verb};
use crate::effective_policy::EffectivePolicyControl;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::guard::{Guard, GuardDecision, RefusedPath};

/// A guard that refuses a command if too many commands are running. A detached command counts until
/// it ends.
#[derive(Debug)]
pub struct ConcurrentCommandLimit {
    most: usize,
    running: AtomicUsize,
}

impl ConcurrentCommandLimit {
    /// Allows at most `max` concurrent commands.
    pub fn new(max: usize) -> Self {
        Self { most: max, running: AtomicUsize::new(0) }
    }

    /// The number of commands that are currently running.
    pub fn running_count(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    fn start(&self, call: &Call<'_>) -> Result<()> {
        let more = |running: usize| (running < self.most).then_some(running + 1);
        match self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(too_many_commands_error(
                self.most,
                "workspace",
                call.command.unwrap_or_default(),
            )),
        }
    }
}

/// The error for a command that exceeds the limit.
pub fn too_many_commands_error(max: usize, owner: &str, command: &str) -> Error {
    let message = format!("{max} commands of this {owner} already run, which is the limit");
    Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message)
        .with_verb(Verb::Exec)
        .with_command(command)
        .with_hint("wait until one of them has ended, or end one of them")
}

impl Guard for ConcurrentCommandLimit {
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a> {
        match call.verb {
            Verb::Exec => GuardDecision::Ready(self.start(call)),
            _ => GuardDecision::ALLOW,
        }
    }

    fn check_file_size(&self, _call: &Call<'_>, _size: u64) -> Result<()> {
        Ok(())
    }

    fn on_refused_path(&self, _refusal: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<EffectivePolicyControl> {
        None
    }

    fn after_call(&self, call: &Call<'_>, _outcome: &CallOutcome<'_>) {
        if call.verb == Verb::Exec {
            self.running.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::{Actor, CallResult};

    #[test]
    fn a_command_has_room_again_once_another_has_ended() {
        let limit = ConcurrentCommandLimit::new(2);
        let actor = Actor::default();
        let exec = Call { command: Some("make"), ..Call::new(&actor, Verb::Exec) };
        let enters = |call: &Call<'_>| match limit.before_call(call) {
            GuardDecision::Ready(answer) => answer,
            GuardDecision::Pending(_) => panic!("it never waits"),
        };
        assert!(enters(&exec).is_ok() && enters(&exec).is_ok());
        let refused = enters(&exec).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(refused.to_string().contains("2 commands of this workspace"), "{refused}");
        let read = Call::new(&actor, Verb::Read);
        assert!(enters(&read).is_ok());
        let outcome = CallOutcome {
            result: CallResult::Succeeded,
            bytes: 0,
            duration: Duration::ZERO,
            exit: None,
        };
        limit.after_call(&read, &outcome);
        assert_eq!(limit.running_count(), 2);
        limit.after_call(&exec, &outcome);
        assert!(enters(&exec).is_ok());
    }
}
