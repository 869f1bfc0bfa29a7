//! A gigabyte of output through us, beside the same through a pipe of the shell's.

use std::process::{Command, Stdio};
use std::time::Instant;

use agent_backend::process::ExecRequest;
use agent_backend::{Backend, Isolation};

use crate::measure::{ROUNDS, Row, millis};
use crate::workspace;

const BYTES: u64 = 1 << 30;
const MEBI: f64 = 1024.0 * 1024.0;

pub(crate) async fn run() {
    let (_directory, backend) = workspace(Isolation::None);
    println!("1 GiB of output to a reader; peer: sh -c '… | cat'");
    Row::head();
    for (what, source) in
        [("zeros", "head -c 1073741824 /dev/zero"), ("yes", "yes | head -c 1073741824")]
    {
        let (mut held, mut kept) = (Row::new(), Row::new());
        for _ in 0..ROUNDS {
            held.ours.push(rate(read(&backend, source, Keeping::Nothing).await));
            let peer = rate(shell(source));
            kept.ours.push(rate(read(&backend, source, Keeping::Ring).await));
            held.peer.push(peer);
            kept.peer.push(peer);
        }
        held.print(&format!("{what}, MiB/s"), "  ", "no bar");
        kept.print(&format!("{what}, with the ring, MiB/s"), "  ", "at least 0.75");
    }
    println!("  peak memory of the process {:>19.1} MiB  under 64 MiB", peak());
}

enum Keeping {
    Nothing,
    Ring,
}

async fn read(backend: &Backend, source: &str, keeping: Keeping) -> f64 {
    let (time, read) = millis(async {
        let request = ExecRequest::shell(source);
        let mut process = match keeping {
            Keeping::Nothing => backend.spawn(request).await.unwrap(),
            Keeping::Ring => backend.spawn_detached(request).await.unwrap(),
        };
        let mut read = 0;
        while let Some(output) = process.output.recv().await {
            read += output.bytes.len() as u64 + output.lost_bytes_before;
        }
        read
    })
    .await;
    assert_eq!(read, BYTES);
    time / 1000.0
}

fn shell(source: &str) -> f64 {
    let start = Instant::now();
    let line = format!("{source} | cat");
    let status = Command::new("/bin/sh").args(["-c", &line]).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
    start.elapsed().as_secs_f64()
}

fn rate(seconds: f64) -> f64 {
    BYTES as f64 / MEBI / seconds
}

/// The most memory that this process has had, in MiB.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes / 1024.0
}
