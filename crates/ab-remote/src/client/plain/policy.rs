//! The effective policy for commands on a plain SSH server. Almost nothing is enforced.

use ab_core::effective_policy::{
    EffectivePolicy, EffectivePolicyControl, Isolation, PolicyControlKind, PolicyControlStrength,
};

pub(super) fn describe() -> EffectivePolicy {
    let controls = PolicyControlKind::ALL.into_iter().map(control).collect();
    EffectivePolicy { isolation: Some(Isolation::None), controls }
}

fn control(subject: PolicyControlKind) -> EffectivePolicyControl {
    let server = "the accounts and limits of the server, which agent-backend does not know";
    let (asked, in_force, strength, mechanism) = match subject {
        PolicyControlKind::Time => (
            "the limit of the call",
            "for the process group of the command",
            PolicyControlStrength::Advisory,
            "a timer on this machine and a signal over a second channel",
        ),
        PolicyControlKind::Orphans => (
            "no process outlives its command",
            "the process group of a command is killed when the command ends; processes that left the \
             group keep running, and so does a command whose connection is lost",
            PolicyControlStrength::Advisory,
            "a shell around the command",
        ),
        PolicyControlKind::Environment => (
            "a fixed set of variables, and those that the caller sets",
            "commands get a fixed set of variables, the PATH of the server, and the variables that the \
             caller sets",
            PolicyControlStrength::Advisory,
            "env -i on the server",
        ),
        PolicyControlKind::Output => (
            "no output is lost",
            "a command with more than 64 MiB of unread output is ended",
            PolicyControlStrength::Enforced,
            "a count on this machine",
        ),
        PolicyControlKind::Shell => (
            "a shell",
            "sh of the server",
            PolicyControlStrength::Advisory,
            "the login shell of the user",
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
        | PolicyControlKind::Commands => (
            "a restriction",
            "agent-backend enforces nothing here",
            PolicyControlStrength::Open,
            server,
        ),
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
