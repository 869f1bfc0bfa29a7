//! `peers`: the programs of others, for a test that is run by hand.

use crate::failure::Failure;
use crate::peers;

pub(crate) fn run() -> Result<(), Failure> {
    println!("{}={}", peers::PEERS, peers::install()?.display());
    Ok(())
}
