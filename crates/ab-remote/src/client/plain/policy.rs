//! What is in force for commands on a plain server, put into words: hardly anything.

use ab_core::effective::{
    ControlKind, ControlStrength, EffectiveControl, EffectivePolicy, Isolation,
};

pub(super) fn describe() -> EffectivePolicy {
    let controls = ControlKind::ALL.into_iter().map(control).collect();
    EffectivePolicy { isolation: Some(Isolation::None), controls }
}

fn control(subject: ControlKind) -> EffectiveControl {
    let server = "the server's own accounts and limits, which are not known here";
    let (asked, in_force, strength, mechanism) = match subject {
        ControlKind::Time => (
            "the limit of the call",
            "its process group is killed when the time is up",
            ControlStrength::Advisory,
            "a clock on this side, and a signal by another channel",
        ),
        ControlKind::Orphans => (
            "nothing outlives its command",
            "what is left of the process group is killed; what left the group lives on, and so \
             does a command whose connection is lost",
            ControlStrength::Advisory,
            "a shell around the command",
        ),
        ControlKind::Environment => (
            "a small fixed set and what the caller gave",
            "a small fixed set, the server's PATH, and what the caller gave",
            ControlStrength::Advisory,
            "env -i on the other side",
        ),
        ControlKind::Output => (
            "a reader may take its time",
            "a command that is 64 MiB ahead of its reader is ended",
            ControlStrength::Enforced,
            "counted on this side",
        ),
        ControlKind::Shell => {
            ("a shell", "sh of the server", ControlStrength::Advisory, "started by its login shell")
        }
        ControlKind::Files
        | ControlKind::Attributes
        | ControlKind::Restrictions
        | ControlKind::Network
        | ControlKind::Sockets
        | ControlKind::Processes
        | ControlKind::Kernel
        | ControlKind::Memory
        | ControlKind::ProcessCount
        | ControlKind::Cpu
        | ControlKind::FileSize
        | ControlKind::OpenFiles
        | ControlKind::Commands => {
            ("whatever the caller asks for", "nothing of it", ControlStrength::Open, server)
        }
    };
    EffectiveControl {
        kind: subject,
        asked: asked.to_owned(),
        in_force: in_force.to_owned(),
        strength,
        mechanism: mechanism.to_owned(),
        proof: None,
    }
}
