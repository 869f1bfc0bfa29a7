//! Describes the policy that is in force for commands. For each control, the policy contains what
//! was requested, what applies, which mechanism enforces it, and how this is known.
//!
//!
//! No control is silently weakened. A control that is weaker than requested is reported here. A
//! driver with a minimum isolation refuses to run commands below this minimum.

use std::fmt;

/// How commands are kept inside the workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// The strongest mode that was tested successfully, in this order: bwrap, landlock, software.
    #[default]
    Auto,
    /// Namespaces created by bubblewrap.
    Bwrap,
    /// Landlock and seccomp, for hosts without namespaces.
    Landlock,
    /// Only checks the words of the command line. The kernel enforces nothing.
    Software,
    /// No isolation.
    None,
}

impl Isolation {
    pub const ALL: [Isolation; 5] = [
        Isolation::Auto,
        Isolation::Bwrap,
        Isolation::Landlock,
        Isolation::Software,
        Isolation::None,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::Auto => "auto",
            Isolation::Bwrap => "bwrap",
            Isolation::Landlock => "landlock",
            Isolation::Software => "software",
            Isolation::None => "none",
        }
    }

    /// The strength, for comparisons. `Auto` requires no particular strength.
    pub fn strength(self) -> u8 {
        match self {
            Isolation::Auto | Isolation::None => 0,
            Isolation::Software => 1,
            Isolation::Landlock => 2,
            Isolation::Bwrap => 3,
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The network that a command can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NetworkAccess {
    /// The host's network.
    #[default]
    Shared,
    None,
}

impl NetworkAccess {
    pub fn as_str(self) -> &'static str {
        match self {
            NetworkAccess::Shared => "shared",
            NetworkAccess::None => "none",
        }
    }
}

impl fmt::Display for NetworkAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The policy in force, as a list of controls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectivePolicy {
    /// `None` if the driver does not run commands.
    pub isolation: Option<Isolation>,
    pub controls: Vec<EffectivePolicyControl>,
}

impl EffectivePolicy {
    pub fn control(&self, kind: PolicyControlKind) -> Option<&EffectivePolicyControl> {
        self.controls.iter().find(|control| control.kind == kind)
    }
}

/// The set of controls that are enforced for a command.
///
/// A check of command lines can skip rules about things that the kernel enforces. If nothing could
/// be determined, the set is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnforcedControls(u32);

impl EnforcedControls {
    /// Nothing is enforced.
    pub const NONE: EnforcedControls = EnforcedControls(0);

    /// The controls that `policy` reports as enforced. If file isolation is not enforced, the set
    /// is empty, because commands without file isolation could bypass the other controls.
    pub fn from_policy(policy: &EffectivePolicy) -> Self {
        let enforced =
            policy.controls.iter().filter(|it| it.strength == PolicyControlStrength::Enforced);
        let all = enforced.fold(Self::NONE, |all, control| all.with(control.kind));
        if all.contains(PolicyControlKind::Files) { all } else { Self::NONE }
    }

    /// The controls that `isolation` enforces on a host where it works completely.
    pub fn fully_enforced_by(isolation: Isolation) -> Self {
        let landlock = [
            PolicyControlKind::Files,
            PolicyControlKind::Kernel,
            PolicyControlKind::Sockets,
            PolicyControlKind::Processes,
        ];
        let subjects: &[PolicyControlKind] = match isolation {
            Isolation::Bwrap => &[
                PolicyControlKind::Attributes,
                PolicyControlKind::Restrictions,
                PolicyControlKind::Orphans,
            ],
            Isolation::Landlock => &[],
            Isolation::Auto | Isolation::Software | Isolation::None => return Self::NONE,
        };
        landlock.iter().chain(subjects).fold(Self::NONE, |all, subject| all.with(*subject))
    }

    pub fn contains(self, kind: PolicyControlKind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }

    fn with(self, subject: PolicyControlKind) -> Self {
        Self(self.0 | (1 << subject as u32))
    }
}

/// What a control restricts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyControlKind {
    /// Files outside the workspace.
    Files,
    /// Names, sizes, modes and times of files outside the workspace.
    Attributes,
    /// Hidden or read-only paths of the workspace.
    Restrictions,
    Network,
    /// Sockets of other programs on the host.
    Sockets,
    /// Other processes on the host: seeing, signalling and tracing them.
    Processes,
    /// Processes that outlive their command.
    Orphans,
    /// System calls that could break the isolation.
    Kernel,
    Environment,
    Time,
    Memory,
    ProcessCount,
    Cpu,
    FileSize,
    OpenFiles,
    Output,
    /// Which commands may run.
    Commands,
    /// The program that runs command lines.
    Shell,
}

impl PolicyControlKind {
    pub const ALL: [PolicyControlKind; 18] = [
        PolicyControlKind::Files,
        PolicyControlKind::Attributes,
        PolicyControlKind::Restrictions,
        PolicyControlKind::Network,
        PolicyControlKind::Sockets,
        PolicyControlKind::Processes,
        PolicyControlKind::Orphans,
        PolicyControlKind::Kernel,
        PolicyControlKind::Environment,
        PolicyControlKind::Time,
        PolicyControlKind::Memory,
        PolicyControlKind::ProcessCount,
        PolicyControlKind::Cpu,
        PolicyControlKind::FileSize,
        PolicyControlKind::OpenFiles,
        PolicyControlKind::Output,
        PolicyControlKind::Commands,
        PolicyControlKind::Shell,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            PolicyControlKind::Files => "files",
            PolicyControlKind::Attributes => "attributes",
            PolicyControlKind::Restrictions => "restrictions",
            PolicyControlKind::Network => "network",
            PolicyControlKind::Sockets => "sockets",
            PolicyControlKind::Processes => "processes",
            PolicyControlKind::Orphans => "orphans",
            PolicyControlKind::Kernel => "kernel",
            PolicyControlKind::Environment => "environment",
            PolicyControlKind::Time => "time",
            PolicyControlKind::Memory => "memory",
            PolicyControlKind::ProcessCount => "process_count",
            PolicyControlKind::Cpu => "cpu",
            PolicyControlKind::FileSize => "file_size",
            PolicyControlKind::OpenFiles => "open_files",
            PolicyControlKind::Output => "output",
            PolicyControlKind::Commands => "commands",
            PolicyControlKind::Shell => "shell",
        }
    }
}

/// How strongly a control is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyControlStrength {
    /// Not controlled.
    NotEnforced,
    /// A command can deliberately bypass the control.
    Advisory,
    /// Enforced by the kernel or by this process.
    Enforced,
}

impl PolicyControlStrength {
    pub const ALL: [PolicyControlStrength; 3] = [
        PolicyControlStrength::NotEnforced,
        PolicyControlStrength::Advisory,
        PolicyControlStrength::Enforced,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            PolicyControlStrength::NotEnforced => "open",
            PolicyControlStrength::Advisory => "advisory",
            PolicyControlStrength::Enforced => "enforced",
        }
    }
}

/// One control of the policy, such as the isolation of files or a memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectivePolicyControl {
    pub kind: PolicyControlKind,
    pub requested: String,
    pub in_force: String,
    pub strength: PolicyControlStrength,
    /// The mechanism that enforces the control.
    pub mechanism: String,
    /// The test that showed that the control works. `None` if nothing was tested.
    pub proof: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(controls: &[(PolicyControlKind, PolicyControlStrength)]) -> EffectivePolicy {
        let control = |(subject, strength): &(PolicyControlKind, PolicyControlStrength)| {
            EffectivePolicyControl {
                kind: *subject,
                requested: String::new(),
                in_force: String::new(),
                strength: *strength,
                mechanism: String::new(),
                proof: None,
            }
        };
        EffectivePolicy { isolation: None, controls: controls.iter().map(control).collect() }
    }

    #[test]
    fn only_enforced_subjects_behind_a_wall_count() {
        let found = EnforcedControls::from_policy(&policy(&[
            (PolicyControlKind::Files, PolicyControlStrength::Enforced),
            (PolicyControlKind::Attributes, PolicyControlStrength::NotEnforced),
            (PolicyControlKind::Kernel, PolicyControlStrength::Enforced),
        ]));
        assert!(
            found.contains(PolicyControlKind::Files) && found.contains(PolicyControlKind::Kernel)
        );
        assert!(
            !found.contains(PolicyControlKind::Attributes)
                && !found.contains(PolicyControlKind::Network)
        );
        let open = policy(&[
            (PolicyControlKind::Files, PolicyControlStrength::Advisory),
            (PolicyControlKind::Environment, PolicyControlStrength::Enforced),
        ]);
        assert_eq!(EnforcedControls::from_policy(&open), EnforcedControls::NONE);
    }

    #[test]
    fn landlock_leaves_attributes_and_restrictions_open() {
        for (isolation, files, attributes) in [
            (Isolation::Bwrap, true, true),
            (Isolation::Landlock, true, false),
            (Isolation::Software, false, false),
            (Isolation::None, false, false),
            (Isolation::Auto, false, false),
        ] {
            let expected = EnforcedControls::fully_enforced_by(isolation);
            assert_eq!(expected.contains(PolicyControlKind::Files), files, "{isolation}");
            assert_eq!(expected.contains(PolicyControlKind::Attributes), attributes, "{isolation}");
            assert_eq!(
                expected.contains(PolicyControlKind::Restrictions),
                attributes,
                "{isolation}"
            );
        }
    }
}
