//! `peers`: installs the third-party programs, for a test that is run by hand.

use crate::failure::Failure;
use crate::peers;

pub(crate) fn run() -> Result<(), Failure> {
    println!("{}={}", peers::PEERS, peers::install()?.display());
    Ok(())
}
