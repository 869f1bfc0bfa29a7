//! What a command finds inside a bwrap, and which walls are chosen.

use std::path::PathBuf;

use ab_core::process::{Command, ExecRequest};
use ab_core::{Code, ExecOptions, Isolation, Kind, ScopeOptions};
use ab_host::{ExecSettings, SANDBOX_ROOT};
use ab_testkit::commands::said;
use ab_testkit::expect::failure;

use super::Ground;

#[tokio::test]
async fn the_system_cannot_be_changed() {
    let ground = Ground::behind(Isolation::Bwrap);
    for place in ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/", "/etc", "/dev", "/proc/sys"] {
        let line = format!("ls {place}/ >/dev/null 2>&1; ! touch {place}/made 2>/dev/null");
        said(&ground.backend, &line).await;
    }
    let mounts = said(&ground.backend, "cat /proc/self/mounts").await;
    let usr = mounts.lines().find(|line| line.contains(" /usr ")).unwrap();
    assert!(usr.split(' ').nth(3).unwrap().starts_with("ro"), "{usr}");
    ground.leave().await;
}

#[tokio::test]
async fn places_that_change_are_its_own() {
    let ground = Ground::behind(Isolation::Bwrap);
    let mounts = said(&ground.backend, "cat /proc/self/mounts").await;
    let kind = |place: &str| {
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(place));
        line.unwrap_or_else(|| panic!("{place} is no mount: {mounts}")).split(' ').nth(2).unwrap()
    };
    assert_eq!((kind("/tmp"), kind("/dev"), kind("/proc")), ("tmpfs", "tmpfs", "proc"));
    // What one command leaves in its /tmp, neither the next one nor the host has.
    said(&ground.backend, "echo x > /tmp/agent-backend-layout-test").await;
    said(&ground.backend, "! [ -e /tmp/agent-backend-layout-test ]").await;
    assert!(!PathBuf::from("/tmp/agent-backend-layout-test").exists());
    ground.leave().await;
}

#[tokio::test]
async fn the_workspace_is_at_two_paths() {
    let ground = Ground::behind(Isolation::Bwrap);
    assert_eq!(
        said(&ground.backend, "pwd; echo $HOME").await,
        format!("{SANDBOX_ROOT}\n").repeat(2)
    );
    let own = ground.workspace.path().canonicalize().unwrap();
    let line = format!("echo ours > made; cat {}/made {SANDBOX_ROOT}/made", own.display());
    assert_eq!(said(&ground.backend, &line).await, "ours\nours\n");
    // A path that a command printed means the same file to its caller.
    let printed = format!("{SANDBOX_ROOT}/made");
    assert_eq!(ground.backend.read(&printed).await.unwrap(), "ours\n");
    let scope = ground.backend.scope("tenants/ada", ScopeOptions::default()).unwrap();
    let inside = format!("{SANDBOX_ROOT}/tenants/ada\n");
    assert_eq!(said(&scope, "pwd; echo $HOME").await, inside.repeat(2));
    ground.leave().await;
}

#[tokio::test]
async fn every_namespace_is_its_own_but_the_network() {
    let ground = Ground::behind(Isolation::Bwrap);
    let line = "for n in cgroup ipc mnt pid user uts net; do readlink /proc/self/ns/$n; done";
    let said = said(&ground.backend, line).await;
    for name in said.lines() {
        let (kind, _) = name.split_once(':').unwrap();
        let ours = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert_eq!(ours.to_str() == Some(name), kind == "net", "{name}");
    }
    assert_eq!(said.lines().count(), 7);
    ground.leave().await;
}

#[tokio::test]
async fn auto_takes_the_strongest_that_works() {
    assert_eq!(ExecSettings::default().isolation, Isolation::Auto);
    let in_force = async |settings: ExecSettings, temporary: Option<&str>| {
        let workspace = tempfile::tempdir().unwrap();
        let mut settings = settings;
        if let Some(temporary) = temporary {
            settings.temporary = temporary.into();
        }
        let options = ab_host::LocalOptions { exec: settings, ..Default::default() };
        let local = ab_host::Local::open(workspace.path(), options).unwrap();
        let backend = ab_core::Backend::new(local);
        let policy = backend.effective_policy().await.unwrap();
        assert!(backend.exec("true").await.unwrap().exit.success());
        backend.destroy().await.unwrap();
        policy
    };
    let screen = Some(ab_policy::screen as ab_core::Screen);
    let best = in_force(ExecSettings::default(), None).await;
    assert_eq!(best.isolation, Some(Isolation::Bwrap));
    // A bwrap that does nothing is no wall; without a place for its files, neither is Landlock.
    let broken = ExecSettings { bwrap: Some("/bin/false".into()), ..ExecSettings::default() };
    let second = in_force(broken.clone(), None).await;
    assert_eq!(second.isolation, Some(Isolation::Landlock));
    let last = in_force(ExecSettings { screen, ..broken }, Some("/proc/nowhere")).await;
    assert_eq!(last.isolation, Some(Isolation::Software));
    let files = last.control(ab_core::Subject::Files).unwrap();
    for cause in ["bwrap does not work here", "landlock does not work here"] {
        assert!(files.in_force.contains(cause), "{files:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_so() {
    let ground = Ground::behind(Isolation::None);
    let missing = Command::Argv(vec!["no-such-program".to_owned()]);
    let request = ground.backend.request(missing, ExecOptions::default()).unwrap();
    let error = failure(ground.backend.spawn(request).await, Kind::NotFound);
    assert_eq!(error.code(), Code::ExecError);
    assert!(error.message().contains("no-such-program"), "{error}");
    ground.backend.write("plain", "no program").await.unwrap();
    let request = ExecRequest::new(Command::Argv(vec!["./plain".to_owned()]));
    let error = failure(ground.backend.spawn(request).await, Kind::PermissionDenied);
    assert_eq!(error.code(), Code::ExecError);
    ground.leave().await;
}
