//! What is in force for commands on a plain server, put into words: hardly anything.

use ab_core::effective::{
    ControlStrength, ControlSubject, EffectiveControl, EffectivePolicy, Isolation,
};

pub(super) fn describe() -> EffectivePolicy {
    let controls = ControlSubject::ALL.into_iter().map(control).collect();
    EffectivePolicy { isolation: Some(Isolation::None), controls }
}

fn control(subject: ControlSubject) -> EffectiveControl {
    let server = "the server's own accounts and limits, which are not known here";
    let (asked, in_force, strength, mechanism) = match subject {
        ControlSubject::Time => (
            "the limit of the call",
            "its process group is killed when the time is up",
            ControlStrength::Advisory,
            "a clock on this side, and a signal by another channel",
        ),
        ControlSubject::Orphans => (
            "nothing outlives its command",
            "what is left of the process group is killed; what left the group lives on, and so \
             does a command whose connection is lost",
            ControlStrength::Advisory,
            "a shell around the command",
        ),
        ControlSubject::Environment => (
            "a small fixed set and what the caller gave",
            "a small fixed set, the server's PATH, and what the caller gave",
            ControlStrength::Advisory,
            "env -i on the other side",
        ),
        ControlSubject::Output => (
            "a reader may take its time",
            "a command that is 64 MiB ahead of its reader is ended",
            ControlStrength::Enforced,
            "counted on this side",
        ),
        ControlSubject::Shell => {
            ("a shell", "sh of the server", ControlStrength::Advisory, "started by its login shell")
        }
        ControlSubject::Files
        | ControlSubject::Attributes
        | ControlSubject::Restrictions
        | ControlSubject::Network
        | ControlSubject::Sockets
        | ControlSubject::Processes
        | ControlSubject::Kernel
        | ControlSubject::Memory
        | ControlSubject::ProcessCount
        | ControlSubject::Cpu
        | ControlSubject::FileSize
        | ControlSubject::OpenFiles
        | ControlSubject::Commands => {
            ("whatever the caller asks for", "nothing of it", ControlStrength::Open, server)
        }
    };
    EffectiveControl {
        subject,
        asked: asked.to_owned(),
        in_force: in_force.to_owned(),
        strength,
        mechanism: mechanism.to_owned(),
        proof: None,
    }
}
