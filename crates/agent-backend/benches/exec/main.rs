//! Speed of commands, beside the same program started without us.
//!
//! Ours and the peer take turns inside a round; what counts is the median of the ratios of the
//! rounds. One thread drives. `cargo xtask bench exec` runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends at the first thing that is not as it must be"
)]

#[path = "../core/measure.rs"]
mod measure;
mod output;
mod peers;
mod starts;

use agent_backend::{
    Backend, CommandShell, Isolation, LocalExecSettings, LocalWorkspaceConfig, OutputSpoolLimits,
};

fn main() {
    println!("bench exec: median of {} rounds", measure::ROUNDS);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("kernel {}, {}\n", kernel.trim(), peers::bwrap_version());
    on_one_thread(output::run());
    on_one_thread(starts::run());
}

/// Drives from one worker thread; what blocks has threads of its own.
fn on_one_thread(part: impl Future<Output = ()> + Send + 'static) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async { tokio::spawn(part).await.unwrap() });
    println!();
}

/// A workspace whose commands run by `sh`, as the peers' do.
fn workspace(isolation: Isolation) -> (tempfile::TempDir, Backend) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = LocalWorkspaceConfig::new(directory.path());
    config.options.exec =
        LocalExecSettings { isolation, shell: CommandShell::Sh, ..LocalExecSettings::default() };
    config.options.exec.output_spool = OutputSpoolLimits { memory_bytes: 8 << 20, disk_bytes: 0 };
    (directory, agent_backend::local_with(config).unwrap())
}
