//! What each command of `cargo xtask` does: one module per command.

mod bare;
pub(crate) mod bench;
mod check;
mod dist;
pub(crate) mod fuzz;
mod peers;
mod race;
pub(crate) mod soak;
mod test;
pub(crate) mod up;

use crate::failure::Failure;
use crate::task::Task;

pub(crate) fn run(task: Task) -> Result<(), Failure> {
    match task {
        Task::Help => {
            println!("{}", Task::help());
            Ok(())
        }
        Task::Up { show } => up::run(show),
        Task::Test => test::run(),
        Task::Check => check::run(),
        Task::Bench { areas } => bench::run(&areas),
        Task::Fuzz { targets, seconds } => fuzz::run(&targets, seconds),
        Task::Race { rounds } => race::run(rounds),
        Task::Soak { subject, minutes } => soak::run(subject, minutes),
        Task::Bare { commands } => bare::run(&commands),
        Task::Dist => dist::run(),
        Task::Peers => peers::run(),
    }
}
