//! The workspace of an agent's session, with the real walls of this host.

use std::path::{Path, PathBuf};

use ab_core::effective_policy::{PolicyControlKind, PolicyControlStrength};
use ab_core::{ErrorKind, Isolation, NetworkAccess};
use ab_host::Toolchain;
use ab_local::{LocalWorkspace, LocalWorkspaceBuilder, ProgramLaunchRequest};
use ab_testkit::host::report_skip;

/// Directories of one session, beside each other as an executor lays them out.
struct Directories {
    keep: tempfile::TempDir,
}

impl Directories {
    fn new() -> Self {
        let directories = Self { keep: tempfile::tempdir().unwrap() };
        for name in ["work", "home", "cache", "temporary", "package/bin"] {
            std::fs::create_dir_all(directories.path(name)).unwrap();
        }
        std::fs::write(directories.path("cache/object"), "borrowed\n").unwrap();
        std::fs::write(directories.path("settings"), "configured\n").unwrap();
        std::fs::write(directories.path("secret"), "secret\n").unwrap();
        directories
    }

    fn path(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    fn builder(&self, isolation: Isolation) -> LocalWorkspaceBuilder {
        LocalWorkspace::builder(self.path("work"))
            .isolation(isolation)
            .temporary_dir(self.path("temporary"))
            .home_dir(self.path("home"))
            .mount_read_only_dir(self.path("cache"))
    }
}

/// Opens a workspace; nothing where this host has no such isolation.
async fn opened(builder: LocalWorkspaceBuilder, isolation: Isolation) -> Option<LocalWorkspace> {
    match builder.open().await {
        Ok(workspace) => Some(workspace),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            report_skip(&format!("isolation {isolation}"), &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What a shell writes that was launched, and that a command writes: both see the same.
async fn both(workspace: &LocalWorkspace, line: &str) -> String {
    let launch = ProgramLaunchRequest::new(["/bin/sh", "-c", line]);
    let launched =
        workspace.launcher.start(launch).await.unwrap().wait_with_output(1 << 16).await.unwrap();
    let launched = String::from_utf8_lossy(&launched.stdout).into_owned();
    let script = workspace.backend.write("line.sh", line).await;
    script.unwrap();
    let command = workspace.backend.exec("sh line.sh || true").await.unwrap();
    assert_eq!(String::from_utf8_lossy(&command.stdout.bytes), launched, "{line}");
    launched
}

const WALLS: [Isolation; 2] = [Isolation::Bwrap, Isolation::Landlock];

#[tokio::test]
async fn a_session_has_a_home_of_its_own_and_reads_the_cache() {
    for isolation in WALLS {
        let directories = Directories::new();
        let builder = directories.builder(isolation);
        let Some(workspace) = opened(builder, isolation).await else { continue };
        let home = directories.path("home");
        let said =
            both(&workspace, "echo $HOME; cd; pwd; echo kept > ~/state; echo $XDG_CONFIG_HOME")
                .await;
        let home_line = home.display();
        assert_eq!(said, format!("{home_line}\n{home_line}\n\n"), "{isolation}");
        let object = directories.path("cache/object");
        let object = object.display();
        let line = format!("cat '{object}'; echo x 2>/dev/null > '{object}' || echo refused");
        assert_eq!(both(&workspace, &line).await, "borrowed\nrefused\n", "{isolation}");
        let secret =
            format!("cat '{}' 2>/dev/null || echo refused", directories.path("secret").display());
        assert_eq!(both(&workspace, &secret).await, "refused\n", "{isolation}");
        workspace.backend.destroy().await.unwrap();
        assert_eq!(std::fs::read_to_string(home.join("state")).unwrap(), "kept\n");
        let left = directories.path("temporary").read_dir().unwrap().count();
        assert_eq!(left, 0, "left in the temporary directory");
    }
}

#[tokio::test]
async fn a_file_is_shown_read_only_at_another_path() {
    let directories = Directories::new();
    let inside = Path::new("/etc/agent-backend/settings");
    let builder = directories.builder(Isolation::Bwrap);
    let builder = builder.mount_read_only_file(directories.path("settings"), inside);
    let Some(workspace) = opened(builder, Isolation::Bwrap).await else { return };
    let line = format!("cat {0}; echo x 2>/dev/null > {0} || echo refused", inside.display());
    assert_eq!(both(&workspace, &line).await, "configured\nrefused\n");
    let moved = directories.builder(Isolation::Landlock);
    let moved = moved.mount_read_only_file(directories.path("settings"), inside);
    assert_eq!(moved.open().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn our_own_program_and_agent_packages_can_be_run() {
    for isolation in WALLS {
        let directories = Directories::new();
        let agent = directories.path("package/bin/agent");
        std::fs::write(&agent, "#!/bin/sh\necho I am the agent\n").unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        let package = Toolchain::from_directory(directories.path("package"));
        let builder = directories.builder(isolation).mount_own_executable().add_toolchain(package);
        let Some(workspace) = opened(builder, isolation).await else { continue };
        let launched =
            workspace.launcher.start(ProgramLaunchRequest::new(["agent"])).await.unwrap();
        assert_eq!(launched.wait_with_output(99).await.unwrap().stdout, "I am the agent\n");
        let own = std::env::current_exe().unwrap();
        let argv = [own.to_str().unwrap(), "--list", "--exact", "no-such-test"];
        let launched = workspace.launcher.start(ProgramLaunchRequest::new(argv)).await.unwrap();
        let output = launched.wait_with_output(4096).await.unwrap();
        assert_eq!(output.exit.code, Some(0), "{isolation}: {output:?}");
        let append =
            |path: &Path| format!("(: >> '{}') 2>/dev/null || echo kept; ", path.display());
        let line = append(&own) + &append(&agent);
        assert_eq!(both(&workspace, &line).await, "kept\nkept\n", "{isolation}");
    }
}

#[tokio::test]
async fn local_sockets_work_in_bwrap_with_a_private_home() {
    let directories = Directories::new();
    for network in [NetworkAccess::Shared, NetworkAccess::None] {
        let builder = directories.builder(Isolation::Bwrap).network(network);
        let Some(workspace) = opened(builder, Isolation::Bwrap).await else { return };
        let line = "perl -MIO::Socket::UNIX -e 'unlink \"$ENV{HOME}/s\"; \
                    print IO::Socket::UNIX->new(Local => \"$ENV{HOME}/s\", Listen => 1) ? \"yes\" : $!'";
        assert_eq!(both(&workspace, line).await, "yes", "{network}");
    }
}

#[tokio::test]
async fn a_socket_in_a_read_only_directory_of_a_session_is_out_of_reach() {
    let directories = Directories::new();
    let builder = directories.builder(Isolation::Bwrap);
    let Some(workspace) = opened(builder, Isolation::Bwrap).await else { return };
    let policy = workspace.backend.effective_policy().await.unwrap();
    let sockets = policy.control(PolicyControlKind::Sockets).unwrap();
    let cache = directories.path("cache").canonicalize().unwrap();
    if sockets.strength != PolicyControlStrength::Enforced {
        assert!(sockets.in_force.contains(cache.to_str().unwrap()), "{sockets:?}");
        return report_skip("overlays", "only root can mount them");
    }
    let name = cache.join("socket");
    let socket = std::os::unix::net::UnixListener::bind(&name).unwrap();
    socket.set_nonblocking(true).unwrap();
    let line = format!(
        "perl -MIO::Socket::UNIX -e 'print IO::Socket::UNIX->new(Peer => \"{}\") ? \"yes\" : \"no\"'",
        name.display(),
    );
    assert_eq!(both(&workspace, &line).await, "no");
    assert!(socket.accept().is_err());
}

#[tokio::test]
async fn a_session_does_not_open_below_its_floor() {
    let directories = Directories::new();
    for isolation in [Isolation::Software, Isolation::None] {
        let error = directories.builder(isolation).open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{isolation}");
        directories.builder(isolation).minimum_isolation(Isolation::None).open().await.unwrap();
    }
}

#[tokio::test]
async fn a_home_in_the_workspace_is_refused() {
    let directories = Directories::new();
    let inside = directories.path("work/home");
    std::fs::create_dir(&inside).unwrap();
    let error = directories.builder(Isolation::Auto).home_dir(inside).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
