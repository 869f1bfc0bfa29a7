//! `up`: builds the product and shows it at work.

mod tour;

use crate::failure::{Failure, exit_code};
use crate::sequence::Sequence;
use crate::step::Step;
use crate::workspace;

pub(crate) fn run() -> Result<(), Failure> {
    let build = ["build", "--release", "-p", "ab-cli", "--bin", "agent-backend"];
    Sequence::default().run(&Step::cargo("build", &build))?;
    let binary = workspace::release_binary("agent-backend")?;

    // A host that lacks something is no reason to withhold the tour.
    let ending = Step::new("doctor", &binary, &["doctor"]).run()?;
    if !ending.status.success() {
        eprintln!("doctor ended with exit code {}; see above", exit_code(ending.status));
    }

    tour::walk(&binary)?;

    println!();
    println!("That was the tour. Next:");
    println!("  {} help", binary.display());
    println!("  README.md           a first program with the library");
    println!("  cargo xtask check   the short loop while you change something");
    println!("  cargo xtask test    everything CI runs");
    Ok(())
}
