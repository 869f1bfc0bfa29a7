//! Describes the policy that is in force for commands.

use ab_core::effective_policy::{
    EffectivePolicy, EffectivePolicyControl, Isolation, NetworkAccess, PolicyControlKind,
    PolicyControlStrength,
};

use ab_core::process::HostDirectoryAccess;

use super::private;
use super::probe::{ProbedIsolation, owns_devices};
use super::settings::LocalExecSettings;
use super::socket_overlays::SocketOverlays;
use crate::limits::cgroup::{Groups, Wanted};
use crate::process::watchdog;
use crate::sandbox::landlock;

pub(super) fn describe(
    settings: &LocalExecSettings,
    probed: &ProbedIsolation,
    overlays: &SocketOverlays,
) -> EffectivePolicy {
    let report = ControlReport { settings, probed, overlays };
    let mut controls = vec![
        report.files(),
        report.attributes(),
        report.restrictions(),
        report.network(),
        report.sockets(),
        report.processes(),
        report.orphans(),
        report.kernel(),
        report.environment(),
    ];
    controls.extend(report.limits());
    controls.push(report.shell());
    EffectivePolicy { isolation: Some(probed.isolation), controls }
}

/// Maximum number of mounts that the description names.
const MOST_MOUNTS: usize = 16;

/// Text that says what happens to the processes that a command starts.
const ENDS: &str = "all processes that a command starts end with it, and with agent-backend";
/// The name of the mechanism that limits all processes of a command together.
const GROUP: &str = "a control group";
const GROUP_AND_WATCHDOG: &str = "a control group, and a watchdog that outlives this process";
const BEST_EFFORT: &str = "best effort: agent-backend ends the process group of the command, and the \
                           processes that still carry its mark in their environment";

struct ControlReport<'a> {
    settings: &'a LocalExecSettings,
    probed: &'a ProbedIsolation,
    overlays: &'a SocketOverlays,
}

impl ControlReport<'_> {
    fn control(
        &self,
        subject: PolicyControlKind,
        asked: impl Into<String>,
        (strength, in_force, mechanism): (PolicyControlStrength, &str, &str),
    ) -> EffectivePolicyControl {
        let proof = match strength {
            PolicyControlStrength::Enforced => self.probed.proof.clone(),
            PolicyControlStrength::NotEnforced | PolicyControlStrength::Advisory => None,
        };
        EffectivePolicyControl {
            kind: subject,
            requested: asked.into(),
            in_force: in_force.to_owned(),
            strength,
            mechanism: mechanism.to_owned(),
            proof,
        }
    }

    fn isolation(&self) -> Isolation {
        self.probed.isolation
    }

    fn files(&self) -> EffectivePolicyControl {
        let asked = format!("isolation {}", self.settings.isolation);
        let given = match self.isolation() {
            Isolation::Bwrap => (
                PolicyControlStrength::Enforced,
                "commands can write to the workspace, a private /tmp and caches, and can read the \
                 system directories",
                "the mount namespace of bwrap",
            ),
            Isolation::Landlock => (
                PolicyControlStrength::Enforced,
                "commands can write to the workspace, a private TMPDIR and caches, and can read the \
                 system directories; /tmp and /dev/shm are closed, so shared memory and named \
                 semaphores do not work",
                "Landlock",
            ),
            Isolation::Software => (
                PolicyControlStrength::Advisory,
                "a command line that names a path outside the workspace is refused",
                "a check of the words of the command line",
            ),
            Isolation::None | Isolation::Auto => (
                PolicyControlStrength::NotEnforced,
                "commands can access every file that the user can",
                "none",
            ),
        };
        let mut control = self.control(PolicyControlKind::Files, asked, given);
        let walled = matches!(self.isolation(), Isolation::Bwrap | Isolation::Landlock);
        if let Some(cause) = private::unbounded().filter(|_| walled) {
            control
                .in_force
                .push_str(&format!("; the size of the private /tmp is not limited: {cause}"));
        }
        if walled {
            for mount in super::mounts::all(self.settings).iter().take(MOST_MOUNTS) {
                let access = match mount.access {
                    HostDirectoryAccess::ReadOnly => "read-only",
                    HostDirectoryAccess::ReadWrite => "writable",
                };
                control.in_force.push_str(&format!("; also {} ({access})", mount.target.display()));
            }
        }
        let fallen = self.probed.fallen.iter();
        for (isolation, cause) in fallen {
            control.in_force.push_str(&format!("; {isolation} does not work here: {cause}"));
        }
        control
    }

    fn attributes(&self) -> EffectivePolicyControl {
        let fixed = self.probed.bwrap.as_ref().is_some_and(|bwrap| bwrap.fixes_devices);
        let given = match self.isolation() {
            Isolation::Bwrap if owns_devices() && !fixed => (
                PolicyControlStrength::Advisory,
                "commands do not see files outside the workspace, but can change the modes and times of \
                 devices such as /dev/null, because this process cannot mount copies of them",
                "the mount namespace of bwrap",
            ),
            Isolation::Bwrap => (
                PolicyControlStrength::Enforced,
                "commands see no files outside the workspace and the system directories",
                "the mount namespace of bwrap",
            ),
            Isolation::Landlock => (
                PolicyControlStrength::NotEnforced,
                "commands see the names and sizes of files outside the workspace, and can change their \
                 modes and times where the user can",
                "none: Landlock controls only the content of files",
            ),
            Isolation::Software | Isolation::None | Isolation::Auto => (
                PolicyControlStrength::NotEnforced,
                "commands can see and change the attributes of every file that the user can",
                "none",
            ),
        };
        self.control(PolicyControlKind::Attributes, "no access outside the workspace", given)
    }

    fn restrictions(&self) -> EffectivePolicyControl {
        let given = match self.isolation() {
            Isolation::Bwrap => (
                PolicyControlStrength::Enforced,
                "commands do not see hidden paths and cannot change read-only paths",
                "the mounts of bwrap",
            ),
            Isolation::Landlock | Isolation::Software | Isolation::None | Isolation::Auto => (
                PolicyControlStrength::Advisory,
                "file operations respect hidden and read-only paths; commands are refused while such \
                 paths are set, unless --accept-unenforced allows them",
                "checks of file operations",
            ),
        };
        self.control(
            PolicyControlKind::Restrictions,
            "the hidden and read-only paths of the handle",
            given,
        )
    }

    fn network(&self) -> EffectivePolicyControl {
        let given = match (self.settings.network, self.isolation()) {
            (NetworkAccess::Shared, _) => {
                (PolicyControlStrength::NotEnforced, "commands use the network of the host", "none")
            }
            (NetworkAccess::None, Isolation::Bwrap) => (
                PolicyControlStrength::Enforced,
                "commands have no network except their own loopback",
                "the network namespace of bwrap",
            ),
            (NetworkAccess::None, Isolation::Landlock) => {
                (PolicyControlStrength::Enforced, "commands cannot create sockets", "seccomp")
            }
            (NetworkAccess::None, Isolation::Software | Isolation::None | Isolation::Auto) => {
                (PolicyControlStrength::NotEnforced, "commands use the network of the host", "none")
            }
        };
        self.control(PolicyControlKind::Network, self.settings.network.as_str(), given)
    }

    fn sockets(&self) -> EffectivePolicyControl {
        let given = match (self.isolation(), self.settings.network) {
            (Isolation::Bwrap, network) => return self.sockets_in_bwrap(network),
            (Isolation::Landlock, _) => (
                PolicyControlStrength::Enforced,
                "commands cannot connect to sockets of other programs",
                "seccomp",
            ),
            (Isolation::Software | Isolation::None | Isolation::Auto, _) => (
                PolicyControlStrength::NotEnforced,
                "commands can reach every socket that the user can",
                "none",
            ),
        };
        self.control(PolicyControlKind::Sockets, "no access to other programs", given)
    }

    fn sockets_in_bwrap(&self, network: NetworkAccess) -> EffectivePolicyControl {
        let scoped = self.probed.bwrap.as_ref().is_some_and(|bwrap| bwrap.scopes.is_some());
        let mechanism = match network {
            NetworkAccess::None => "the mount and network namespaces of bwrap, and overlays",
            NetworkAccess::Shared if scoped => {
                "the mount namespace of bwrap, overlays, and Landlock for abstract sockets"
            }
            NetworkAccess::Shared => "the mount namespace of bwrap, and overlays",
        };
        let mut places = vec!["the workspace".to_owned(), "its private directories".to_owned()];
        let writable =
            self.settings.mounts.iter().filter(|it| it.access == HostDirectoryAccess::ReadWrite);
        let open = self.overlays.open_directories();
        let named = writable.map(|mount| &mount.target).chain(open).take(MOST_MOUNTS);
        places.extend(named.map(|path| path.display().to_string()));
        let last = places.pop().unwrap_or_default();
        let places = places.join(", ");
        let mut in_force =
            format!("commands can reach sockets of other programs only in {places} and {last}");
        if !open.is_empty() {
            in_force.push_str(
                "; toolchains and read-only directories among these cannot be covered with an overlay \
                 (`--toolchain none` hides toolchains)",
            );
        }
        if self.overlays.is_system_open() {
            in_force.push_str("; only root can create one in a system directory");
        }
        let has_abstract = network == NetworkAccess::Shared && !scoped;
        if has_abstract {
            in_force.push_str("; they can also reach abstract sockets");
        }
        let strength = if open.is_empty() && !has_abstract {
            PolicyControlStrength::Enforced
        } else {
            PolicyControlStrength::Advisory
        };
        let given = (strength, in_force.as_str(), mechanism);
        self.control(PolicyControlKind::Sockets, "no access to other programs", given)
    }

    fn processes(&self) -> EffectivePolicyControl {
        let given = match self.isolation() {
            Isolation::Bwrap => (
                PolicyControlStrength::Enforced,
                "commands cannot see, signal or trace other processes",
                "the PID namespace of bwrap",
            ),
            Isolation::Landlock if landlock::version() >= Some(landlock::SCOPES) => (
                PolicyControlStrength::Enforced,
                "commands cannot signal or trace other processes, or read their memory and environment",
                "Landlock",
            ),
            Isolation::Landlock => (
                PolicyControlStrength::Advisory,
                "commands can signal other processes, but cannot trace them or read their memory and \
                 environment",
                "Landlock",
            ),
            Isolation::Software | Isolation::None | Isolation::Auto => (
                PolicyControlStrength::NotEnforced,
                "commands can see, signal and trace every process of the same user",
                "none",
            ),
        };
        self.control(PolicyControlKind::Processes, "no access to other programs", given)
    }

    fn orphans(&self) -> EffectivePolicyControl {
        if self.isolation() == Isolation::Bwrap {
            let own_family = self.probed.bwrap.as_ref().is_some_and(|bwrap| bwrap.own_family);
            let mechanism = if own_family {
                "PID namespaces"
            } else {
                "the PID namespace of bwrap, and a watchdog that outlives this process"
            };
            let ends = ENDS;
            let given = (PolicyControlStrength::Enforced, ends, mechanism);
            return self.control(PolicyControlKind::Orphans, "none", given);
        }
        // This is enforced only if a command cannot prevent it. There are three ways to prevent it.
        // A command could leave its group. It could kill the watchdog. It could change the modes of
        // the group, so that the watchdog has no access, because a process of the same user may do
        // this. Root always has access.
        let held = self.isolation() == Isolation::Landlock
            && landlock::version() >= Some(landlock::SCOPES)
            && rustix::process::geteuid().is_root();
        let (strength, in_force, mechanism) = match (self.grouped(), self.settings.always_groups())
        {
            (Ok(()), true) if held => {
                (PolicyControlStrength::Enforced, ENDS.to_owned(), GROUP_AND_WATCHDOG)
            }
            (Ok(()), true) => (
                PolicyControlStrength::Advisory,
                format!(
                    "{ENDS}, unless they leave their control group or lock the watchdog out of it"
                ),
                GROUP_AND_WATCHDOG,
            ),
            (Ok(()), false) => (
                PolicyControlStrength::Advisory,
                format!(
                    "{BEST_EFFORT}; a command with a limit of memory or processes gets a control group, \
                     which ends all of its processes, also when agent-backend is killed"
                ),
                "the process group",
            ),
            (Err(cause), _) => (
                PolicyControlStrength::Advisory,
                format!("{BEST_EFFORT}; {cause}"),
                "the process group",
            ),
        };
        let control =
            self.control(PolicyControlKind::Orphans, "none", (strength, &in_force, mechanism));
        let proof = "a group with the limits was made, and the watchdog runs".to_owned();
        EffectivePolicyControl {
            proof: (strength == PolicyControlStrength::Enforced).then_some(proof),
            ..control
        }
    }

    /// Succeeds if the control group of a command ends together with the command and with our
    /// process. If not, returns the cause.
    fn grouped(&self) -> Result<(), String> {
        let groups = Groups::find();
        let limits = &self.settings.limits;
        let wanted = if self.settings.always_groups() {
            Wanted { memory: limits.memory, processes: limits.processes }
        } else {
            Wanted { memory: None, processes: Some(100) }
        };
        groups.make(&wanted).map_err(|lack| lack.cause)?;
        if !self.settings.always_groups() {
            // A description of the policy must not start a watchdog.
            return Ok(());
        }
        watchdog::stand(&groups.parents()).map_err(|error| {
            format!(
                "a control group ends with its command, but not when agent-backend is killed: the \
                 watchdog cannot be started: {error}"
            )
        })
    }

    fn kernel(&self) -> EffectivePolicyControl {
        let given = match self.isolation() {
            Isolation::Bwrap | Isolation::Landlock => (
                PolicyControlStrength::Enforced,
                "commands cannot create namespaces, mount, load modules, use io_uring or kernel keys, \
                 type into terminals, or gain privileges",
                "seccomp",
            ),
            Isolation::Software | Isolation::None | Isolation::Auto => {
                (PolicyControlStrength::NotEnforced, "commands can use every system call", "none")
            }
        };
        self.control(PolicyControlKind::Kernel, "no system calls that weaken the sandbox", given)
    }

    fn environment(&self) -> EffectivePolicyControl {
        EffectivePolicyControl {
            kind: PolicyControlKind::Environment,
            requested: "a fixed set of variables, those of the scope, and those of the command".to_owned(),
            in_force: match self.isolation() {
                Isolation::Bwrap | Isolation::Landlock => {
                    "commands get a fixed set of variables and those that the caller sets; variables \
                     that load code, such as LD_PRELOAD, act only inside the sandbox"
                        .to_owned()
                }
                Isolation::Software | Isolation::None | Isolation::Auto => {
                    "commands get a fixed set of variables and those that the caller sets; variables \
                     that load code, such as LD_PRELOAD, are refused"
                        .to_owned()
                }
            },
            strength: PolicyControlStrength::Enforced,
            mechanism: "a new environment for each command".to_owned(),
            proof: None,
        }
    }

    fn shell(&self) -> EffectivePolicyControl {
        EffectivePolicyControl {
            kind: PolicyControlKind::Shell,
            requested: self.settings.shell.as_str().to_owned(),
            in_force: self.probed.shell.to_string_lossy().into_owned(),
            strength: PolicyControlStrength::Enforced,
            mechanism: "the programs of this host".to_owned(),
            proof: None,
        }
    }

    fn limits(&self) -> Vec<EffectivePolicyControl> {
        let limits = &self.settings.limits;
        let asked = |value: Option<String>| value.unwrap_or_else(|| "no limit".to_owned());
        let number = |value: Option<u64>| asked(value.map(|value| value.to_string()));
        let time = |value: Option<std::time::Duration>| asked(value.map(|it| format!("{it:?}")));
        let groups = Groups::find();
        let root = rustix::process::geteuid().is_root();
        // Without a sandbox, a command can enter another group. It can also ask a process outside
        // of the group, which has no limits, to work for it.
        let walled = matches!(self.isolation(), Isolation::Bwrap | Isolation::Landlock);
        let grouped = |held: &'static str, left: &'static str| {
            if walled {
                (PolicyControlStrength::Enforced, held, GROUP)
            } else {
                (PolicyControlStrength::Advisory, left, GROUP)
            }
        };
        let memory = if groups.make(&Wanted { memory: Some(1 << 30), processes: None }).is_ok() {
            grouped(
                "for all processes together",
                "for all processes together, unless they leave their control group",
            )
        } else {
            (PolicyControlStrength::Advisory, "for each process", "RLIMIT_DATA")
        };
        let processes =
            match (groups.make(&Wanted { memory: None, processes: Some(100) }).is_ok(), root) {
                (true, _) => grouped(
                    "for all processes together",
                    "for all processes together, unless they leave their control group",
                ),
                (false, true) => (
                    PolicyControlStrength::NotEnforced,
                    "for users other than root",
                    "RLIMIT_NPROC",
                ),
                (false, false) => (
                    PolicyControlStrength::Advisory,
                    "for all processes of the same user",
                    "RLIMIT_NPROC",
                ),
            };
        let each = |mechanism| {
            if walled {
                (PolicyControlStrength::Enforced, "for each process", mechanism)
            } else {
                let held = "for each process, unless it has a process without limits do the work";
                (PolicyControlStrength::Advisory, held, mechanism)
            }
        };
        let mut controls = vec![
            self.control(
                PolicyControlKind::Time,
                time(limits.wall_time),
                (PolicyControlStrength::Enforced, "for the command as a whole", "a timer"),
            ),
            self.control(PolicyControlKind::Cpu, time(limits.cpu), each("RLIMIT_CPU")),
            self.control(PolicyControlKind::Memory, number(limits.memory), memory),
            self.control(PolicyControlKind::ProcessCount, number(limits.processes), processes),
            self.control(
                PolicyControlKind::FileSize,
                number(limits.file_size),
                each("RLIMIT_FSIZE"),
            ),
            self.control(
                PolicyControlKind::OpenFiles,
                number(limits.open_files),
                each("RLIMIT_NOFILE"),
            ),
            self.control(
                PolicyControlKind::Output,
                "bounded",
                (
                    PolicyControlStrength::Enforced,
                    "a command waits while its output is not read; of a background command, the oldest \
                     output is dropped",
                    "buffers of fixed size",
                ),
            ),
        ];
        for control in &mut controls {
            // The test command proves nothing about limits. The proof is that a group with such a
            // limit could be made.
            let grouped = control.mechanism == GROUP && walled;
            control.proof = grouped.then(|| "a group with such a limit was made".to_owned());
        }
        controls
    }
}
