//! Files that are odd, huge, many, or change while they are used; disks that are full.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ab_core::metadata::TruncationCause;
use ab_core::options::{
    FileAccess, FileCreationMode, ListOptions, OpenOptions, ReadOptions, RemoveOptions,
    StatOptions, WriteOptions,
};
use ab_core::{Backend, Edit, EditOptions, ErrorCode, ErrorKind, FileKind};
use ab_host::{LocalDriver, LocalDriverOptions, MissingRootPolicy, PathResolutionMode};
use ab_testkit::host;
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn workspace() -> (tempfile::TempDir, PathBuf, Backend) {
    let keep = tempfile::tempdir().unwrap();
    let root = keep.path().to_owned();
    let backend = Backend::new(LocalDriver::open(&root, LocalDriverOptions::default()).unwrap());
    (keep, root, backend)
}

fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn fifos_sockets_and_devices_never_hang() {
    let (_keep, root, backend) = workspace();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    let zero = rustix::fs::makedev(1, 5);
    let mode = Mode::from_raw_mode(0o666);
    let mut odd = vec!["fifo", "socket"];
    match mknodat(CWD, root.join("zero"), FileType::CharacterDevice, mode, zero) {
        Ok(()) => odd.push("zero"),
        Err(errno) => host::report_skip("a device in the workspace", &errno.to_string()),
    }
    for name in odd {
        let options = OpenOptions { access: FileAccess::Write, ..OpenOptions::default() };
        let both = OpenOptions { access: FileAccess::ReadWrite, ..OpenOptions::default() };
        let failures = [
            backend.read(name).await.err(),
            backend.write(name, "x").await.err(),
            backend.touch(name).await.err(),
            backend.open(name, OpenOptions::default()).await.err(),
            backend.open(name, options).await.err(),
            backend.open(name, both).await.err(),
            backend.read_chunks(name).await.err(),
            backend.edit(name, &[Edit::new("a", "b")], EditOptions::default()).await.err(),
        ];
        for (index, error) in failures.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("operation {index} on {name} worked"));
            assert_eq!(
                error.kind(),
                ErrorKind::SpecialFile,
                "operation {index} on {name}: {error:?}"
            );
        }
        assert_eq!(backend.stat(name).await.unwrap().kind, FileKind::Other);
        backend.rename(name, "moved").await.unwrap();
        backend.rm("moved", RemoveOptions::default()).await.unwrap();
    }
}

#[tokio::test]
async fn file_that_grows_while_it_is_read() {
    let (_keep, root, backend) = workspace();
    let path = root.join("log");
    let mut log = fs::File::create(&path).unwrap();
    log.write_all(&vec![b'a'; 600_000]).unwrap();
    let mut chunks = backend.read_chunks("log").await.unwrap();
    let mut seen = 0;
    while let Some(chunk) = chunks.next().await.unwrap() {
        seen += chunk.len();
        log.write_all(&vec![b'b'; 100_000]).unwrap();
    }
    assert_eq!(seen, 600_000, "ends where it ended when it was opened");
    fs::File::create(&path).unwrap().write_all(b"short").unwrap();
    let mut chunks = backend.read_chunks("log").await.unwrap();
    fs::File::create(&path).unwrap();
    assert_eq!(chunks.next().await.unwrap(), None, "a file that shrank just ends");
}

#[tokio::test]
async fn slow_directory_of_100_000_entries() {
    let (_keep, root, backend) = workspace();
    for number in 0..100_000 {
        fs::File::create(root.join(format!("{number:06}"))).unwrap();
    }
    let names = backend.readdir(".").await.unwrap();
    assert_eq!(names.len(), 100_000);
    assert!(names.is_sorted());
    let few = ListOptions { max_entries: 3, ..ListOptions::default() };
    let listing = backend.list(".", few).await.unwrap();
    let names: Vec<_> = listing.entries.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(names, ["000000", "000001", "000002"]);
    assert_eq!(listing.truncated, Some(TruncationCause::Count));
    fs::create_dir(root.join("sub")).unwrap();
    backend.rename("000000", "sub/x").await.unwrap();
    assert_eq!(backend.rm("sub", RemoveOptions::recursive()).await.unwrap().count, 2);
}

pub(crate) fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn slow_file_of_2_gib_streams_in_flat_memory() {
    if !in_own_process("bounds::slow_file_of_2_gib_streams_in_flat_memory") {
        return;
    }
    let (_keep, root, backend) = workspace();
    let size: u64 = 2 * 1024 * 1024 * 1024;
    let file = fs::File::create(root.join("huge")).unwrap();
    file.set_len(size).unwrap();
    let error = backend.read("huge").await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::TooLarge, ErrorKind::TooLarge));
    let before = resident_bytes();
    let mut chunks = backend.read_chunks("huge").await.unwrap();
    assert_eq!(chunks.file_size(), Some(size));
    let (mut seen, mut peak) = (0u64, before);
    while let Some(chunk) = chunks.next().await.unwrap() {
        seen += chunk.len() as u64;
        peak = peak.max(resident_bytes());
    }
    assert_eq!(seen, size);
    assert!(peak < before + 16 * 1024 * 1024, "grew by {} bytes", peak - before);
    let window = backend.read_lines("huge", Default::default()).await.unwrap_err();
    assert_eq!(window.kind(), ErrorKind::TooLarge, "one endless line is refused, not loaded");
}

/// Runs the named test again in a process of its own, so that what it measures is its own doing.
pub(crate) fn in_own_process(test: &str) -> bool {
    const INSIDE: &str = "AB_TEST_OWN_PROCESS";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    false
}

/// Runs the named test again in a mount namespace of its own, so that what it mounts ends with it.
pub(crate) fn in_private_mounts(test: &str) -> bool {
    const INSIDE: &str = "AB_TEST_PRIVATE_MOUNTS";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            if said.starts_with("unshare:") {
                host::report_skip("a mount namespace", said.trim());
            } else {
                panic!("{}{said}", String::from_utf8_lossy(&output.stdout));
            }
        }
        Err(error) => host::report_skip("a mount namespace", &error.to_string()),
    }
    false
}

fn mount_tmpfs(at: &Path, size: &str) {
    let status = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
        .arg(at)
        .status()
        .unwrap();
    assert!(status.success(), "cannot mount a tmpfs");
}

#[tokio::test]
async fn mounts_full_disk_keeps_the_old_content() {
    if !in_private_mounts("bounds::mounts_full_disk_keeps_the_old_content") {
        return;
    }
    let (_keep, root, _) = workspace();
    mount_tmpfs(&root, "1m");
    let backend = Backend::new(LocalDriver::open(&root, LocalDriverOptions::default()).unwrap());
    backend.write("kept.txt", "old content").await.unwrap();
    let large = vec![b'x'; 4 * 1024 * 1024];
    for path in ["kept.txt", "new.txt", "some/dir/new.txt"] {
        let error = backend.write(path, large.clone()).await.unwrap_err();
        assert_eq!((error.code(), error.kind()), (ErrorCode::WriteFailed, ErrorKind::NoSpace));
        assert_eq!(error.path(), Some(path));
    }
    assert_eq!(backend.read_text("kept.txt").await.unwrap(), "old content");
    assert_eq!(names(&root), ["kept.txt", "some"], "no temporary file is left");
    let edit = Edit::new("old", "x".repeat(3 * 1024 * 1024));
    let error = backend.edit("kept.txt", &[edit], EditOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(backend.read_text("kept.txt").await.unwrap(), "old content");
    backend.write("kept.txt", "still works").await.unwrap();
}

#[tokio::test]
async fn mounts_inside_the_workspace_are_not_renamed_across() {
    if !in_private_mounts("bounds::mounts_inside_the_workspace_are_not_renamed_across") {
        return;
    }
    let (_keep, root, backend) = workspace();
    fs::create_dir(root.join("mounted")).unwrap();
    mount_tmpfs(&root.join("mounted"), "1m");
    backend.write("a", "content").await.unwrap();
    backend.write("mounted/b", "other").await.unwrap();
    let error = backend.rename("a", "mounted/a").await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, ErrorCode::NotImplemented));
    assert_eq!(backend.read_text("a").await.unwrap(), "content");
    backend.rename("mounted/b", "mounted/c").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_and_readers_never_see_half() {
    let (_keep, root, backend) = workspace();
    let other = Backend::new(LocalDriver::open(&root, LocalDriverOptions::default()).unwrap());
    let (a, b) = (vec![b'a'; 200_000], vec![b'b'; 300_000]);
    backend.write("f", a.clone()).await.unwrap();
    let writer = |backend: Backend, content: Vec<u8>| {
        tokio::spawn(async move {
            for _ in 0..100 {
                backend.write("f", content.clone()).await.unwrap();
            }
        })
    };
    let writers = [writer(backend.clone(), a.clone()), writer(other, b.clone())];
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        let seen = backend.read("f").await.unwrap();
        assert!(seen == a || seen == b, "half a write: {} bytes", seen.len());
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(names(&root), ["f"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_by_two_backends_on_one_directory_lose_nothing() {
    let (_keep, root, backend) = workspace();
    let other = Backend::new(LocalDriver::open(&root, LocalDriverOptions::default()).unwrap());
    let lines: String = (0..40).map(|n| format!("line {n} old.\n")).collect();
    backend.write("f", lines).await.unwrap();
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let backend = if n % 2 == 0 { backend.clone() } else { other.clone() };
            tokio::spawn(async move {
                let edit = Edit::new(format!("line {n} old."), format!("line {n} new."));
                backend.edit("f", &[edit], EditOptions::default()).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let expect: String = (0..40).map(|n| format!("line {n} new.\n")).collect();
    assert_eq!(backend.read_text("f").await.unwrap(), expect);
}

#[tokio::test]
async fn replacing_keeps_the_mode_and_new_files_follow_the_options() {
    let (_keep, root, backend) = workspace();
    backend.write("script.sh", "#!/bin/sh\n").await.unwrap();
    fs::set_permissions(root.join("script.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    backend.write("script.sh", "#!/bin/sh\necho\n").await.unwrap();
    let edit = Edit::new("echo", "true");
    backend.edit("script.sh", &[edit], EditOptions::default()).await.unwrap();
    let mode = |name: &str| fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("script.sh"), 0o750);
    let options = WriteOptions { permissions: Some(0o600), ..WriteOptions::default() };
    backend.write_with("private", "x", options).await.unwrap();
    assert_eq!(mode("private"), 0o600);
}

#[tokio::test]
async fn trees_deeper_than_the_open_file_limit_are_removed() {
    let (_keep, root, backend) = workspace();
    // Deeper than any path can name: made by handles.
    let mut dir = rustix::fs::open(&root, rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&dir, "d", Mode::from_raw_mode(0o755)).unwrap();
        dir = rustix::fs::openat(&dir, "d", rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    }
    let deep = ListOptions { max_depth: usize::MAX, ..ListOptions::default() };
    let listing = backend.list(".", deep).await.unwrap();
    assert!(listing.entries.len() > 1000, "{} entries", listing.entries.len());
    assert_eq!(listing.problems.len(), 1, "where names end is said");
    assert_eq!(backend.rm("d", RemoveOptions::recursive()).await.unwrap().count, 3000);
    assert!(names(&root).is_empty());
}

#[tokio::test]
async fn workspace_that_disappears_says_so() {
    let (keep, root, backend) = workspace();
    backend.write("f", "x").await.unwrap();
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(backend.read("f").await.unwrap_err().kind(), ErrorKind::NotFound);
    let error = backend.write("f", "x").await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::WriteFailed, ErrorKind::NotFound));
    let error = backend.readdir(".").await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::NotFound, "the directory was removed"));
    assert!(error.hint().is_some());
    drop(keep);
}

#[tokio::test]
async fn roots_are_checked_when_they_are_opened() {
    let (_keep, root, backend) = workspace();
    backend.write("file", "x").await.unwrap();
    for bad in [root.join("missing"), root.join("file"), PathBuf::new(), root.join("a\0b")] {
        let error = LocalDriver::open(&bad, LocalDriverOptions::default()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfiguration, "{bad:?}");
    }
    let made = root.join("made/on/demand");
    let options = LocalDriverOptions {
        missing_root: MissingRootPolicy::Create,
        ..LocalDriverOptions::default()
    };
    let backend = Backend::new(LocalDriver::open(&made, options).unwrap());
    backend.write("f", "x").await.unwrap();
    assert_eq!(names(&made), ["f"]);
}

#[tokio::test]
async fn leftovers_of_a_killed_writer_are_invisible() {
    let (_keep, root, backend) = workspace();
    fs::write(root.join(".ab-tmp-1-2-3"), "half").unwrap();
    backend.write("f", "x").await.unwrap();
    assert_eq!(backend.readdir(".").await.unwrap(), ["f"]);
    for path in [".ab-tmp-1-2-3", "new/.ab-tmp-x"] {
        assert_eq!(backend.read(path).await.unwrap_err().code(), ErrorCode::InvalidPath);
        assert_eq!(backend.write(path, "x").await.unwrap_err().code(), ErrorCode::InvalidPath);
    }
    assert_eq!(names(&root), [".ab-tmp-1-2-3", "f"], "nothing was touched");
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/.ab-tmp-4-5-6"), "half").unwrap();
    backend.rm("dir", RemoveOptions::default()).await.unwrap();
    assert_eq!(names(&root), [".ab-tmp-1-2-3", "f"], "what looks empty can be removed");
}

#[tokio::test]
async fn the_root_has_several_absolute_names() {
    let keep = tempfile::tempdir().unwrap();
    let real = keep.path().join("real");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, keep.path().join("link")).unwrap();
    let options = LocalDriverOptions {
        root_aliases: vec![PathBuf::from("/tmp/agentbe-workspace")],
        path_resolution: PathResolutionMode::Auto,
        ..LocalDriverOptions::default()
    };
    let backend = Backend::new(LocalDriver::open(keep.path().join("link"), options).unwrap());
    backend.write("f", "x").await.unwrap();
    for prefix in [real.as_path(), &keep.path().join("link"), Path::new("/tmp/agentbe-workspace")] {
        let path = prefix.join("f").into_os_string().into_string().unwrap();
        assert_eq!(backend.read_text(&path).await.unwrap(), "x", "{path}");
    }
    assert_eq!(backend.readdir(real.to_str().unwrap()).await.unwrap(), ["f"]);
}

#[tokio::test]
async fn durable_writes_and_ranges_at_the_edges() {
    let (_keep, _root, backend) = workspace();
    let durable = WriteOptions {
        durability: ab_core::options::Durability::SurvivesPowerLoss,
        ..WriteOptions::default()
    };
    backend.write_with("d/f", "durable", durable).await.unwrap();
    let range = |start, length| ReadOptions {
        range: Some(ab_core::options::ByteRange { start, length }),
        ..ReadOptions::default()
    };
    for (start, length, expect) in
        [(0, 3, "dur"), (5, 100, "le"), (7, 1, ""), (u64::MAX, u64::MAX, ""), (2, 0, "")]
    {
        let content = backend.read_with("d/f", range(start, length)).await.unwrap();
        assert_eq!(content.bytes, expect, "{length} bytes from {start}");
    }
    let options = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        ..Default::default()
    };
    let file = backend.open("d/g", options).await.unwrap();
    assert_eq!(file.read_at(u64::MAX, 10).await.unwrap(), "");
    assert!(file.write_at(u64::MAX, "x"[..].into()).await.is_err());
    assert!(file.set_len(u64::MAX).await.is_err());
    assert_eq!(file.stat().await.unwrap().size, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_operations_at_once_are_bounded_not_refused() {
    if !in_own_process("bounds::many_operations_at_once_are_bounded_not_refused") {
        return;
    }
    let (_keep, _root, backend) = workspace();
    let backend = Arc::new(backend);
    let tasks: Vec<_> = (0..1000)
        .map(|n| {
            let backend = backend.clone();
            tokio::spawn(async move {
                let path = format!("d{}/f{n}", n % 10);
                backend.write(&path, path.as_str()).await.unwrap();
                backend.stat_with(&path, StatOptions::default()).await.unwrap();
                assert_eq!(backend.read_text(&path).await.unwrap(), path);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let threads = fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads < 80, "{threads} threads");
}
