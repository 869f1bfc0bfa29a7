//! The testbed of attempts: a workspace, and things around it that must not be reached.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::Duration;

/// The workspace and its surroundings. The caller provides the directory and removes it.
#[derive(Debug)]
pub struct EscapeTestbed {
    base: PathBuf,
    secret: String,
    stream: TcpListener,
    datagram: UdpSocket,
    local: UnixListener,
    local_datagram: UnixDatagram,
    nameless: UnixListener,
    victim: Mutex<Victim>,
}

impl EscapeTestbed {
    /// Creates a testbed in an empty directory.
    pub fn new(base: &Path) -> EscapeTestbed {
        use std::hash::{BuildHasher, Hasher};
        let random = || std::hash::RandomState::new().build_hasher().finish();
        let secret = format!("{:016x}{:016x}", random(), random());
        let base = base.canonicalize().unwrap();
        for directory in ["ws/scope/a", "ws/scope/b", "ws-evil", "outside/kept"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in ["ws-evil/canary", "outside/canary", "outside/kept/canary", "canary"] {
            fs::write(base.join(file), format!("{secret}\n")).unwrap();
        }
        let name = SocketAddr::from_abstract_name(format!("ab-{secret}")).unwrap();
        let testbed = EscapeTestbed {
            stream: TcpListener::bind("127.0.0.1:0").unwrap(),
            datagram: UdpSocket::bind("127.0.0.1:0").unwrap(),
            local: UnixListener::bind(base.join("outside/socket")).unwrap(),
            local_datagram: UnixDatagram::bind(base.join("outside/datagram")).unwrap(),
            nameless: UnixListener::bind_addr(&name).unwrap(),
            victim: Mutex::new(victim(&secret)),
            base,
            secret,
        };
        testbed.stream.set_nonblocking(true).unwrap();
        testbed.datagram.set_nonblocking(true).unwrap();
        testbed.local.set_nonblocking(true).unwrap();
        testbed.local_datagram.set_nonblocking(true).unwrap();
        testbed.nameless.set_nonblocking(true).unwrap();
        testbed
    }

    pub fn workspace_dir(&self) -> PathBuf {
        self.base.join("ws")
    }

    pub fn outside_dir(&self) -> PathBuf {
        self.base.join("outside")
    }

    /// The directory for programs in the home directory. It exists only in attempts with
    /// [`FoundToolchain`](super::SandboxOption::FoundToolchain).
    pub fn home_toolchain_dir(&self) -> PathBuf {
        self.outside_dir().join(".cargo/bin")
    }

    /// Creates a program in the home directory, and gives the sockets outside another name beside
    /// it.
    pub(super) fn add_sockets_to_home_toolchain(&self) {
        let programs = self.home_toolchain_dir();
        fs::create_dir_all(&programs).unwrap();
        fs::copy("/bin/true", programs.join("cargo")).unwrap();
        for socket in ["socket", "datagram"] {
            fs::hard_link(self.outside_dir().join(socket), programs.join(socket)).unwrap();
        }
    }

    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Replaces placeholders in a script: the directories `@ws@`, `@out@` and `@base@`, `@pid@` of
    /// a process outside, the ports `@tcp@` and `@udp@`, `@name@` of a socket without a path,
    /// `@ipc@` of our IPC namespace, and `@call@` for the start of a Python program that makes
    /// system calls.
    pub fn expand_placeholders(&self, script: &str) -> String {
        let port = |address: std::io::Result<std::net::SocketAddr>| address.unwrap().port();
        script
            .replace("@call@", &calling())
            .replace("@ws@", &self.workspace_dir().to_string_lossy())
            .replace("@out@", &self.outside_dir().to_string_lossy())
            .replace("@base@", &self.base.to_string_lossy())
            .replace("@pid@", &self.victim.lock().unwrap().child.id().to_string())
            .replace("@tcp@", &port(self.stream.local_addr()).to_string())
            .replace("@udp@", &port(self.datagram.local_addr()).to_string())
            .replace("@ipc@", &fs::read_link("/proc/self/ns/ipc").unwrap().to_string_lossy())
            .replace("@name@", &format!("ab-{}", self.secret))
    }

    pub(super) fn was_changed(&self) -> bool {
        let whole = |file: &str| {
            let path = self.base.join(file);
            let mode = fs::symlink_metadata(&path).map(|found| found.permissions().mode() & 0o7777);
            let same = fs::read_to_string(&path).is_ok_and(|text| text.trim() == self.secret);
            same && mode.is_ok_and(|mode| mode & 0o111 == 0)
        };
        let canaries = ["ws-evil/canary", "outside/canary", "outside/kept/canary", "canary"];
        let kept = canaries.iter().all(|file| whole(file));
        let names = |directory: &str| fs::read_dir(self.base.join(directory)).unwrap().count();
        let counts = [names("outside"), names("outside/kept"), names("ws-evil"), names(".")];
        !kept || counts != [4, 1, 1, 4]
    }

    /// Whether any of the servers was contacted. A contact is already in the server's queue.
    pub(super) fn was_called(&self) -> bool {
        let mut byte = [0; 16];
        self.stream.accept().is_ok()
            || self.local.accept().is_ok()
            || self.nameless.accept().is_ok()
            || self.datagram.recv_from(&mut byte).is_ok()
            || self.local_datagram.recv(&mut byte).is_ok()
    }

    /// Whether the process was killed, stopped or traced. Then it no longer echoes.
    pub(super) fn was_killed(&self) -> bool {
        let victim = self.victim.lock().unwrap();
        let stopped = fs::read_to_string(format!("/proc/{}/status", victim.child.id()))
            .is_ok_and(|status| status.contains("State:\tT") || !status.contains("TracerPid:\t0"));
        let mut line = &victim.line;
        let mut heard = [0];
        stopped || line.write_all(b"?").is_err() || line.read_exact(&mut heard).is_err()
    }
}

impl Drop for EscapeTestbed {
    fn drop(&mut self) {
        let mut victim = self.victim.lock().unwrap();
        // It may have been killed already by an attempt.
        let _ = victim.child.kill();
        let _ = victim.child.wait();
    }
}

/// A process that must survive, and the socket on which it echoes.
#[derive(Debug)]
struct Victim {
    child: Child,
    line: UnixStream,
}

/// How long the process may be silent before it counts as stopped.
const SILENCE: Duration = Duration::from_secs(5);

/// Starts the process with a secret in its environment. The process ends at the end of its input.
fn victim(secret: &str) -> Victim {
    let (line, theirs) = UnixStream::pair().unwrap();
    line.set_read_timeout(Some(SILENCE)).unwrap();
    let mut command = Command::new("cat");
    command.env("ESCAPE_SECRET", secret).stdin(OwnedFd::from(theirs.try_clone().unwrap()));
    let child = command.stdout(OwnedFd::from(theirs)).spawn().unwrap();
    Victim { child, line }
}

/// The start of a program that reports whether a system call succeeded. Calls are given by name,
/// because their numbers differ between architectures, and not every architecture has all of them.
fn calling() -> String {
    let number = |(name, number): &(&str, libc::c_long)| format!("\"{name}\": {number}");
    let numbers: Vec<String> = CALLS.iter().map(number).collect();
    format!("N = {{{}}}\n{CALL}", numbers.join(", "))
}

/// The system calls that attempts make.
const CALLS: &[(&str, libc::c_long)] = &[
    ("add_key", libc::SYS_add_key),
    ("bpf", libc::SYS_bpf),
    ("capget", libc::SYS_capget),
    #[cfg(target_arch = "x86_64")]
    ("chmod", libc::SYS_chmod),
    ("chroot", libc::SYS_chroot),
    ("clone", libc::SYS_clone),
    ("clone3", libc::SYS_clone3),
    #[cfg(target_arch = "x86_64")]
    ("creat", libc::SYS_creat),
    ("delete_module", libc::SYS_delete_module),
    ("fchmod", libc::SYS_fchmod),
    ("fchmodat", libc::SYS_fchmodat),
    ("fchmodat2", 452),
    ("finit_module", libc::SYS_finit_module),
    ("fsopen", libc::SYS_fsopen),
    ("getpid", libc::SYS_getpid),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("ioctl", libc::SYS_ioctl),
    ("keyctl", libc::SYS_keyctl),
    #[cfg(target_arch = "x86_64")]
    ("mknod", libc::SYS_mknod),
    ("mknodat", libc::SYS_mknodat),
    #[cfg(target_arch = "x86_64")]
    ("open", libc::SYS_open),
    ("mq_open", libc::SYS_mq_open),
    ("msgget", libc::SYS_msgget),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("open_tree_attr", 467),
    ("openat", libc::SYS_openat),
    ("openat2", libc::SYS_openat2),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("prlimit64", libc::SYS_prlimit64),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("semget", libc::SYS_semget),
    ("sethostname", libc::SYS_sethostname),
    ("setns", libc::SYS_setns),
    ("settimeofday", libc::SYS_settimeofday),
    ("socketpair", libc::SYS_socketpair),
    ("syslog", libc::SYS_syslog),
    ("tgkill", libc::SYS_tgkill),
    ("tkill", libc::SYS_tkill),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
];

const CALL: &str = r#"import ctypes, os, sys, socket, struct, fcntl
L = ctypes.CDLL(None, use_errno=True)
def said(r):
    print("DID" if r >= 0 else "errno %d" % ctypes.get_errno(), flush=True)
def raw(name, *a):
    return L.syscall(N[name], *a) if name in N else -1
def call(name, *a):
    said(raw(name, *a))
def tried():
    print("tried", flush=True)
"#;
