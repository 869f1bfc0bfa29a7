//! Describes the policy that is in force for commands.

use ab_core::effective::{
    EffectivePolicy, EffectivePolicyControl, Isolation, NetworkAccess, PolicyControlKind,
    PolicyControlStrength,
};

use ab_core::process::HostDirectoryAccess;

use super::private;
use super::settings::ExecSettings;
use super::standing::{Standing, owns_devices};
use crate::limits::cgroup::{Groups, Wanted};
use crate::process::watchdog;
use crate::sandbox::landlock;

pub(super) fn describe(settings: &ExecSettings, standing: &Standing) -> EffectivePolicy {
    let walls = Walls { settings, standing };
    let mut controls = vec![
        walls.files(),
        walls.attributes(),
        walls.restrictions(),
        walls.network(),
        walls.sockets(),
        walls.processes(),
        walls.orphans(),
        walls.kernel(),
        walls.environment(),
    ];
    controls.extend(walls.limits());
    controls.push(walls.shell());
    EffectivePolicy { isolation: Some(standing.isolation), controls }
}

/// Maximum number of mounts that are listed by name.
const MOST_MOUNTS: usize = 16;

/// The mechanism that limits all processes of a command together.
const GROUP: &str = "control group";
const GROUP_AND_WATCHDOG: &str = "control group, and a watchdog that outlives this process";
const BEST_EFFORT: &str = "best effort: the process group, and what still carries its mark";

struct Walls<'a> {
    settings: &'a ExecSettings,
    standing: &'a Standing,
}

impl Walls<'_> {
    fn control(
        &self,
        subject: PolicyControlKind,
        asked: impl Into<String>,
        (strength, in_force, mechanism): (PolicyControlStrength, &str, &str),
    ) -> EffectivePolicyControl {
        let proof = match strength {
            PolicyControlStrength::Enforced => self.standing.proof.clone(),
            PolicyControlStrength::Open | PolicyControlStrength::Advisory => None,
        };
        EffectivePolicyControl {
            kind: subject,
            asked: asked.into(),
            in_force: in_force.to_owned(),
            strength,
            mechanism: mechanism.to_owned(),
            proof,
        }
    }

    fn isolation(&self) -> Isolation {
        self.standing.isolation
    }

    fn files(&self) -> EffectivePolicyControl {
        let asked = format!("isolation {}", self.settings.isolation);
        let given = match self.isolation() {
            Isolation::Bwrap => (
                PolicyControlStrength::Enforced,
                "the workspace, a private /tmp and caches; the system read-only",
                "mount namespace of bwrap",
            ),
            Isolation::Landlock => (
                PolicyControlStrength::Enforced,
                "the workspace, a private TMPDIR (/tmp itself is closed) and caches; the system \
                 read-only; no shared memory or named semaphores, since /dev/shm is closed",
                "Landlock",
            ),
            Isolation::Software => (
                PolicyControlStrength::Advisory,
                "paths outside that a command names are refused",
                "the words of the command",
            ),
            Isolation::None | Isolation::Auto => {
                (PolicyControlStrength::Open, "everything", "none")
            }
        };
        let mut control = self.control(PolicyControlKind::Files, asked, given);
        let walled = matches!(self.isolation(), Isolation::Bwrap | Isolation::Landlock);
        if let Some(cause) = private::unbounded().filter(|_| walled) {
            control.in_force.push_str(&format!("; the private /tmp has no bound: {cause}"));
        }
        if walled {
            for mount in super::mounts::all(self.settings).iter().take(MOST_MOUNTS) {
                let access = match mount.access {
                    HostDirectoryAccess::ReadOnly => "read-only",
                    HostDirectoryAccess::ReadWrite => "writable",
                };
                control.in_force.push_str(&format!("; {} ({access})", mount.target.display()));
            }
        }
        let fallen = self.standing.fallen.iter();
        for (isolation, cause) in fallen {
            control.in_force.push_str(&format!("; {isolation} does not work here: {cause}"));
        }
        control
    }

    fn attributes(&self) -> EffectivePolicyControl {
        let fixed = self.standing.bwrap.as_ref().is_some_and(|bwrap| bwrap.fixes_devices);
        let given = match self.isolation() {
            Isolation::Bwrap if owns_devices() && !fixed => (
                PolicyControlStrength::Advisory,
                "files outside do not exist for commands, but modes and times of devices such as \
                 /dev/null can be changed, since no mounts for them can be made",
                "mount namespace of bwrap",
            ),
            Isolation::Bwrap => (
                PolicyControlStrength::Enforced,
                "files outside do not exist for commands",
                "mount namespace of bwrap",
            ),
            Isolation::Landlock => (
                PolicyControlStrength::Open,
                "of files outside, names and sizes are seen, and modes and times can be changed \
                 where the user may",
                "none: Landlock controls contents",
            ),
            Isolation::Software | Isolation::None | Isolation::Auto => {
                (PolicyControlStrength::Open, "all that the user may see and change", "none")
            }
        };
        self.control(PolicyControlKind::Attributes, "none of files outside", given)
    }

    fn restrictions(&self) -> EffectivePolicyControl {
        let given = match self.isolation() {
            Isolation::Bwrap => (
                PolicyControlStrength::Enforced,
                "hidden and read-only paths hold",
                "mounts of bwrap",
            ),
            Isolation::Landlock | Isolation::Software | Isolation::None | Isolation::Auto => (
                PolicyControlStrength::Advisory,
                "they hold for files; a command that needs them is refused, unless it was accepted \
                 that they are not enforced",
                "none: a grant on a directory has no exceptions",
            ),
        };
        self.control(PolicyControlKind::Restrictions, "those of the handle", given)
    }

    fn network(&self) -> EffectivePolicyControl {
        let given = match (self.settings.network, self.isolation()) {
            (NetworkAccess::Shared, _) => (PolicyControlStrength::Open, "that of the host", "none"),
            (NetworkAccess::None, Isolation::Bwrap) => (
                PolicyControlStrength::Enforced,
                "none but its own loopback",
                "network namespace of bwrap",
            ),
            (NetworkAccess::None, Isolation::Landlock) => {
                (PolicyControlStrength::Enforced, "no sockets", "seccomp")
            }
            (NetworkAccess::None, Isolation::Software | Isolation::None | Isolation::Auto) => {
                (PolicyControlStrength::Open, "that of the host", "none")
            }
        };
        self.control(PolicyControlKind::Network, self.settings.network.as_str(), given)
    }

    fn sockets(&self) -> EffectivePolicyControl {
        let scoped = self.standing.bwrap.as_ref().is_some_and(|bwrap| bwrap.scopes.is_some());
        let given = match (self.isolation(), self.settings.network) {
            (Isolation::Bwrap, NetworkAccess::None) => (
                PolicyControlStrength::Enforced,
                "those of other programs cannot be reached, unless they listen in the workspace",
                "mount and network namespaces of bwrap",
            ),
            (Isolation::Bwrap, NetworkAccess::Shared) if scoped => (
                PolicyControlStrength::Enforced,
                "those of other programs cannot be reached, unless they listen in the workspace",
                "mount namespace of bwrap; Landlock for those without a path",
            ),
            (Isolation::Bwrap, NetworkAccess::Shared) => (
                PolicyControlStrength::Advisory,
                "those with a path cannot be reached; those without one can",
                "mount namespace of bwrap",
            ),
            (Isolation::Landlock, _) => {
                (PolicyControlStrength::Enforced, "none to other programs of the host", "seccomp")
            }
            (Isolation::Software | Isolation::None | Isolation::Auto, _) => {
                (PolicyControlStrength::Open, "all", "none")
            }
        };
        self.control(PolicyControlKind::Sockets, "none of others", given)
    }

    fn processes(&self) -> EffectivePolicyControl {
        let given = match self.isolation() {
            Isolation::Bwrap => (
                PolicyControlStrength::Enforced,
                "others are neither seen nor signalled nor traced",
                "pid namespace of bwrap",
            ),
            Isolation::Landlock if landlock::version() >= Some(landlock::SCOPES) => (
                PolicyControlStrength::Enforced,
                "others are neither signalled nor traced, and of theirs nothing is read",
                "Landlock",
            ),
            Isolation::Landlock => (
                PolicyControlStrength::Advisory,
                "others are not traced, and of theirs nothing is read; they can be signalled",
                "Landlock",
            ),
            Isolation::Software | Isolation::None | Isolation::Auto => {
                (PolicyControlStrength::Open, "those of the same user", "none")
            }
        };
        self.control(PolicyControlKind::Processes, "none of others", given)
    }

    fn orphans(&self) -> EffectivePolicyControl {
        if self.isolation() == Isolation::Bwrap {
            let own_family = self.standing.bwrap.as_ref().is_some_and(|bwrap| bwrap.own_family);
            let mechanism = if own_family {
                "pid namespaces"
            } else {
                "pid namespace of bwrap, and a watchdog that outlives this process"
            };
            let ends = "everything ends with its command, and with this process";
            let given = (PolicyControlStrength::Enforced, ends, mechanism);
            return self.control(PolicyControlKind::Orphans, "none", given);
        }
        // A command could prevent this in three ways: leave its group, kill the watchdog, or lock
        // the watchdog out of the group, whose modes a process of the same user may change. Root
        // cannot be locked out.
        let held = self.isolation() == Isolation::Landlock
            && landlock::version() >= Some(landlock::SCOPES)
            && rustix::process::geteuid().is_root();
        let (strength, in_force, mechanism) = match (self.grouped(), self.settings.always_groups())
        {
            (Ok(()), true) if held => (
                PolicyControlStrength::Enforced,
                "everything ends with its command, and with this process".to_owned(),
                GROUP_AND_WATCHDOG,
            ),
            (Ok(()), true) => (
                PolicyControlStrength::Advisory,
                "everything ends with its command, and with this process, unless it takes itself \
                 out of its control group, or keeps the watchdog from it"
                    .to_owned(),
                GROUP_AND_WATCHDOG,
            ),
            (Ok(()), false) => (
                PolicyControlStrength::Advisory,
                format!(
                    "{BEST_EFFORT}; everything, also when this process is killed, where a limit of \
                     memory or processes puts it into a control group"
                ),
                "process group",
            ),
            (Err(cause), _) => (
                PolicyControlStrength::Advisory,
                format!("{BEST_EFFORT}; {cause}"),
                "process group",
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

    /// Whether a control group ends with its command and with us; otherwise the cause.
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
            // Describing the policy does not start a watchdog.
            return Ok(());
        }
        watchdog::stand(&groups.parents()).map_err(|error| {
            format!(
                "a control group ends with its command, and not when this process is killed: no \
                 watchdog: {error}"
            )
        })
    }

    fn kernel(&self) -> EffectivePolicyControl {
        let given = match self.isolation() {
            Isolation::Bwrap | Isolation::Landlock => (
                PolicyControlStrength::Enforced,
                "no namespaces, io_uring, keys, mounts, modules or typing into terminals; no new \
                 privileges",
                "seccomp",
            ),
            Isolation::Software | Isolation::None | Isolation::Auto => {
                (PolicyControlStrength::Open, "all calls", "none")
            }
        };
        self.control(PolicyControlKind::Kernel, "no way around walls", given)
    }

    fn environment(&self) -> EffectivePolicyControl {
        EffectivePolicyControl {
            kind: PolicyControlKind::Environment,
            asked: "a fixed small set, then the scope's, then the command's".to_owned(),
            in_force: match self.isolation() {
                Isolation::Bwrap | Isolation::Landlock => {
                    "that; variables that load code act only behind the walls".to_owned()
                }
                Isolation::Software | Isolation::None | Isolation::Auto => {
                    "that; variables that load code are refused".to_owned()
                }
            },
            strength: PolicyControlStrength::Enforced,
            mechanism: "made anew for each command".to_owned(),
            proof: None,
        }
    }

    fn shell(&self) -> EffectivePolicyControl {
        EffectivePolicyControl {
            kind: PolicyControlKind::Shell,
            asked: self.settings.shell.as_str().to_owned(),
            in_force: self.standing.shell.to_string_lossy().into_owned(),
            strength: PolicyControlStrength::Enforced,
            mechanism: "found on this host".to_owned(),
            proof: None,
        }
    }

    fn limits(&self) -> Vec<EffectivePolicyControl> {
        let limits = &self.settings.limits;
        let asked = |value: Option<String>| value.unwrap_or_else(|| "by the command".to_owned());
        let number = |value: Option<u64>| asked(value.map(|value| value.to_string()));
        let time = |value: Option<std::time::Duration>| asked(value.map(|it| format!("{it:?}")));
        let groups = Groups::find();
        let root = rustix::process::geteuid().is_root();
        // Without walls a command can enter another group, and have a process without limits work
        // for it.
        let walled = matches!(self.isolation(), Isolation::Bwrap | Isolation::Landlock);
        let grouped = |held: &'static str, left: &'static str| {
            if walled {
                (PolicyControlStrength::Enforced, held, GROUP)
            } else {
                (PolicyControlStrength::Advisory, left, GROUP)
            }
        };
        let memory = if groups.make(&Wanted { memory: Some(1 << 30), processes: None }).is_ok() {
            grouped("all processes together", "all processes that do not leave their control group")
        } else {
            (PolicyControlStrength::Advisory, "each process for itself", "RLIMIT_DATA")
        };
        let processes =
            match (groups.make(&Wanted { memory: None, processes: Some(100) }).is_ok(), root) {
                (true, _) => grouped(
                    "all that the command starts",
                    "all that the command starts and that does not leave its control group",
                ),
                (false, true) => (PolicyControlStrength::Open, "root is not bound", "RLIMIT_NPROC"),
                (false, false) => {
                    (PolicyControlStrength::Advisory, "all of the same user", "RLIMIT_NPROC")
                }
            };
        let each = |mechanism| {
            if walled {
                (PolicyControlStrength::Enforced, "each process for itself", mechanism)
            } else {
                let held = "each process for itself, unless it asks one outside that has no limit";
                (PolicyControlStrength::Advisory, held, mechanism)
            }
        };
        let mut controls = vec![
            self.control(
                PolicyControlKind::Time,
                time(limits.wall_time),
                (PolicyControlStrength::Enforced, "the command is ended", "a timer of ours"),
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
                    "a reader's queue, or a spool",
                    "buffers of ours",
                ),
            ),
        ];
        for control in &mut controls {
            // The test command proves nothing about limits. A group that accepts such a limit does.
            let grouped = control.mechanism == GROUP && walled;
            control.proof = grouped.then(|| "a group with such a limit was made".to_owned());
        }
        controls
    }
}
