//! What is in force for commands, as a value: asked for, given, by which means, and how that is
//! known.
//!
//! Nothing degrades in silence: a control that is weaker than asked says so here, and a driver with
//! a floor refuses to run below it.

use std::fmt;

/// How commands are kept inside the workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// The strongest that was seen to work: bwrap, then landlock, then software.
    #[default]
    Auto,
    /// Namespaces made by bubblewrap.
    Bwrap,
    /// Landlock and seccomp, where namespaces are not to be had.
    Landlock,
    /// The words of a command are looked at. No wall.
    Software,
    /// Nothing.
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

    /// How strong it is; `Auto` asks for no strength in particular.
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

/// What a command may reach of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// The host's.
    #[default]
    Shared,
    None,
}

impl Network {
    pub fn as_str(self) -> &'static str {
        match self {
            Network::Shared => "shared",
            Network::None => "none",
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Everything that is in force, a control each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectivePolicy {
    /// Absent when the driver runs no commands.
    pub isolation: Option<Isolation>,
    pub controls: Vec<EffectiveControl>,
}

impl EffectivePolicy {
    pub fn control(&self, subject: ControlSubject) -> Option<&EffectiveControl> {
        self.controls.iter().find(|control| control.subject == subject)
    }
}

/// The subjects that are enforced for a command, as a set.
///
/// Whoever judges command lines asks it which rules the kernel holds anyway. The empty set is what
/// holds where nothing could be found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnforcedControls(u32);

impl EnforcedControls {
    /// Nothing is enforced.
    pub const NONE: EnforcedControls = EnforcedControls(0);

    /// Everything that `policy` reports as enforced by a wall. Without a wall around files nothing
    /// counts: what is left then is enforced for well-behaved commands only.
    pub fn in_force(policy: &EffectivePolicy) -> Self {
        let enforced = policy.controls.iter().filter(|it| it.strength == ControlStrength::Enforced);
        let all = enforced.fold(Self::NONE, |all, control| all.with(control.subject));
        if all.contains(ControlSubject::Files) { all } else { Self::NONE }
    }

    /// What `isolation` enforces on a host where it works as a whole.
    pub fn expected(isolation: Isolation) -> Self {
        let landlock = [
            ControlSubject::Files,
            ControlSubject::Kernel,
            ControlSubject::Sockets,
            ControlSubject::Processes,
        ];
        let subjects: &[ControlSubject] = match isolation {
            Isolation::Bwrap => {
                &[ControlSubject::Attributes, ControlSubject::Restrictions, ControlSubject::Orphans]
            }
            Isolation::Landlock => &[],
            Isolation::Auto | Isolation::Software | Isolation::None => return Self::NONE,
        };
        landlock.iter().chain(subjects).fold(Self::NONE, |all, subject| all.with(*subject))
    }

    pub fn contains(self, subject: ControlSubject) -> bool {
        self.0 & (1 << subject as u32) != 0
    }

    fn with(self, subject: ControlSubject) -> Self {
        Self(self.0 | (1 << subject as u32))
    }
}

/// What is controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlSubject {
    /// Files outside the workspace.
    Files,
    /// Names, sizes, modes and times of files outside.
    Attributes,
    /// Paths of the workspace that are hidden or read-only.
    Restrictions,
    Network,
    /// Sockets of other programs on the host.
    Sockets,
    /// Processes of others: seeing, signalling, tracing them.
    Processes,
    /// That nothing outlives its command.
    Orphans,
    /// Calls of the kernel that lead out of walls.
    Kernel,
    Environment,
    Time,
    Memory,
    ProcessCount,
    Cpu,
    FileSize,
    OpenFiles,
    Output,
    /// Which commands may run at all.
    Commands,
    /// The program that reads command lines.
    Shell,
}

impl ControlSubject {
    pub const ALL: [ControlSubject; 18] = [
        ControlSubject::Files,
        ControlSubject::Attributes,
        ControlSubject::Restrictions,
        ControlSubject::Network,
        ControlSubject::Sockets,
        ControlSubject::Processes,
        ControlSubject::Orphans,
        ControlSubject::Kernel,
        ControlSubject::Environment,
        ControlSubject::Time,
        ControlSubject::Memory,
        ControlSubject::ProcessCount,
        ControlSubject::Cpu,
        ControlSubject::FileSize,
        ControlSubject::OpenFiles,
        ControlSubject::Output,
        ControlSubject::Commands,
        ControlSubject::Shell,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ControlSubject::Files => "files",
            ControlSubject::Attributes => "attributes",
            ControlSubject::Restrictions => "restrictions",
            ControlSubject::Network => "network",
            ControlSubject::Sockets => "sockets",
            ControlSubject::Processes => "processes",
            ControlSubject::Orphans => "orphans",
            ControlSubject::Kernel => "kernel",
            ControlSubject::Environment => "environment",
            ControlSubject::Time => "time",
            ControlSubject::Memory => "memory",
            ControlSubject::ProcessCount => "process_count",
            ControlSubject::Cpu => "cpu",
            ControlSubject::FileSize => "file_size",
            ControlSubject::OpenFiles => "open_files",
            ControlSubject::Output => "output",
            ControlSubject::Commands => "commands",
            ControlSubject::Shell => "shell",
        }
    }
}

/// How far a control can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ControlStrength {
    /// Not controlled.
    Open,
    /// A command that tries can get around it.
    Advisory,
    /// The kernel, or we, see to it.
    Enforced,
}

impl ControlStrength {
    pub const ALL: [ControlStrength; 3] =
        [ControlStrength::Open, ControlStrength::Advisory, ControlStrength::Enforced];

    pub fn as_str(self) -> &'static str {
        match self {
            ControlStrength::Open => "open",
            ControlStrength::Advisory => "advisory",
            ControlStrength::Enforced => "enforced",
        }
    }
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveControl {
    pub subject: ControlSubject,
    pub asked: String,
    pub in_force: String,
    pub strength: ControlStrength,
    /// What sees to it.
    pub mechanism: String,
    /// What was tried to know that it works; absent when nothing was.
    pub proof: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(controls: &[(ControlSubject, ControlStrength)]) -> EffectivePolicy {
        let control = |(subject, strength): &(ControlSubject, ControlStrength)| EffectiveControl {
            subject: *subject,
            asked: String::new(),
            in_force: String::new(),
            strength: *strength,
            mechanism: String::new(),
            proof: None,
        };
        EffectivePolicy { isolation: None, controls: controls.iter().map(control).collect() }
    }

    #[test]
    fn only_enforced_subjects_behind_a_wall_count() {
        let found = EnforcedControls::in_force(&policy(&[
            (ControlSubject::Files, ControlStrength::Enforced),
            (ControlSubject::Attributes, ControlStrength::Open),
            (ControlSubject::Kernel, ControlStrength::Enforced),
        ]));
        assert!(found.contains(ControlSubject::Files) && found.contains(ControlSubject::Kernel));
        assert!(
            !found.contains(ControlSubject::Attributes) && !found.contains(ControlSubject::Network)
        );
        let open = policy(&[
            (ControlSubject::Files, ControlStrength::Advisory),
            (ControlSubject::Environment, ControlStrength::Enforced),
        ]);
        assert_eq!(EnforcedControls::in_force(&open), EnforcedControls::NONE);
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
            let expected = EnforcedControls::expected(isolation);
            assert_eq!(expected.contains(ControlSubject::Files), files, "{isolation}");
            assert_eq!(expected.contains(ControlSubject::Attributes), attributes, "{isolation}");
            assert_eq!(expected.contains(ControlSubject::Restrictions), attributes, "{isolation}");
        }
    }
}
