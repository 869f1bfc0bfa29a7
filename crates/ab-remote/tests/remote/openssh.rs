//! Plain servers: OpenSSH's own, unchanged, behind the same driver.

use ab_core::Backend;
use ab_testkit::{World, behaviour_suite};

use super::sshd::Sshd;

async fn openssh() -> World {
    match Sshd::start().await {
        Some(sshd) => World::keeping(sshd.backend().await, sshd),
        // It was said that this host cannot.
        None => World::new(agent_backend::memory()),
    }
}

behaviour_suite! { suite => openssh }

/// A backend on a server, or nothing where there is none.
async fn plain() -> Option<(Backend, Sshd)> {
    let sshd = Sshd::start().await?;
    Some((sshd.backend().await, sshd))
}

#[tokio::test]
async fn it_is_a_plain_server() {
    let Some((backend, _sshd)) = plain().await else { return };
    let can = backend.info().capabilities;
    assert!(can.exec && can.search && can.links && can.modes && can.empty_dirs, "{can:?}");
    assert!(can.atomic_write, "{can:?}");
    assert!(!can.jail && !can.detached && !can.exact_kinds, "{can:?}");
}
