//! What is in force for commands on a plain server, put into words: hardly anything.

use ab_core::effective::{EffectiveControl, EffectivePolicy, Isolation, Strength, Subject};

pub(super) fn describe() -> EffectivePolicy {
    let controls = Subject::ALL.into_iter().map(control).collect();
    EffectivePolicy { isolation: Some(Isolation::None), controls }
}

fn control(subject: Subject) -> EffectiveControl {
    let server = "the server's own accounts and limits, which are not known here";
    let (asked, in_force, strength, mechanism) = match subject {
        Subject::Time => (
            "the limit of the call",
            "its process group is killed when the time is up",
            Strength::Advisory,
            "a clock on this side, and a signal by another channel",
        ),
        Subject::Orphans => (
            "nothing outlives its command",
            "what is left of the process group is killed; what left the group lives on, and so \
             does a command whose connection is lost",
            Strength::Advisory,
            "a shell around the command",
        ),
        Subject::Environment => (
            "a small fixed set and what the caller gave",
            "a small fixed set, the server's PATH, and what the caller gave",
            Strength::Advisory,
            "env -i on the other side",
        ),
        Subject::Output => (
            "a reader may take its time",
            "a command that is 64 MiB ahead of its reader is ended",
            Strength::Enforced,
            "counted on this side",
        ),
        Subject::Shell => {
            ("a shell", "sh of the server", Strength::Advisory, "started by its login shell")
        }
        Subject::Files
        | Subject::Attributes
        | Subject::Restrictions
        | Subject::Network
        | Subject::Sockets
        | Subject::Processes
        | Subject::Kernel
        | Subject::Memory
        | Subject::ProcessCount
        | Subject::Cpu
        | Subject::FileSize
        | Subject::OpenFiles
        | Subject::Commands => {
            ("whatever the caller asks for", "nothing of it", Strength::Open, server)
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
