//! System calls that could break the isolation. Most of these calls have no effect outside the
//! sandbox, so the program that makes the call reports whether the call succeeded.

use ab_core::effective_policy::PolicyControlKind;

use super::{EscapeAttempt, EscapeEvidence, SandboxOption, bare};

const fn calls(name: &'static str, script: &'static str) -> EscapeAttempt {
    EscapeAttempt {
        name,
        stopped_by: PolicyControlKind::Kernel,
        sandbox_options: &[],
        prepare: bare(),
        script,
        evidence: EscapeEvidence::ScriptReportedSuccess,
        // Not every kernel has every call, nor may every user make it.
        succeeds_unconfined: false,
    }
}

/// Calls that any user may make on any current kernel.
const fn works(name: &'static str, script: &'static str) -> EscapeAttempt {
    EscapeAttempt { succeeds_unconfined: true, ..calls(name, script) }
}

/// Sets the set-uid or set-gid bit of files, with every call that changes modes.
const BY_CHANGED_MODES: &str = "cp /bin/true t; chmod 4755 t && [ -u t ] && echo DID
cp /bin/true g; chmod 2755 g && [ -g g ] && echo DID
chmod u+s,g+s t g; { [ -u t ] || [ -g g ]; } && echo DID
install -m 6755 /bin/true i; [ -u i ] && echo DID
mkdir d; chmod 2755 d && [ -g d ] && echo DID
python3 -c '@call@
open(\"u\", \"w\")
for mode in (0o4755, 0o2755):
    call(\"chmod\", b\"u\", mode)
    call(\"fchmod\", os.open(\"u\", 0), mode)
    call(\"fchmodat\", -100, b\"u\", mode)
    call(\"fchmodat2\", -100, b\"u\", mode, 0)
tried()'";

/// Creates files with these bits, with every call that creates files.
const BY_FIRST_MODES: &str = "mkdir made; cd made; python3 -c '@call@
os.umask(0)
create = os.O_CREAT | os.O_WRONLY
for mode in (0o4755, 0o2755):
    name = lambda call: b\"%s-%o\" % (call, mode)
    raw(\"open\", name(b\"open\"), create, mode)
    raw(\"creat\", name(b\"creat\"), mode)
    raw(\"openat\", -100, name(b\"openat\"), create, mode)
    raw(\"openat2\", -100, name(b\"openat2\"), struct.pack(\"QQQ\", create, mode, 0), 24)
    raw(\"mknod\", name(b\"mknod\"), 0o100000 | mode, 0)
    raw(\"mknodat\", -100, name(b\"mknodat\"), 0o100000 | mode, 0)
    nameless = raw(\"openat\", -100, b\".\", os.O_TMPFILE | os.O_WRONLY, mode)
    print(\"DID\" if nameless >= 0 and os.fstat(nameless).st_mode & 0o6000 else \"no\")
for name in os.listdir(\".\"):
    print(\"DID\" if os.stat(name).st_mode & 0o6000 else name)
tried()'";

pub(super) const ATTEMPTS: &[EscapeAttempt] = &[
    calls(
        "io_uring",
        "python3 -c '@call@\nb = ctypes.create_string_buffer(120)\ncall(\"io_uring_setup\", 1, b)\ntried()'",
    ),
    calls("a user namespace by unshare", "unshare -U true && echo DID; echo tried"),
    calls(
        "a user namespace by the call",
        "python3 -c '@call@\ncall(\"unshare\", 0x10000000)\ntried()'",
    ),
    calls(
        "a user namespace by clone",
        "python3 -c '@call@\nr = raw(\"clone\", 0x10000000 | 17, 0, 0, 0, 0)\nif r == 0: os._exit(0)\nsaid(r)\ntried()'",
    ),
    calls(
        "a user namespace by clone3",
        "python3 -c '@call@\na = struct.pack(\"11Q\", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)\nr = raw(\"clone3\", a, 88)\nif r == 0: os._exit(0)\nsaid(r)\ntried()'",
    ),
    calls("a mount namespace", "unshare -m true && echo DID; echo tried"),
    calls("a time namespace", "python3 -c '@call@\ncall(\"unshare\", 0x80)\ntried()'"),
    calls(
        "another's namespace",
        "python3 -c '@call@\nfd = os.open(\"/proc/self/ns/uts\", os.O_RDONLY) if os.path.exists(\"/proc/self/ns/uts\") else 0\ncall(\"setns\", fd, 0)\ntried()'",
    ),
    works("keys of the session", "python3 -c '@call@\ncall(\"keyctl\", 0, -3, 1)\ntried()'"),
    works(
        "a key of one's own",
        "python3 -c '@call@\ncall(\"add_key\", b\"user\", b\"ab-escape\", b\"x\", 1, -2)\ntried()'",
    ),
    calls(
        "a mount",
        "mkdir -p m; mount -t tmpfs none m 2>&1 && echo DID && umount m; python3 -c '@call@\ncall(\"fsopen\", b\"tmpfs\", 0)\ntried()'",
    ),
    calls(
        "a bind by open_tree",
        "python3 -c '@call@\ncall(\"open_tree\", -100, b\"/\", 1)\ncall(\"open_tree_attr\", -100, b\"/\", 1, 0, 0)\ntried()'",
    ),
    calls("another root", "python3 -c '@call@\ncall(\"chroot\", b\".\")\ntried()'"),
    calls(
        "a file by its handle",
        "python3 -c '@call@\nh = struct.pack(\"Ii\", 8, 1) + bytes(128)\nr = raw(\"open_by_handle_at\", -100, h, 0)\ne = ctypes.get_errno()\nprint(\"DID\" if e != 1 else \"no\")\ntried()'",
    ),
    calls(
        "programs in the kernel",
        "python3 -c '@call@\ncall(\"bpf\", 0, struct.pack(\"IIIIIIII\", 2, 4, 4, 1, 0, 0, 0, 0), 32)\ntried()'",
    ),
    calls(
        "performance events",
        "python3 -c '@call@\na = struct.pack(\"IIQ\", 1, 112, 0) + bytes(96)\ncall(\"perf_event_open\", a, 0, -1, -1, 0)\ntried()'",
    ),
    calls(
        "modules of the kernel",
        "python3 -c '@call@\nfor made in (lambda: raw(\"finit_module\", -1, b\"\", 0), lambda: raw(\"delete_module\", b\"ab-escape\", 0x800)):\n    made()\n    # Whoever may do it is told that there is no such module.\n    print(\"DID\" if ctypes.get_errno() != 1 else \"no\")\ntried()'",
    ),
    // Without a time it changes nothing, and is allowed to everybody.
    works("the clock", "python3 -c '@call@\ncall(\"settimeofday\", 0, 0)\ntried()'"),
    works(
        "calls with flags that no filter sees",
        "python3 -c '@call@\nhow = struct.pack(\"QQQ\", os.O_PATH, 0, 0)\nraw(\"openat2\", -100, b\".\", how, 24)\nopened = ctypes.get_errno()\nraw(\"clone3\", 0, 0)\n# Programs go on without a call that does not exist.\nprint(\"DID\" if (opened, ctypes.get_errno()) != (38, 38) else \"absent\")\ntried()'",
    ),
    calls("user faults", "python3 -c '@call@\ncall(\"userfaultfd\", 1)\ntried()'"),
    calls(
        "the other interface's numbers",
        "python3 -c '@call@\nsaid(L.syscall(0x40000000 | N[\"getpid\"]))\ntried()'",
    ),
    // `getpid` by the interrupt of 32-bit programs. A filter may end the process, so the shell reports the attempt.
    calls(
        "the interrupt of 32-bit programs",
        "python3 -c '@call@\nimport mmap\nif os.uname().machine == \"x86_64\":\n    code = mmap.mmap(-1, 4096, prot=7)\n    code.write(b\"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3\")\n    start = ctypes.addressof(ctypes.c_char.from_buffer(code))\n    print(\"DID\" if ctypes.CFUNCTYPE(ctypes.c_int)(start)() > 0 else \"no\")'; echo tried",
    ),
    calls(
        "the name of the host",
        "python3 -c '@call@\nn = os.uname().nodename.encode()\ncall(\"sethostname\", n, len(n))\ntried()'",
    ),
    calls("the kernel's log", "python3 -c '@call@\ncall(\"syslog\", 10, 0, 0)\ntried()'"),
    calls("a device", "mknod d b 8 0 && echo DID; mknod c c 1 1 && echo DID; echo tried"),
    EscapeAttempt {
        stopped_by: PolicyControlKind::Files,
        ..calls(
            "devices of the host",
            "for d in /dev/mem /dev/kmsg /dev/sda /dev/vda /dev/nvme0n1 /dev/loop0; do (exec 3<$d) 2>/dev/null && echo DID; done; echo tried",
        )
    },
    calls(
        "the filter taken off",
        "python3 -c '@call@\nL.prctl(22, 0, 0, 0, 0)\nL.prctl(38, 0, 0, 0, 0)\ncall(\"keyctl\", 0, -3, 1)\ntried()'",
    ),
    calls(
        "new privileges",
        "python3 -c '@call@\nr = L.prctl(39, 0, 0, 0, 0)\nprint(\"DID\" if r != 1 else \"kept\")\ntried()'",
    ),
    calls(
        "a capability in hand",
        "python3 -c '@call@\nh = struct.pack(\"Ii\", 0x20080522, 0)\nd = ctypes.create_string_buffer(24)\nraw(\"capget\", h, d)\nprint(\"DID\" if any(d.raw[:4]) or any(d.raw[12:16]) else \"none\")\ntried()'",
    ),
    works("a program that makes others root", BY_CHANGED_MODES),
    works("a program that makes others root from its creation", BY_FIRST_MODES),
    EscapeAttempt {
        stopped_by: PolicyControlKind::Files,
        ..calls(
            "settings of the kernel",
            "for f in kernel/core_pattern kernel/modprobe kernel/hostname vm/drop_caches fs/file-max; do v=$(cat /proc/sys/$f 2>/dev/null); [ -n \"$v\" ] || v=0; (printf %s \"$v\" > /proc/sys/$f) 2>/dev/null && echo DID; done; echo tried",
        )
    },
    EscapeAttempt {
        stopped_by: PolicyControlKind::Files,
        ..calls(
            "other levers in proc",
            "find /proc -maxdepth 2 -type f -not -path '/proc/[0-9]*' -not -path '/proc/self/*' -not -path '/proc/thread-self/*' 2>/dev/null | while read -r f; do (exec 3>>$f) 2>/dev/null && echo $f && echo DID; done; echo tried",
        )
    },
    EscapeAttempt {
        stopped_by: PolicyControlKind::Files,
        ..calls(
            "control groups and sys",
            "find /sys -maxdepth 5 \\( -name release_agent -o -name cgroup.procs -o -name uevent_helper -o -name notify_on_release \\) 2>/dev/null | while read -r f; do (exec 3>>$f) 2>/dev/null && echo DID; done; mkdir /sys/fs/cgroup/ab-escape 2>/dev/null && rmdir /sys/fs/cgroup/ab-escape && echo DID; echo tried",
        )
    },
    EscapeAttempt {
        sandbox_options: &[SandboxOption::Terminal],
        ..calls(
            "typing into the terminal",
            "python3 -c '@call@\ntry:\n    fcntl.ioctl(0, 0x5412, b\"x\")\n    print(\"DID\")\nexcept OSError as e: print(e)\ntry:\n    fcntl.ioctl(0, 0x5412 | (1 << 32), b\"x\")\n    print(\"DID\")\nexcept Exception as e: print(e)\nr = raw(\"ioctl\", ctypes.c_long(0), ctypes.c_ulong(0x5412 | (1 << 32)), b\"x\")\nsaid(r)\ntried()'",
        )
    },
];
