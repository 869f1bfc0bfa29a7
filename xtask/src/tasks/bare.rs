//! `bare`: runs the README's commands in a Debian root that has only cargo and a C compiler.
//!
//! debootstrap makes the root, without recommended packages. From this machine it gets only the
//! Rust toolchain, the resolver's settings and the trusted certificates. The sources are a clone of
//! the last commit. The command has to install everything else.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::debian::{self, Package};
use crate::failure::Failure;
use crate::sequence::Sequence;
use crate::step::Step;
use crate::workspace;

/// Enters the root in its own mount and process namespaces and runs a command.
const ENTER: &str = include_str!("bare/enter.sh");

/// The initial packages. Every C compiler comes with `libc6-dev`, and every registry needs the
/// certificates.
const CONTENT: &str = "--include=ca-certificates,gcc,libc6-dev";

/// Variables with this machine's registry and proxy settings, which the package clients use.
const PASSED_ON: &[&str] = &[
    "CI",
    "CURL_CA_BUNDLE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "TERM",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

const FILES: &[&str] = &["/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"];

/// Where the sources are inside the root.
const SOURCES: &str = "src/agent-backend";

/// The commands that stand for `up`. These variants end by themselves.
const UP: &str = "cargo xtask up --once; cargo xtask up --tour";

/// Runs `cargo xtask COMMAND` for each of `commands` in a fresh root.
pub(crate) fn run(commands: &[String]) -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    let bare = workspace::target_directory()?.join("bare");
    for tool in [Package::peer("debootstrap", "debootstrap"), Package::peer("git", "git")] {
        debian::install_one(&tool).map_err(Failure::new)?;
    }
    let base = bare.join("base");
    if !base.join("installed").exists() {
        sequence.time("debootstrap", || Ok(bootstrap(&base)?))?;
    }
    for command in commands {
        let root = bare.join("root");
        sequence.time("copy", || Ok(populate(&base, &root)?))?;
        sequence.run(&enter(&root, command)?)?;
    }
    println!("{}", sequence.report());
    Ok(())
}

fn bootstrap(base: &Path) -> Result<()> {
    remove(base)?;
    fs::create_dir_all(base).with_context(|| format!("create {}", base.display()))?;
    let release = fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("find VERSION_CODENAME in /etc/os-release")?;
    let directory = base.to_string_lossy();
    succeed("debootstrap", &["--variant=minbase", CONTENT, suite, &directory])?;
    fs::write(base.join("installed"), suite).context("write the stamp of the root")
}

/// Makes a copy of the base with this machine's registry settings and the sources.
fn populate(base: &Path, root: &Path) -> Result<()> {
    remove(root)?;
    succeed("cp", &["-a", &base.to_string_lossy(), &root.to_string_lossy()])?;
    for file in FILES {
        let inside = root.join(file.trim_start_matches('/'));
        fs::copy(file, &inside).with_context(|| format!("copy {file} to {}", inside.display()))?;
    }
    fs::create_dir_all(root.join("opt/rust")).context("create the toolchain's mount point")?;
    let sources = root.join(SOURCES);
    let from = workspace::root();
    succeed("git", &["clone", "--quiet", &from.to_string_lossy(), &sources.to_string_lossy()])
}

fn enter(root: &Path, command: &str) -> Result<Step> {
    let toolchain = toolchain()?;
    let mut variables: Vec<String> = Vec::new();
    for name in PASSED_ON {
        if let Ok(value) = env::var(name) {
            variables.push(format!("{name}={value}"));
        }
    }
    let (root, toolchain) = (root.to_string_lossy(), toolchain.to_string_lossy());
    let mut arguments = vec!["--mount", "--pid", "--fork", "--", "/bin/sh", "-ec", ENTER, "bare"];
    let script = if command == "up" { UP.to_owned() } else { format!("cargo xtask {command}") };
    arguments.extend([&*root, &*toolchain, SOURCES, &script]);
    arguments.extend(variables.iter().map(String::as_str));
    Ok(Step::new(&format!("bare {command}"), "unshare", &arguments))
}

/// The directory of the running toolchain itself, not of rustup's proxies.
fn toolchain() -> Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let output = output.context("ask rustc for its directory")?;
    ensure!(output.status.success(), "rustc --print sysroot ended with {}", output.status);
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

fn succeed(program: &str, arguments: &[&str]) -> Result<()> {
    let step = Step::new("bare", program, arguments);
    let ending = step.run()?;
    ensure!(ending.status.success(), "`{}` ended with {}", step.command_line(), ending.status);
    Ok(())
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("remove {}", directory.display()))?;
    }
    Ok(())
}
