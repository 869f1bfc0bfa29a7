//! Calls of the kernel that lead around walls. Nothing outside notices most of them: the program
//! that makes the call says whether it went through.

use ab_core::effective::Subject;

use super::{Attempt, Oracle, Wish, bare};

const fn calls(name: &'static str, script: &'static str) -> Attempt {
    Attempt {
        name,
        stopped_by: Subject::Kernel,
        wishes: &[],
        prepare: bare(),
        script,
        oracle: Oracle::Said,
        // Not every kernel has every call, nor may every user make it.
        works_without_walls: false,
    }
}

/// Those that any user may make on any kernel of today.
const fn works(name: &'static str, script: &'static str) -> Attempt {
    Attempt { works_without_walls: true, ..calls(name, script) }
}

pub(super) const ATTEMPTS: &[Attempt] = &[
    calls(
        "io_uring",
        "python3 -c '@call@\nb = ctypes.create_string_buffer(120)\ncall(425, 1, b)\ntried()'",
    ),
    calls("a user namespace by unshare", "unshare -U true && echo DID; echo tried"),
    calls("a user namespace by the call", "python3 -c '@call@\ncall(272, 0x10000000)\ntried()'"),
    calls(
        "a user namespace by clone",
        "python3 -c '@call@\nr = L.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)\nif r == 0: os._exit(0)\nsaid(r)\ntried()'",
    ),
    calls(
        "a user namespace by clone3",
        "python3 -c '@call@\na = struct.pack(\"11Q\", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)\nr = L.syscall(435, a, 88)\nif r == 0: os._exit(0)\nsaid(r)\ntried()'",
    ),
    calls("a mount namespace", "unshare -m true && echo DID; echo tried"),
    calls("a time namespace", "python3 -c '@call@\ncall(272, 0x80)\ntried()'"),
    calls(
        "another's namespace",
        "python3 -c '@call@\nfd = os.open(\"/proc/self/ns/uts\", os.O_RDONLY) if os.path.exists(\"/proc/self/ns/uts\") else 0\ncall(308, fd, 0)\ntried()'",
    ),
    works("keys of the session", "python3 -c '@call@\ncall(250, 0, -3, 1)\ntried()'"),
    works(
        "a key of one's own",
        "python3 -c '@call@\ncall(248, b\"user\", b\"ab-escape\", b\"x\", 1, -2)\ntried()'",
    ),
    calls(
        "a mount",
        "mkdir -p m; mount -t tmpfs none m 2>&1 && echo DID && umount m; python3 -c '@call@\ncall(430, b\"tmpfs\", 0)\ntried()'",
    ),
    calls("a bind by open_tree", "python3 -c '@call@\ncall(428, -100, b\"/\", 1)\ntried()'"),
    calls("another root", "python3 -c '@call@\ncall(161, b\".\")\ntried()'"),
    calls(
        "a file by its handle",
        "python3 -c '@call@\nh = struct.pack(\"Ii\", 8, 1) + bytes(128)\nr = L.syscall(304, -100, h, 0)\ne = ctypes.get_errno()\nprint(\"DID\" if e != 1 else \"no\")\ntried()'",
    ),
    calls(
        "programs in the kernel",
        "python3 -c '@call@\ncall(321, 0, struct.pack(\"IIIIIIII\", 2, 4, 4, 1, 0, 0, 0, 0), 32)\ntried()'",
    ),
    calls(
        "performance events",
        "python3 -c '@call@\na = struct.pack(\"IIQ\", 1, 112, 0) + bytes(96)\ncall(298, a, 0, -1, -1, 0)\ntried()'",
    ),
    calls("user faults", "python3 -c '@call@\ncall(323, 1)\ntried()'"),
    calls("the other interface's numbers", "python3 -c '@call@\ncall(0x40000000 | 39)\ntried()'"),
    calls(
        "the name of the host",
        "python3 -c '@call@\nn = os.uname().nodename.encode()\ncall(170, n, len(n))\ntried()'",
    ),
    calls("the kernel's log", "python3 -c '@call@\ncall(103, 10, 0, 0)\ntried()'"),
    calls("a device", "mknod d b 8 0 && echo DID; mknod c c 1 1 && echo DID; echo tried"),
    Attempt {
        stopped_by: Subject::Files,
        ..calls(
            "devices of the host",
            "for d in /dev/mem /dev/kmsg /dev/sda /dev/vda /dev/nvme0n1 /dev/loop0; do (exec 3<$d) 2>/dev/null && echo DID; done; echo tried",
        )
    },
    calls(
        "the filter taken off",
        "python3 -c '@call@\nL.prctl(22, 0, 0, 0, 0)\nL.prctl(38, 0, 0, 0, 0)\ncall(250, 0, -3, 1)\ntried()'",
    ),
    calls(
        "new privileges",
        "python3 -c '@call@\nr = L.prctl(39, 0, 0, 0, 0)\nprint(\"DID\" if r != 1 else \"kept\")\ntried()'",
    ),
    calls(
        "a capability in hand",
        "python3 -c '@call@\nh = struct.pack(\"Ii\", 0x20080522, 0)\nd = ctypes.create_string_buffer(24)\nL.syscall(125, h, d)\nprint(\"DID\" if any(d.raw[:4]) or any(d.raw[12:16]) else \"none\")\ntried()'",
    ),
    works(
        "a program that makes others root",
        "cp /bin/true t; chmod 4755 t && [ -u t ] && echo DID; python3 -c '@call@\nopen(\"u\", \"w\")\ncall(90, b\"u\", 0o4755)\ncall(91, os.open(\"u\", 0), 0o4755)\ncall(268, -100, b\"u\", 0o4755)\ncall(452, -100, b\"u\", 0o4755, 0)\ntried()'",
    ),
    Attempt {
        stopped_by: Subject::Files,
        ..calls(
            "settings of the kernel",
            "for f in kernel/core_pattern kernel/modprobe kernel/hostname vm/drop_caches fs/file-max; do v=$(cat /proc/sys/$f 2>/dev/null); [ -n \"$v\" ] || v=0; (printf %s \"$v\" > /proc/sys/$f) 2>/dev/null && echo DID; done; echo tried",
        )
    },
    Attempt {
        stopped_by: Subject::Files,
        ..calls(
            "other levers in proc",
            "find /proc -maxdepth 2 -type f -not -path '/proc/[0-9]*' -not -path '/proc/self/*' -not -path '/proc/thread-self/*' 2>/dev/null | while read -r f; do (exec 3>>$f) 2>/dev/null && echo $f && echo DID; done; echo tried",
        )
    },
    Attempt {
        stopped_by: Subject::Files,
        ..calls(
            "control groups and sys",
            "find /sys -maxdepth 5 \\( -name release_agent -o -name cgroup.procs -o -name uevent_helper -o -name notify_on_release \\) 2>/dev/null | while read -r f; do (exec 3>>$f) 2>/dev/null && echo DID; done; mkdir /sys/fs/cgroup/ab-escape 2>/dev/null && rmdir /sys/fs/cgroup/ab-escape && echo DID; echo tried",
        )
    },
    Attempt {
        wishes: &[Wish::Terminal],
        ..calls(
            "typing into the terminal",
            "python3 -c '@call@\ntry:\n    fcntl.ioctl(0, 0x5412, b\"x\")\n    print(\"DID\")\nexcept OSError as e: print(e)\ntry:\n    fcntl.ioctl(0, 0x5412 | (1 << 32), b\"x\")\n    print(\"DID\")\nexcept Exception as e: print(e)\nr = L.syscall(16, ctypes.c_long(0), ctypes.c_ulong(0x5412 | (1 << 32)), b\"x\")\nsaid(r)\ntried()'",
        )
    },
];
