//! `bench`: the benchmarks whose numbers the documentation may quote.

use std::path::PathBuf;

use crate::debian;
use crate::failure::Failure;
use crate::peers::{self, PEERS};
use crate::sequence::Sequence;
use crate::step::Step;

/// A part of the system with its own benchmark program.
#[derive(Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) name: &'static str,
    package: &'static str,
    bench: &'static str,
    peers: &'static [Peer],
}

/// A program that ours is compared with. If it is not available, the benchmark skips it and says
/// so.
#[derive(Debug, PartialEq)]
pub(crate) enum Peer {
    Debian(debian::Package),
    /// The peers that `xtask/peers` pins.
    Pinned,
}

pub(crate) const AREAS: &[Area] = &[
    Area {
        name: "core",
        package: "agent-backend",
        bench: "core",
        peers: &[Peer::Debian(debian::Package::peer("ripgrep", "rg")), Peer::Pinned],
    },
    Area {
        name: "exec",
        package: "agent-backend",
        bench: "exec",
        peers: &[Peer::Debian(debian::Package::peer("bubblewrap", "bwrap"))],
    },
    Area {
        name: "mcp",
        package: "ab-cli",
        bench: "mcp",
        peers: &[Peer::Debian(debian::Package::peer("ripgrep", "rg")), Peer::Pinned],
    },
    Area {
        name: "remote",
        package: "ab-cli",
        bench: "remote",
        peers: &[
            Peer::Debian(debian::Package::peer("openssh-client", "sftp")),
            Peer::Debian(debian::Package::peer("openssh-server", "sshd")),
            Peer::Pinned,
        ],
    },
    Area { name: "acp", package: "ab-cli", bench: "acp", peers: &[Peer::Pinned] },
    Area {
        name: "control",
        package: "ab-cli",
        bench: "control",
        peers: &[Peer::Debian(debian::Package::peer("bubblewrap", "bwrap"))],
    },
    Area { name: "policy", package: "ab-policy", bench: "policy", peers: &[] },
    Area { name: "spaces", package: "ab-spaces", bench: "spaces", peers: &[] },
];

pub(crate) fn run(areas: &[&Area]) -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    for area in areas {
        let mut step = step(area);
        if let Some(peers) = install(area) {
            step = step.env(PEERS, peers.to_string_lossy());
        }
        sequence.run(&step)?;
    }
    Ok(())
}

/// Installs missing peers if possible, and returns where the pinned ones are.
fn install(area: &Area) -> Option<PathBuf> {
    let mut pinned = None;
    for peer in area.peers {
        let installed = match peer {
            Peer::Debian(package) => debian::install_one(package),
            Peer::Pinned => peers::install()
                .map(|directory| pinned = Some(directory))
                .map_err(|error| format!("{error:#}")),
        };
        if let Err(obstacle) = installed {
            eprintln!("peers: going on without {peer:?}: {obstacle}");
        }
    }
    pinned
}

fn step(area: &Area) -> Step {
    Step::cargo(area.name, &["bench", "--locked", "-p", area.package, "--bench", area.bench])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_one_benchmark() {
        assert_eq!(
            step(&AREAS[0]).command_line(),
            "cargo bench --locked -p agent-backend --bench core"
        );
    }
}
