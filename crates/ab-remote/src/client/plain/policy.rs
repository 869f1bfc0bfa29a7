//! The effective policy of commands on a plain server: almost nothing is enforced.

use ab_core::effective::{
    EffectivePolicy, EffectivePolicyControl, Isolation, PolicyControlKind, PolicyControlStrength,
};

pub(super) fn describe() -> EffectivePolicy {
    let controls = PolicyControlKind::ALL.into_iter().map(control).collect();
    EffectivePolicy { isolation: Some(Isolation::None), controls }
}

fn control(subject: PolicyControlKind) -> EffectivePolicyControl {
    let server = "the server's own accounts and limits, which are not known here";
    let (asked, in_force, strength, mechanism) = match subject {
        PolicyControlKind::Time => (
            "the limit of the call",
            "its process group is killed when the time is up",
            PolicyControlStrength::Advisory,
            "a clock on this side, and a signal by another channel",
        ),
        PolicyControlKind::Orphans => (
            "nothing outlives its command",
            "what is left of the process group is killed; what left the group lives on, and so \
             does a command whose connection is lost",
            PolicyControlStrength::Advisory,
            "a shell around the command",
        ),
        PolicyControlKind::Environment => (
            "a small fixed set and what the caller gave",
            "a small fixed set, the server's PATH, and what the caller gave",
            PolicyControlStrength::Advisory,
            "env -i on the other side",
        ),
        PolicyControlKind::Output => (
            "a reader may take its time",
            "a command that is 64 MiB ahead of its reader is ended",
            PolicyControlStrength::Enforced,
            "counted on this side",
        ),
        PolicyControlKind::Shell => (
            "a shell",
            "sh of the server",
            PolicyControlStrength::Advisory,
            "started by its login shell",
        ),
        PolicyControlKind::Files
        | PolicyControlKind::Attributes
        | PolicyControlKind::Restrictions
        | PolicyControlKind::Network
        | PolicyControlKind::Sockets
        | PolicyControlKind::Processes
        | PolicyControlKind::Kernel
        | PolicyControlKind::Memory
        | PolicyControlKind::ProcessCount
        | PolicyControlKind::Cpu
        | PolicyControlKind::FileSize
        | PolicyControlKind::OpenFiles
        | PolicyControlKind::Commands => {
            ("whatever the caller asks for", "nothing of it", PolicyControlStrength::Open, server)
        }
    };
    EffectivePolicyControl {
        kind: subject,
        asked: asked.to_owned(),
        in_force: in_force.to_owned(),
        strength,
        mechanism: mechanism.to_owned(),
        proof: None,
    }
}
