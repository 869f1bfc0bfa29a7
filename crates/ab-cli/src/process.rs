//! The life cycle of the process: starts the runtime, runs the command, and shuts down in order.
//!
//! After an interrupt the process no longer waits for the command. It only lets a write that has
//! begun finish, so that no half-written file is left.

use std::io;
use std::os::unix::net::UnixStream;
use std::panic;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::commands::CliCommand;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::{Terminal, talk};

/// How long running work may take to finish after an interrupt.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

pub(crate) fn run(command: Box<dyn CliCommand>) -> Exit {
    let mut terminal = Terminal::new(command.format());
    let runs_programs = command.runs_programs();
    match start_runtime() {
        Ok(runtime) => {
            let handles_signals = command.handles_signals();
            let exit = runtime.block_on(async {
                // Commands that handle signals themselves install their own handlers.
                let mut stopped = if handles_signals { Signals::none() } else { Signals::watch() };
                let work = tokio::spawn(command_to_exit(command, terminal));
                tokio::select! {
                    exit = ended(work) => exit,
                    exit = stopped.next() => exit,
                }
            });
            runtime.shutdown_timeout(GRACE);
            exit
        }
        Err(error) => {
            let failure = Failure::input("start the runtime", error)
                .with_hint(
                    "raise the limit of processes: ulimit -u, or pids.max of the control group",
                )
                .with_limit_hint();
            let failure = if runs_programs { failure.into_exec() } else { failure };
            terminal.tell(&failure);
            failure.exit()
        }
    }
}

/// Pairs of sockets that must be available for the runtime. It opens at most twice as many files.
const SOCKET_PAIRS: usize = 4;

/// Builds the runtime. First checks that the system can open all of its files and start all of its
/// threads.
///
/// # Errors
/// Fails if the system cannot open a file or start a thread. Without this check, Tokio panics or
/// hangs if it cannot open a socket or start a worker, and it queues blocking calls forever if it
/// cannot start a thread for them.
fn start_runtime() -> io::Result<Runtime> {
    let workers = threads();
    (0..SOCKET_PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>()?;
    start_and_end_threads(workers + 1)?;
    Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

/// Starts `count` threads that exist at the same time, and then ends them.
fn start_and_end_threads(count: usize) -> io::Result<()> {
    let lock = Mutex::new(());
    let held = lock.lock();
    thread::scope(|scope| {
        let wait = || drop(lock.lock());
        let started = (0..count)
            .try_for_each(|_| thread::Builder::new().spawn_scoped(scope, wait).map(|_| ()));
        drop(held);
        started
    })
}

/// The number of threads that serve callers: half of the number of processors, but at least 2 and
/// at most 8. The other half is left for commands. Files and commands have their own threads. SSH
/// connections use this number of threads again.
pub(crate) fn threads() -> usize {
    const FEWEST: usize = 2;
    const MOST: usize = 8;
    let half = thread::available_parallelism().map_or(1, |processors| processors.get() / 2);
    half.clamp(FEWEST, MOST)
}

/// Installs a panic hook that reports a bug in this program and asks the user to report it.
pub(crate) fn report_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| format!(" at {at}")).unwrap_or_default();
        let payload = info.payload();
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("unknown panic");
        talk(&format!(
            "error: internal error{place}: {message}\n\
             hint: this is a bug in agent-backend; please report it with the command you ran\n"
        ));
    }));
}

async fn command_to_exit(command: Box<dyn CliCommand>, mut terminal: Terminal) -> Exit {
    let ending = command.run(&mut terminal).await;
    // If the command failed, print the output that it wrote before.
    let failure = match (ending, terminal.finish()) {
        (Ok(()), Ok(())) => return Exit::Success,
        (Err(failure), _) | (Ok(()), Err(failure)) => failure,
    };
    let failure = failure.with_limit_hint();
    terminal.tell(&failure);
    failure.exit()
}

async fn ended(work: JoinHandle<Exit>) -> Exit {
    // A task without a result has panicked. The panic hook has already reported this.
    work.await.unwrap_or(Exit::Bug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_with_its_own_exit_code() {
        let work = tokio::spawn(async { panic!("on purpose") });
        assert_eq!(ended(work).await, Exit::Bug);
        assert_eq!(ended(tokio::spawn(async { Exit::Refused })).await, Exit::Refused);
    }
}
