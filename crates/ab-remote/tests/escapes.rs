//! The table of attempts to get out, made by commands over SSH and by paths over SFTP.

use std::fs;
use std::os::unix::fs::symlink;

use ab_core::effective_policy::{PolicyControlKind, PolicyControlStrength};
use ab_core::process::{HostDirectory, HostDirectoryAccess, PathRestrictions};
use ab_core::{Backend, ScopeOptions};
use ab_remote::sftp::packet::flags;
use ab_testkit::escapes::{
    self, CommandReport, CommandRunner, EscapeOutcome, EscapeTestbed, SandboxOption,
};
use ab_testkit::host::report_skip;
use agent_backend::{Isolation, LocalWorkspaceConfig, NetworkAccess, PolicyProfile, Toolchain};
use russh::ChannelMsg;
use tokio::runtime::Runtime;

use crate::client::{Sftp, connect, open_server, string};
use crate::stage::within;

/// A server over a workspace in one isolation, without the policy: what is tried here are the
/// walls.
struct Served {
    isolation: Isolation,
    runtime: Runtime,
}

impl Served {
    fn backend(&self, fixture: &EscapeTestbed, wishes: &[SandboxOption]) -> Backend {
        let mut config = LocalWorkspaceConfig::new(fixture.workspace_dir());
        config.policy.profile = PolicyProfile::Off;
        config.options.exec.isolation = self.isolation;
        let mut restrictions = PathRestrictions::default();
        let mut scope = None;
        for wish in wishes {
            let path = |path: &str| ab_core::PathParser::lenient().parse(path).unwrap();
            match wish {
                SandboxOption::NoNetwork => config.options.exec.network = NetworkAccess::None,
                SandboxOption::ReadOnly(below) => restrictions.read_only.push(path(below)),
                SandboxOption::Hidden(below) => restrictions.hidden.push(path(below)),
                SandboxOption::BindOutside => restrictions.host_directories.push(HostDirectory {
                    path: fixture.outside_dir().to_str().unwrap().to_owned(),
                    access: HostDirectoryAccess::ReadOnly,
                }),
                SandboxOption::ToolchainOutside => config
                    .options
                    .exec
                    .toolchains
                    .push(Toolchain::from_directory(fixture.outside_dir())),
                SandboxOption::FoundToolchain => config
                    .options
                    .exec
                    .toolchains
                    .push(Toolchain::from_directory(fixture.home_toolchain_dir())),
                SandboxOption::Scope(below) => scope = Some(*below),
                SandboxOption::Terminal => {}
                SandboxOption::Limited => {
                    let limits = &mut config.options.exec.limits;
                    limits.processes = Some(escapes::LIMITED_PROCESSES);
                    limits.open_files = Some(escapes::LIMITED_OPEN_FILES);
                }
            }
        }
        let backend = agent_backend::local_with(config).unwrap();
        let backend =
            if restrictions.is_empty() { backend } else { backend.restrict(restrictions).unwrap() };
        match scope {
            Some(scope) => backend.scope(scope, ScopeOptions::default()).unwrap(),
            None => backend,
        }
    }
}

impl CommandRunner for Served {
    fn run(&self, fixture: &EscapeTestbed, wishes: &[SandboxOption], line: &str) -> CommandReport {
        let backend = self.backend(fixture, wishes);
        self.runtime.block_on(async {
            let server = open_server(backend);
            let (handle, serving) = connect(&server).await;
            let mut channel = within(handle.channel_open_session()).await.unwrap();
            if wishes.contains(&SandboxOption::Terminal) {
                channel.request_pty(true, "vt100", 80, 24, 0, 0, &[]).await.unwrap();
            }
            channel.exec(true, line).await.unwrap();
            channel.eof().await.unwrap();
            let (mut stdout, mut stderr, mut status) = (Vec::new(), Vec::new(), None);
            while let Some(message) = within(channel.wait()).await {
                match message {
                    ChannelMsg::Data { data } => stdout.extend_from_slice(&data),
                    ChannelMsg::ExtendedData { data, .. } => stderr.extend_from_slice(&data),
                    ChannelMsg::ExitStatus { exit_status } => status = Some(exit_status),
                    _ => {}
                }
            }
            drop((channel, handle));
            within(serving).await.unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (stdout, stderr) = (text(&stdout), text(&stderr));
            let refused = stdout.is_empty() && status == Some(126);
            CommandReport { stdout, stderr, refused }
        })
    }

    fn claimed_control_strength(
        &self,
        fixture: &EscapeTestbed,
        wishes: &[SandboxOption],
        subject: PolicyControlKind,
    ) -> PolicyControlStrength {
        let backend = self.backend(fixture, wishes);
        let policy = self.runtime.block_on(backend.effective_policy()).unwrap();
        assert_eq!(policy.isolation, Some(self.isolation));
        policy.control(subject).unwrap().strength
    }

    fn is_unconfined(&self) -> bool {
        false
    }
}

fn make_all(isolation: Isolation) {
    let runtime = Runtime::new().unwrap();
    let base = tempfile::tempdir().unwrap();
    let served = Served { isolation, runtime };
    let fixture = EscapeTestbed::new(base.path());
    let stands = served.runtime.block_on(served.backend(&fixture, &[]).exec("true"));
    if let Err(error) = stands {
        return report_skip(&format!("commands in {isolation}"), &error.to_string());
    }
    let mut wrong = Vec::new();
    for attempt in escapes::all_attempts() {
        let base = tempfile::tempdir().unwrap();
        match escapes::run_attempt(attempt, &served, &EscapeTestbed::new(base.path())) {
            Ok(EscapeOutcome::Blocked | EscapeOutcome::Allowed) => {}
            Ok(EscapeOutcome::Inconclusive) => {
                wrong.push(format!("{}: nothing was tried", attempt.name))
            }
            Err(cause) => wrong.push(cause),
        }
    }
    assert!(wrong.is_empty(), "{isolation}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn nothing_gets_out_of_bwrap_over_ssh() {
    make_all(Isolation::Bwrap);
}

#[test]
fn nothing_gets_out_of_landlock_over_ssh_that_it_claims_to_hold() {
    make_all(Isolation::Landlock);
}

/// Every request that takes a path, given one that leads out by text or by a link.
#[tokio::test]
async fn no_path_leads_out_over_sftp() {
    let base = tempfile::tempdir().unwrap();
    let (root, outside) = (base.path().join("ws"), base.path().join("outside"));
    fs::create_dir_all(&root).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    fs::write(root.join("mine"), "mine").unwrap();
    symlink(&outside, root.join("away")).unwrap();
    symlink("../outside", root.join("near")).unwrap();
    symlink("away/secret", root.join("twice")).unwrap();
    symlink(outside.join("secret"), root.join("straight")).unwrap();
    symlink(outside.join("made"), root.join("dangling")).unwrap();
    symlink("/proc/self/cwd", root.join("magic")).unwrap();
    let server = open_server(agent_backend::local(&root).unwrap());
    let (handle, _serving) = connect(&server).await;
    let mut sftp = Sftp::new(&handle).await;
    let number = |value: u32| value.to_be_bytes().to_vec();
    let make = flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_CREATE;
    for path in [
        "../outside/secret",
        "/../outside/secret",
        "away/secret",
        "near/secret",
        "twice",
        "straight",
        "away/made",
        "dangling",
        "magic/made",
    ] {
        let name = string(path.as_bytes());
        let open = |how: u32| [name.clone(), number(how), number(0)].concat();
        let times = [name.clone(), number(8), number(1), number(1)].concat();
        let size = [name.clone(), number(1), vec![0; 8]].concat();
        let mine = string(b"mine");
        for (kind, body) in [
            (3, open(flags::OPEN_FLAG_READ)),
            (3, open(make)),
            (3, open(make | flags::OPEN_FLAG_TRUNCATE)),
            (3, open(make | flags::OPEN_FLAG_EXCLUSIVE)),
            (17, name.clone()),
            (9, times),
            (9, size),
            (11, name.clone()),
            (20, [mine.clone(), name.clone()].concat()),
        ] {
            let answer = sftp.ask(kind, &body).await;
            assert_ne!(answer.status(), 0, "{kind} {path}");
        }
        // Where the text of a link leads is decided when it is used; text that leaves is refused.
        if path.contains("..") {
            let answer = sftp.ask(20, &[name.clone(), string(b"link")].concat()).await;
            assert_ne!(answer.status(), 0, "{path}");
        }
        // These are about the link itself, which is ours, or about what is below one that leads out.
        if path.contains('/') {
            for (kind, body) in [
                (7, name.clone()),
                (13, name.clone()),
                (14, [name.clone(), number(0)].concat()),
                (15, name.clone()),
                (18, [mine.clone(), name.clone()].concat()),
                (18, [name.clone(), mine].concat()),
                (19, name.clone()),
            ] {
                let answer = sftp.ask(kind, &body).await;
                assert_ne!(answer.status(), 0, "{kind} {path}");
            }
        }
    }
    let names: Vec<_> =
        fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["secret"]);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(root.join("mine")).unwrap(), "mine");
}
