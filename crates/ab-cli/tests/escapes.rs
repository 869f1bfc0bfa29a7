//! The table of attempts to get out, made with the built binary in every isolation, without the
//! policy: what is tried here are the walls.

pub(crate) mod paths;
mod tool;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ab_core::effective_policy::{PolicyControlKind, PolicyControlStrength};
use ab_testkit::escapes::{
    self, CommandReport, CommandRunner, EscapeAttempt, EscapeOutcome, EscapeTestbed, SandboxOption,
};
use ab_testkit::host::report_skip;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;

use crate::stage::{BINARY, Stage, command, run};

/// Those that hold commands, or do not, each in its own way.
pub(crate) const MODES: [&str; 4] = ["bwrap", "landlock", "software", "none"];

/// The built binary in one mode.
struct Binary {
    mode: &'static str,
    told: Mutex<HashMap<Vec<SandboxOption>, Value>>,
}

impl Binary {
    fn new(mode: &'static str) -> Binary {
        Binary { mode, told: Mutex::default() }
    }

    fn command(&self, testbed: &EscapeTestbed, wishes: &[SandboxOption]) -> Command {
        self.of("exec", testbed, wishes)
    }

    /// A subcommand that takes the flags of walls.
    fn of(&self, subcommand: &str, testbed: &EscapeTestbed, wishes: &[SandboxOption]) -> Command {
        let mut command = command(BINARY, &testbed.workspace_dir());
        command.args([subcommand, "--profile", "off", "--isolation", self.mode]);
        // Attempts are made in every mode, also where what they wish for is not enforced.
        command.args(["--accept-unenforced", "network,hide,read-only,memory,processes"]);
        command.env("ESCAPE_SECRET", testbed.secret());
        for wish in wishes {
            match wish {
                SandboxOption::NoNetwork => command.args(["--network", "none"]),
                SandboxOption::ReadOnly(path) => command.args(["--read-only", path]),
                SandboxOption::Hidden(path) => command.args(["--hide", path]),
                SandboxOption::BindOutside => command.arg("--bind").arg(testbed.outside_dir()),
                SandboxOption::ToolchainOutside => {
                    command.arg("--toolchain").arg(testbed.outside_dir())
                }
                SandboxOption::FoundToolchain => {
                    command.env("HOME", testbed.outside_dir()).args(["--toolchain", "auto"])
                }
                SandboxOption::Scope(path) => command.args(["--scope", path]),
                SandboxOption::Terminal => command.arg("--pty"),
                SandboxOption::Limited => command.args([
                    "--processes",
                    &escapes::LIMITED_PROCESSES.to_string(),
                    "--open-files",
                    &escapes::LIMITED_OPEN_FILES.to_string(),
                ]),
            };
        }
        command
    }
}

impl CommandRunner for Binary {
    fn run(&self, testbed: &EscapeTestbed, wishes: &[SandboxOption], line: &str) -> CommandReport {
        let mut command = self.command(testbed, wishes);
        command.args(["--timeout", "60s", "--", line]);
        let ran = run(command, b"");
        let stdout = String::from_utf8_lossy(&ran.out).into_owned();
        let refused = stdout.is_empty() && ran.err.starts_with("error: ");
        CommandReport { refused, stdout, stderr: ran.err }
    }

    fn claimed_control_strength(
        &self,
        testbed: &EscapeTestbed,
        wishes: &[SandboxOption],
        subject: PolicyControlKind,
    ) -> PolicyControlStrength {
        // A terminal is not a matter of walls.
        let wishes: Vec<SandboxOption> =
            wishes.iter().copied().filter(|it| *it != SandboxOption::Terminal).collect();
        let mut told = self.told.lock().unwrap();
        let policy = told.entry(wishes.clone()).or_insert_with(|| {
            // What stands in the way of a start does not stand in the way of the answer.
            let mut command = self.command(testbed, &wishes);
            command.args(["--explain", "--json"]);
            run(command, b"").value()
        });
        assert_eq!(policy["isolation"], self.mode);
        let controls = policy["controls"].as_array().unwrap();
        let control = controls.iter().find(|it| it["control"] == subject.as_str()).unwrap();
        match control["holds"].as_str().unwrap() {
            "enforced" => PolicyControlStrength::Enforced,
            "advisory" => PolicyControlStrength::Advisory,
            "open" => PolicyControlStrength::NotEnforced,
            other => panic!("unknown strength {other}"),
        }
    }

    fn is_unconfined(&self) -> bool {
        self.mode == "none"
    }
}

/// Whether commands run in a mode here; says so where they do not.
pub(crate) fn stands(mode: &str) -> bool {
    let ran =
        Stage::new().run(&["exec", "--profile", "off", "--isolation", mode, "--explain", "--json"]);
    if ran.code != 0 {
        report_skip(&format!("commands in {mode}"), ran.err.trim());
    }
    ran.code == 0
}

fn make_all(mode: &'static str) {
    make(mode, escapes::all_attempts(), &Binary::new(mode));
}

/// Makes attempts in a mode, where it can be had.
fn make(
    mode: &str,
    attempts: impl Iterator<Item = &'static EscapeAttempt>,
    surface: &dyn CommandRunner,
) {
    if !stands(mode) {
        return;
    }
    if !Command::new("python3").arg("-V").output().is_ok_and(|out| out.status.success()) {
        return report_skip("attempts to get out", "there is no python3");
    }
    let mut wrong = Vec::new();
    let mut allowed = 0;
    for attempt in attempts {
        let base = tempfile::tempdir().unwrap();
        match escapes::run_attempt(attempt, surface, &EscapeTestbed::new(base.path())) {
            Ok(EscapeOutcome::Blocked) => {}
            Ok(_) => allowed += 1,
            Err(cause) => wrong.push(cause),
        }
    }
    assert!(wrong.is_empty(), "{mode}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(mode != "bwrap" || allowed == 0, "bwrap claims everything in the table");
}

#[test]
fn nothing_gets_out_of_bwrap() {
    make_all("bwrap");
}

#[test]
fn nothing_gets_out_of_landlock_that_it_claims_to_hold() {
    make_all("landlock");
}

#[test]
fn software_claims_no_more_than_it_holds() {
    make_all("software");
}

#[test]
fn without_walls_the_attempts_get_out() {
    make_all("none");
}

const PAGE: &str = include_str!("../../../docs/security.md");

/// The controls that each row of the page's table is about.
const ROWS: [(&str, &[&str]); 13] = [
    ("contents of files outside", &["files"]),
    ("names, sizes, modes, times outside", &["attributes"]),
    ("hidden and read-only paths", &["restrictions"]),
    ("`--network none`", &["network"]),
    ("sockets of other programs", &["sockets"]),
    ("other processes", &["processes"]),
    ("nothing outlives the command, or us", &["orphans"]),
    ("calls that lead around walls", &["kernel"]),
    ("environment", &["environment"]),
    ("time, output", &["time", "output"]),
    ("CPU time, file size, open files", &["cpu", "file_size", "open_files"]),
    ("memory", &["memory"]),
    ("number of processes", &["process_count"]),
];

/// What the page says of one control in one mode.
fn cell(row: &str, mode: &str) -> String {
    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .skip_while(|line| !line.starts_with("| Control |"))
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 2 + ROWS.len(), "every row has its controls here");
    let column = rows[0].iter().position(|head| *head == format!("`{mode}`")).unwrap();
    let found = rows.iter().find(|cells| cells[0] == row);
    found.unwrap_or_else(|| panic!("no row {row:?}"))[column].to_owned()
}

#[test]
fn what_is_claimed_is_what_the_table_says() {
    let stage = Stage::with(&[("secret", "s")]);
    for mode in MODES.into_iter().filter(|mode| stands(mode)) {
        let flags = ["exec", "--profile", "off", "--isolation", mode];
        let asked = ["--network", "none", "--accept-unenforced", "network", "--explain", "--json"];
        let policy = stage.json(&[&flags[..], &asked].concat());
        for (row, controls) in ROWS {
            let cell = cell(row, mode);
            let word = cell.split([':', ' ', ',', ';']).next().unwrap();
            for name in controls {
                let all = policy["controls"].as_array().unwrap();
                let holds = &all.iter().find(|it| it["control"] == *name).unwrap()["holds"];
                match word {
                    // Where a condition is not met here, the page has to say what holds then.
                    "enforced" | "advisory" => {
                        let otherwise = format!("else {}", holds.as_str().unwrap());
                        let said = *holds == word || cell.contains(&otherwise);
                        assert!(said, "{mode} {name}: {cell} but {holds}");
                    }
                    "open" => assert_eq!(holds, "open", "{mode} {name}: {cell}"),
                    "refused" => {
                        assert_ne!(holds, "enforced", "{mode} {name}: {cell}");
                        let asked: &[&str] = match *name {
                            "network" => &["--network", "none"],
                            "restrictions" => &["--hide", "secret"],
                            other => panic!("nothing asks for {other} by name"),
                        };
                        let ran = stage.run(&[&flags[..], asked, &["--", "true"]].concat());
                        ran.expect_error(125, "--accept-unenforced");
                    }
                    other => panic!("{row}, {mode}: {other:?} is no strength"),
                }
            }
        }
    }
}

#[test]
fn a_scope_that_is_swapped_while_commands_start_shows_nothing_else() {
    for mode in ["bwrap", "landlock"] {
        if !stands(mode) {
            continue;
        }
        let stage = Stage::with(&[("a/own", "own"), ("secret", "swapped in")]);
        let (scope, link) = (stage.path("a"), stage.path("link"));
        fs::write(stage.outside("secret"), "swapped in").unwrap();
        symlink(stage.outside("."), &link).unwrap();
        // The command's own path has a say in nothing.
        fs::create_dir(stage.path("a/bin")).unwrap();
        let liar = "#!/bin/sh\nshift 3\nfor f; do cat $f/secret >&2; done\n";
        fs::write(stage.path("a/bin/stat"), liar).unwrap();
        let done = AtomicBool::new(false);
        let ran = std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // Two names change places, so that one of them is always there.
                    let (one, other) = (&scope, &link);
                    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let line = format!("cat secret ../secret '{}/secret'; ls", scope.display());
            let runs: Vec<_> = (0..40)
                .map(|_| {
                    let path = format!("PATH={}/bin:/usr/bin:/bin", scope.display());
                    let flags = [
                        "exec",
                        "--profile",
                        "off",
                        "--isolation",
                        mode,
                        "--scope",
                        "a",
                        "--env",
                        &path,
                    ];
                    stage.run(&[&flags[..], &["--", &line]].concat())
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            runs
        });
        for ran in ran {
            let said = format!("{}{}", String::from_utf8_lossy(&ran.out), ran.err);
            assert!(!said.contains("swapped in"), "{mode}: {said}");
        }
    }
}

#[test]
fn variables_that_load_code_are_refused_where_no_wall_stands() {
    let stage = Stage::new();
    let run = |mode: &str, profile: &str, variable: &str| {
        let flags = ["exec", "--profile", profile, "--isolation", mode, "--env", variable];
        stage.run(&[&flags[..], &["--", "echo ran"]].concat())
    };
    for mode in MODES.into_iter().filter(|mode| stands(mode)) {
        let walled = matches!(mode, "bwrap" | "landlock");
        for name in [
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "ENV",
            "GIT_SSH_COMMAND",
            "GIT_CONFIG_COUNT",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PERL5LIB",
            "MAKEFLAGS",
            "TAR_OPTIONS",
            "RSYNC_RSH",
            "EDITOR",
            "PAGER",
            "CC",
            "SHELL",
            "XDG_CONFIG_HOME",
            "CCACHE_PREFIX",
            "GIT_DIR",
            "CARGO_HOME",
        ] {
            let variable = format!("{name}=./evil");
            for profile in ["off", "guarded"] {
                let ran = run(mode, profile, &variable);
                if walled {
                    assert_eq!(ran.code, 0, "{mode} {profile} {name}: {}", ran.err);
                } else {
                    ran.expect_error(125, name);
                }
            }
            run(mode, "strict", &variable).expect_error(125, name);
        }
        for name in ["BASH_FUNC_ls%%", "AGENT_BACKEND_PROCESS"] {
            run(mode, "off", &format!("{name}=x")).expect_error(125, name);
        }
    }
}

#[test]
fn variables_that_load_code_do_not_act_on_the_sandbox_itself() {
    let stage = Stage::with(&[("scope/x", ""), ("kept/x", "")]);
    for mode in ["bwrap", "landlock"].into_iter().filter(|mode| stands(mode)) {
        let trace = stage.root().canonicalize().unwrap().join(format!("scope/trace-{mode}"));
        // With a scope or a restricted path, a shell checks what was mounted before the command.
        for place in [&[][..], &["--scope", "scope"], &["--read-only", "kept"]] {
            if mode == "landlock" && place.contains(&"--read-only") {
                continue;
            }
            let debug = format!("LD_DEBUG_OUTPUT={}", trace.display());
            let flags = ["exec", "--isolation", mode, "--env", "LD_DEBUG=libs", "--env", &debug];
            let ran = stage.run(
                &[&flags[..], &["--env", "GIVEN=it's é here"], place, &["--", "echo $GIVEN"]]
                    .concat(),
            );
            let said = (ran.code, ran.text());
            assert_eq!(said, (0, "it's é here\n".to_owned()), "{mode} {place:?}: {}", ran.err);
        }
        // Each program that the loader worked for has left a file, named after its process.
        let names =
            |text: &str| text.contains("bwrap") || text.contains("initialize program: /bin/sh");
        let mut traces = 0;
        for entry in std::fs::read_dir(stage.root().join("scope")).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().contains("trace-") {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                assert!(!names(&text), "{mode}: {}\n{text}", path.display());
                traces += 1;
            }
        }
        assert!(traces > 0, "{mode}: the variable acted on nothing");
    }
}

#[test]
fn handles_of_whoever_starts_it_are_not_passed_on() {
    for mode in MODES.into_iter().filter(|mode| *mode != "software" && stands(mode)) {
        let stage = Stage::new();
        fs::write(stage.outside("canary"), "through a handle").unwrap();
        // The shell leaves the handle open for the binary.
        let line = format!(
            "exec 7< '{}'; exec '{BINARY}' exec --isolation {mode} -- \
             'cat /proc/self/fd/7/canary /dev/fd/7/canary; python3 -c \"import os; \
             print(os.open(chr(46), os.O_RDONLY, dir_fd=7))\"; (: <&7) && echo open; echo tried'",
            stage.outside(".").display(),
        );
        let mut shell = stage.command("/bin/sh");
        shell.args(["-c", &line]);
        assert_eq!(run(shell, b"").text(), "tried\n", "{mode}");
    }
}

#[test]
fn memory_that_files_take_has_a_bound() {
    if !stands("bwrap") {
        return;
    }
    let stage = Stage::new();
    let line = "for d in / /dev /run /etc /proc; do (echo x > $d/f) 2>/dev/null && echo wrote $d; done; \
                df -k --output=size /tmp /dev/shm | tail -n 2 | tr -d ' '";
    let out = stage.out(&["exec", "--profile", "off", "--isolation", "bwrap", "--", line]);
    assert_eq!(out, "1048576\n1048576\n");
}
