//! Attempts on other programs: their sockets, memory and files, the network, signals and tracing.

use ab_core::effective_policy::PolicyControlKind;

use super::{EscapeAttempt, EscapeEvidence, SandboxOption, bare};

const fn reaches(
    name: &'static str,
    stopped_by: PolicyControlKind,
    oracle: EscapeEvidence,
    script: &'static str,
) -> EscapeAttempt {
    EscapeAttempt {
        name,
        stopped_by,
        sandbox_options: &[],
        prepare: bare(),
        script,
        evidence: oracle,
        succeeds_unconfined: true,
    }
}

const fn kills(name: &'static str, script: &'static str) -> EscapeAttempt {
    reaches(name, PolicyControlKind::Processes, EscapeEvidence::OutsideProcessKilled, script)
}

const fn connects(name: &'static str, script: &'static str) -> EscapeAttempt {
    EscapeAttempt {
        sandbox_options: &[SandboxOption::NoNetwork],
        ..reaches(name, PolicyControlKind::Network, EscapeEvidence::ServerReached, script)
    }
}

/// Sends to a path from every kind of local socket, created alone and as part of a pair.
const BY_PAIRS: &str = "python3 -c '@call@
def tries(make):
    for path in (\"@out@/datagram\", \"@out@/socket\"):
        for act in (lambda s: s.sendto(b\"x\", path), lambda s: (s.connect(path), s.send(b\"x\"))):
            try: act(make())
            except OSError as e: print(e)
kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
for kind in kinds:
    kept = []
    def pair():
        kept.append(socket.socketpair(socket.AF_UNIX, kind))
        return kept[-1][0]
    tries(pair)
    tries(lambda: socket.socket(socket.AF_UNIX, kind))
tried()'";

/// Enters the topmost groups, then starts more processes than its own allows.
const OUT_OF_GROUP: &str = "python3 -c '@call@
import glob
for group in glob.glob(\"/sys/fs/cgroup/cgroup.procs\") + glob.glob(\"/sys/fs/cgroup/*/cgroup.procs\"):
    try: open(group, \"w\").write(str(os.getpid()))
    except OSError as e: print(e)
r, w = os.pipe()
started = 0
for _ in range(64):
    try: pid = os.fork()
    except OSError as e:
        print(e)
        break
    if pid == 0:
        os.close(w)
        os.read(r, 1)
        os._exit(0)
    started += 1
os.close(w)
print(\"DID\" if started == 64 else started)
tried()'";

pub(super) const ATTEMPTS: &[EscapeAttempt] = &[
    kills("a signal", "kill -9 @pid@; echo tried"),
    kills("a signal that stops", "kill -STOP @pid@; echo tried"),
    kills("a signal through a handle", "python3 -c '@call@\nfd = raw(\"pidfd_open\", @pid@, 0)\nraw(\"pidfd_send_signal\", fd, 9, 0, 0)\ntried()'"),
    kills("a queued signal", "python3 -c '@call@\nraw(\"rt_sigqueueinfo\", @pid@, 9, struct.pack(\"iii\", 9, 0, -1) + bytes(116))\nraw(\"tkill\", @pid@, 9)\nraw(\"tgkill\", @pid@, @pid@, 9)\ntried()'"),
    EscapeAttempt {
        succeeds_unconfined: false,
        evidence: EscapeEvidence::ScriptReportedSuccess,
        ..kills("tracing", "python3 -c '@call@\nsaid(L.ptrace(0x4206, @pid@, 0, 0))\nsaid(L.ptrace(16, @pid@, 0, 0))\ntried()'")
    },
    EscapeAttempt {
        evidence: EscapeEvidence::ScriptReportedSuccess,
        ..kills("limits of another", "python3 -c '@call@\ncall(\"prlimit64\", @pid@, 7, struct.pack(\"QQ\", 64, 64), 0)\ntried()'")
    },
    EscapeAttempt {
        evidence: EscapeEvidence::ScriptReportedSuccess,
        ..kills("memory that programs share", "python3 -c '@call@\nr = L.shmget(0x0ab0, 4096, 0o1600)\ntry: ns = os.readlink(\"/proc/self/ns/ipc\")\nexcept OSError: ns = \"@ipc@\"\nprint(\"DID\" if r >= 0 and ns == \"@ipc@\" else \"no\")\nL.shmctl(r, 0, 0)\nfor other in (raw(\"semget\", 0, 1, 0o1600), raw(\"msgget\", 0, 0o1600), raw(\"mq_open\", b\"ab-escape\", os.O_CREAT | os.O_RDWR, 0o600, 0)):\n    print(\"DID\" if other >= 0 and ns == \"@ipc@\" else \"no\")\ntried()'")
    }
    .where_it_may_fail(),
    reaches(
        "the environment of another",
        PolicyControlKind::Processes,
        EscapeEvidence::SecretInOutput,
        "tr '\\0' '\\n' < /proc/@pid@/environ; cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep ESCAPE; echo tried",
    ),
    reaches(
        "the environment of whoever runs this",
        PolicyControlKind::Environment,
        EscapeEvidence::SecretInOutput,
        "env; export -p; echo tried",
    )
    .where_it_may_fail(),
    reaches(
        "a socket with a path",
        PolicyControlKind::Sockets,
        EscapeEvidence::ServerReached,
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"@out@/socket\")'; echo tried",
    ),
    EscapeAttempt {
        sandbox_options: &[SandboxOption::BindOutside],
        ..reaches(
            "a socket in a directory that may only be read",
            PolicyControlKind::Sockets,
            EscapeEvidence::ServerReached,
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"@out@/socket\")'; echo tried",
        )
    },
    EscapeAttempt {
        sandbox_options: &[SandboxOption::BindOutside],
        evidence: EscapeEvidence::OutsideChanged,
        ..reaches(
            "a write to a directory that may only be read",
            PolicyControlKind::Files,
            EscapeEvidence::OutsideChanged,
            "echo x > @out@/taken; echo tried",
        )
    },
    EscapeAttempt {
        sandbox_options: &[SandboxOption::ToolchainOutside],
        ..reaches(
            "datagrams and pairs to a socket in a toolchain",
            PolicyControlKind::Sockets,
            EscapeEvidence::ServerReached,
            BY_PAIRS,
        )
    },
    EscapeAttempt {
        sandbox_options: &[SandboxOption::FoundToolchain],
        prepare: |testbed| testbed.add_sockets_to_home_toolchain(),
        ..reaches(
            "a socket beside programs in the home directory",
            PolicyControlKind::Sockets,
            EscapeEvidence::ServerReached,
            "ls @out@/.cargo/bin; python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"@out@/.cargo/bin/socket\")'; echo tried",
        )
    },
    EscapeAttempt {
        sandbox_options: &[SandboxOption::FoundToolchain],
        prepare: |testbed| testbed.add_sockets_to_home_toolchain(),
        ..reaches(
            "a datagram to a socket beside programs in the home directory",
            PolicyControlKind::Sockets,
            EscapeEvidence::ServerReached,
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b\"x\", \"@out@/.cargo/bin/datagram\")'; echo tried",
        )
    },
    reaches(
        "a socket without a path",
        PolicyControlKind::Sockets,
        EscapeEvidence::ServerReached,
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0@name@\")'; echo tried",
    ),
    reaches(
        "datagrams and pairs to a socket with a path",
        PolicyControlKind::Sockets,
        EscapeEvidence::ServerReached,
        BY_PAIRS,
    ),
    EscapeAttempt {
        sandbox_options: &[SandboxOption::BindOutside],
        ..reaches(
            "datagrams and pairs to a socket in a directory that may only be read",
            PolicyControlKind::Sockets,
            EscapeEvidence::ServerReached,
            BY_PAIRS,
        )
    },
    reaches(
        "pairs of other families, and other protocols of netlink",
        PolicyControlKind::Sockets,
        EscapeEvidence::ScriptReportedSuccess,
        "python3 -c '@call@\nfor family in range(2, 46):\n    for kind in (1, 2, 3, 4, 5):\n        pair = ctypes.create_string_buffer(8)\n        if raw(\"socketpair\", family, kind, 0, pair) >= 0: print(\"DID\")\nfor protocol in range(1, 23):\n    try:\n        socket.socket(16, socket.SOCK_RAW, protocol)\n        print(\"DID\")\n    except OSError as e: print(e)\ntried()'",
    ),
    EscapeAttempt {
        succeeds_unconfined: false,
        ..reaches(
            "sockets of other families",
            PolicyControlKind::Sockets,
            EscapeEvidence::ScriptReportedSuccess,
            "python3 -c '@call@\nfor family in range(3, 46):\n    if family in (10, 16): continue\n    for kind in (1, 2, 3, 4, 5):\n        if raw(\"socket\", family, kind, 0) >= 0: print(\"DID\")\ntried()'",
        )
    },
    EscapeAttempt {
        succeeds_unconfined: false,
        evidence: EscapeEvidence::ScriptReportedSuccess,
        ..kills(
            "memory of another process",
            "python3 -c '@call@\nb = ctypes.create_string_buffer(8)\nown = struct.pack(\"QQ\", ctypes.addressof(b), 8)\ntheirs = struct.pack(\"QQ\", 4096, 8)\nr = raw(\"process_vm_readv\", @pid@, own, 1, theirs, 1, 0)\n# A bad address is found out only by those who may look.\nprint(\"DID\" if r >= 0 or ctypes.get_errno() == 14 else \"no\")\ntry:\n    os.open(\"/proc/@pid@/mem\", os.O_RDONLY)\n    print(\"DID\")\nexcept OSError as e: print(e)\ntried()'",
        )
    },
    EscapeAttempt {
        succeeds_unconfined: false,
        evidence: EscapeEvidence::ScriptReportedSuccess,
        ..kills(
            "a handle of another process",
            "python3 -c '@call@\nfd = raw(\"pidfd_open\", @pid@, 0)\nfor number in (0, 1, 2): call(\"pidfd_getfd\", fd, number, 0)\ntried()'",
        )
    },
    connects(
        "a stream",
        "(exec 3<>/dev/tcp/127.0.0.1/@tcp@); python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", @tcp@))'; echo tried",
    ),
    connects(
        "a stream to a mapped address",
        "python3 -c 'import socket; socket.create_connection((\"::ffff:127.0.0.1\", @tcp@))'; echo tried",
    ),
    connects(
        "a datagram",
        "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"127.0.0.1\", @udp@))'; echo tried",
    ),
    EscapeAttempt {
        evidence: EscapeEvidence::ScriptReportedSuccess,
        succeeds_unconfined: false,
        ..connects(
            "other families",
            "python3 -c '@call@\nfor f in (40, 17, 38, 44):\n    try:\n        socket.socket(f, socket.SOCK_STREAM if f != 38 else socket.SOCK_SEQPACKET)\n        print(\"DID\")\n    except OSError as e: print(e)\ntried()'",
        )
    },
    EscapeAttempt {
        evidence: EscapeEvidence::ScriptReportedSuccess,
        succeeds_unconfined: false,
        ..connects("names of hosts", "getent ahostsv4 example.com >/dev/null 2>&1 && echo DID; echo tried")
    },
    EscapeAttempt {
        sandbox_options: &[SandboxOption::Limited],
        ..reaches(
            "another control group than its own",
            PolicyControlKind::ProcessCount,
            EscapeEvidence::ScriptReportedSuccess,
            OUT_OF_GROUP,
        )
    }
    .where_it_may_fail(),
    EscapeAttempt {
        sandbox_options: &[SandboxOption::Limited],
        ..reaches(
            "a limit that is raised",
            PolicyControlKind::OpenFiles,
            EscapeEvidence::ScriptReportedSuccess,
            "python3 -c '@call@\nimport resource\ntry:\n    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n    print(\"DID\")\nexcept (OSError, ValueError) as e: print(e)\ntried()'",
        )
    }
    .where_it_may_fail(),
    reaches(
        "another program's terminal",
        PolicyControlKind::Files,
        EscapeEvidence::ScriptReportedSuccess,
        "for t in /dev/pts/[0-9]*; do [ -e $t ] || continue; [ $t = \"$(tty)\" ] && continue; (exec 3<>$t) 2>/dev/null && echo DID; done; echo tried",
    )
    .where_it_may_fail(),
];
