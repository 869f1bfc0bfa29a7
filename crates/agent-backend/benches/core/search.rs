//! Searching 50,000 files, beside ripgrep with its output to a pipe.

use std::path::Path;
use std::process::Command;

use agent_backend::backend::{GlobOptions, GrepOptions};
use agent_backend::search::{PatternSyntax, SearchLimits};
use agent_backend::{Backend, LocalWorkspaceConfig};

use crate::measure::{ROUNDS, Row, millis};

const DIRECTORIES: usize = 500;
const FILES_EACH: usize = 100;

pub(crate) async fn run() {
    let Ok(version) = Command::new("rg").arg("--version").output() else {
        println!("search: rg is missing; `cargo xtask bench core` installs it");
        return;
    };
    let version = String::from_utf8_lossy(&version.stdout).lines().next().unwrap().to_owned();
    let directory = tempfile::tempdir().unwrap();
    plant(directory.path());
    println!("{} files; peer: {version}, output to a pipe", DIRECTORIES * FILES_EACH);
    Row::head();
    let backend = agent_backend::local_with(LocalWorkspaceConfig::new(directory.path())).unwrap();
    let root = directory.path();
    grep(&backend, root, "grep, literal", "needle_in_file_77", PatternSyntax::Literal).await;
    grep(&backend, root, "grep, regex", "needle_in_[a-z]+_7[0-9] ", PatternSyntax::Regex).await;
    grep(&backend, root, "grep, many matches", "line 7 of", PatternSyntax::Literal).await;
    glob(&backend, root).await;
}

/// Source-like files of about 2 KiB.
fn plant(root: &Path) {
    for d in 0..DIRECTORIES {
        let directory = root.join(format!("module{:02}/part{d:03}", d % 20));
        std::fs::create_dir_all(&directory).unwrap();
        for f in 0..FILES_EACH {
            let mut text = String::new();
            for line in 0..40 {
                text.push_str(&format!("fn value_{line}() {{ /* line {line} of some text */ }}\n"));
            }
            text.push_str(&format!("// needle_in_file_{f} \n"));
            let ending = if f % 4 == 0 { "rs" } else { "txt" };
            std::fs::write(directory.join(format!("file{f}.{ending}")), text).unwrap();
        }
    }
}

fn unlimited() -> SearchLimits {
    SearchLimits { max_matches: usize::MAX, max_bytes: usize::MAX, ..SearchLimits::default() }
}

/// Lines that rg prints, and how long it took.
async fn rg(root: &Path, arguments: &[&str]) -> (f64, usize) {
    let run = async {
        let output = Command::new("rg").args(arguments).arg(root).output().unwrap();
        output.stdout.iter().filter(|byte| **byte == b'\n').count()
    };
    millis(run).await
}

async fn grep(backend: &Backend, root: &Path, what: &str, pattern: &str, syntax: PatternSyntax) {
    let fixed = if syntax == PatternSyntax::Literal { "-F" } else { "-e" };
    let arguments = ["-n", "--no-ignore", fixed, pattern];
    let mut row = Row::new();
    for _ in 0..ROUNDS {
        let options = GrepOptions { syntax, limits: unlimited(), ..GrepOptions::default() };
        let (time, found) = millis(backend.grep(pattern, options)).await;
        let (peer, lines) = rg(root, &arguments).await;
        assert_eq!(found.unwrap().matches.len(), lines);
        // Speed, so that more is better.
        row.ours.push(1000.0 / time);
        row.peer.push(1000.0 / peer);
    }
    row.print(what, "/s", "at least 0.95");
}

async fn glob(backend: &Backend, root: &Path) {
    let mut row = Row::new();
    for _ in 0..ROUNDS {
        let options = GlobOptions { limits: unlimited(), ..GlobOptions::default() };
        let (time, found) = millis(backend.glob("*.rs", options)).await;
        let (peer, lines) = rg(root, &["--files", "--no-ignore", "-g", "*.rs"]).await;
        assert_eq!(found.unwrap().entries.len(), lines);
        row.ours.push(1000.0 / time);
        row.peer.push(1000.0 / peer);
    }
    row.print("glob *.rs", "/s", "at least 1.1");
}
