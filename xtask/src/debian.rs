//! The Debian packages that the product and its tests need, and their installation where we are
//! root.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::step::Step;

/// What it means for a run if a package is missing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Need {
    /// The tests cannot run without it.
    Required,
    /// Without the package, a weaker sandbox is used, or the tests that need the package are
    /// skipped. Both are reported.
    Optional,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Package {
    name: &'static str,
    /// The package counts as installed if this program exists.
    program: &'static str,
    /// Arguments with which the program must succeed. Empty if it is enough that the program
    /// exists.
    proof: &'static [&'static str],
    why: &'static str,
    need: Need,
}

impl Package {
    const fn new(name: &'static str, program: &'static str, why: &'static str) -> Self {
        Self { name, program, proof: &[], why, need: Need::Optional }
    }

    const fn required(self) -> Self {
        Self { need: Need::Required, ..self }
    }

    /// A program that tests or benchmarks use for comparison.
    pub(crate) const fn peer(name: &'static str, program: &'static str) -> Self {
        Self::new(name, program, "it is run beside ours")
    }

    /// The package counts as present only when its program succeeds with these arguments.
    pub(crate) const fn proven_by(self, proof: &'static [&'static str]) -> Self {
        Self { proof, ..self }
    }

    fn is_there(&self) -> bool {
        let proven = || Command::new(self.program).args(self.proof).output();
        has_program(self.program)
            && (self.proof.is_empty() || proven().is_ok_and(|output| output.status.success()))
    }
}

/// The packages that the product uses.
const PRODUCT: &[Package] = &[
    Package::new(
        "bubblewrap",
        "bwrap",
        "it is the strongest sandbox for commands; without it Landlock is used",
    ),
    Package::new("git", "git", "sessions get their repositories and deliver their changes by it"),
];

/// The further packages that the tests use.
const TESTS: &[Package] = &[
    Package::new(
        "sudo",
        "sudo",
        "attempts to get out of sandboxes go through it; without it they go through su",
    ),
    Package::new("util-linux", "unshare", "tests that mount run in a mount namespace of their own")
        .required(),
    Package::new(
        "openssh-client",
        "ssh-keygen",
        "its `ssh`, `sftp` and `scp` are what our SSH server is tried with",
    )
    .required(),
    Package::new(
        "openssh-server",
        "sshd",
        "our client reaches it as a server that has no extensions of ours",
    ),
    Package::new("openssl", "openssl", "it makes the password of a user of OpenSSH's server"),
    Package::new("rsync", "rsync", "it is run over our SSH server, both ways"),
    Package::new("sshfs", "sshfs", "a workspace is mounted by it"),
    Package::new("chromium", "chromium", "the web page is tried in it"),
    Package::new("curl", "curl", "commands use it inside sandboxes"),
    Package::new("make", "make", "commands use it inside sandboxes"),
    Package::new("procps", "ps", "commands and tests list processes with it"),
    Package::new("perl", "perl", "attempts to reach sockets of the host are written in it"),
    Package::new("python3", "python3", "attempts to get out of sandboxes are written in it"),
    Package::new("python3-venv", "python3", "commands make virtual environments in sandboxes")
        .proven_by(&["-c", "import ensurepip, venv"]),
];

/// Installs the packages of the product, or prints what is missing. Continues with a weaker
/// sandbox.
pub(crate) fn install_for_product() -> Result<(), Failure> {
    install_missing(&[PRODUCT])
}

/// Installs the packages of the product and its tests.
pub(crate) fn install_for_tests() -> Result<(), Failure> {
    install_missing(&[PRODUCT, TESTS])
}

fn install_missing(lists: &[&'static [Package]]) -> Result<(), Failure> {
    let missing = missing(lists, Package::is_there);
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
    settle(&self::missing(lists, Package::is_there))
}

/// Installs one package unless it is already installed.
pub(crate) fn install_one(package: &Package) -> Result<(), String> {
    if package.is_there() {
        Ok(())
    } else {
        install(&[package])
            .map_err(|obstacle| format!("package {} is missing: {obstacle}", package.name))
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

/// Decides whether the run can continue without the missing packages.
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
    lists: &[&'static [Package]],
    is_there: impl Fn(&Package) -> bool,
) -> Vec<&'static Package> {
    lists.iter().copied().flatten().filter(|package| !is_there(package)).collect()
}

/// Whether `program` exists. The system directories are searched even if `PATH` does not contain
/// them.
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

    const ALL: &[&[Package]] = &[PRODUCT, TESTS];

    #[test]
    fn a_package_is_missing_without_its_program() {
        let found = missing(ALL, |package| package.program != "bwrap");
        assert_eq!(found.iter().map(|package| package.name).collect::<Vec<_>>(), ["bubblewrap"]);
        assert!(missing(ALL, |_| true).is_empty());
    }

    #[test]
    fn optional_packages_do_not_stop_the_run() {
        let of = |need| missing(ALL, |package| package.need != need);
        assert!(settle(&of(Need::Optional)).is_ok());
        let failure = settle(&of(Need::Required)).unwrap_err();
        assert!(failure.to_string().contains("util-linux"), "{failure}");
    }

    #[test]
    fn the_product_gets_on_without_its_packages() {
        assert!(settle(&missing(&[PRODUCT], |_| false)).is_ok());
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
