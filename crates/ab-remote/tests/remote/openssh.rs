//! Plain servers: OpenSSH's own, unchanged, behind the same driver.

mod commands;
mod passwords;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use ab_core::options::{ListOptions, OpenOptions, RemoveOptions};
use ab_core::process::ExecRequest;
use ab_core::{Backend, ErrorCode, ErrorKind, FileKind, LostCallEffect};
use ab_testkit::sshd::Sshd;
use ab_testkit::{TestBackend, behaviour_suite, model};
use bytes::Bytes;

use super::sshd;

/// Sequences of the model: each of their calls is a few round trips.
const SEQUENCES: u32 = 60;

async fn openssh() -> TestBackend {
    match Sshd::start().await {
        Some(sshd) => TestBackend::keeping_alive(sshd::backend(&sshd).await, sshd),
        // It was said that this host cannot.
        None => TestBackend::new(agent_backend::memory()),
    }
}

behaviour_suite! { suite => openssh }

/// A backend on a server, or nothing where there is none.
async fn plain() -> Option<(Backend, Sshd)> {
    let sshd = Sshd::start().await?;
    Some((sshd::backend(&sshd).await, sshd))
}

#[tokio::test]
async fn it_is_a_plain_server() {
    let Some((backend, _sshd)) = plain().await else { return };
    let can = backend.info().capabilities;
    assert!(can.exec && can.search && can.symlinks && can.file_modes && can.empty_dirs, "{can:?}");
    assert!(can.atomic_write, "{can:?}");
    assert!(!can.jail && !can.detached_processes && !can.exact_error_kinds, "{can:?}");
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

#[tokio::test]
async fn files_of_all_sizes_go_both_ways() {
    let Some((backend, sshd)) = plain().await else { return };
    for size in [0, 1, 32 * 1024, 300 * 1024 + 1, 5_000_000, 40 * 1024 * 1024] {
        let content = pattern(size);
        let stat = backend.write("file", content.clone()).await.unwrap();
        assert_eq!(stat.size, size as u64);
        assert!(fs::read(sshd.workspace.path().join("file")).unwrap() == content, "{size}");
        assert!(backend.read("file").await.unwrap() == content, "{size}");
    }
    let left: Vec<_> = fs::read_dir(sshd.workspace.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "temporary files are left: {left:?}");
}

#[tokio::test]
async fn ten_thousand_entries_are_listed() {
    let Some((backend, sshd)) = plain().await else { return };
    let root = sshd.workspace.path();
    for number in 0..10_000 {
        fs::write(root.join(format!("{number:05}")), "").unwrap();
    }
    for number in 0..100 {
        let deep = root.join(format!("dir{number:03}/deep"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("leaf"), "").unwrap();
    }
    let whole = ListOptions { max_depth: usize::MAX, ..ListOptions::default() };
    let listing = backend.list(".", whole).await.unwrap();
    assert_eq!((listing.entries.len(), listing.problems.len()), (10_300, 0));
    let paths: Vec<_> = listing.entries.iter().map(|entry| entry.path.clone()).collect();
    assert!(paths.is_sorted());
    let removed = backend.rm("dir000", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(removed.count, 3);
}

#[tokio::test]
async fn odd_names_reach_commands_as_names() {
    let Some((backend, _sshd)) = plain().await else { return };
    for name in ["$(touch hacked)", "a'b\"c", "two\nlines", " lead", "-rf", "back\\slash", "é☃"]
    {
        backend.write(&format!("{name}/file"), name).await.unwrap();
        let scope = backend.scope(name, Default::default()).unwrap();
        let output = scope.exec("cat file; basename \"$PWD\"").await.unwrap();
        assert_eq!(output.stdout.display_text(), format!("{name}{name}\n"));
    }
    assert!(!backend.exists("hacked").await.unwrap());
}

#[tokio::test]
async fn links_that_lead_out_are_refused() {
    let Some((backend, sshd)) = plain().await else { return };
    let root = sshd.workspace.path();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "kept").unwrap();
    symlink(outside.path(), root.join("out")).unwrap();
    symlink("../..", root.join("up")).unwrap();
    symlink(root.join("inner"), root.join("absolute")).unwrap();
    backend.write("inner/file", "inside").await.unwrap();
    assert_eq!(backend.read("absolute/file").await.unwrap(), "inside");
    for path in ["out/secret", "out", "up/etc", "out/new"] {
        let refused = backend.read(path).await.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.path()),
            (ErrorKind::PathEscape, Some(path)),
            "{refused}"
        );
        assert_eq!(backend.write(path, "x").await.unwrap_err().kind(), ErrorKind::PathEscape);
        assert_eq!(backend.readdir(path).await.unwrap_err().kind(), ErrorKind::PathEscape);
    }
    let scope = backend.scope("inner", Default::default()).unwrap();
    symlink("../out2", root.join("inner/beside")).unwrap();
    backend.write("out2", "beside").await.unwrap();
    assert_eq!(scope.read("beside").await.unwrap_err().kind(), ErrorKind::PathEscape);
    assert_eq!(backend.read("inner/beside").await.unwrap(), "beside");
    assert_eq!(fs::read_to_string(outside.path().join("secret")).unwrap(), "kept");
}

#[tokio::test]
async fn what_cannot_be_told_by_name_is_a_problem_of_the_listing() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let Some((backend, sshd)) = plain().await else { return };
    fs::write(sshd.workspace.path().join(OsStr::from_bytes(b"odd\xff")), "x").unwrap();
    fs::write(sshd.workspace.path().join("even"), "x").unwrap();
    let listing = backend.list(".", ListOptions::default()).await.unwrap();
    assert_eq!((listing.entries.len(), listing.problems.len()), (1, 1));
    assert_eq!(listing.problems[0].error.kind(), ErrorKind::InvalidPath);
}

#[tokio::test]
async fn the_root_must_be_a_directory() {
    let Some(sshd) = Sshd::start().await else { return };
    fs::write(sshd.workspace.path().join("file"), "x").unwrap();
    let root = sshd.workspace.path().to_str().unwrap();
    for wrong in [format!("{root}/nowhere"), format!("{root}/nowhere/deep"), format!("{root}/file")]
    {
        let settings =
            ab_remote::client::RemoteClientSettings { root: Some(wrong), ..sshd::settings(&sshd) };
        let backend = Backend::new(ab_remote::client::RemoteDriver::new(settings).unwrap());
        let error = backend.connect().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfiguration, "{error}");
    }
}

#[tokio::test]
async fn a_connection_that_is_lost_is_made_again() {
    let Some((backend, sshd)) = plain().await else { return };
    backend.write("file", "kept").await.unwrap();
    let file = backend.open("file", OpenOptions::default()).await.unwrap();
    let mut process = backend.spawn(ExecRequest::shell("echo ready; sleep 5")).await.unwrap();
    ab_testkit::commands::read_until(&mut process, "ready").await;
    sshd.cut();
    let lost = file.read_at(0, 4).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Disconnected, "{lost}");
    assert_eq!(process.wait().await, None, "nobody knows how it ended");
    assert_eq!(backend.read("file").await.unwrap(), "kept");
    assert!(backend.exec("true").await.unwrap().exit.success());
}

#[tokio::test]
async fn calls_of_a_lost_connection_say_what_is_known() {
    let Some((backend, sshd)) = plain().await else { return };
    let writing = backend.write("file", pattern(64 * 1024 * 1024));
    let cutting = async {
        // Long enough for the upload to have begun, and far from its end.
        tokio::time::sleep(Duration::from_millis(30)).await;
        sshd.cut();
    };
    let (written, ()) = tokio::join!(writing, cutting);
    let error = written.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    assert_eq!(error.lost_call_effect(), Some(LostCallEffect::NotApplied), "{error:?}");
    assert!(!sshd.workspace.path().join("file").exists());
}

#[tokio::test]
async fn output_that_nobody_reads_is_bounded() {
    let Some((backend, _sshd)) = plain().await else { return };
    let mut process = backend.spawn(ExecRequest::shell("yes")).await.unwrap();
    let exit = process.wait().await.unwrap();
    assert!(exit.stderr_tail.contains("its output was not read"), "{exit:?}");
    assert!(backend.exec("true").await.unwrap().exit.success());
}

#[tokio::test]
async fn special_files_and_modes_are_seen() {
    let Some((backend, sshd)) = plain().await else { return };
    backend.write("tool", "x").await.unwrap();
    let path = sshd.workspace.path().join("tool");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(backend.stat("tool").await.unwrap().mode, Some(0o755));
    backend.exec("mkfifo fifo").await.unwrap();
    assert_eq!(backend.stat("fifo").await.unwrap().kind, FileKind::Other);
    assert_eq!(backend.read("fifo").await.unwrap_err().kind(), ErrorKind::SpecialFile);
    assert_eq!(backend.write("fifo", "x").await.unwrap_err().kind(), ErrorKind::SpecialFile);
    let opened = backend.open("fifo", OpenOptions::default()).await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::SpecialFile);
    let file = backend.open("tool", OpenOptions::default()).await.unwrap();
    assert_eq!(file.read_at(0, 10).await.unwrap(), Bytes::from("x"));
}

/// Every sequence has a directory of its own on one server, which is all that it knows.
#[test]
fn is_as_the_model_says() {
    let server = tokio::sync::OnceCell::new();
    let count = std::sync::atomic::AtomicU32::new(0);
    let fixture = || async {
        let server = server.get_or_init(plain).await;
        let Some((backend, _sshd)) = server else {
            return TestBackend::new(agent_backend::memory());
        };
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let own = format!("sequence{number}");
        TestBackend::new(backend.scope(&own, Default::default()).unwrap())
    };
    model::check_against_reference_with_default_count(
        "openssh",
        fixture,
        model::WorkspaceLayout::default(),
        SEQUENCES,
    );
}
