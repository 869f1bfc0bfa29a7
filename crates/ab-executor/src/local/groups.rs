//! The control group of a session with its limits. If the host supports no control groups, the
//! session gets a note.

use ab_api::{EnforcedLimits, RequestedLimits, Session, SessionEndReason};
use ab_host::{ControlGroup, ControlGroupLimits};

use super::{ExecutorSettings, failed};
use crate::contract::ExecutorError;

const MIB: u64 = 1024 * 1024;

/// A session's control group, if the host supports one.
pub(super) struct MadeGroup {
    pub(super) group: Option<ControlGroup>,
    /// A note for the session's user about limits that cannot be enforced.
    pub(super) note: Option<String>,
}

/// Creates the control group of a session. If default limits cannot be enforced, the result
/// contains a note. Fails if limits that the task requests cannot be enforced.
pub(super) async fn make(
    settings: &ExecutorSettings,
    session: &Session,
) -> Result<MadeGroup, ExecutorError> {
    let asked = session.runtime.resources;
    let error = match ControlGroup::create(limits(settings.session_limits, asked)).await {
        Ok(group) => return Ok(MadeGroup { group: Some(group), note: None }),
        Err(error) => error,
    };
    if asked.is_some() {
        let detail = format!("runtime.resources: cannot be enforced: {error}");
        return Err(failed(SessionEndReason::Launch, detail));
    }
    let note = Some(format!("Memory and processes of this session are not limited: {error}"));
    // A group without limits can still end and freeze all processes at once.
    let group = ControlGroup::create(ControlGroupLimits::default()).await.ok();
    Ok(MadeGroup { group, note })
}

/// Whether the host supports every limit that a task can name.
pub(super) async fn enforces() -> bool {
    let all = ControlGroupLimits {
        cpu_millis: Some(1000),
        ..ControlGroupLimits::default_for_this_host()
    };
    ControlGroup::create(all).await.is_ok()
}

/// Converts the limits of a group to the form that clients see.
pub(super) fn shown(group: Option<&ControlGroup>) -> EnforcedLimits {
    let limits = group.map(ControlGroup::limits).unwrap_or_default();
    EnforcedLimits {
        cpu: limits.cpu_millis.map(|millis| millis as f64 / 1000.0),
        memory_mib: limits.memory.map(|bytes| bytes / MIB),
        processes: limits.processes,
    }
}

fn limits(defaults: ControlGroupLimits, asked: Option<RequestedLimits>) -> ControlGroupLimits {
    let RequestedLimits { cpu, memory_mib } = asked.unwrap_or_default();
    ControlGroupLimits {
        memory: memory_mib.map(|mib| mib.saturating_mul(MIB)).or(defaults.memory),
        // The number is positive, because the task was checked before.
        cpu_millis: cpu.map(|cpu| (cpu * 1000.0).round() as u64).or(defaults.cpu_millis),
        processes: defaults.processes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_task_replace_the_defaults() {
        let defaults =
            ControlGroupLimits { memory: Some(1024 * MIB), processes: Some(99), cpu_millis: None };
        assert_eq!(limits(defaults, None), defaults);
        let asked = RequestedLimits { cpu: Some(1.5), memory_mib: Some(64) };
        let expect = ControlGroupLimits {
            memory: Some(64 * MIB),
            processes: Some(99),
            cpu_millis: Some(1500),
        };
        assert_eq!(limits(defaults, Some(asked)), expect);
        assert_eq!(shown(None), EnforcedLimits::default());
    }
}
