//! `bench`: the benchmarks whose figures the documentation may state.

use crate::debian;
use crate::failure::Failure;
use crate::sequence::Sequence;
use crate::step::Step;
use crate::workspace;

/// A part of the system that is measured by one benchmark program.
#[derive(Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) name: &'static str,
    package: &'static str,
    bench: &'static str,
    peers: &'static [Peer],
}

/// A program that we are measured beside. One that cannot be had is left out, and the benchmark
/// says so.
#[derive(Debug, PartialEq)]
pub(crate) enum Peer {
    Debian(debian::Package),
    /// Name and version of a package for node.
    Npm(&'static str),
}

pub(crate) const AREAS: &[Area] = &[
    Area {
        name: "core",
        package: "agent-backend",
        bench: "core",
        peers: &[
            Peer::Debian(debian::Package::peer("ripgrep", "rg")),
            Peer::Npm("@modelcontextprotocol/server-filesystem@2026.8.31"),
        ],
    },
    Area {
        name: "exec",
        package: "agent-backend",
        bench: "exec",
        peers: &[Peer::Debian(debian::Package::peer("bubblewrap", "bwrap"))],
    },
    Area { name: "policy", package: "ab-policy", bench: "policy", peers: &[] },
];

pub(crate) fn run(areas: &[&Area]) -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    for area in areas {
        let peers = workspace::target_directory()?.join("peers");
        install(area, &peers.to_string_lossy());
        let step = step(area).env("AB_PEERS", peers.to_string_lossy());
        sequence.run(&step)?;
    }
    Ok(())
}

/// Installs the peers that are missing, as far as that is possible here.
fn install(area: &Area, folder: &str) {
    for peer in area.peers {
        let installed = match peer {
            Peer::Debian(package) => debian::install_one(package),
            Peer::Npm(package) => npm(folder, package),
        };
        if let Err(obstacle) = installed {
            eprintln!("peers: going on without {peer:?}: {obstacle}");
        }
    }
}

fn npm(folder: &str, package: &str) -> Result<(), String> {
    let arguments = ["install", "--no-fund", "--no-audit", "--prefix", folder, package];
    let step = Step::new("peers", "npm", &arguments);
    let ending = step.run().map_err(|error| format!("{error:#}"))?;
    match ending.status.success() {
        true => Ok(()),
        false => Err(format!("`{}` ended with {}", step.command_line(), ending.status)),
    }
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
