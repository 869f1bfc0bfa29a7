//! Writers that meet: in one process, in several, after their caller went away, on shared inodes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use ab_core::options::{
    AttributeChanges, ExistingContentHandling, FileAccess, OpenOptions, WriteOptions,
};
use ab_core::{Backend, Edit, EditOptions};
use ab_host::{LocalDriver, LocalDriverOptions};
use futures_util::FutureExt;

const WORKER: &str = "AB_TEST_WORKER";
const WORKERS: usize = 3;
const EDITS: usize = 40;

fn open(root: &std::path::Path) -> Backend {
    Backend::new(LocalDriver::open(root, LocalDriverOptions::default()).unwrap())
}

fn line(worker: usize, edit: usize, word: &str) -> String {
    format!("worker {worker} line {edit} {word}.")
}

/// The same test is parent and worker; which one says the environment.
#[tokio::test]
async fn edits_of_several_processes_lose_nothing() {
    if let Ok(work) = std::env::var(WORKER) {
        let (worker, root) = work.split_once(':').unwrap();
        let worker: usize = worker.parse().unwrap();
        let backend = open(root.as_ref());
        for n in 0..EDITS {
            let edit = Edit::new(line(worker, n, "old"), line(worker, n, "new"));
            backend.edit("file", &[edit], EditOptions::default()).await.unwrap();
        }
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    edit_in_several_processes(directory.path()).await;
}

async fn edit_in_several_processes(directory: &std::path::Path) {
    let text = |word: &str| -> String {
        let all = (0..WORKERS).flat_map(|worker| (0..EDITS).map(move |n| (worker, n)));
        all.map(|(worker, n)| line(worker, n, word) + "\n").collect()
    };
    let backend = open(directory);
    backend.write("file", text("old")).await.unwrap();
    let children: Vec<_> = (0..WORKERS)
        .map(|worker| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "races::edits_of_several_processes_lose_nothing", "--nocapture"])
                .env(WORKER, format!("{worker}:{}", directory.display()))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    assert_eq!(backend.read_text("file").await.unwrap(), text("new"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_write_never_lands_on_a_later_one() {
    let directory = tempfile::tempdir().unwrap();
    let backend = open(directory.path());
    for round in 0..300 {
        let old = vec![b'o'; 100_000];
        let _ = backend.write("file", old).now_or_never();
        let new = format!("new {round}");
        backend.write("file", new.as_str()).await.unwrap();
        // Whatever of the old write was still under way has the same lock to wait for.
        backend.write("other", "x").await.unwrap();
        assert_eq!(backend.read_text("file").await.unwrap(), new);
    }
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert!(names.len() <= 2 + 64, "abandoned writes leave nothing for good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsharing_a_file_does_not_undo_a_write() {
    let directory = tempfile::tempdir().unwrap();
    let backend = open(directory.path());
    for round in 0..300 {
        let name = format!("file{round}");
        backend.write("original", "original").await.unwrap();
        fs::hard_link(directory.path().join("original"), directory.path().join(&name)).unwrap();
        let attributes = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
        let options = OpenOptions { access: FileAccess::ReadWrite, ..OpenOptions::default() };
        let change = {
            let (backend, name) = (backend.clone(), name.clone());
            tokio::spawn(async move {
                match round % 2 {
                    0 => drop(backend.set_attributes(&name, attributes).await),
                    _ => drop(backend.open(&name, options).await),
                }
            })
        };
        backend.write(&name, "new").await.unwrap();
        change.await.unwrap();
        assert_eq!(backend.read_text(&name).await.unwrap(), "new", "round {round}");
    }
    assert_eq!(backend.read_text("original").await.unwrap(), "original");
}

#[tokio::test]
async fn files_that_do_not_know_their_size_are_read_whole() {
    let backend = open("/proc/self".as_ref());
    let whole = backend.read_text("status").await.unwrap();
    assert!(whole.starts_with("Name:") && whole.lines().count() > 20);
    let mut chunks = backend.read_chunks("status").await.unwrap();
    assert_eq!(chunks.file_size(), None);
    let mut bytes = 0;
    while let Some(chunk) = chunks.next().await.unwrap() {
        bytes += chunk.len();
    }
    assert!(bytes > 500, "{bytes}");
}

/// A command can hold a lock on any directory of the workspace for as long as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_stops_no_writer() {
    let directory = tempfile::tempdir().unwrap();
    let backend = open(directory.path());
    backend.mkdir("held").await.unwrap();
    let holders: Vec<fs::File> = [directory.path().to_owned(), directory.path().join("held")]
        .iter()
        .map(|path| {
            let handle = fs::File::open(path).unwrap();
            rustix::fs::flock(&handle, rustix::fs::FlockOperation::LockExclusive).unwrap();
            handle
        })
        .collect();
    let scopes = ["held", "free"].map(|path| backend.scope(path, Default::default()).unwrap());
    let writes = (0..200).map(|n| {
        let (backend, scopes) = (&backend, &scopes);
        async move {
            let handle = match n % 3 {
                0 => backend,
                1 => &scopes[0],
                _ => &scopes[1],
            };
            let path = format!("file{n}");
            let stat = handle.write(&path, "first").await.unwrap();
            let expect =
                WriteOptions { expected_version: Some(stat.version), ..WriteOptions::default() };
            handle.write_with(&path, "second", expect).await.unwrap();
            assert_eq!(handle.read_text(&path).await.unwrap(), "second");
        }
    });
    let all = futures_util::future::join_all(writes);
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("writes wait for the lock");
    drop(holders);
}

/// A command can hold a lease on a file of its user, and ignore the kernel's request to give it up.
#[tokio::test]
async fn a_held_lease_stops_no_call() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return ab_testkit::host::report_skip("a lease", "no python3");
    }
    let directory = tempfile::tempdir().unwrap();
    let backend = open(directory.path());
    backend.write("file", "old").await.unwrap();
    let holds = "import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open('file', os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()";
    let mut holder = Command::new("python3")
        .args(["-c", holds])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(holder.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line, "held\n");
    let calls = async {
        let refused = backend.read("file").await.unwrap_err();
        assert!(refused.message().contains("holds a lease"), "{refused}");
        let found = backend.grep("old", ab_core::backend::GrepOptions::default()).await.unwrap();
        assert_eq!((found.matches.len(), found.problems.len()), (0, 1), "{found:?}");
        let write = OpenOptions { access: FileAccess::Write, ..OpenOptions::default() };
        assert!(backend.open("file", write).await.is_err());
        // A file that is replaced is another one.
        backend.write("file", "new").await.unwrap();
        assert_eq!(backend.read_text("file").await.unwrap(), "new");
    };
    tokio::time::timeout(Duration::from_secs(20), calls).await.expect("a call waits for the lease");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

/// Also without the lock, of two writers that expect the same version one is told.
#[tokio::test]
async fn edits_under_a_held_lock_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let holder = fs::File::open(directory.path()).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    edit_in_several_processes(directory.path()).await;
}

/// Root keeps the bits of a file that it writes to; a command may have set them.
#[tokio::test]
async fn changes_in_place_leave_no_set_id_bits() {
    let directory = tempfile::tempdir().unwrap();
    let backend = open(directory.path());
    let path = directory.path().join("file");
    let set = || fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    let bits = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    fs::write(&path, "content").unwrap();
    let write = OpenOptions { access: FileAccess::Write, ..OpenOptions::default() };
    set();
    let file = backend.open("file", write).await.unwrap();
    assert_eq!(bits(), 0o755, "opened for writing");
    set();
    file.write_at(0, "new".into()).await.unwrap();
    assert_eq!(bits(), 0o755, "written to an open file");
    set();
    file.set_len(1).await.unwrap();
    assert_eq!(bits(), 0o755, "cut");
    set();
    let times =
        AttributeChanges { modified: Some(SystemTime::UNIX_EPOCH), ..AttributeChanges::default() };
    file.set_attributes(times).await.unwrap();
    assert_eq!(bits(), 0o755, "described anew");
    set();
    backend.set_attributes("file", times).await.unwrap();
    assert_eq!(bits(), 0o755, "described anew by name");
    set();
    let truncate = OpenOptions { existing: ExistingContentHandling::Truncate, ..write };
    drop(backend.open("file", truncate).await.unwrap());
    assert_eq!(bits(), 0o755, "truncated");
    set();
    backend.write("file", "replaced").await.unwrap();
    assert_eq!(bits(), 0o755, "replaced");
    set();
    fs::hard_link(&path, directory.path().join("other")).unwrap();
    drop(backend.open("file", write).await.unwrap());
    assert_eq!(bits(), 0o755, "given an inode of its own");
}
