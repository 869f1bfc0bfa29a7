//! Reading, writing and streaming files, beside `tokio::fs`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_backend::journal::{JournalGuard, JournalVerbosity, MemoryJournalWriter};
use agent_backend::{Backend, BackendOptions, Guards, LocalWorkspaceConfig, MemoryDriverOptions};

use crate::measure::{ROUNDS, Row, p50, rate};

const FILES: usize = 64;
const SIZE: usize = 4096;

pub(crate) async fn run() {
    let directory = tempfile::tempdir().unwrap();
    println!("{FILES} files of {SIZE} bytes, warm page cache; peer: tokio::fs");
    Row::head();
    read_one_at_a_time(directory.path()).await;
    read_many_at_once(directory.path()).await;
    write_one_at_a_time(directory.path()).await;
    write_many_at_once(directory.path()).await;
    memory_reads().await;
    stream(directory.path()).await;
}

/// A journal that listens to every call, as a product would have it.
fn guards() -> BackendOptions {
    let journal =
        JournalGuard::new(Arc::new(MemoryJournalWriter::default()), JournalVerbosity::Standard);
    let guards = Guards { journal: Some(Arc::new(journal)), ..Guards::default() };
    BackendOptions { guards, ..BackendOptions::default() }
}

fn local(root: &Path) -> Backend {
    agent_backend::local_with(LocalWorkspaceConfig {
        backend_options: guards(),
        ..LocalWorkspaceConfig::new(root)
    })
    .unwrap()
}

fn prepare(root: &Path) -> (Backend, Vec<String>, Vec<std::path::PathBuf>) {
    let directory = root.join("src/module");
    std::fs::create_dir_all(&directory).unwrap();
    let names: Vec<String> = (0..FILES).map(|n| format!("src/module/file{n}.rs")).collect();
    for name in &names {
        std::fs::write(root.join(name), vec![b'x'; SIZE]).unwrap();
    }
    let paths = names.iter().map(|name| root.join(name)).collect();
    (local(root), names, paths)
}

async fn read_one_at_a_time(root: &Path) {
    let (backend, names, paths) = prepare(root);
    let mut row = Row::new();
    for _ in 0..ROUNDS {
        row.ours.push(
            p50(20_000, async |n| {
                assert_eq!(backend.read(&names[n % FILES]).await.unwrap().len(), SIZE)
            })
            .await,
        );
        row.peer.push(
            p50(20_000, async |n| {
                assert_eq!(tokio::fs::read(&paths[n % FILES]).await.unwrap().len(), SIZE);
            })
            .await,
        );
    }
    row.print("read 4 KiB, p50", "us", "at most 0.5");
}

async fn read_many_at_once(root: &Path) {
    let (backend, names, paths) = prepare(root);
    let (names, paths) = (Arc::new(names), Arc::new(paths));
    let mut row = Row::new();
    for _ in 0..ROUNDS {
        row.ours.push(
            rate(50_000, |n| {
                let (backend, names) = (backend.clone(), names.clone());
                async move { drop(backend.read(&names[n % FILES]).await.unwrap()) }
            })
            .await,
        );
        row.peer.push(
            rate(50_000, |n| {
                let paths = paths.clone();
                async move { drop(tokio::fs::read(&paths[n % FILES]).await.unwrap()) }
            })
            .await,
        );
    }
    row.print("read 4 KiB, 64 at once", "/s", "at least 2.5");
}

async fn replace(path: &Path, content: &[u8], n: usize) {
    let temporary = path.with_extension(format!("tmp{n}"));
    tokio::fs::write(&temporary, content).await.unwrap();
    tokio::fs::rename(&temporary, path).await.unwrap();
}

async fn write_one_at_a_time(root: &Path) {
    let (backend, names, paths) = prepare(root);
    let content = bytes_of(SIZE);
    let mut row = Row::new();
    for _ in 0..ROUNDS {
        row.ours.push(
            p50(3_000, async |n| {
                backend.write(&names[n % FILES], content.clone()).await.unwrap();
            })
            .await,
        );
        row.peer.push(p50(3_000, async |n| replace(&paths[n % FILES], &content, n).await).await);
    }
    row.print("write 4 KiB atomically, p50", "us", "at most 1.1");
}

async fn write_many_at_once(root: &Path) {
    let (backend, names, paths) = prepare(root);
    let (names, paths) = (Arc::new(names), Arc::new(paths));
    let content = bytes_of(SIZE);
    let mut row = Row::new();
    for _ in 0..ROUNDS {
        row.ours.push(
            rate(10_000, |n| {
                let (backend, names, content) = (backend.clone(), names.clone(), content.clone());
                async move {
                    assert_eq!(
                        backend.write(&names[n % FILES], content).await.unwrap().size,
                        SIZE as u64
                    )
                }
            })
            .await,
        );
        row.peer.push(
            rate(10_000, |n| {
                let (paths, content) = (paths.clone(), content.clone());
                async move { replace(&paths[n % FILES], &content, n).await }
            })
            .await,
        );
    }
    row.print("write 4 KiB atomically, 64 at once", "/s", "at least 1.0");
}

fn bytes_of(size: usize) -> bytes::Bytes {
    vec![b'y'; size].into()
}

async fn memory_reads() {
    let backend = agent_backend::memory_with(MemoryDriverOptions::default(), guards()).unwrap();
    let names: Vec<String> = (0..FILES).map(|n| format!("src/module/file{n}.rs")).collect();
    for name in &names {
        backend.write(name, vec![b'x'; SIZE]).await.unwrap();
    }
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut count = 0u64;
        while start.elapsed() < Duration::from_millis(300) {
            for name in &names {
                std::hint::black_box(backend.read(name).await.unwrap());
                count += 1;
            }
        }
        rates.push(count as f64 / start.elapsed().as_secs_f64());
    }
    println!(
        "{:<36} {:>9.0} /s  at least 800000",
        "memory read 4 KiB, one core",
        crate::measure::median(rates)
    );
}

async fn stream(root: &Path) {
    const GIB: u64 = 1024 * 1024 * 1024;
    let path = root.join("large");
    let piece = vec![b'z'; 1024 * 1024];
    let mut file = std::fs::File::create(&path).unwrap();
    for _ in 0..GIB / piece.len() as u64 {
        std::io::Write::write_all(&mut file, &piece).unwrap();
    }
    drop(file);
    let backend = local(root);
    let mut row = Row::new();
    reset_peak();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut chunks = backend.read_chunks("large").await.unwrap();
        let mut seen = 0;
        while let Some(chunk) = chunks.next().await.unwrap() {
            seen += chunk.len() as u64;
        }
        assert_eq!(seen, GIB);
        row.ours.push(1024.0 / start.elapsed().as_secs_f64());
        let start = Instant::now();
        let mut file = tokio::fs::File::open(&path).await.unwrap();
        let mut buffer = vec![0; 256 * 1024];
        while tokio::io::AsyncReadExt::read(&mut file, &mut buffer).await.unwrap() > 0 {}
        row.peer.push(1024.0 / start.elapsed().as_secs_f64());
    }
    row.print("stream 1 GiB, MiB/s", "  ", "no bar");
    println!("{:<36} {:>9.1} MiB  under 32 MiB", "  peak memory of the process", peak_mib());
}

/// Starts the kernel's record of the largest resident size anew.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}
