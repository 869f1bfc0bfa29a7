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
    pub controls: Vec<Control>,
}

impl EffectivePolicy {
    pub fn control(&self, subject: Subject) -> Option<&Control> {
        self.controls.iter().find(|control| control.subject == subject)
    }
}

/// What is controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
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
}

impl Subject {
    pub const ALL: [Subject; 17] = [
        Subject::Files,
        Subject::Attributes,
        Subject::Restrictions,
        Subject::Network,
        Subject::Sockets,
        Subject::Processes,
        Subject::Orphans,
        Subject::Kernel,
        Subject::Environment,
        Subject::Time,
        Subject::Memory,
        Subject::ProcessCount,
        Subject::Cpu,
        Subject::FileSize,
        Subject::OpenFiles,
        Subject::Output,
        Subject::Commands,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Subject::Files => "files",
            Subject::Attributes => "attributes",
            Subject::Restrictions => "restrictions",
            Subject::Network => "network",
            Subject::Sockets => "sockets",
            Subject::Processes => "processes",
            Subject::Orphans => "orphans",
            Subject::Kernel => "kernel",
            Subject::Environment => "environment",
            Subject::Time => "time",
            Subject::Memory => "memory",
            Subject::ProcessCount => "process_count",
            Subject::Cpu => "cpu",
            Subject::FileSize => "file_size",
            Subject::OpenFiles => "open_files",
            Subject::Output => "output",
            Subject::Commands => "commands",
        }
    }
}

/// How far a control can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    /// Not controlled.
    Open,
    /// A command that tries can get around it.
    Advisory,
    /// The kernel, or we, see to it.
    Enforced,
}

impl Strength {
    pub const ALL: [Strength; 3] = [Strength::Open, Strength::Advisory, Strength::Enforced];

    pub fn as_str(self) -> &'static str {
        match self {
            Strength::Open => "open",
            Strength::Advisory => "advisory",
            Strength::Enforced => "enforced",
        }
    }
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    pub subject: Subject,
    pub asked: String,
    pub in_force: String,
    pub strength: Strength,
    /// What sees to it.
    pub mechanism: String,
    /// What was tried to know that it works; absent when nothing was.
    pub proof: Option<String>,
}
