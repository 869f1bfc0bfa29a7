//! Programs as processes: how they are started, found to be ready, looked at and ended. All
//! benchmarks of this crate share it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

const OURS: &str = env!("CARGO_BIN_EXE_agent-backend");
/// The npm package of the daemon that ours takes the place of.
pub(crate) const NPM_DAEMON: &str = "agent-backend";
/// Between two looks whether a program answers; far below what is measured.
const LOOK: Duration = Duration::from_micros(200);
const LOOKS: usize = 100_000;

pub(crate) fn ours() -> Command {
    Command::new(OURS)
}

/// Where the peers are installed.
#[derive(Debug)]
pub(crate) struct Peers {
    modules: PathBuf,
}

impl Peers {
    pub(crate) fn find() -> Option<Peers> {
        let modules = PathBuf::from(std::env::var_os("AB_PEERS")?).join("npm/node_modules");
        modules.is_dir().then_some(Peers { modules })
    }

    /// A script of a package, run by this machine's node.
    pub(crate) fn script(&self, package: &str, script: &str) -> Command {
        let mut command = Command::new("node");
        command.arg(self.file(package, script));
        command
    }

    /// A file of a package.
    pub(crate) fn file(&self, package: &str, name: &str) -> PathBuf {
        self.modules.join(package).join(name)
    }

    pub(crate) fn npm_daemon(&self) -> Command {
        self.script(NPM_DAEMON, "bin/agent-backend.js")
    }

    pub(crate) fn version_of(&self, package: &str) -> String {
        let manifest = self.modules.join(package).join("package.json");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        format!("npm {package} {}", manifest["version"].as_str().unwrap())
    }
}

/// The first line that a program says about its version, wherever it says it.
pub(crate) fn version(program: &str, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else {
        return format!("no {program}");
    };
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned()
}

pub(crate) fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("kernel {}", release.trim())
}

/// A process that ends with its owner.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn new(child: Child) -> Running {
        Running { child }
    }

    /// Starts a program without streams, and returns when it is `ready`.
    pub(crate) fn when(command: &mut Command, ready: impl Fn() -> bool) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running::new(command.spawn().unwrap());
        for _ in 0..LOOKS {
            if ready() {
                return running;
            }
            let ended = running.child.try_wait().unwrap();
            assert!(ended.is_none(), "{command:?} ended: {ended:?}");
            thread::sleep(LOOK);
        }
        panic!("{command:?} does not answer");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it and those of its descendants that are `counted` keep in memory, in MB.
    pub(crate) fn memory(&self, counted: impl Fn(u32) -> bool) -> f64 {
        let mut processes = vec![self.id()];
        let mut total = 0.0;
        while let Some(process) = processes.pop() {
            let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}"));
            let status = read("status").unwrap_or_default();
            let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let resident = resident.and_then(|line| line.split_whitespace().next()?.parse().ok());
            if counted(process) {
                total += resident.unwrap_or(0.0) / 1024.0;
            }
            let children = read(&format!("task/{process}/children")).unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
        }
        total
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server at a port that answers.
#[derive(Debug)]
pub(crate) struct Daemon {
    running: Running,
    pub(crate) port: u16,
}

impl Daemon {
    /// Starts a daemon, ours or npm's; returns when it says that it is healthy.
    pub(crate) fn start(mut command: Command) -> Daemon {
        let port = free_port();
        command.args(["--port", &port.to_string()]);
        Daemon { running: Running::when(&mut command, || answers(port, "/health")), port }
    }

    /// What it and its children keep in memory, in MB.
    pub(crate) fn memory(&self) -> f64 {
        self.running.memory(|_| true)
    }
}

/// A port that nobody has at this moment.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Whether a path of a server is answered with 200.
pub(crate) fn answers(port: u16, path: &str) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let asked = stream.write_all(request.as_bytes());
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
}
