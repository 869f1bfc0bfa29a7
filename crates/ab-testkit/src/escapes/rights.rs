//! Attempts to gain rights: programs that change their user, and the sandbox's own programs.
//!
//! Many of these attempts can succeed only if the tests run as root, because other users may not
//! change these files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ab_core::effective_policy::PolicyControlKind;

use super::{EscapeAttempt, EscapeEvidence, EscapeTestbed, bare};

const fn gains(
    name: &'static str,
    stopped_by: PolicyControlKind,
    script: &'static str,
) -> EscapeAttempt {
    EscapeAttempt {
        name,
        stopped_by,
        sandbox_options: &[],
        prepare: bare(),
        script,
        evidence: EscapeEvidence::ScriptReportedSuccess,
        succeeds_unconfined: false,
    }
}

/// A set-uid shell, owned by the user that runs the tests.
fn another_users_shell(testbed: &EscapeTestbed) {
    let shell = testbed.workspace_dir().join("shell");
    fs::copy("/bin/bash", &shell).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o4755)).unwrap();
}

/// Reports whether the process has any capability. If one of these programs is missing, the script
/// tries the other programs.
const BY_OTHER_USERS: &str = "cat > p.py <<'END'
@call@
h = struct.pack(\"Ii\", 0x20080522, 0)
d = ctypes.create_string_buffer(24)
raw(\"capget\", h, d)
print(\"DID\" if any(d.raw[:4]) or any(d.raw[12:16]) else \"none\")
END
for as in 'su root -s /bin/sh -c' 'su nobody -s /bin/sh -c' 'sudo -n sh -c' 'sudo -n -u nobody sh -c' \
    'doas -n sh -c' 'pkexec sh -c' 'run0 sh -c' 'runuser root -c' 'sg root -c' 'setpriv --reuid 0 sh -c'; do
  $as \"python3 '$PWD/p.py'\" </dev/null 2>&1
done
echo tried";

pub(super) const ATTEMPTS: &[EscapeAttempt] = &[
    EscapeAttempt {
        evidence: EscapeEvidence::SecretInOutput,
        ..gains(
            "a file read by way of su and sudo",
            PolicyControlKind::Files,
            "for as in 'su root -s /bin/sh -c' 'sudo -n sh -c' 'runuser root -c' 'sg root -c'; do $as 'cat @out@/canary' </dev/null; done; echo tried",
        )
    },
    EscapeAttempt {
        evidence: EscapeEvidence::OutsideChanged,
        ..gains(
            "a file written by way of su and sudo",
            PolicyControlKind::Files,
            "for as in 'su root -s /bin/sh -c' 'sudo -n sh -c' 'runuser root -c' 'sg root -c'; do $as 'echo x > @out@/taken' </dev/null; done; echo tried",
        )
    },
    gains("capabilities by way of su and sudo", PolicyControlKind::Kernel, BY_OTHER_USERS),
    EscapeAttempt {
        prepare: another_users_shell,
        evidence: EscapeEvidence::SecretInOutput,
        succeeds_unconfined: true,
        ..gains(
            "a program of another user that was there before",
            PolicyControlKind::Files,
            "./shell -p -c 'cat @out@/canary'; echo tried",
        )
    },
    EscapeAttempt {
        prepare: another_users_shell,
        ..gains(
            "a user that was given up",
            PolicyControlKind::Kernel,
            "python3 -c '@call@\nimport subprocess\nuser = os.getuid()\ntry: os.setgroups([]); os.setgid(65534); os.setuid(65534)\nexcept OSError as e: print(e)\nr = subprocess.run([\"./shell\", \"-p\", \"-c\", \"id -u\"], capture_output=True, text=True)\nprint(\"DID\" if os.getuid() != user and r.stdout.strip() == str(user) else r)\ntried()'",
        )
    },
    gains(
        "writing to the sandbox's programs",
        PolicyControlKind::Files,
        "for f in $(command -v bwrap) /usr/bin/bwrap /usr/local/bin/bwrap /bin/sh /bin/bash /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.* /lib/*/libc.so.6 /etc/ld.so.cache /proc/1/exe /proc/self/exe /proc/$PPID/exe; do [ -e $f ] || continue; (exec 3>>$f) 2>/dev/null && echo $f && echo DID; done; echo tried",
    ),
    gains(
        "replacing the sandbox's programs",
        PolicyControlKind::Files,
        "for d in /usr/bin /usr/local/bin /bin /sbin /lib /lib64 /usr/lib; do n=$d/.ab-escape-$$; cp /bin/true $n 2>/dev/null && rm -f $n && echo $d && echo DID; done; echo tried",
    ),
    gains(
        "the sandbox's first process by its file",
        PolicyControlKind::Files,
        "python3 -c '@call@\nfor p in (1, os.getppid()):\n    try:\n        fd = os.open(f\"/proc/{p}/exe\", os.O_RDONLY)\n        os.close(os.open(f\"/proc/self/fd/{fd}\", os.O_WRONLY))\n        print(\"DID\")\n    except OSError as e: print(e)\ntried()'",
    ),
    gains(
        "the sandbox's first process without a filter",
        PolicyControlKind::Kernel,
        "s=$(cat /proc/1/status); case $s in '') ;; *NoNewPrivs:?1*Seccomp:?2*) echo both ;; *) echo DID ;; esac; echo tried",
    ),
    // A private copy may be changed. Only a file that has a path counts.
    gains(
        "the mode of the sandbox's programs",
        PolicyControlKind::Attributes,
        "python3 -c '@call@\nfor f in (\"/proc/1/exe\", \"/proc/self/exe\", \"/usr/bin/bwrap\", \"/bin/sh\"):\n    try:\n        s = os.stat(f)\n        named = os.stat(os.readlink(f) if f.startswith(\"/proc\") else f)\n        os.chmod(f, s.st_mode & 0o777)\n        os.utime(f, ns=(s.st_atime_ns, s.st_mtime_ns))\n        print(\"DID\" if (s.st_dev, s.st_ino) == (named.st_dev, named.st_ino) else \"a copy\")\n    except OSError as e: print(e)\ntried()'",
    ),
    gains(
        "the mode of devices, and of handles that came along",
        PolicyControlKind::Attributes,
        "python3 -c '@call@\nimport stat\nfor f in (0, 1, 2, \"/proc/self/fd/0\", \"/proc/1/fd/0\", \"/dev/null\", \"/dev/zero\", \"/dev/full\", \"/dev/random\", \"/dev/urandom\", \"/dev/tty\"):\n    try:\n        s = os.stat(f)\n        os.chmod(f, s.st_mode & 0o777)\n        print(\"DID\" if stat.S_ISCHR(s.st_mode) else \"a pipe\")\n    except OSError as e: print(e)\ntried()'",
    ),
];
