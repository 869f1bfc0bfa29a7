//! Speed of a [`Backend`](agent_backend::Backend), beside what a program without it would do.
//!
//! Ours and the peer take turns inside a round; what counts is the median of the ratios of the
//! rounds. One thread drives. `cargo xtask bench core` installs the peers and runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends at the first thing that is not as it must be"
)]

mod files;
mod measure;
mod overlay;
mod search;
mod tree;

fn main() {
    println!("bench core: median of {} rounds", measure::ROUNDS);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("kernel {}\n", kernel.trim());
    on_one_thread(files::run());
    on_one_thread(search::run());
    on_one_thread(tree::run());
    on_one_thread(overlay::run());
}

/// Drives from one worker thread; what blocks has threads of its own.
fn on_one_thread(part: impl Future<Output = ()> + Send + 'static) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async { tokio::spawn(part).await.unwrap() });
    println!();
}
