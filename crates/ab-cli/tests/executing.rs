//! `exec`: streams, exit codes, flags, interrupts.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Stdio};

use ab_testkit::host::report_skip;
use serde_json::json;

use crate::stage::{BINARY, Ran, Stage, run};

fn start(stage: &Stage, arguments: &[&str]) -> Child {
    let mut command = stage.command(BINARY);
    command.arg("exec").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn exec(stage: &Stage, arguments: &[&str]) -> Ran {
    stage.run(&[&["exec"], arguments].concat())
}

/// Waits for a line, a byte at a time.
fn line(child: &mut Child) -> String {
    let out = child.stdout.as_mut().unwrap();
    let (mut line, mut byte) = (Vec::new(), [0]);
    while byte != *b"\n" && out.read(&mut byte).unwrap() == 1 {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    let sent = std::process::Command::new("/bin/sh").args(["-c", &kill]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn output_comes_while_the_command_runs() {
    let stage = Stage::new();
    // The second line is said only after somebody who saw the first has answered.
    let mut child = start(&stage, &["--stdin", "--", "echo first; read answer; echo $answer"]);
    assert_eq!(line(&mut child), "first\n");
    child.stdin.take().unwrap().write_all(b"second\n").unwrap();
    assert_eq!(line(&mut child), "second\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn exit_codes_are_passed_on() {
    let stage = Stage::new();
    for code in [0, 1, 2, 70, 124, 126, 255] {
        let ran = exec(&stage, &["--", &format!("exit {code}")]);
        assert_eq!((ran.code, ran.err.as_str()), (code, ""));
    }
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
        let ran = exec(&stage, &["--", &format!("kill -{name} $$")]);
        assert_eq!(ran.code, 128 + number, "{name}");
    }
    let ran = exec(&stage, &["--timeout", "200ms", "--", "echo before; sleep 600"]);
    assert_eq!((ran.code, ran.text().as_str()), (124, "before\n"));
    assert!(ran.err.contains("by its time limit"), "{}", ran.err);
}

#[test]
fn processes_left_running_are_ended_and_that_is_said() {
    let stage = Stage::new();
    for mode in ["bwrap", "landlock", "none"] {
        let exec = |line: &str| exec(&stage, &["--isolation", mode, "--", line]);
        if !crate::escapes::stands(mode) {
            continue;
        }
        let script = "sleep 1000 >/dev/null 2>&1 &\n";
        fs::write(stage.path("start.sh"), script).unwrap();
        for line in ["sleep 1000 & echo on", "nohup sleep 1000 >/dev/null 2>&1 & echo on"] {
            let ran = exec(line);
            assert_eq!((ran.code, ran.text().as_str()), (0, "on\n"), "{mode}: {}", ran.err);
            assert!(ran.err.contains("and they were ended"), "{mode}: {line}: {}", ran.err);
            assert!(ran.err.contains("--detach"), "{mode}: {}", ran.err);
        }
        assert!(exec("sh start.sh; exit 3").err.contains("and they were ended"), "{mode}");
        for line in ["true", "sleep 0.01 & wait", "echo a | cat", "exit 3", "kill -9 $$"] {
            let ran = exec(line);
            assert!(!ran.err.contains("were ended"), "{mode}: {line}: {}", ran.err);
        }
        let ran = stage.run(&["exec", "--json", "--isolation", mode, "--", "sleep 1000 &"]);
        assert_eq!(ran.value()["leftovers"], "ended", "{mode}");
    }
}

/// A private /tmp is memory that is mounted on the host; a kill leaves none of it there.
#[test]
fn a_killed_process_leaves_no_private_directory() {
    for mode in ["bwrap", "landlock"] {
        if !crate::escapes::stands(mode) {
            continue;
        }
        let stage = Stage::new();
        let temporary = stage.outside("temporary");
        fs::create_dir(&temporary).unwrap();
        let left = || fs::read_dir(&temporary).unwrap().flatten().map(|it| it.path()).collect();
        let mut command = stage.command(BINARY);
        command.env("TMPDIR", &temporary).args(["exec", "--isolation", mode, "--"]);
        command.arg("echo x > ${TMPDIR:-/tmp}/x; echo ready; sleep 1000").stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        assert_eq!(line(&mut child), "ready\n");
        let there: Vec<std::path::PathBuf> = left();
        assert_eq!(there.len(), 1, "{there:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        crate::outliving::comes("the end of what was lent", || left().is_empty());
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(temporary.to_str().unwrap()), "{mode}: {mounts}");
    }
}

#[test]
fn both_channels_stay_apart() {
    let ran = exec(&Stage::new(), &["--", "echo out; echo err >&2"]);
    assert_eq!((ran.text().as_str(), ran.err.as_str()), ("out\n", "err\n"));
}

#[test]
fn json_is_one_value() {
    let stage = Stage::new();
    let ran = exec(&stage, &["--json", "--", "echo out; printf '\\377' >&2; exit 3"]);
    assert_eq!((ran.code, ran.err.as_str()), (3, ""));
    let value = ran.value();
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    let expect = [
        "stdout",
        "stderr",
        "exit_code",
        "signal",
        "cause",
        "leftovers",
        "isolation",
        "duration_ms",
    ];
    assert_eq!(keys, expect);
    let said = |text: &str, utf8: bool, bytes: u64| json!({ "text": text, "utf8": utf8, "bytes": bytes, "truncated": false });
    assert_eq!(value["stdout"], said("out\n", true, 4));
    assert_eq!(value["stderr"], said("\u{fffd}", false, 1));
    assert_eq!((&value["exit_code"], &value["signal"]), (&json!(3), &json!(null)));
    assert_eq!(value["cause"], "itself");
    let ran = exec(&stage, &["--json", "--timeout", "200ms", "--", "echo part; sleep 600"]);
    assert_eq!((ran.code, ran.value()["cause"].clone()), (124, json!("timeout")));
    assert_eq!(ran.value()["stdout"]["text"], "part\n");
}

#[test]
fn the_limit_that_ended_a_command_is_named() {
    let stage = Stage::new();
    let (cpu, size) = (["--cpu", "1s"], ["--file-size", "10K"]);
    for (flags, line, code, what, cause) in [
        (cpu, "while :; do :; done", 128 + 24, "limit of CPU time", "cpu"),
        (cpu, "trap '' XCPU; while :; do :; done", 128 + 9, "limit of CPU time", "cpu"),
        (size, "head -c 99999 /dev/zero > a", 128 + 25, "limit on the size of files", "file_size"),
    ] {
        let ran = exec(&stage, &[&flags[..], &["--", line]].concat());
        let note = format!("note: the command was ended by its {what}\n");
        assert!(ran.err.ends_with(&note), "{line}: {}", ran.err);
        assert_eq!(ran.code, code, "{line}");
        let ran = exec(&stage, &[&flags[..], &["--json", "--", line]].concat());
        assert_eq!((ran.code, ran.value()["cause"].clone()), (code, json!(cause)), "{line}");
    }
}

#[test]
fn words_and_lines() {
    let stage = Stage::new();
    assert_eq!(exec(&stage, &["--", "echo $((1 + 1)) | cat"]).text(), "2\n");
    assert_eq!(exec(&stage, &["--", "echo", "$((1 + 1))", "| cat"]).text(), "$((1 + 1)) | cat\n");
    exec(&stage, &["--", " "]).expect_error(125, "the command is empty");
}

#[test]
fn a_program_with_flags_needs_no_separator() {
    let stage = Stage::with(&[("a.txt", "x")]);
    assert_eq!(exec(&stage, &["ls", "-1"]).text(), "a.txt\n");
    assert_eq!(exec(&stage, &["--network", "none", "ls", "--all", "-1"]).text(), ".\n..\na.txt\n");
    assert_eq!(exec(&stage, &["printf", "%s.", "--", "-x", "--json"]).text(), "--.-x.--json.");
    assert_eq!(exec(&stage, &["--", "ls", "-1"]).text(), "a.txt\n");
    let ran = exec(&stage, &["--netwrok", "none", "ls"]);
    assert_eq!(ran.code, 125);
    assert_eq!(
        ran.err,
        "error: unexpected argument '--netwrok' found\n\n  tip: a similar argument exists: \
         '--network'\n\nUsage: agent-backend exec [OPTIONS] <COMMAND>...\n\nFor more information, try \
         '--help'.\n"
    );
}

#[test]
fn short_flags_are_those_of_docker() {
    let stage = Stage::with(&[("d/f", "")]);
    assert_eq!(exec(&stage, &["-e", "A=1", "-w", "d", "echo $A; ls"]).text(), "1\nf\n");
    assert_eq!(exec(&stage, &["-it", "echo x"]).text(), "x\r\n");
}

/// As `docker run` and `env` do: no program uses these codes for itself.
#[test]
fn own_failures_have_codes_of_their_own() {
    let stage = Stage::with(&[("plain.txt", "x")]);
    for mode in ["auto", "none"] {
        let missing = "error: exec: no program 'no-such-program' on the path\n\
                       hint: is it installed? commands can use programs in the system directories and in the toolchains that `agent-backend doctor` lists\n";
        let ran = exec(&stage, &["--isolation", mode, "no-such-program", "x"]);
        assert_eq!((ran.code, ran.err.as_str()), (127, missing), "{mode}");
        let ran = exec(&stage, &["--isolation", mode, "--quiet", "no-such-program"]);
        assert_eq!(ran.code, 127, "{mode}: {}", ran.err);
        let ran = exec(&stage, &["--isolation", mode, "./plain.txt", "x"]);
        assert_eq!(ran.code, 126, "{mode}: {}", ran.err);
    }
    let refused = exec(&stage, &["rm -rf /"]);
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (
            126,
            "error: exec: refused: it removes files outside the workspace (rule \
             destructive.remove-outside)\nhint: remove only files inside the workspace, by a relative \
             path\n"
        )
    );
    exec(&stage, &["--root", "/no/such/place", "true"]).expect_error(125, "/no/such/place");
    exec(&stage, &["--remote", "ws://127.0.0.1:1/ssh", "true"]).expect_error(125, "127.0.0.1:1");
    let ran = stage.run(&["exec", "--json", "--cwd", "missing", "true"]);
    assert_eq!((ran.code, ran.error()["kind"].clone()), (125, json!("not_found")));
}

/// A build log that is captured with `> log 2>&1` reads as it would on a terminal.
#[test]
fn one_file_for_both_channels_keeps_their_order() {
    let stage = Stage::new();
    let log = stage.outside("log");
    let line = "for i in 1 2 3; do echo out $i; echo err $i >&2; done";
    let file = fs::File::create(&log).unwrap();
    let mut command = stage.command(BINARY);
    command.args(["exec", "--quiet", line]).stdin(Stdio::null());
    let status = command.stdout(file.try_clone().unwrap()).stderr(file).status().unwrap();
    assert!(status.success());
    let expected: String = (1..=3).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!(fs::read_to_string(&log).unwrap(), expected);
    assert_eq!(stage.watched_without_colours(&["exec", "--quiet", line]).text(), expected);
}

#[test]
fn where_it_runs_and_with_what() {
    let stage = Stage::with(&[("d/e/f", "x")]);
    assert_eq!(exec(&stage, &["--cwd", "d/e", "--", "ls; basename $PWD"]).text(), "f\ne\n");
    assert_eq!(exec(&stage, &["--scope", "d", "--", "ls; basename $HOME"]).text(), "e\nd\n");
    let ran = exec(&stage, &["--env", "A=1", "--env", "B=x=y z", "--", "echo $A-$B"]);
    assert_eq!(ran.text(), "1-x=y z\n");
    exec(&stage, &["--cwd", "missing", "--", "true"]).expect_error(125, "missing");
    exec(&stage, &["--cwd", "d/e/f", "--", "true"]).expect_error(125, "d/e/f");
    exec(&stage, &["--cwd", "..", "--", "true"]).expect_error(125, "..");
}

#[test]
fn piped_input_is_passed_on() {
    let stage = Stage::with(&[("lines", "from a file\n")]);
    let given = |flags: &[&str]| {
        let mut command = stage.command(BINARY);
        command.arg("exec").args(flags).arg("cat; echo end");
        run(command, b"given\n")
    };
    assert_eq!(given(&[]).text(), "given\nend\n");
    assert_eq!(given(&["-i"]).text(), "given\nend\n");
    assert_eq!(given(&["--json"]).value()["stdout"]["text"], "given\nend\n");
    assert_eq!(given(&["--pty"]).text().matches("end").count(), 1);
    let mut command = stage.command(BINARY);
    command.args(["exec", "cat; echo end"]).stdin(fs::File::open(stage.path("lines")).unwrap());
    assert_eq!(command.output().unwrap().stdout, b"from a file\nend\n");
}

/// A pipe that stays open does not keep a command from starting or ending, with `--json` neither.
#[test]
fn input_that_does_not_end_holds_nothing_up() {
    let stage = Stage::new();
    for flags in [&["true"][..], &["--json", "true"]] {
        let mut child = start(&stage, flags);
        let open = child.stdin.take();
        assert!(child.wait().unwrap().success());
        drop(open);
    }
}

#[test]
fn a_terminal_is_not_passed_on_and_that_is_said() {
    let stage = Stage::new();
    let note = "note: standard input is a terminal and is not passed on; use --pty for an interactive \
                program, or -i to pass lines on\n";
    assert_eq!(
        stage.typed(&["exec", "sh"], b"echo typed\n").text().replace("echo typed\n", ""),
        note
    );
    let ran = stage.typed(&["exec", "echo done"], b"");
    assert_eq!(ran.text(), "done\n");
    let ran = stage.typed(&["exec", "--quiet", "cat"], b"");
    assert_eq!(ran.text(), "");
}

#[test]
fn a_terminal_is_one() {
    let ran = exec(&Stage::new(), &["--pty", "--", "[ -t 0 ] && [ -t 1 ] && echo yes; stty size"]);
    assert_eq!(ran.text(), "yes\r\n24 80\r\n");
}

#[test]
fn output_beyond_the_bound_is_counted() {
    let ran = exec(&Stage::new(), &["--max-output", "10", "--", "printf %0100d 0"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "0000000000"));
    assert!(ran.err.contains("cut after 10 of 100 bytes"), "{}", ran.err);
}

#[test]
fn an_interrupt_reaches_the_command_and_a_second_ends_it() {
    for isolation in ["auto", "none"] {
        let stage = Stage::new();
        let flags = ["--isolation", isolation, "--"];
        let trap = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done";
        let mut child = start(&stage, &[&flags[..], &[trap]].concat());
        assert_eq!(line(&mut child), "ready\n");
        signal(&child, "INT");
        assert_eq!(line(&mut child), "caught\n");
        assert_eq!(child.wait().unwrap().code(), Some(7), "{isolation}");

        let deaf = "trap 'echo no' INT TERM; echo ready; while :; do sleep 0.1; done";
        let mut child = start(&stage, &[&flags[..], &[deaf]].concat());
        assert_eq!(line(&mut child), "ready\n");
        signal(&child, "INT");
        assert_eq!(line(&mut child), "no\n");
        signal(&child, "INT");
        assert_eq!(child.wait().unwrap().code(), Some(137), "{isolation}");

        let mut child = start(&stage, &[&flags[..], &["echo ready; exec sleep 600"]].concat());
        assert_eq!(line(&mut child), "ready\n");
        signal(&child, "TERM");
        assert_eq!(child.wait().unwrap().code(), Some(143), "{isolation}");
    }
}

#[test]
fn a_reader_that_leaves_ends_everything() {
    let stage = Stage::new();
    let mut child = start(&stage, &["--", "while :; do echo line; done"]);
    assert_eq!(line(&mut child), "line\n");
    drop(child.stdout.take());
    child.wait().unwrap();
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let stage = Stage::new();
    for (flags, says) in [
        (&["--isolation", "chroot"][..], "chroot"),
        (&["--network", "some"], "some"),
        (&["--shell", "fish"], "fish"),
        (&["--memory", "5X"], "unknown unit of size"),
        (&["--memory", "0"], "more than zero"),
        (&["--processes", "0"], "must be a whole number, at least 1"),
        (&["--open-files", "0"], "must be a whole number, at least 1"),
        (&["--timeout", "0"], "more than zero"),
        (&["--timeout", "5 parsecs"], "unknown unit of time"),
        (&["--processes", "-1"], "-1"),
        (&["--env", "NAME"], "'=' is missing"),
        (&["--pty", "--json"], "--json"),
    ] {
        let ran = exec(&stage, &[flags, &["--", "echo ran"]].concat());
        assert_eq!((ran.code, ran.text().as_str()), (125, ""), "{flags:?} {}", ran.err);
        assert!(ran.err.contains(says), "{flags:?}: {}", ran.err);
    }
    assert_eq!(exec(&stage, &[]).code, 125);
}

#[test]
fn flags_that_contradict_each_other_are_named() {
    let stage = Stage::new();
    fs::write(stage.path("a"), "").unwrap();
    let floor = "hint: remove --isolation none, or --floor bwrap\n";
    let network = "hint: use --isolation auto, bwrap or landlock; or accept missing enforcement with \
                   --accept-unenforced network\n";
    let path = |accept| {
        format!(
            "hint: use --isolation auto or bwrap; or accept missing enforcement with \
             --accept-unenforced {accept}\n"
        )
    };
    for (flags, error, hint) in [
        (
            &["none", "--floor", "bwrap"][..],
            "isolation 'none' is weaker than the required isolation 'bwrap'",
            floor,
        ),
        (&["none", "--network", "none"], "isolation 'none' cannot enforce network 'none'", network),
        (&["none", "--hide", "a"], "isolation 'none' cannot enforce a hidden path", &path("hide")),
        (
            &["software", "--read-only", "a"],
            "isolation 'software' cannot enforce a read-only path",
            &path("read-only"),
        ),
    ] {
        for more in [&["--", "echo ran"][..], &["--explain"]] {
            let ran = exec(&stage, &[&["--isolation"], flags, more].concat());
            ran.expect_error(125, error);
            assert!(ran.err.ends_with(hint), "{flags:?}: {}", ran.err);
        }
    }
}

#[test]
fn help_tells_every_flag() {
    let long = Stage::new().out(&["exec", "--help"]);
    for flag in [
        "--root",
        "--scope",
        "--isolation",
        "--floor",
        "--network",
        "--shell",
        "--toolchain",
        "--hide",
        "--read-only",
        "--bind",
        "--timeout",
        "--cpu",
        "--memory",
        "--processes",
        "--file-size",
        "--open-files",
        "--max-output",
        "--cwd",
        "--env",
        "--stdin",
        "--pty",
        "--json",
        "--explain",
        "Examples:",
    ] {
        assert!(long.contains(flag), "{flag}");
    }
}

#[test]
fn common_programs_work_inside() {
    let stage = Stage::new();
    for (program, line) in [
        (
            "git",
            "git init -q r && cd r && git -c user.name=a -c user.email=b commit -q --allow-empty -m x && git log --format=%s",
        ),
        ("python3", "python3 -c 'import ssl, multiprocessing as m; m.Queue(); print(\"x\")'"),
        ("node", "node -e 'console.log(\"x\")'"),
        ("awk", "echo x | awk '{ print $1 }'"),
        ("cc", "echo 'int main(void) { return 0; }' > m.c && cc -o m m.c && ./m && echo x"),
    ] {
        let there = ["/usr/bin", "/bin", "/usr/local/bin"]
            .iter()
            .any(|at| fs::metadata(format!("{at}/{program}")).is_ok());
        if !there {
            report_skip(program, "it is not installed");
            continue;
        }
        let ran = exec(&stage, &["--", line]);
        assert_eq!((ran.code, ran.text().as_str()), (0, "x\n"), "{program}: {}", ran.err);
    }
}

#[test]
fn commits_have_the_users_name_and_global_settings_stay_out_of_the_workspace() {
    let stage = Stage::new();
    let home = stage.outside("home");
    fs::create_dir_all(&home).unwrap();
    fs::write(
        home.join(".gitconfig"),
        "[user]\nname = A User\nemail = a@example.org\n[credential]\nhelper = secret\n",
    )
    .unwrap();
    let line = "git init -q r && cd r && git commit -q --allow-empty -m x && \
                git log --format='%an <%ae>' && git config --global user.name Other && \
                git commit -q --allow-empty -m x && git log -1 --format=%cn && \
                git config user.name Own && git commit -q --allow-empty -m x && \
                git log -1 --format=%cn && git config credential.helper || ls -A ..";
    for isolation in ["bwrap", "landlock", "none"] {
        if !crate::escapes::stands(isolation) {
            continue;
        }
        let _ = fs::remove_dir_all(stage.root().join("r"));
        let mut command = stage.command(BINARY);
        command.env("HOME", &home).env_remove("GIT_CONFIG_GLOBAL");
        command.args(["exec", "--profile", "off", "--isolation", isolation, "--", line]);
        let ran = run(command, b"");
        let text = "A User <a@example.org>\nOther\nOwn\nr\n";
        assert_eq!((ran.code, ran.text().as_str()), (0, text), "{isolation}: {}", ran.err);
    }
}

#[test]
fn hidden_and_read_only_take_paths_of_the_workspace() {
    let stage = Stage::with(&[("secret.pem", "s"), ("[id]/x", "i"), ("kept/x", "k")]);
    let root = stage.root().canonicalize().unwrap();
    for flag in ["--hide", "--read-only"] {
        for (path, why) in [("*.pem", "is a pattern"), ("/etc/passwd", "outside the workspace")] {
            exec(&stage, &[flag, path, "--", "true"]).expect_error(125, why);
            stage.run(&["mcp", flag, path]).expect_error(2, why);
            stage.run(&["daemon", "--root", ".", "--port", "0", flag, path]).expect_error(1, why);
        }
    }
    if !crate::escapes::stands("bwrap") {
        return;
    }
    let inside = root.join("secret.pem");
    let hidden = ["--hide", inside.to_str().unwrap(), "--hide", "[id]", "--read-only", "kept"];
    let line = "cat secret.pem '[id]/x'; echo x > kept/x; cat kept/x";
    let ran = exec(&stage, &[&hidden[..], &["--", line]].concat());
    assert_eq!((ran.code, ran.text().as_str()), (0, "k"), "{}", ran.err);
    assert!(!ran.err.contains("note:"), "{}", ran.err);
    let told = exec(&stage, &[&hidden[..], &["--explain"]].concat()).text();
    for text in ["Hidden from commands: secret.pem, [id].", "Read-only for commands: kept."] {
        assert!(told.contains(text), "{told}");
    }
    let ran = exec(&stage, &["--hide", "later", "--", "true"]);
    assert!(ran.err.contains("--hide later: nothing has that name yet"), "{}", ran.err);
}

#[test]
fn a_bind_without_a_sandbox_is_told() {
    let stage = Stage::new();
    let outside = stage.outside("tools");
    fs::create_dir_all(&outside).unwrap();
    let bind = outside.to_str().unwrap();
    let ran = exec(&stage, &["--isolation", "none", "--bind", bind, "--", "true"]);
    assert!(ran.err.contains("--bind has no effect"), "{}", ran.err);
    let ran = exec(&stage, &["--isolation", "none", "--", "true"]);
    assert!(!ran.err.contains("--bind"), "{}", ran.err);
}
