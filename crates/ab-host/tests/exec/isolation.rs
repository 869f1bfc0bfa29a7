//! Walls: which are believed, what they refuse, and what a scope or a mount shows.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use ab_core::process::{Command, HostDirectory, HostDirectoryAccess, PathRestrictions};
use ab_core::{Backend, ErrorCode, ErrorKind, ExecOptions, Isolation, NetworkAccess, ScopeOptions};
use ab_host::{LocalDriver, LocalDriverOptions, LocalExecSettings, Toolchain};
use ab_testkit::commands::exec_stdout_text;
use ab_testkit::expect::expect_error;

use super::{Fixture, WALLS};

fn script(directory: &std::path::Path, text: &str) -> PathBuf {
    let path = directory.join("bwrap");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn less_than_the_floor_is_refused() {
    for (isolation, floor) in [
        (Isolation::Software, Isolation::Bwrap),
        (Isolation::Landlock, Isolation::Bwrap),
        (Isolation::None, Isolation::Software),
    ] {
        let fixture = Fixture::new(LocalExecSettings {
            isolation,
            minimum_isolation: floor,
            ..LocalExecSettings::default()
        });
        let error = expect_error(fixture.backend.exec("true").await, ErrorKind::Invalid);
        assert_eq!(error.code(), ErrorCode::InvalidConfiguration);
        let cause = format!("'{isolation}' is weaker than the required isolation '{floor}'");
        assert!(error.message().contains(&cause), "{error}");
        fixture.leave().await;
    }
    // Here the host is too weak.
    let fixture = Fixture::new(LocalExecSettings {
        minimum_isolation: Isolation::Bwrap,
        bwrap: Some("/bin/false".into()),
        ..LocalExecSettings::default()
    });
    let error = expect_error(fixture.backend.exec("true").await, ErrorKind::Unavailable);
    assert_eq!(error.code(), ErrorCode::MissingUtilities);
    assert!(
        error.message().contains("'bwrap' is required, but commands would have only '"),
        "{error}"
    );
    fixture.leave().await;
}

#[tokio::test]
async fn software_without_anything_that_looks_at_lines_is_no_mode() {
    // Before and after a driver of the same process that has it.
    for _ in 0..2 {
        let workspace = tempfile::tempdir().unwrap();
        let exec =
            LocalExecSettings { isolation: Isolation::Software, ..LocalExecSettings::default() };
        let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
        let backend = Backend::new(LocalDriver::open(workspace.path(), options).unwrap());
        for error in [
            expect_error(backend.exec("true").await, ErrorKind::Unavailable),
            expect_error(backend.effective_policy().await, ErrorKind::Unavailable),
        ] {
            assert_eq!(error.code(), ErrorCode::MissingUtilities);
            let cause = "software: the driver has no check for command lines";
            assert!(error.message().contains(cause), "{error}");
        }
        let fixture = Fixture::behind(Isolation::Software);
        exec_stdout_text(&fixture.backend, "true").await;
        fixture.leave().await;
    }
}

#[tokio::test]
async fn software_refuses_words_that_lead_out() {
    let fixture = Fixture::behind(Isolation::Software);
    fixture.backend.write("inside/file", "in").await.unwrap();
    fixture.backend.write("scope/file", "scoped").await.unwrap();
    let root = fixture.workspace.path().canonicalize().unwrap();
    let own = format!("cat inside/file {0}/inside/file ~/inside/file", root.display());
    assert_eq!(exec_stdout_text(&fixture.backend, &own).await, "ininin");
    let scope = fixture.backend.scope("scope", ScopeOptions::default()).unwrap();
    assert_eq!(exec_stdout_text(&scope, "cat $HOME/file").await, "scoped");
    let above = format!("cat {}/inside/file", root.display());
    for (backend, line) in [
        (&fixture.backend, "cat $HOME/../x"),
        (&fixture.backend, "cd inside; cat ../../x"),
        (&fixture.backend, "echo x > /tmp/agent-backend-software-test"),
        (&fixture.backend, "cat 'x"),
        (&scope, "cat ../inside/file"),
        (&scope, &above),
    ] {
        let error = expect_error(backend.exec(line).await, ErrorKind::DeniedByPolicy);
        assert_eq!(error.code(), ErrorCode::UnsafeCommand, "{line}: {error}");
    }
    let words = ["cat", "../x"].map(str::to_owned).to_vec();
    let request =
        fixture.backend.build_exec_request(Command::Argv(words), ExecOptions::default()).unwrap();
    expect_error(fixture.backend.spawn(request).await, ErrorKind::DeniedByPolicy);
    // A scope does not learn from an error where the workspace is.
    let error = expect_error(scope.exec("cat ~/../x").await, ErrorKind::DeniedByPolicy);
    assert!(!error.message().contains(root.to_str().unwrap()), "{error}");
    fixture.leave().await;
}

#[tokio::test]
async fn a_bwrap_that_only_pretends_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let pretends = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"\n";
    for bwrap in [
        PathBuf::from("/bin/false"),
        PathBuf::from("/bin/true"),
        PathBuf::from("/nowhere/bwrap"),
        script(directory.path(), pretends),
    ] {
        let settings = LocalExecSettings {
            isolation: Isolation::Bwrap,
            bwrap: Some(bwrap),
            ..LocalExecSettings::default()
        };
        let fixture = Fixture::new(settings.clone());
        let error = expect_error(fixture.backend.exec("true").await, ErrorKind::Unavailable);
        assert_eq!(error.code(), ErrorCode::MissingUtilities, "{error}");
        fixture.leave().await;

        // Left to choose, the next best is taken, and it says why.
        let fixture = Fixture::new(LocalExecSettings { isolation: Isolation::Auto, ..settings });
        let policy = fixture.backend.effective_policy().await.unwrap();
        assert_ne!(policy.isolation, Some(Isolation::Bwrap));
        assert!(policy.controls[0].in_force.contains("bwrap does not work here"), "{policy:?}");
        fixture.leave().await;
    }
}

/// The first workspace proves the isolation, the second one starts no test program: its bwrap no longer works.
#[tokio::test]
async fn a_second_workspace_uses_the_proof_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let bwrap = directory.path().join("bwrap");
    std::fs::copy("/usr/bin/bwrap", &bwrap).unwrap();
    let settings = LocalExecSettings {
        isolation: Isolation::Bwrap,
        bwrap: Some(bwrap.clone()),
        ..LocalExecSettings::default()
    };
    let temporary = tempfile::tempdir().unwrap();
    let open = || {
        let workspace = tempfile::tempdir().unwrap();
        let exec =
            LocalExecSettings { temporary_dir: temporary.path().to_owned(), ..settings.clone() };
        let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
        (Backend::new(LocalDriver::open(workspace.path(), options).unwrap()), workspace)
    };
    let (first, _first_workspace) = open();
    let proven = first.effective_policy().await.unwrap();
    let modified = bwrap.metadata().unwrap().modified().unwrap();
    let replace = |modified| {
        std::fs::write(&bwrap, "not a program").unwrap();
        let file = std::fs::File::options().write(true).open(&bwrap).unwrap();
        file.set_modified(modified).unwrap();
    };
    replace(modified);
    let (second, _second_workspace) = open();
    assert_eq!(second.effective_policy().await.unwrap(), proven);
    // A program that was changed since is tested again.
    replace(std::time::SystemTime::UNIX_EPOCH);
    let (third, _third_workspace) = open();
    expect_error(third.effective_policy().await, ErrorKind::Unavailable);
    for backend in [first, second, third] {
        backend.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn a_bwrap_in_the_workspace_is_refused() {
    let workspace = tempfile::tempdir().unwrap();
    let bwrap = workspace.path().join("bwrap");
    std::fs::copy("/usr/bin/bwrap", &bwrap).unwrap();
    let exec = LocalExecSettings {
        isolation: Isolation::Bwrap,
        bwrap: Some(bwrap),
        ..LocalExecSettings::default()
    };
    let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
    let backend = Backend::new(LocalDriver::open(workspace.path(), options).unwrap());
    let error = expect_error(backend.exec("true").await, ErrorKind::Unavailable);
    assert!(error.message().contains("is in the workspace"), "{error}");
}

#[tokio::test]
async fn a_scope_shows_only_itself() {
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        fixture.backend.write("secret", "parent's").await.unwrap();
        fixture.backend.write("tenants/bob/secret", "bob's").await.unwrap();
        let scope = fixture.backend.scope("tenants/ada", ScopeOptions::default()).unwrap();
        let root = fixture.workspace.path().display();
        let line = format!(
            "cat {root}/secret ../../secret ../bob/secret {root}/tenants/bob/secret; \
             ls .. ../..; echo x > ../made; echo end"
        );
        let output = scope.exec(&line).await.unwrap();
        let text = output.stdout_text();
        assert!(!text.contains("parent's") && !text.contains("bob's"), "{isolation}: {text}");
        assert!(text.ends_with("end\n") && !text.contains("bob\n"), "{isolation}: {text}");
        assert!(!fixture.workspace.path().join("tenants/made").exists(), "{isolation}");
        // Its own absolute path is the same inside.
        exec_stdout_text(&scope, "echo here > file").await;
        assert_eq!(
            exec_stdout_text(&scope, &format!("cat {root}/tenants/ada/file")).await,
            "here\n"
        );
        fixture.leave().await;
    }
}

#[tokio::test]
async fn mounts_are_at_their_paths() {
    let (base, guest) = (Fixture::behind(Isolation::Bwrap), Fixture::behind(Isolation::Bwrap));
    let whole = base.backend.mount("mnt/data", &guest.backend).unwrap();
    whole.write("of-base", "base").await.unwrap();
    whole.write("mnt/data/of-guest", "guest").await.unwrap();
    assert_eq!(exec_stdout_text(&whole, "cat of-base mnt/data/of-guest").await, "baseguest");
    exec_stdout_text(&whole, "echo made > mnt/data/made").await;
    assert_eq!(guest.backend.read_text("made").await.unwrap(), "made\n");
    let options = ab_core::ExecOptions { cwd: Some("mnt/data".to_owned()), ..Default::default() };
    let from_guest =
        ab_testkit::commands::exec_stdout_text_with(&whole, "cat of-guest ../../of-base", options)
            .await;
    assert_eq!(from_guest, "guestbase");
    // Seen from the guest alone there is no base.
    assert!(guest.backend.exec("cat ../../of-base").await.is_err());
    base.leave().await;
    guest.leave().await;
}

/// A read-only scope that changes places with a link to the outside while commands start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_scope_that_is_swapped_shows_nothing_else() {
    let fixture = Fixture::behind(Isolation::Landlock);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "outside").unwrap();
    fixture.backend.write("scope/file", "own").await.unwrap();
    let (one, other) = (fixture.workspace.path().join("scope"), fixture.workspace.path().join("l"));
    std::os::unix::fs::symlink(outside.path(), &other).unwrap();
    let scope = fixture.backend.scope("scope", ScopeOptions::default()).unwrap();
    let read_only = vec![scope.parse_path(".").unwrap()];
    let restrictions = PathRestrictions { read_only, ..PathRestrictions::default() };
    let scope = scope.restrict(restrictions).unwrap();
    let line = format!("cat file '{0}/file' '{1}/file'", one.display(), outside.path().display());
    assert_eq!(scope.exec("cat file").await.unwrap().stdout_text(), "own");
    let done = AtomicBool::new(false);
    let (mut ran, mut shown) = (0, Vec::new());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for _ in 0..300 {
                    let command = Command::Shell(line.clone());
                    if let Ok(output) =
                        scope.exec_allowing_failure(command, ExecOptions::default()).await
                    {
                        ran += 1;
                        shown.push(output.stdout.display_text());
                    }
                }
            });
        });
        done.store(true, Ordering::Relaxed);
    });
    assert!(ran > 0, "no command ran");
    assert!(!shown.iter().any(|text| text.contains("outside")), "{shown:?}");
    fixture.leave().await;
}

/// A directory inside one that commands may write: they could put a link in its place.
#[tokio::test]
async fn a_bind_through_what_commands_can_write_does_not_lead_out() {
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        let (shared, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("file"), "outside").unwrap();
        std::fs::create_dir(shared.path().join("plain")).unwrap();
        std::fs::write(shared.path().join("plain/file"), "shared").unwrap();
        let own = fixture.workspace.path();
        for root in [own, shared.path()] {
            std::os::unix::fs::symlink(outside.path(), root.join("link")).unwrap();
        }
        let bind = |path: PathBuf, access| HostDirectory {
            path: path.to_str().unwrap().to_owned(),
            access,
        };
        let whole = bind(shared.path().to_owned(), HostDirectoryAccess::ReadWrite);
        let bound = |inner: PathBuf| {
            let binds = vec![whole.clone(), bind(inner, HostDirectoryAccess::ReadOnly)];
            fixture
                .backend
                .restrict(PathRestrictions {
                    host_directories: binds,
                    ..PathRestrictions::default()
                })
                .unwrap()
        };
        for root in [own, shared.path()] {
            let line = format!("cat '{}/file'", root.join("link").display());
            let through = bound(root.join("link")).exec(&line).await;
            assert!(through.is_err(), "{isolation}: {through:?}");
        }
        let line = format!("cat '{}/plain/file'", shared.path().display());
        assert_eq!(exec_stdout_text(&bound(shared.path().join("plain")), &line).await, "shared");
        fixture.leave().await;
    }
}

/// A directory that leads, by another name or from inside, to what is hidden or read-only.
#[tokio::test]
async fn a_bind_does_not_lead_around_restrictions() {
    let fixture = Fixture::behind(Isolation::Bwrap);
    fixture.backend.write("d/e/f", "secret").await.unwrap();
    let own = fixture.workspace.path().canonicalize().unwrap();
    let beside = tempfile::tempdir().unwrap();
    let alias = beside.path().join("alias");
    std::os::unix::fs::symlink(&own, &alias).unwrap();
    let restricted = |path: PathBuf, access, hidden: &[&str], read_only: &[&str]| {
        let of = |paths: &[&str]| {
            paths.iter().map(|it| fixture.backend.parse_path(it).unwrap()).collect()
        };
        let (hidden, read_only) = (of(hidden), of(read_only));
        let binds = vec![HostDirectory { path: path.to_str().unwrap().to_owned(), access }];
        fixture
            .backend
            .restrict(PathRestrictions { hidden, read_only, host_directories: binds })
            .unwrap()
    };
    let (read, write) = (HostDirectoryAccess::ReadOnly, HostDirectoryAccess::ReadWrite);
    let line = format!(
        "cat d/e/f {0}/d/e/f {1}/d/e/f {1}/e/f {1}/f; echo x >> d/e/f; echo x >> {1}/d/e/f; true",
        own.display(),
        alias.display()
    );
    let (hide, keep): (&[&str], &[&str]) = (&["d"], &["d"]);
    for (path, access, hidden, read_only) in [
        (alias.clone(), read, hide, &[][..]),
        (alias.clone(), write, &["d/e"], &[]),
        (alias.join("d"), read, hide, &[]),
        (alias.join("d/e"), read, hide, &[]),
        (own.join("d"), read, hide, &[]),
        (own.join("d/e"), read, hide, &[]),
        (alias.clone(), write, &[], keep),
        (own.join("d"), write, &[], keep),
        (own.join("d/e"), write, &[], keep),
        (own.clone(), write, &[], &["."]),
    ] {
        let refused = restricted(path.clone(), access, hidden, read_only).exec(&line).await;
        let said = format!("{path:?} {access:?} {hidden:?} {read_only:?}");
        let error = expect_error(refused.map(|ran| format!("{said}: {ran:?}")), ErrorKind::Invalid);
        assert!(error.message().contains("commands could then access"), "{said}: {error}");
    }
    // These change nothing about what is restricted.
    for (path, access, hidden, read_only) in [
        (own.clone(), write, hide, &[][..]),
        (own.join("d"), read, &["d/e"], &[]),
        (own.join("d"), write, &[], &["d/e"]),
        (alias.clone(), read, &[], keep),
        (beside.path().to_owned(), write, hide, &[]),
    ] {
        let handle = restricted(path.clone(), access, hidden, read_only);
        let seen = exec_stdout_text(&handle, &line).await;
        assert_eq!(seen.contains("secret"), hidden.is_empty(), "{path:?} {access:?}: {seen}");
        assert_eq!(fixture.backend.read_text("d/e/f").await.unwrap(), "secret", "{path:?}");
    }
    fixture.leave().await;
}

/// Under Landlock grants add up: one on a directory around a read-only scope would make it writable.
#[tokio::test]
async fn a_bind_does_not_make_a_read_only_scope_writable() {
    let fixture = Fixture::behind(Isolation::Landlock);
    fixture.backend.write("scope/file", "kept").await.unwrap();
    let scope = fixture.backend.scope("scope", ScopeOptions::default()).unwrap();
    let own = fixture.workspace.path().canonicalize().unwrap();
    let path = own.to_str().unwrap().to_owned();
    let handle = |access| {
        let read_only = vec![scope.parse_path(".").unwrap()];
        let binds = vec![HostDirectory { path: path.clone(), access }];
        scope
            .restrict(PathRestrictions {
                read_only,
                host_directories: binds,
                ..PathRestrictions::default()
            })
            .unwrap()
    };
    let line = "echo x >> file; cat file";
    expect_error(handle(HostDirectoryAccess::ReadWrite).exec(line).await, ErrorKind::Invalid);
    assert_eq!(exec_stdout_text(&handle(HostDirectoryAccess::ReadOnly), line).await, "kept");
    fixture.leave().await;
}

#[tokio::test]
async fn commands_run_in_a_scope_inside_a_read_only_directory() {
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        fixture.backend.write("kept/deep/file", "own").await.unwrap();
        let read_only = vec![fixture.backend.parse_path("kept").unwrap()];
        let restrictions = PathRestrictions { read_only, ..PathRestrictions::default() };
        let handle = fixture.backend.restrict(restrictions).unwrap();
        let scope = handle.scope("kept/deep", ScopeOptions::default()).unwrap();
        let line = "cat file; (echo x > file) 2>/dev/null || echo ' kept'";
        assert_eq!(exec_stdout_text(&scope, line).await, "own kept\n", "{isolation}");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_set_up_has_its_own_exit_code() {
    let beside = tempfile::tempdir().unwrap();
    let tool = beside.path().join("tool");
    std::fs::write(&tool, "").unwrap();
    let toolchain = Toolchain { readable_paths: vec![tool.clone()], ..Toolchain::default() };
    let fixture = Fixture::new(LocalExecSettings {
        isolation: Isolation::Bwrap,
        toolchains: vec![toolchain],
        ..LocalExecSettings::default()
    });
    let run = async || {
        let command = Command::Shell("echo own >&2; exit 1".to_owned());
        fixture.backend.exec_allowing_failure(command, ExecOptions::default()).await.unwrap()
    };
    let ran = run().await;
    assert_eq!((ran.exit.code, ran.exit.stderr_tail.as_str()), (Some(1), "own\n"));
    std::fs::remove_file(&tool).unwrap();
    let ran = run().await;
    assert_eq!(ran.exit.code, Some(125));
    for text in [&ran.exit.stderr_tail, &ran.stderr.display_text()] {
        assert!(text.contains("the command did not run"), "{text}");
    }
    fixture.leave().await;
}

/// What the sandbox itself mounts is not replaced by the host's.
#[tokio::test]
async fn a_bind_does_not_show_processes_of_the_host() {
    let beside = tempfile::tempdir().unwrap();
    let alias = beside.path().join("processes");
    std::os::unix::fs::symlink("/proc", &alias).unwrap();
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        let taken: &[&str] =
            if isolation == Isolation::Bwrap { &["/", "/dev", "/tmp"] } else { &[] };
        for path in ["/proc", "/proc/self", alias.to_str().unwrap()].iter().chain(taken) {
            let bind =
                HostDirectory { path: (*path).to_owned(), access: HostDirectoryAccess::ReadOnly };
            let restrictions =
                PathRestrictions { host_directories: vec![bind], ..PathRestrictions::default() };
            let handle = fixture.backend.restrict(restrictions).unwrap();
            let error = expect_error(handle.exec("true").await, ErrorKind::Invalid);
            assert!(error.message().contains(&format!("cannot bind {path}: ")), "{error}");
        }
        fixture.leave().await;
    }
}

/// Answers one word to whoever comes.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.write_all(b"reached\n");
        }
    });
    port
}

#[tokio::test]
async fn the_network_is_shared_or_none() {
    let port = server();
    let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3");
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        assert_eq!(exec_stdout_text(&fixture.backend, &line).await, "reached\n");
        fixture.leave().await;
        let network = NetworkAccess::None;
        let fixture =
            Fixture::new(LocalExecSettings { isolation, network, ..LocalExecSettings::default() });
        assert!(fixture.backend.exec(&line).await.is_err(), "{isolation}: it was reached");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn sockets_of_the_host_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let by_path = UnixListener::bind(&path).unwrap();
    let name = format!("agent-backend-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let without_path = UnixListener::bind_addr(&address).unwrap();
    if !std::path::Path::new("/usr/bin/perl").exists() {
        return ab_testkit::host::report_skip("sockets of the host", "no perl");
    }
    let connect = |address: &str| {
        let address = address.replace('\0', "\\0");
        format!(
            "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die \"no socket: $!\"; \
             connect(S, pack_sockaddr_un(\"{address}\")) or die \"no way: $!\"; print \"in\"'"
        )
    };
    let lines = [connect(&path.display().to_string()), connect(&format!("\0{name}"))];
    let open = Fixture::behind(Isolation::None);
    for line in &lines {
        assert_eq!(
            exec_stdout_text(&open.backend, line).await,
            "in",
            "the test itself does not work"
        );
    }
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        for line in &lines {
            let error = expect_error(fixture.backend.exec(line).await, ErrorKind::CommandFailed);
            assert!(error.message().contains("no "), "{isolation}: {error}");
        }
        fixture.leave().await;
    }
    drop((by_path, without_path));
}

/// What a program outside offers in the workspace is meant for its commands.
#[tokio::test]
async fn a_socket_in_the_workspace_is_reachable_in_bwrap_and_not_under_landlock() {
    if !std::path::Path::new("/usr/bin/perl").exists() {
        return ab_testkit::host::report_skip("sockets in the workspace", "no perl");
    }
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        let listener = UnixListener::bind(fixture.workspace.path().join("socket")).unwrap();
        let line = "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; \
                    connect(S, pack_sockaddr_un(\"socket\")) or die; print \"in\"'";
        let said = fixture.backend.exec(line).await.map(|ran| ran.stdout_text());
        match isolation {
            Isolation::Bwrap => assert_eq!(said.unwrap(), "in"),
            _ => drop(expect_error(said, ErrorKind::CommandFailed)),
        }
        drop(listener);
        fixture.leave().await;
    }
}

#[tokio::test]
async fn a_named_shell_is_the_one() {
    for (shell, expect) in
        [(ab_host::CommandShell::Bash, "bash\n"), (ab_host::CommandShell::Sh, "sh\n")]
    {
        let fixture = Fixture::new(LocalExecSettings { shell, ..LocalExecSettings::default() });
        assert_eq!(exec_stdout_text(&fixture.backend, "basename $0").await, expect);
        fixture.leave().await;
    }
}

#[tokio::test]
async fn processes_of_the_host_are_not_seen() {
    let network = NetworkAccess::None;
    let fixture = Fixture::new(LocalExecSettings {
        isolation: Isolation::Bwrap,
        network,
        ..LocalExecSettings::default()
    });
    let mut own = String::new();
    std::fs::File::open("/proc/self/comm").unwrap().read_to_string(&mut own).unwrap();
    let said = exec_stdout_text(
        &fixture.backend,
        "ls /proc | grep -c '^[0-9]'; tr '\\0' '\\n' < /proc/1/cmdline | head -n 1",
    )
    .await;
    assert!(said.ends_with("bwrap\n") && !said.contains(&own), "{said}");
    fixture.leave().await;
}
