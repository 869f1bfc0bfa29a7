//! Searching real directories: odd trees, large files, changes underneath, and callers that leave.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ab_core::backend::{GlobOptions, GrepOptions, TreeOptions};
use ab_core::metadata::TruncationCause;
use ab_core::search::{
    DotfileVisibility, EntryKindFilter, IgnoreFileHandling, PatternSyntax, SearchLimits,
    SearchMatch, SearchOutputMode,
};
use ab_core::{Backend, ErrorKind, FileKind, ScopeOptions};
use ab_host::{LocalDriver, LocalDriverOptions};

use crate::bounds::{in_own_process, in_private_mounts, resident_bytes};

fn workspace() -> (tempfile::TempDir, PathBuf, Backend) {
    let keep = tempfile::tempdir().unwrap();
    let root = keep.path().to_owned();
    let backend = Backend::new(LocalDriver::open(&root, LocalDriverOptions::default()).unwrap());
    (keep, root, backend)
}

async fn names(backend: &Backend, pattern: &str, options: GlobOptions) -> Vec<String> {
    let found = backend.glob(pattern, options).await.unwrap();
    found.entries.iter().map(|entry| entry.path.to_string()).collect()
}

fn everything() -> GlobOptions {
    GlobOptions {
        kinds: EntryKindFilter::All,
        dotfiles: DotfileVisibility::Include,
        ..GlobOptions::default()
    }
}

#[tokio::test]
async fn files_are_read_to_their_end_whatever_their_size() {
    let (_keep, root, backend) = workspace();
    let sizes = [6, 511, 512, 513, 4096, 5000, 32_767, 32_768, 32_769, 40_000, 65_536, 200_001];
    for size in sizes {
        fs::write(root.join(format!("{size}")), "x".repeat(size - 6) + "needle").unwrap();
    }
    let found = backend.grep("needle", GrepOptions::default()).await.unwrap();
    assert_eq!(found.matches.len(), sizes.len(), "{found:?}");
}

#[tokio::test]
async fn many_matches_are_cut_at_the_first_ones_in_order() {
    let (_keep, root, backend) = workspace();
    for number in 0..400 {
        fs::write(root.join(format!("{number:04}")), "needle\n".repeat(250)).unwrap();
    }
    let limits = SearchLimits { max_matches: 1000, ..SearchLimits::default() };
    let found =
        backend.grep("needle", GrepOptions { limits, ..GrepOptions::default() }).await.unwrap();
    assert_eq!((found.matches.len(), found.truncated), (1000, Some(TruncationCause::Count)));
    let last = found.matches.last().unwrap();
    assert!(matches!(last, SearchMatch::Line { line_number: 250, .. }), "{last:?}");
    assert_eq!(last.path().as_str(), "0003");
    let all = SearchLimits { max_matches: usize::MAX, ..SearchLimits::default() };
    let found = backend
        .grep("needle", GrepOptions { limits: all, ..GrepOptions::default() })
        .await
        .unwrap();
    assert_eq!((found.matches.len(), found.truncated, found.files_searched), (100_000, None, 400));
    let small = SearchLimits { max_bytes: 100, ..all };
    let found = backend
        .grep("needle", GrepOptions { limits: small, ..GrepOptions::default() })
        .await
        .unwrap();
    assert_eq!((found.matches.len(), found.truncated), (10, Some(TruncationCause::Bytes)));
    let none = SearchLimits { max_duration: Duration::ZERO, ..all };
    let found = backend
        .grep("needle", GrepOptions { limits: none, ..GrepOptions::default() })
        .await
        .unwrap();
    assert_eq!(found.truncated, Some(TruncationCause::Time));
    let one = GrepOptions { root: "0000".to_owned(), limits: none, ..GrepOptions::default() };
    assert_eq!(backend.grep("needle", one).await.unwrap().truncated, Some(TruncationCause::Time));
    let found =
        backend.glob("*", GlobOptions { limits: none, ..GlobOptions::default() }).await.unwrap();
    assert_eq!(found.truncated, Some(TruncationCause::Time));
}

#[tokio::test]
async fn slow_one_line_of_1_gib_is_a_problem_not_a_load() {
    if !in_own_process("search::slow_one_line_of_1_gib_is_a_problem_not_a_load") {
        return;
    }
    let (_keep, root, backend) = workspace();
    let line = vec![b'a'; 1024 * 1024];
    let mut file = fs::File::create(root.join("line")).unwrap();
    for _ in 0..1024 {
        std::io::Write::write_all(&mut file, &line).unwrap();
    }
    fs::write(root.join("other"), "needle\n").unwrap();
    let before = resident_bytes();
    let found = backend.grep("needle", GrepOptions::default()).await.unwrap();
    assert_eq!(found.matches.len(), 1);
    assert_eq!((found.problems.len(), found.problems[0].path.as_str()), (1, "line"));
    assert_eq!(found.problems[0].error.kind(), ErrorKind::TooLarge);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 256 * 1024 * 1024, "grew by {grown} bytes");
}

#[tokio::test]
async fn binary_files_are_skipped_and_counted() {
    let (_keep, root, backend) = workspace();
    fs::write(root.join("binary"), b"needle\0needle\n").unwrap();
    let mut late = vec![b'x'; 200_000];
    late.extend_from_slice(b"\nneedle\n\0");
    fs::write(root.join("late"), late).unwrap();
    fs::write(root.join("text"), "needle\n").unwrap();
    let found = backend.grep("needle", GrepOptions::default()).await.unwrap();
    assert_eq!((found.matches.len(), found.binary_files_skipped, found.files_searched), (1, 2, 3));
}

#[tokio::test]
async fn links_and_special_files_are_named_not_entered() {
    let (_keep, root, backend) = workspace();
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/file"), "needle").unwrap();
    symlink("dir", root.join("link")).unwrap();
    symlink("..", root.join("dir/loop")).unwrap();
    symlink("/etc", root.join("outside")).unwrap();
    symlink("dir/file", root.join("file-link")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), fifo, mode, 0).unwrap();
    let found = names(&backend, "**", everything()).await;
    assert_eq!(
        found,
        ["dir", "dir/file", "dir/loop", "fifo", "file-link", "link", "outside"],
        "each once"
    );
    let found = backend.grep("needle", GrepOptions::default()).await.unwrap();
    assert_eq!(found.matches.len(), 1);
    let by_link = GrepOptions { root: "link".to_owned(), ..GrepOptions::default() };
    let found = backend.grep("needle", by_link).await.unwrap();
    assert_eq!(found.matches[0].path().as_str(), "link/file", "a root may be a link");
    let outside = GrepOptions { root: "outside".to_owned(), ..GrepOptions::default() };
    assert_eq!(backend.grep("root", outside).await.unwrap_err().kind(), ErrorKind::PathEscape);
}

#[tokio::test]
async fn mounts_that_make_a_circle_end() {
    if !in_private_mounts("search::mounts_that_make_a_circle_end") {
        return;
    }
    let (_keep, root, backend) = workspace();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/file"), "needle").unwrap();
    let status =
        Command::new("mount").arg("--rbind").arg(root.join("a")).arg(root.join("a/b")).status();
    assert!(status.unwrap().success());
    let found = backend.grep("needle", GrepOptions::default()).await.unwrap();
    assert!(found.matches.len() <= 2, "{:?}", found.matches.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_that_changes_during_the_walk() {
    let (_keep, root, backend) = workspace();
    for number in 0..200 {
        fs::create_dir(root.join(format!("d{number}"))).unwrap();
        fs::write(root.join(format!("d{number}/keep")), "needle\n").unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let churn = {
        let (stop, root) = (stop.clone(), root.clone());
        std::thread::spawn(move || {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                number = (number + 1) % 200;
                let directory = root.join(format!("d{number}/new"));
                fs::create_dir(&directory).unwrap();
                fs::write(directory.join("file"), "needle\n").unwrap();
                fs::remove_dir_all(&directory).unwrap();
            }
        })
    };
    for _ in 0..30 {
        let found = backend.grep("needle", GrepOptions::default()).await.unwrap();
        let kept = found.matches.iter().filter(|found| found.path().name() == Some("keep"));
        assert_eq!(kept.count(), 200);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        let names = backend.glob("keep", GlobOptions::default()).await.unwrap();
        assert_eq!(names.entries.len(), 200);
    }
    stop.store(true, Ordering::Relaxed);
    churn.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_ends_the_search() {
    if !in_own_process("search::a_caller_that_leaves_ends_the_search") {
        return;
    }
    let (_keep, root, backend) = workspace();
    for number in 0..2000 {
        fs::write(root.join(format!("{number}")), vec![b'a'; 100_000]).unwrap();
    }
    let regex = GrepOptions {
        syntax: PatternSyntax::Regex,
        limits: SearchLimits { max_duration: Duration::from_secs(600), ..SearchLimits::default() },
        ..GrepOptions::default()
    };
    for _ in 0..20 {
        let search = backend.grep("(a+)+(b|c)$", regex.clone());
        assert!(tokio::time::timeout(Duration::from_millis(5), search).await.is_err());
    }
    // The threads of abandoned searches are told; if they were not, this would wait for all 20.
    let names = backend.glob("1999", GlobOptions::default()).await.unwrap();
    assert_eq!(names.entries.len(), 1);
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    while threads() > 40 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn ignore_files_on_the_way_count() {
    let (_keep, root, backend) = workspace();
    for path in [".git", "src/gen", "target", "src/deep"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    fs::write(root.join(".gitignore"), "target/\n*.log\n!keep.log\n/only-top\n").unwrap();
    fs::write(root.join("src/.gitignore"), "gen\n").unwrap();
    for path in [
        ".git/config",
        "target/a",
        "a.log",
        "keep.log",
        "only-top",
        "src/only-top",
        "src/gen/a",
        "src/deep/b.log",
        "src/deep/c",
    ] {
        fs::write(root.join(path), "needle\n").unwrap();
    }
    let honour = GlobOptions { ignore_files: IgnoreFileHandling::Honour, ..GlobOptions::default() };
    assert_eq!(
        names(&backend, "**", honour.clone()).await,
        ["keep.log", "src/deep/c", "src/only-top"]
    );
    let below = GlobOptions { root: "src/deep".to_owned(), ..honour.clone() };
    assert_eq!(names(&backend, "**", below).await, ["src/deep/c"], "rules from above hold");
    let scope = backend.scope("src", ScopeOptions::default()).unwrap();
    assert_eq!(
        names(&scope, "**", honour).await,
        ["deep/b.log", "deep/c", "only-top"],
        "a scope does not look above itself"
    );
    let grep = GrepOptions {
        ignore_files: IgnoreFileHandling::Honour,
        output_mode: SearchOutputMode::Files,
        ..GrepOptions::default()
    };
    assert_eq!(backend.grep("needle", grep).await.unwrap().matches.len(), 3);
}

#[tokio::test]
async fn trees_nest_and_leave_out() {
    let (_keep, root, backend) = workspace();
    for path in ["a/b/c", "a/node_modules/x", "z"] {
        fs::create_dir_all(root.join(path)).unwrap();
        fs::write(root.join(path).join("f"), "").unwrap();
    }
    let exclude = vec!["node_modules".to_owned()];
    let tree = backend.tree(".", TreeOptions { exclude, ..TreeOptions::default() }).await.unwrap();
    let shown = format!("{:?}", tree.nodes);
    assert!(!shown.contains("node_modules"), "{shown}");
    assert_eq!(tree.nodes[0].children[0].children[0].children[0].name, "f");
    let shallow = TreeOptions { max_depth: 1, ..TreeOptions::default() };
    let tree = backend.tree("a", shallow).await.unwrap();
    let names: Vec<_> = tree.nodes.iter().map(|node| (node.name.as_str(), node.kind)).collect();
    assert_eq!(names, [("b", FileKind::Dir), ("node_modules", FileKind::Dir)]);
}
