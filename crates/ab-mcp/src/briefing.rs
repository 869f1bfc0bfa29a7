//! Describes to a model how commands are isolated, according to the effective policy. The text is
//! part of the description of the tool `exec`. Advice is also added to the answer if a command
//! failed because its sandbox lacks something.

use std::sync::Arc;

use ab_core::effective_policy::{EffectivePolicy, Isolation, PolicyControlKind};
use ab_core::process::ProcessExit;
use ab_core::{Backend, Error};
use tokio::sync::OnceCell;

use crate::bounds::{DEFAULT_EXEC_TIMEOUT, MAX_EXEC_TIMEOUT};

/// The effective policy for commands. It is determined only once, with the first call, because this
/// requires tests. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct InForce(Arc<OnceCell<EffectivePolicy>>);

impl InForce {
    pub(crate) async fn of(&self, backend: &Backend) -> Result<&EffectivePolicy, Error> {
        self.0.get_or_try_init(|| backend.effective_policy()).await
    }

    /// The description of `exec` for the workspace of `backend`.
    pub(crate) async fn description(&self, backend: &Backend) -> String {
        let root = backend.info().root_aliases.into_iter().next();
        let root = root.unwrap_or_else(|| ".".to_owned());
        match self.of(backend).await {
            Ok(policy) => described(&root, policy),
            Err(error) => format!(
                "{} The isolation of commands is unknown: {}",
                common(&root, None),
                error.message()
            ),
        }
    }
}

fn described(root: &str, policy: &EffectivePolicy) -> String {
    let shell = policy.control(PolicyControlKind::Shell).map(|control| control.in_force.as_str());
    let files = match policy.isolation {
        Some(Isolation::Bwrap) => {
            "It runs in a sandbox (bwrap): only the workspace and /tmp can be written. The system is \
             read-only, so apt and other system installs fail; install into the workspace instead \
             (python3 -m venv, npm install). /tmp is private to this workspace."
        }
        Some(Isolation::Landlock) => {
            "It runs in a sandbox (Landlock): only the workspace and the directory that TMPDIR names \
             can be written; /tmp itself is closed, and so is /dev/shm: POSIX semaphores and what uses \
             them, such as Python's multiprocessing.Pool, fail with a PermissionError. The system is \
             read-only, so apt and other system installs fail; install into the workspace instead \
             (python3 -m venv, npm install)."
        }
        Some(Isolation::Software) => {
            "There is no sandbox, but commands that name paths outside the workspace, including /tmp, are refused."
        }
        Some(Isolation::None | Isolation::Auto) | None => {
            "There is no sandbox: a command can do everything that the user of the server can, also outside the workspace."
        }
    };
    let network = match policy.control(PolicyControlKind::Network) {
        Some(control) => format!(" Network: {}.", control.in_force),
        None => String::new(),
    };
    format!("{} {files}{network}", common(root, shell))
}

/// The sentences of the description that are the same for every isolation.
fn common(root: &str, shell: Option<&str>) -> String {
    let shell = match shell {
        Some(shell) => format!("{shell} reads the line. "),
        None => String::new(),
    };
    format!(
        "Run a shell command and wait for it. {shell}It starts in the workspace, {root}, or in cwd; \
         HOME is that directory. Nothing carries over to the next call: not the directory, not \
         variables, not processes started with & or nohup. Standard input is empty. It is ended after \
         {} s: pass timeout for up to {} s, but many clients give up after 60 s. For servers, watchers \
         and long work pass background: true: exec then returns the id that the process tools need; \
         with pty: true the process has a terminal.",
        DEFAULT_EXEC_TIMEOUT.as_secs(),
        MAX_EXEC_TIMEOUT.as_secs(),
    )
}

/// The output of a command.
pub(crate) struct Printed<'a> {
    pub(crate) stdout: &'a str,
    pub(crate) stderr: &'a str,
}

/// Something that a command needed and its sandbox lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    Program,
    /// Write access to system directories, which package managers need.
    System,
}

/// Texts that occur in error messages of system package managers.
const PACKAGES: [&str; 10] = [
    "/var/lib/dpkg",
    "/var/lib/apt",
    "/var/cache/apt",
    "/var/cache/debconf",
    "dpkg: error",
    "/lib/apk",
    "apk database",
    "/var/cache/dnf",
    "/var/lib/rpm",
    "/var/lib/pacman",
];
const REFUSED: [&str; 8] = [
    "Read-only file system",
    "Permission denied",
    "Operation not permitted",
    "is missing",
    "No such file or directory",
    "are you root",
    "superuser privilege",
    "must be run as root",
];

impl Lack {
    pub(crate) fn of(exit: &ProcessExit, printed: &Printed<'_>) -> Option<Lack> {
        let texts = [printed.stderr, printed.stdout];
        let says =
            |words: &[&str]| texts.iter().any(|text| words.iter().any(|word| text.contains(word)));
        if !exit.success() && says(&PACKAGES) && says(&REFUSED) {
            return Some(Lack::System);
        }
        let missing = printed.stderr.lines().any(|line| {
            let line = line.trim_end();
            let by_sh = line.ends_with(": not found") && line.contains("sh: ");
            line.ends_with(": command not found") || by_sh
        });
        (exit.code == Some(127) || missing).then_some(Lack::Program)
    }

    /// What the model can do about the missing feature. This depends on the isolation. `None` if
    /// there is no advice.
    pub(crate) fn advice(self, isolation: Option<Isolation>) -> Option<String> {
        let sandbox = match isolation? {
            Isolation::Bwrap => "the sandbox (bwrap)",
            Isolation::Landlock => "the sandbox (Landlock)",
            Isolation::Software | Isolation::None | Isolation::Auto => {
                return match self {
                    Lack::Program => Some(
                        "command not found: there is no such program on the PATH of commands. \
                         Install it into the workspace and call it by its path, or ask the user"
                            .to_owned(),
                    ),
                    Lack::System => None,
                };
            }
        };
        Some(match self {
            Lack::Program => format!(
                "command not found: in {sandbox} commands see the system's programs and those of \
                 known toolchains, read-only. Install it into the workspace (python3 -m venv, npm \
                 install) and call it by its path, or ask the user to install it on the host or to \
                 start the server with --toolchain"
            ),
            Lack::System => format!(
                "the system is read-only in {sandbox}: apt, dpkg and other system package managers \
                 cannot install anything. Install into the workspace (python3 -m venv, npm install), \
                 or ask the user to install the package on the host"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use ab_core::effective_policy::{EffectivePolicyControl, PolicyControlStrength};

    use super::*;

    fn policy(isolation: Isolation, network: &str) -> EffectivePolicy {
        let control = |subject, in_force: &str| EffectivePolicyControl {
            kind: subject,
            requested: String::new(),
            in_force: in_force.to_owned(),
            strength: PolicyControlStrength::Enforced,
            mechanism: String::new(),
            proof: None,
        };
        let controls = vec![
            control(PolicyControlKind::Network, network),
            control(PolicyControlKind::Shell, "/bin/bash"),
        ];
        EffectivePolicy { isolation: Some(isolation), controls }
    }

    #[test]
    fn the_description_states_what_is_in_force() {
        for (isolation, network, parts) in [
            (
                Isolation::Bwrap,
                "that of the host",
                ["sandbox (bwrap)", "read-only", "/tmp is private", "Network: that of the host."],
            ),
            (
                Isolation::Landlock,
                "no sockets",
                [
                    "sandbox (Landlock)",
                    "read-only",
                    "/tmp itself is closed",
                    "Network: no sockets.",
                ],
            ),
            (
                Isolation::Software,
                "that of the host",
                ["no sandbox", "outside the workspace", "including /tmp", "Network: "],
            ),
            (
                Isolation::None,
                "that of the host",
                [
                    "no sandbox",
                    "everything that the user of the server can",
                    "also outside",
                    "Network: ",
                ],
            ),
        ] {
            let text = described("/srv/work", &policy(isolation, network));
            let common =
                ["/bin/bash reads", "/srv/work", "HOME is", "Nothing carries over", "50 s"];
            for part in common.into_iter().chain(parts) {
                assert!(text.contains(part), "{part} not in {text}");
            }
        }
    }

    #[test]
    fn failures_for_want_of_programs_and_packages_are_recognised() {
        let exit = |code| ProcessExit { code: Some(code), ..ProcessExit::default() };
        let lock = "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (30: Read-only \
                    file system)\nE: Unable to acquire the dpkg frontend lock, are you root?";
        let lists = "E: List directory /var/lib/apt/lists/partial is missing. - Acquire (30: \
                     Read-only file system)";
        for (code, stderr, expect) in [
            (127, "", Some(Lack::Program)),
            (127, "bash: line 1: frob: command not found", Some(Lack::Program)),
            (0, "bash: line 1: frob: command not found", Some(Lack::Program)),
            (2, "sh: 1: frob: not found", Some(Lack::Program)),
            (2, "/bin/sh: 1: frob: not found\nmake: *** [all] Error 127", Some(Lack::Program)),
            (100, lock, Some(Lack::System)),
            (100, lists, Some(Lack::System)),
            (1, "error: page not found", None),
            (1, "cat: x: No such file or directory", None),
            (0, "fine", None),
        ] {
            let printed = Printed { stdout: "", stderr };
            assert_eq!(Lack::of(&exit(code), &printed), expect, "{code} {stderr}");
        }
    }

    #[test]
    fn advice_names_the_sandbox_that_is_in_force() {
        for (lack, isolation, parts) in [
            (Lack::Program, Isolation::Bwrap, ["sandbox (bwrap)", "--toolchain"]),
            (Lack::Program, Isolation::Landlock, ["sandbox (Landlock)", "workspace"]),
            (Lack::Program, Isolation::None, ["PATH", "workspace"]),
            (Lack::System, Isolation::Bwrap, ["read-only", "sandbox (bwrap)"]),
        ] {
            let advice = lack.advice(Some(isolation)).unwrap();
            assert!(parts.iter().all(|part| advice.contains(part)), "{advice}");
        }
        assert_eq!(Lack::System.advice(Some(Isolation::None)), None);
    }
}
