//! What a command finds inside a bwrap, and which walls are chosen.

use std::path::PathBuf;

use ab_core::process::{Command, ExecRequest};
use ab_core::{Backend, ErrorCode, ErrorKind, ExecOptions, Isolation, ScopeOptions};
use ab_host::{
    LocalDriver, LocalDriverOptions, LocalExecSettings, SANDBOX_WORKSPACE_PATH, Toolchain,
};
use ab_testkit::commands::exec_stdout_text;
use ab_testkit::expect::expect_error;
use ab_testkit::host;

use super::{Fixture, MODES, WALLS};

#[tokio::test]
async fn the_system_cannot_be_changed() {
    let fixture = Fixture::behind(Isolation::Bwrap);
    for place in ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/", "/etc", "/dev", "/proc/sys"] {
        let line = format!("ls {place}/ >/dev/null 2>&1; ! touch {place}/made 2>/dev/null");
        exec_stdout_text(&fixture.backend, &line).await;
    }
    let mounts = exec_stdout_text(&fixture.backend, "cat /proc/self/mounts").await;
    let usr = mounts.lines().find(|line| line.contains(" /usr ")).unwrap();
    assert!(usr.split(' ').nth(3).unwrap().starts_with("ro"), "{usr}");
    fixture.leave().await;
}

#[tokio::test]
async fn places_that_change_are_its_own() {
    let fixture = Fixture::behind(Isolation::Bwrap);
    let mounts = exec_stdout_text(&fixture.backend, "cat /proc/self/mounts").await;
    let kind = |place: &str| {
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(place));
        line.unwrap_or_else(|| panic!("{place} is no mount: {mounts}")).split(' ').nth(2).unwrap()
    };
    assert_eq!((kind("/tmp"), kind("/dev"), kind("/proc")), ("tmpfs", "tmpfs", "proc"));
    exec_stdout_text(&fixture.backend, "echo x > /tmp/agent-backend-layout-test").await;
    assert!(!PathBuf::from("/tmp/agent-backend-layout-test").exists());
    fixture.leave().await;
}

/// The directory for temporary files, whatever the walls.
const TMP: &str = "${TMPDIR:-/tmp}";

#[tokio::test]
async fn a_private_tmp_stays_for_the_next_command_and_is_no_other_scopes() {
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        let (here, there) = ("tenants/ada", "tenants/bob");
        let scope = |path| fixture.backend.scope(path, ScopeOptions::default()).unwrap();
        let (ada, bob) = (scope(here), scope(there));
        for (backend, text) in [(&fixture.backend, "root"), (&ada, "ada"), (&bob, "bob")] {
            let seen =
                exec_stdout_text(backend, &format!("ls {TMP}; echo {text} > {TMP}/note")).await;
            assert!(!seen.contains("note"), "{isolation}: {seen}");
        }
        for (backend, text) in [(&fixture.backend, "root"), (&ada, "ada"), (&bob, "bob")] {
            let seen = exec_stdout_text(backend, &format!("cat {TMP}/note")).await;
            assert_eq!(seen.trim(), text, "{isolation}");
        }
        // Another handle on the same scope has the same.
        assert_eq!(exec_stdout_text(&scope(here), &format!("cat {TMP}/note")).await, "ada\n");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn a_private_tmp_cannot_fill_the_host() {
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        exec_stdout_text(&fixture.backend, "true").await;
        let files = fixture.backend.effective_policy().await.unwrap();
        let files = files.control(ab_core::PolicyControlKind::Files).unwrap().in_force.clone();
        if files.contains("is not limited") {
            host::report_skip("a bounded /tmp", &files);
            continue;
        }
        let seen =
            exec_stdout_text(&fixture.backend, &format!("df -k --output=size {TMP} | tail -1"))
                .await;
        assert_eq!(seen.trim(), (1024 * 1024).to_string(), "{isolation}");
        fixture.leave().await;
    }
}

/// bwrap follows links in the paths that it mounts at, so no command may leave one there.
#[tokio::test]
async fn mount_points_in_a_private_tmp_cannot_be_swapped() {
    let fixture = Fixture::behind(Isolation::Bwrap);
    let own = fixture.workspace.path().canonicalize().unwrap();
    let below_tmp = |path: &std::path::Path| {
        let mut parts = path.strip_prefix("/tmp").ok()?.components();
        Some(format!("/tmp/{}", parts.next()?.as_os_str().to_str()?))
    };
    let mut points = vec![SANDBOX_WORKSPACE_PATH.to_owned()];
    points.extend(below_tmp(&own));
    let scope = fixture.backend.scope("deep/er", ScopeOptions::default()).unwrap();
    for backend in [&fixture.backend, &scope] {
        for point in &points {
            let line = format!("! mv {point} /tmp/away && ! rmdir {point} && ! rm -rf {point}");
            exec_stdout_text(backend, &format!("{{ {line}; }} 2>/dev/null")).await;
            exec_stdout_text(backend, &format!("[ -d {point} ] && ! [ -L {point} ]")).await;
        }
    }
    let line = format!(
        "! mkdir {SANDBOX_WORKSPACE_PATH}/made && ! mv {SANDBOX_WORKSPACE_PATH}/deep {SANDBOX_WORKSPACE_PATH}/x"
    );
    exec_stdout_text(&scope, &format!("{{ {line}; }} 2>/dev/null")).await;
    fixture.leave().await;
}

#[tokio::test]
async fn caches_and_histories_are_not_in_the_workspace() {
    for isolation in MODES {
        let fixture = Fixture::behind(isolation);
        let line = "for d in \"$XDG_CACHE_HOME\" \"$npm_config_cache\" \"$CARGO_HOME\" \
                    \"$GOMODCACHE\"; do case $d in \"$HOME\"/*) echo \"$d\";; esac; \
                    mkdir -p \"$d\" && echo x > \"$d/kept\"; done; echo x > \"$HISTFILE\"";
        assert_eq!(exec_stdout_text(&fixture.backend, line).await, "", "{isolation}");
        assert_eq!(
            exec_stdout_text(&fixture.backend, "cat $CARGO_HOME/kept; ls -A").await,
            "x\n",
            "{isolation}"
        );
        fixture.leave().await;
    }
}

#[tokio::test]
async fn caches_stay_after_the_driver_where_a_directory_is_named() {
    for isolation in WALLS {
        let caches = tempfile::tempdir().unwrap();
        let settings = || LocalExecSettings {
            isolation,
            cache_dir: Some(caches.path().to_owned()),
            ..LocalExecSettings::default()
        };
        let first = Fixture::new(settings());
        exec_stdout_text(&first.backend, "mkdir -p $CARGO_HOME && echo kept > $CARGO_HOME/file")
            .await;
        first.backend.destroy().await.unwrap();
        let options = LocalDriverOptions { exec: settings(), ..LocalDriverOptions::default() };
        let second = Backend::new(LocalDriver::open(first.workspace.path(), options).unwrap());
        assert_eq!(exec_stdout_text(&second, "cat $CARGO_HOME/file").await, "kept\n");
        let scope = second.scope("other", ScopeOptions::default()).unwrap();
        exec_stdout_text(&scope, "! [ -e $CARGO_HOME/file ]").await;
        second.destroy().await.unwrap();
        let other = Fixture::new(settings());
        exec_stdout_text(&other.backend, "! [ -e $CARGO_HOME/file ]").await;
        other.leave().await;
    }
}

#[tokio::test]
async fn a_toolchain_that_is_missing_is_an_error() {
    for isolation in MODES {
        let toolchains = vec![Toolchain::from_directory("/no/such/toolchain")];
        let fixture = Fixture::new(LocalExecSettings {
            isolation,
            toolchains,
            ..LocalExecSettings::default()
        });
        let error = expect_error(fixture.backend.exec("true").await, ErrorKind::Invalid);
        assert!(error.message().contains("/no/such/toolchain"), "{error}");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn the_workspace_is_at_two_paths() {
    let fixture = Fixture::behind(Isolation::Bwrap);
    let own = fixture.workspace.path().canonicalize().unwrap();
    let start = format!("{}\n", own.display());
    assert_eq!(
        exec_stdout_text(&fixture.backend, "pwd; echo $HOME; /bin/pwd").await,
        start.repeat(3)
    );
    let line =
        format!("echo ours > made; cat {}/made {SANDBOX_WORKSPACE_PATH}/made", own.display());
    assert_eq!(exec_stdout_text(&fixture.backend, &line).await, "ours\nours\n");
    // A path that a command printed means the same file to its caller.
    let printed = format!("{SANDBOX_WORKSPACE_PATH}/made");
    assert_eq!(fixture.backend.read(&printed).await.unwrap(), "ours\n");
    let scope = fixture.backend.scope("tenants/ada", ScopeOptions::default()).unwrap();
    let inside = format!("{}/tenants/ada\n", own.display());
    assert_eq!(exec_stdout_text(&scope, "pwd; echo $HOME").await, inside.repeat(2));
    let alias = format!("echo mine > made; cat {SANDBOX_WORKSPACE_PATH}/tenants/ada/made");
    assert_eq!(exec_stdout_text(&scope, &alias).await, "mine\n");
    fixture.leave().await;
}

#[tokio::test]
async fn every_namespace_is_its_own_but_the_network() {
    let fixture = Fixture::behind(Isolation::Bwrap);
    let line = "for n in cgroup ipc mnt pid user uts net; do readlink /proc/self/ns/$n; done";
    let said = exec_stdout_text(&fixture.backend, line).await;
    for name in said.lines() {
        let (kind, _) = name.split_once(':').unwrap();
        let ours = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert_eq!(ours.to_str() == Some(name), kind == "net", "{name}");
    }
    assert_eq!(said.lines().count(), 7);
    fixture.leave().await;
}

#[tokio::test]
async fn auto_takes_the_strongest_that_works() {
    assert_eq!(LocalExecSettings::default().isolation, Isolation::Auto);
    let in_force = async |settings: LocalExecSettings| {
        let workspace = tempfile::tempdir().unwrap();
        let options = ab_host::LocalDriverOptions { exec: settings, ..Default::default() };
        let local = ab_host::LocalDriver::open(workspace.path(), options).unwrap();
        let backend = ab_core::Backend::new(local);
        let policy = backend.effective_policy().await.unwrap();
        assert!(backend.exec("true").await.unwrap().exit.success());
        backend.destroy().await.unwrap();
        policy
    };
    let best = in_force(LocalExecSettings::default()).await;
    assert_eq!(best.isolation, Some(Isolation::Bwrap));
    // A bwrap that does nothing is no wall.
    let broken =
        LocalExecSettings { bwrap: Some("/bin/false".into()), ..LocalExecSettings::default() };
    let second = in_force(broken).await;
    assert_eq!(second.isolation, Some(Isolation::Landlock));
    let files = second.control(ab_core::PolicyControlKind::Files).unwrap();
    assert!(files.in_force.contains("bwrap does not work here"), "{files:?}");
}

/// Neither a place for temporary files that is missing nor one that is no directory says anything about
/// walls: the command fails, nothing is remembered, and no weaker isolation takes the place.
#[tokio::test]
async fn trouble_with_temporary_files_is_no_lack_of_the_host() {
    for isolation in [Isolation::Auto, Isolation::Bwrap, Isolation::Landlock] {
        let (workspace, keep) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = keep.path().join("place");
        let screen = Some(ab_policy::check_command_paths as ab_core::CommandLineCheck);
        let temporary_dir = place.clone();
        let exec = LocalExecSettings {
            isolation,
            command_line_check: screen,
            temporary_dir,
            ..LocalExecSettings::default()
        };
        let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
        let backend = Backend::new(LocalDriver::open(workspace.path(), options).unwrap());
        let refused = async || {
            for error in [
                expect_error(backend.exec("true").await, ErrorKind::Invalid),
                expect_error(backend.effective_policy().await, ErrorKind::Invalid),
            ] {
                assert!(error.message().contains(place.to_str().unwrap()), "{error}");
                assert!(error.hint().unwrap().contains("TMPDIR"), "{error:?}");
            }
        };
        refused().await;
        std::fs::write(&place, "").unwrap();
        refused().await;
        std::fs::remove_file(&place).unwrap();
        std::fs::create_dir(&place).unwrap();
        exec_stdout_text(&backend, "true").await;
        let found = backend.effective_policy().await.unwrap().isolation.unwrap();
        let expect = if isolation == Isolation::Auto { Isolation::Bwrap } else { isolation };
        assert_eq!(found, expect);
        backend.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_so() {
    let fixture = Fixture::behind(Isolation::None);
    let missing = Command::Argv(vec!["no-such-program".to_owned()]);
    let request = fixture.backend.build_exec_request(missing, ExecOptions::default()).unwrap();
    let error = expect_error(fixture.backend.spawn(request).await, ErrorKind::NotFound);
    assert_eq!(error.code(), ErrorCode::ExecError);
    assert!(error.message().contains("no-such-program"), "{error}");
    fixture.backend.write("plain", "no program").await.unwrap();
    let request = ExecRequest::new(Command::Argv(vec!["./plain".to_owned()]));
    let error = expect_error(fixture.backend.spawn(request).await, ErrorKind::PermissionDenied);
    assert_eq!(error.code(), ErrorCode::ExecError);
    fixture.leave().await;
}
