//! The limits that the kernel enforces for each process of a command.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::visible_files::VisibleFiles;
use crate::limits::cgroup::Wanted;
use crate::process::child::Rlimit;

/// Maximum value of a CPU limit. The kernel counts CPU time in nanoseconds, so a longer limit would
/// overflow and become a short one.
const LONGEST_CPU: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The time in seconds between SIGXCPU, which the kernel sends at the CPU limit, and SIGKILL. If both
/// had the same limit, the kernel would send SIGKILL at once, which does not tell the reason.
const CPU_GRACE: u64 = 1;

pub(super) fn rlimits(visible_files: &VisibleFiles) -> Vec<Rlimit> {
    let limits = &visible_files.limits;
    // The kernel refuses a limit that is higher than that of this process.
    let most = |resource| getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let open_files = limits.open_files.map(|files| files.min(most(Resource::Nofile)));
    // If no control group enforces these limits, they apply to each process separately.
    let Wanted { memory, processes } = visible_files.grouped;
    let fixed = [
        (libc::RLIMIT_CORE, Some(0)),
        (libc::RLIMIT_FSIZE, limits.file_size),
        (libc::RLIMIT_NOFILE, open_files),
        (libc::RLIMIT_DATA, limits.memory.filter(|_| memory.is_none())),
        (libc::RLIMIT_NPROC, limits.processes.filter(|_| processes.is_none())),
    ];
    let fixed = fixed
        .into_iter()
        .filter_map(|(resource, value)| Some(Rlimit { resource, soft: value?, hard: value? }));
    let cpu = limits.cpu.map(|time| {
        let soft = whole_seconds(time.min(LONGEST_CPU));
        let hard = (soft + CPU_GRACE).min(most(Resource::Cpu).max(soft));
        Rlimit { resource: libc::RLIMIT_CPU, soft, hard }
    });
    fixed.chain(cpu).collect()
}

/// Rounds up to whole seconds.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
