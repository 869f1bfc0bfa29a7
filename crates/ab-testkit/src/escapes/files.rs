//! Attempts on files outside, and on restricted paths inside.

use std::fs;
use std::os::unix::fs::symlink;

use ab_core::effective_policy::PolicyControlKind;

use super::{EscapeAttempt, EscapeEvidence, EscapeTestbed, SandboxOption, bare};

const fn reads(name: &'static str, script: &'static str) -> EscapeAttempt {
    EscapeAttempt {
        name,
        stopped_by: PolicyControlKind::Files,
        sandbox_options: &[],
        prepare: bare(),
        script,
        evidence: EscapeEvidence::SecretInOutput,
        succeeds_unconfined: true,
    }
}

const fn writes(name: &'static str, script: &'static str) -> EscapeAttempt {
    EscapeAttempt { evidence: EscapeEvidence::OutsideChanged, ..reads(name, script) }
}

/// Creates something at a restricted path. Only mounts prevent commands from doing that.
const fn remakes(
    name: &'static str,
    wishes: &'static [SandboxOption],
    prepare: fn(&EscapeTestbed),
    script: &'static str,
) -> EscapeAttempt {
    EscapeAttempt {
        name,
        stopped_by: PolicyControlKind::Restrictions,
        sandbox_options: wishes,
        prepare,
        script,
        evidence: EscapeEvidence::WorkspaceFileCreated(".git/hooks/pre-commit"),
        succeeds_unconfined: true,
    }
}

const HOOKS: &[SandboxOption] = &[SandboxOption::ReadOnly(".git/hooks")];

fn repository(testbed: &EscapeTestbed) {
    fs::create_dir_all(testbed.workspace_dir().join(".git/hooks")).unwrap();
}

pub(super) const ATTEMPTS: &[EscapeAttempt] = &[
    reads("a sibling whose name begins with the root's", "cat @ws@-evil/canary; echo tried"),
    reads("the parent's parent by dots", "cat ../canary ../outside/canary; echo tried"),
    reads("dots within a path", "cat ./scope/../../outside/canary; echo tried"),
    reads("many slashes and dots", "cat @ws@//.//../outside/./canary; echo tried"),
    reads("an absolute path", "cat @out@/canary; echo tried"),
    reads("by way of cd", "cd @out@ && cat canary; echo tried"),
    reads("HOME that lies", "HOME=@out@ sh -c 'cat ~/canary'; echo tried"),
    reads("a link to a file", "ln -s @out@/canary l; cat l; echo tried"),
    reads("a link to a directory", "ln -s @out@ l; cat l/canary; grep -r . l/; echo tried"),
    reads("a chain of links", "ln -s @out@ a; ln -s a b; ln -s b/canary c; cat c; echo tried"),
    reads("a link by dots", "ln -s ../outside/canary l; cat l; echo tried"),
    EscapeAttempt {
        prepare: |testbed| {
            symlink(testbed.outside_dir().join("canary"), testbed.workspace_dir().join("l"))
                .unwrap();
        },
        ..reads("a link that was there before", "cat l; cp l copy; cat copy; echo tried")
    },
    reads("the root of this process", "cat /proc/self/root@out@/canary; echo tried"),
    reads("the root of the first process", "cat /proc/1/root@out@/canary; echo tried")
        .where_it_may_fail(),
    reads("the root of another process", "cat /proc/@pid@/root@out@/canary; echo tried"),
    reads("the directory of the parent", "cat /proc/$PPID/cwd/../outside/canary; echo tried"),
    reads("open handles", "for f in /proc/self/fd/*; do cat $f/canary; done 2>&1; echo tried")
        .where_it_may_fail(),
    reads("a hard link", "ln @out@/canary l; cat l; echo tried"),
    reads(
        "the loader as a program",
        "for l in /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.*; do $l /bin/cat @out@/canary; done; echo tried",
    ),
    reads(
        "this very program again",
        "bash -c 'exec /proc/self/exe -c \"cat @out@/canary\"'; echo tried",
    ),
    writes("a new file", "echo x > @out@/taken; echo tried"),
    writes("a file that is there", "echo x >> @out@/canary; echo tried"),
    writes("a file cut to nothing", "truncate -s 0 @out@/canary; echo tried"),
    writes("a removal", "rm -f @out@/canary; echo tried"),
    writes("a move out", "echo x > f; mv f @out@/taken; echo tried"),
    writes("a move in", "mv @out@/canary f; echo tried"),
    writes("a move through a link", "ln -s @out@ l; mv l/canary f; echo tried"),
    writes("a hard link to the outside", "echo x > f; ln f @out@/taken; echo tried"),
    writes("through a link", "ln -s @out@/canary l; echo x > l; echo tried"),
    writes("through a link to a directory", "ln -s @out@ l; echo x > l/taken; echo tried"),
    writes("through a dangling link", "ln -s @out@/taken l; echo x > l; echo tried"),
    writes("through dangling links", "ln -s @out@/taken a; ln -s a b; touch b; echo tried"),
    writes(
        "a socket",
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"@out@/taken\")' 2>&1; mkfifo @out@/taken; echo tried",
    ),
    EscapeAttempt {
        stopped_by: PolicyControlKind::Attributes,
        ..writes("a mode", "chmod 755 @out@/canary; echo tried")
    },
    EscapeAttempt {
        evidence: EscapeEvidence::ScriptReportedSuccess,
        stopped_by: PolicyControlKind::Attributes,
        ..reads("whether a file is there", "[ -e @out@/canary ] && echo DID; echo tried")
    },
    EscapeAttempt {
        evidence: EscapeEvidence::ScriptReportedSuccess,
        succeeds_unconfined: false,
        ..reads(
            "the system",
            "touch /usr/escape-test /etc/escape-test && rm -f /usr/escape-test /etc/escape-test && echo DID; echo tried",
        )
    },
    EscapeAttempt {
        evidence: EscapeEvidence::ScriptReportedSuccess,
        succeeds_unconfined: false,
        ..reads(
            "keys and passwords of the system",
            "for f in /etc/shadow /etc/gshadow /etc/ssh/ssh_host_*_key /etc/ssl/private/*; do [ -s \"$f\" ] && head -c 1 \"$f\" >/dev/null 2>&1 && echo DID; done; echo tried",
        )
    },
    EscapeAttempt {
        sandbox_options: &[SandboxOption::Scope("scope/a")],
        prepare: |testbed| {
            fs::write(testbed.workspace_dir().join("scope/b/f"), testbed.secret()).unwrap()
        },
        ..reads("a scope's neighbour", "cat ../b/f @ws@/scope/b/f; echo tried")
    },
    EscapeAttempt {
        sandbox_options: &[SandboxOption::Scope("scope/a")],
        prepare: |testbed| fs::write(testbed.workspace_dir().join("f"), testbed.secret()).unwrap(),
        ..reads("above a scope", "cat ../../f /tmp/agentbe-workspace/f @ws@/f; echo tried")
    },
    EscapeAttempt {
        stopped_by: PolicyControlKind::Restrictions,
        sandbox_options: &[SandboxOption::Hidden("secrets")],
        prepare: |testbed| {
            fs::create_dir(testbed.workspace_dir().join("secrets")).unwrap();
            fs::write(testbed.workspace_dir().join("secrets/f"), testbed.secret()).unwrap();
        },
        ..reads(
            "what is hidden",
            "cat secrets/f @ws@/secrets/f; mv secrets s; cat s/f; ln -s secrets l; cat l/f; echo tried",
        )
    },
    EscapeAttempt {
        stopped_by: PolicyControlKind::Restrictions,
        sandbox_options: &[SandboxOption::Hidden("odd 'name'\n\"$(id)/f")],
        prepare: |testbed| {
            let odd = testbed.workspace_dir().join("odd 'name'\n\"$(id)");
            fs::create_dir(&odd).unwrap();
            fs::write(odd.join("f"), testbed.secret()).unwrap();
        },
        ..reads("what is hidden and has an odd name", "cat odd*/f; echo tried")
    },
    EscapeAttempt {
        evidence: EscapeEvidence::OutsideChanged,
        stopped_by: PolicyControlKind::Restrictions,
        sandbox_options: &[SandboxOption::Hidden("l")],
        prepare: |testbed| {
            let target = format!("/oldroot{}", testbed.outside_dir().join("taken").display());
            symlink(target, testbed.workspace_dir().join("l")).unwrap();
        },
        succeeds_unconfined: false,
        ..reads("a hidden link on which a mount is made", "echo tried")
    },
    remakes(
        "a hook that is read-only",
        HOOKS,
        repository,
        "echo x > .git/hooks/pre-commit; echo tried",
    ),
    remakes(
        "a read-only directory moved away",
        HOOKS,
        repository,
        "mv .git/hooks h; mkdir .git/hooks; echo x > .git/hooks/pre-commit; echo tried",
    ),
    remakes(
        "an ancestor of it moved away",
        HOOKS,
        repository,
        "mv .git g; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo tried",
    ),
    remakes(
        "a read-only path that is not there yet",
        HOOKS,
        |testbed| fs::create_dir(testbed.workspace_dir().join(".git")).unwrap(),
        "mkdir .git/hooks; echo x > .git/hooks/pre-commit; echo tried",
    ),
    remakes(
        "an ancestor that is not there yet",
        HOOKS,
        bare(),
        "mv .git g; rm -rf .git; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo tried",
    ),
    remakes(
        "an ancestor that is a link",
        HOOKS,
        |testbed| {
            fs::create_dir_all(testbed.workspace_dir().join("g/hooks")).unwrap();
            symlink("g", testbed.workspace_dir().join(".git")).unwrap();
        },
        "rm .git; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo tried",
    )
    // The start is refused in every mode.
    .where_it_may_fail(),
    remakes(
        "an ancestor that is a file",
        HOOKS,
        |testbed| fs::write(testbed.workspace_dir().join(".git"), "x").unwrap(),
        "rm .git; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo tried",
    ),
    EscapeAttempt {
        evidence: EscapeEvidence::WorkspaceFileCreated("kept/in/new"),
        ..remakes(
            "a read-only directory on the way to what is hidden in it",
            &[SandboxOption::ReadOnly("kept"), SandboxOption::Hidden("kept/in/deep/secret")],
            |testbed| fs::create_dir_all(testbed.workspace_dir().join("kept/in/deep")).unwrap(),
            "echo x > kept/in/new; echo tried",
        )
    },
    EscapeAttempt {
        evidence: EscapeEvidence::WorkspaceFileCreated("scope/a/in/new"),
        ..remakes(
            "a read-only scope on the way to what is hidden in it",
            &[
                SandboxOption::Scope("scope/a"),
                SandboxOption::ReadOnly("."),
                SandboxOption::Hidden("in/deep/secret"),
            ],
            |testbed| fs::create_dir_all(testbed.workspace_dir().join("scope/a/in/deep")).unwrap(),
            "echo x > in/new; echo tried",
        )
    },
    EscapeAttempt {
        stopped_by: PolicyControlKind::Restrictions,
        sandbox_options: &[
            SandboxOption::Hidden("a"),
            SandboxOption::Hidden("a/b"),
            SandboxOption::ReadOnly("a/b/c"),
        ],
        prepare: |testbed| {
            fs::create_dir_all(testbed.workspace_dir().join("a/b/c")).unwrap();
            fs::write(testbed.workspace_dir().join("a/b/c/f"), testbed.secret()).unwrap();
        },
        ..reads("what is hidden below what is hidden", "cat a/b/c/f @ws@/a/b/c/f; echo tried")
    },
    remakes(
        "by the other path of the workspace",
        HOOKS,
        repository,
        "echo x > @ws@/.git/hooks/pre-commit; echo x > /tmp/agentbe-workspace/.git/hooks/pre-commit; echo tried",
    ),
];
