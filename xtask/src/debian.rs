//! The Debian packages that tests need, installed where that is ours to do.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::step::Step;

/// What the tests lose without a package.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Need {
    /// Nothing can be said about the tests without it.
    Required,
    /// Only the tests that use it, and they say so themselves.
    Optional,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Package {
    name: &'static str,
    /// Present when this program is.
    program: &'static str,
    /// Arguments with which the program has to succeed as well; none where its being there is enough.
    proof: &'static [&'static str],
    why: &'static str,
    need: Need,
}

impl Package {
    /// A program that tests or benchmarks run beside ours.
    pub(crate) const fn peer(name: &'static str, program: &'static str) -> Self {
        Self { name, program, proof: &[], why: "it is run beside ours", need: Need::Optional }
    }

    /// Which is there only when its program does this.
    pub(crate) const fn proven_by(self, proof: &'static [&'static str]) -> Self {
        Self { proof, ..self }
    }

    fn is_there(&self) -> bool {
        let proven = || Command::new(self.program).args(self.proof).output();
        has_program(self.program)
            && (self.proof.is_empty() || proven().is_ok_and(|output| output.status.success()))
    }
}

const PACKAGES: &[Package] = &[
    Package {
        name: "bubblewrap",
        program: "bwrap",
        proof: &[],
        why: "`doctor` probes it; it is the sandbox of choice on Linux",
        need: Need::Optional,
    },
    Package {
        name: "sudo",
        program: "sudo",
        proof: &[],
        why: "attempts to get out of sandboxes go through it; without it they go through su",
        need: Need::Optional,
    },
    Package {
        name: "util-linux",
        program: "unshare",
        proof: &[],
        why: "tests that mount run in a mount namespace of their own",
        need: Need::Required,
    },
    Package {
        name: "openssh-client",
        program: "ssh-keygen",
        proof: &[],
        why: "its `ssh`, `sftp` and `scp` are what our SSH server is tried with",
        need: Need::Required,
    },
    Package {
        name: "openssh-server",
        program: "sshd",
        proof: &[],
        why: "our client reaches it as a server that has no extensions of ours",
        need: Need::Optional,
    },
    Package {
        name: "rsync",
        program: "rsync",
        proof: &[],
        why: "it is run over our SSH server, both ways",
        need: Need::Optional,
    },
    Package {
        name: "sshfs",
        program: "sshfs",
        proof: &[],
        why: "a workspace is mounted by it",
        need: Need::Optional,
    },
];

/// Makes sure that the packages are there, or says which are not.
pub(crate) fn install_missing() -> Result<(), Failure> {
    let missing = missing(PACKAGES, Package::is_there);
    if missing.is_empty() {
        eprintln!("packages: nothing is missing");
        return Ok(());
    }
    for package in &missing {
        eprintln!("packages: {} is missing: {}", package.name, package.why);
    }
    if let Err(obstacle) = install(&missing) {
        let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
        eprintln!("packages: {obstacle}");
        eprintln!("packages: as root, run: apt-get install {}", names.join(" "));
    }
    settle(&self::missing(PACKAGES, Package::is_there))
}

/// Installs one package unless it is there.
pub(crate) fn install_one(package: &Package) -> Result<(), String> {
    match package.is_there() {
        true => Ok(()),
        false => install(&[package])
            .map_err(|obstacle| format!("package {} is missing: {obstacle}", package.name)),
    }
}

fn install(packages: &[&Package]) -> Result<(), String> {
    if !has_program("apt-get") {
        return Err("there is no apt-get here to install it with".to_owned());
    }
    if !is_root() {
        return Err("only root may install it".to_owned());
    }
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages.iter().map(|package| package.name));
    for step in [
        Step::new("packages", "apt-get", &["update"]),
        Step::new("packages", "apt-get", &arguments).env("DEBIAN_FRONTEND", "noninteractive"),
    ] {
        let ending = step.run().map_err(|error| format!("{error:#}"))?;
        if !ending.status.success() {
            return Err(format!("`{}` ended with {}", step.command_line(), ending.status));
        }
    }
    Ok(())
}

/// Decides what the packages that are still missing mean for the run.
fn settle(missing: &[&Package]) -> Result<(), Failure> {
    for package in missing {
        match package.need {
            Need::Required => {
                return Err(Failure::new(format!(
                    "install package {}: no program {} afterwards",
                    package.name, package.program
                )));
            }
            Need::Optional => eprintln!("packages: going on without {}", package.name),
        }
    }
    Ok(())
}

fn missing(
    packages: &'static [Package],
    is_there: impl Fn(&Package) -> bool,
) -> Vec<&'static Package> {
    packages.iter().filter(|package| !is_there(package)).collect()
}

/// Whether `program` is to be found; the system directories count even where `PATH` lacks them.
fn has_program(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(Into::into))
        .any(|directory| Path::new(&directory).join(program).is_file())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lacks_its_program_is_missing() {
        let found = missing(PACKAGES, |package| package.program != "bwrap");
        assert_eq!(found.iter().map(|package| package.name).collect::<Vec<_>>(), ["bubblewrap"]);
        assert!(missing(PACKAGES, |_| true).is_empty());
    }

    #[test]
    fn optional_packages_do_not_stop_the_run() {
        let of = |need| PACKAGES.iter().filter(|package| package.need == need).collect::<Vec<_>>();
        assert!(settle(&of(Need::Optional)).is_ok());
        let failure = settle(&of(Need::Required)).unwrap_err();
        assert!(failure.to_string().contains("util-linux"), "{failure}");
    }

    #[cfg(unix)]
    #[test]
    fn programs_are_found_in_the_path() {
        assert!(has_program("sh"));
        assert!(!has_program("no-such-program-here"));
        let shell = |proof| Package::peer("dash", "sh").proven_by(proof).is_there();
        assert!(shell(&[]) && shell(&["-c", "true"]) && !shell(&["-c", "false"]));
    }
}
