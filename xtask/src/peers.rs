//! Third-party programs from their registries. They are installed once below the target directory,
//! and again only if the pins in `xtask/peers` or the interpreters change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::debian::{self, Package};
use crate::step::Step;
use crate::workspace;

/// The variable that tells tests and benchmarks where the peers are.
pub(crate) const PEERS: &str = "AB_PEERS";

/// Packages that are needed to use the registries.
const RUNTIMES: &[Package] = &[
    Package::peer("nodejs", "node"),
    Package::peer("npm", "npm"),
    Package::peer("python3", "python3"),
    Package::peer("python3-venv", "python3").proven_by(&["-c", "import ensurepip"]),
];

/// The name of a file that describes what is installed. It is written last, so that an unfinished
/// installation is not used.
const STAMP: &str = "installed";

/// Installs all peers that are missing and returns their directory.
pub(crate) fn install() -> Result<PathBuf> {
    for runtime in RUNTIMES {
        debian::install_one(runtime).map_err(anyhow::Error::msg)?;
    }
    let directory = workspace::target_directory()?.join("peers");
    npm(&directory.join("npm"))?;
    python(&directory.join("python"))?;
    Ok(directory)
}

fn npm(folder: &Path) -> Result<()> {
    let pins = [pinned("package.json")?, pinned("package-lock.json")?];
    // Native modules are built for one version of node.
    let wanted = format!("{}\n{}\n{}", version("node")?, pins[0], pins[1]);
    once(folder, &wanted, || {
        fs::write(folder.join("package.json"), &pins[0])?;
        fs::write(folder.join("package-lock.json"), &pins[1])?;
        let folder = folder.to_string_lossy();
        // Some peers need a newer node than the node of this machine. package.json includes a newer
        // node for them. `npm ci` would reject a lock file without the packages of other platforms.
        let quiet = ["--no-fund", "--no-audit", "--loglevel", "error"];
        obtain("npm", &[&["install", "--prefix", &folder], &quiet[..]].concat())
    })
}

fn python(folder: &Path) -> Result<()> {
    let wanted = format!("{}\n{}", version("python3")?, pinned("requirements.txt")?);
    once(folder, &wanted, || {
        run("python3", &["-m", "venv", &folder.to_string_lossy()])?;
        let pip = folder.join("bin/pip");
        let list = pins().join("requirements.txt");
        let quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"];
        let list = ["--requirement", &list.to_string_lossy()];
        obtain(&pip.to_string_lossy(), &[&["install"], &quiet[..], &list[..]].concat())
    })
}

/// Runs `fill` in an empty folder unless the folder already contains `wanted`.
fn once(folder: &Path, wanted: &str, fill: impl FnOnce() -> Result<()>) -> Result<()> {
    let stamp = folder.join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        eprintln!("peers: {} is as pinned", folder.display());
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    fill()?;
    fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))
}

/// Runs a program that downloads from a registry.
fn obtain(program: &str, arguments: &[&str]) -> Result<()> {
    run(program, arguments).context(
        "install the peers that xtask/peers pins; they come from the registries that npm and pip \
         are configured for on this machine, which have to be reachable",
    )
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let step = Step::new("peers", program, arguments);
    let ending = step.run()?;
    ensure!(ending.status.success(), "`{}` ended with {}", step.command_line(), ending.status);
    Ok(())
}

fn version(program: &str) -> Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("ask {program} for its version"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn pins() -> PathBuf {
    workspace::root().join("xtask/peers")
}

fn pinned(name: &str) -> Result<String> {
    let path = pins().join(name);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn every_pin_is_one_version() {
        let manifest: serde_json::Value =
            serde_json::from_str(&pinned("package.json").unwrap()).unwrap();
        for kind in ["dependencies", "optionalDependencies"] {
            for (name, version) in manifest[kind].as_object().unwrap() {
                let version = version.as_str().unwrap();
                assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{name} {version}");
            }
        }
        let list = pinned("requirements.txt").unwrap();
        for line in list.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.split_once("==").is_some_and(|(_, v)| !v.is_empty()), "{line}");
        }
    }

    #[test]
    fn what_is_there_is_not_installed_again() {
        let scratch = Scratch::new("xtask-peers").unwrap();
        let folder = scratch.path().join("npm");
        once(&folder, "1", || Ok(fs::write(folder.join("half"), "")?)).unwrap();
        once(&folder, "1", || panic!("it is there")).unwrap();
        let failed = once(&folder, "2", || anyhow::bail!("no network"));
        assert_eq!(failed.unwrap_err().to_string(), "no network");
        assert!(!folder.join("half").exists(), "another list begins with nothing");
        let mut again = false;
        let fill = || {
            again = true;
            Ok(())
        };
        once(&folder, "2", fill).unwrap();
        assert!(again, "half an installation is none");
    }

    #[test]
    fn a_registry_out_of_reach_is_told() {
        let error = obtain("false", &[]).unwrap_err();
        assert!(format!("{error:#}").contains("have to be reachable: `false`"), "{error:#}");
    }
}
