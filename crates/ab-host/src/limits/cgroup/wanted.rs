//! The limits of a command, and the control group files that set them.

use std::io;

use super::ControlGroupLimits;
use super::directory::{Directory, Version};
use crate::host_features::Lack;

/// The highest limit on processes that the kernel accepts, which is its maximum number of process
/// ids.
const MOST_PROCESSES: u64 = 4 * 1024 * 1024;

/// The limits of one command, each for all its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Maximum number of bytes of memory, including swap.
    pub(crate) memory: Option<u64>,
    /// Maximum number of processes and threads at the same time.
    pub(crate) processes: Option<u64>,
}

impl Wanted {
    pub(super) fn limits(&self) -> Vec<Limit> {
        let memory = self.memory.map(Limit::Memory);
        memory.into_iter().chain(self.processes.map(Limit::Processes)).collect()
    }
}

/// Returns the limits of a workspace as a list.
pub(super) fn total(limits: &ControlGroupLimits) -> Vec<Limit> {
    let ControlGroupLimits { memory, processes, cpu_millis } = *limits;
    let mut all = Wanted { memory, processes }.limits();
    all.extend(cpu_millis.map(Limit::Cpu));
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Memory(u64),
    Processes(u64),
    /// Processor time, in thousandths of one processor.
    Cpu(u64),
}

/// The period, in microseconds, to which a share of processor time refers, and the smallest share
/// that the kernel accepts.
const CPU_PERIOD: u64 = 100_000;
const LEAST_CPU: u64 = 1_000;

impl Limit {
    pub(super) fn controller(self) -> &'static str {
        match self {
            Limit::Memory(_) => "memory",
            Limit::Processes(_) => "pids",
            Limit::Cpu(_) => "cpu",
        }
    }

    pub(super) fn set(self, group: &Directory) -> io::Result<()> {
        match (self, group.version) {
            (Limit::Memory(bytes), Version::First) => {
                let bytes = bytes.to_string();
                group.write("memory.limit_in_bytes", &bytes)?;
                // The limit that includes swap must be set second, because the kernel does not
                // accept a limit with swap that is lower than the limit without swap.
                group.write_if_there("memory.memsw.limit_in_bytes", &bytes)
            }
            (Limit::Memory(bytes), Version::Second) => {
                group.write("memory.max", &bytes.to_string())?;
                group.write_if_there("memory.swap.max", "0")
            }
            (Limit::Processes(count), _) => {
                group.write("pids.max", &count.min(MOST_PROCESSES).to_string())
            }
            (Limit::Cpu(millis), version) => {
                let quota = millis.saturating_mul(CPU_PERIOD / 1000).max(LEAST_CPU);
                match version {
                    Version::First => {
                        group.write("cpu.cfs_period_us", &CPU_PERIOD.to_string())?;
                        group.write("cpu.cfs_quota_us", &quota.to_string())
                    }
                    Version::Second => group.write("cpu.max", &format!("{quota} {CPU_PERIOD}")),
                }
            }
        }
    }

    /// Adds the limit that cannot be set to the cause of `lack`.
    pub(super) fn lacking(self, lack: &Lack) -> Lack {
        let what = match self {
            Limit::Memory(bytes) => format!("the memory limit of {bytes} bytes"),
            Limit::Processes(count) => format!("the limit of {count} processes"),
            Limit::Cpu(millis) => format!("the limit of {millis} thousandths of a processor"),
        };
        Lack::new(format!("cannot set {what}: {}", lack.cause), lack.remedy.clone())
    }
}
