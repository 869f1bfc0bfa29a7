//! Flags that people know from other programs, and the same flags on every command that runs commands.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::relay::Relay;
use crate::stage::{BINARY, Stage};

#[test]
fn flags_of_grep_are_understood() {
    let stage = Stage::with(&[("a.txt", "cat\nconcat\na.b\n-x\n"), ("d/b.txt", "CAT\naxb\n")]);
    let grep = |words: &[&str]| {
        let ran = stage.run(&[&["fs", "grep", "--quiet"], words].concat());
        assert_eq!(ran.err, "", "{words:?}");
        (ran.code, ran.text())
    };
    let found = |text: &str| (0, text.to_owned());
    assert_eq!(grep(&["-rn", "concat"]), found("a.txt:2:concat\n"));
    assert_eq!(
        grep(&["-n", "-r", "-i", "cat"]),
        found("a.txt:1:cat\na.txt:2:concat\nd/b.txt:1:CAT\n")
    );
    assert_eq!(grep(&["-w", "cat"]), found("a.txt:1:cat\n"));
    assert_eq!(grep(&["-F", "a.b"]), found("a.txt:3:a.b\n"));
    assert_eq!(grep(&["-E", "a.b"]), found("a.txt:3:a.b\nd/b.txt:2:axb\n"));
    assert_eq!(grep(&["-e", "-x"]), found("a.txt:4:-x\n"));
    assert_eq!(
        grep(&["-e", "concat", "-e", "a.b", "a.txt"]),
        found("a.txt:2:concat\na.txt:3:a.b\n")
    );
    assert_eq!(grep(&["-w", "-E", "c.t|axb", "d"]), found("d/b.txt:2:axb\n"));
    assert_eq!(grep(&["-Ei", "C.T$", "d"]), found("d/b.txt:1:CAT\n"));
    assert_eq!(grep(&["-lw", "cat"]), found("a.txt\n"));
    assert_eq!(grep(&["-w", "conca"]).0, 1);
    let ran = stage.run(&["fs", "grep", "-e", "cat", "a.txt", "d"]);
    let told = "error: unexpected argument 'd'\nhint: with -e PATTERN, name one path at most\n";
    assert_eq!((ran.code, ran.err.as_str()), (2, told));
}

#[test]
fn flags_of_ls_tree_and_mkdir_are_understood() {
    let stage = Stage::with(&[(".hidden", "x"), ("d/e/f", "")]);
    assert_eq!(stage.out(&["fs", "ls", "-a"]), ".hidden\nd/\n");
    assert_eq!(stage.out(&["fs", "ls", "-1R"]), ".hidden\nd/\nd/e/\nd/e/f\n");
    assert_eq!(stage.out(&["fs", "tree", "-L", "1"]), ".\n├── .hidden\n└── d/\n");
    assert_eq!(
        stage.out(&["fs", "tree", "-a", "-L", "2"]),
        stage.out(&["fs", "tree", "--depth", "2"])
    );
    stage.out(&["fs", "mkdir", "-p", "x/y/z", "x/y"]);
    assert!(stage.path("x/y/z").is_dir());
}

#[test]
fn sizes_are_for_people_on_a_terminal_and_for_programs_elsewhere() {
    let stage = Stage::new();
    fs::write(stage.path("big"), vec![0; 1536]).unwrap();
    assert!(stage.out(&["fs", "ls", "-l"]).contains("  1536  "));
    let shown = stage.watched_without_colours(&["fs", "ls", "-l"]).text();
    assert!(shown.contains("  1.5 KiB  "), "{shown}");
}

#[test]
fn quiet_is_quiet() {
    let stage = Stage::with(&[("a.txt", "A\n"), ("d/b", "B\n")]);
    for words in [
        &["write", "new.txt", "--content", "x"][..],
        &["tree"],
        &["grep", "A"],
        &["cp", "-r", "d", "e"],
        &["rm", "-r", "e"],
        &["cat", "--limit", "1", "a.txt"],
    ] {
        let ran = stage.run(&[&["fs", "--quiet"], words].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
    }
}

#[test]
fn cp_copies_files_and_directories() {
    let stage = Stage::with(&[("a.txt", "A"), ("d/b", "B"), ("d/e/c", "C")]);
    stage.out(&["fs", "cp", "a.txt", "b.txt"]);
    assert_eq!(stage.text("b.txt"), "A");
    stage.out(&["fs", "cp", "a.txt", "d"]);
    assert_eq!(stage.text("d/a.txt"), "A");
    let ran = stage.run(&["fs", "cp", "d/b", "b.txt"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.ends_with("hint: to replace it, pass --force\n"), "{}", ran.err);
    stage.out(&["fs", "cp", "--force", "d/b", "b.txt"]);
    assert_eq!(stage.text("b.txt"), "B");
    let ran = stage.run(&["fs", "cp", "d", "copy"]);
    let told = "error: read 'd': is a directory\nhint: to copy it with its content, pass -r\n";
    assert_eq!((ran.code, ran.err.as_str()), (1, told));
    let ran = stage.run(&["fs", "cp", "-r", "d", "copy"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "note: copied 3 files to 'copy'\n"));
    assert_eq!(stage.text("copy/e/c"), "C");
    stage.run(&["fs", "cp", "-r", "d", "d/e"]).expect_error(1, "cannot be copied into itself");
    let value = stage.json(&["fs", "cp", "a.txt", "z.txt", "--json"]);
    assert_eq!(value, json!({ "from": "a.txt", "to": "z.txt", "files": 1 }));
}

#[test]
fn get_and_put_copy_between_machines() {
    let stage = Stage::with(&[("d/report.txt", "hello\n")]);
    let daemon = Daemon::start(&stage, &["--root", "."]);
    let url = format!("ws://{}/ssh", daemon.address);
    let here = stage.outside("here");
    fs::create_dir(&here).unwrap();
    let target = here.to_str().unwrap();
    for way in [&["--root", "."][..], &["--remote", &url]] {
        let run = |words: &[&str]| stage.run(&[&["fs"], words, way].concat());
        let ran = run(&["get", "d/report.txt", target]);
        let file = here.join("report.txt");
        let told = format!("note: copied 6 B to '{}'\n", file.display());
        assert_eq!((ran.code, ran.err), (0, told));
        assert_eq!(fs::read_to_string(&file).unwrap(), "hello\n");
        let ran = run(&["get", "d/report.txt", target]);
        let told = format!(
            "error: '{}' already exists\nhint: to replace it, pass --force\n",
            file.display()
        );
        assert_eq!((ran.code, ran.err), (1, told));
        let named = here.join("other").display().to_string();
        assert_eq!(run(&["get", "d/report.txt", &named]).code, 0);
        let ran = run(&["put", &named, "in/deep/"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, "note: copied 6 B to 'in/deep/other'\n"));
        assert_eq!(stage.text("in/deep/other"), "hello\n");
        assert_eq!(run(&["put", &named, "in/deep/other"]).code, 1);
        fs::write(&named, "changed\n").unwrap();
        assert_eq!(run(&["put", "--force", &named, "in/deep/other"]).code, 0);
        assert_eq!(stage.text("in/deep/other"), "changed\n");
        assert_eq!(stage.names("in/deep"), ["other"]);
        run(&["get", "d", target]).expect_error(1, "is a directory");
        run(&["put", target]).expect_error(2, "is a directory");
        run(&["get", "../outside", target]).expect_error(3, "..");
        fs::remove_dir_all(&here).unwrap();
        fs::create_dir(&here).unwrap();
        fs::remove_dir_all(stage.path("in")).unwrap();
    }
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn a_get_replaces_regular_files_only() {
    let stage = Stage::with(&[("a.txt", "new")]);
    let (kept, link) = (stage.outside("kept"), stage.outside("link"));
    fs::write(&kept, "kept").unwrap();
    std::os::unix::fs::symlink(&kept, &link).unwrap();
    let get =
        |target: &Path| stage.run(&["fs", "get", "--force", "a.txt", target.to_str().unwrap()]);
    get(&link).expect_error(2, "is not a regular file");
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
    assert_eq!(get(&kept).code, 0);
    assert_eq!(fs::read_to_string(&kept).unwrap(), "new");
    let missing = stage.outside("missing/a.txt");
    get(&missing).expect_error(1, &format!("write {}", missing.display()));
}

#[test]
fn a_get_that_was_cut_off_is_continued() {
    let stage = Stage::new();
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(stage.path("big"), &content).unwrap();
    let daemon = Daemon::start(&stage, &["--root", "."]);
    let url = format!("ws://{}/ssh", daemon.address);
    let version = stage.json(&["fs", "stat", "big", "--json"]);
    let version = &version["version"].as_str().unwrap()[..16];
    let part = stage.outside(&format!(".copy.{version}.part"));
    fs::write(&part, &content[..500_000]).unwrap();
    let copy = stage.outside("copy");
    let ran = stage.run(&["fs", "get", "big", copy.to_str().unwrap(), "--remote", &url]);
    let told = format!(
        "note: continuing an interrupted transfer at 488.3 KiB of 1.1 MiB\nnote: copied 1.1 MiB to '{}'\n",
        copy.display()
    );
    assert_eq!((ran.code, ran.err), (0, told));
    assert!(fs::read(&copy).unwrap() == content && !part.exists());
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn a_put_that_was_cut_off_is_continued() {
    let stage = Stage::new();
    let content: Vec<u8> = (0..16_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let file = stage.outside("big");
    fs::write(&file, &content).unwrap();
    let daemon = Daemon::start(&stage, &["--root", "."]);
    let relay = Relay::to(&daemon.address);
    let url = format!("ws://{}/ssh", relay.address);
    let words = ["fs", "put", file.to_str().unwrap(), "--remote", &url];
    let mut child = stage.command(BINARY).args(words).stderr(Stdio::piped()).spawn().unwrap();
    let begun = || {
        let part = stage.names("").into_iter().find(|name| name.ends_with(".part"));
        part.is_some_and(|part| fs::metadata(stage.path(&part)).is_ok_and(|it| it.len() > 0))
    };
    crate::outliving::comes("the first part", begun);
    relay.stall();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!stage.path("big").exists());
    relay.go_on();
    let ran = stage.run(&words);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.starts_with("note: continuing an interrupted transfer at "), "{}", ran.err);
    assert!(fs::read(stage.path("big")).unwrap() == content);
    assert_eq!(stage.names(""), ["big"]);
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn get_and_put_tell_a_person_at_a_terminal_how_far_they_are() {
    let stage = Stage::new();
    let content = vec![7; 64_000_000];
    fs::write(stage.path("big"), &content).unwrap();
    let (copy, file) = (stage.outside("copy"), stage.outside("other"));
    fs::write(&file, &content).unwrap();
    let daemon = Daemon::start(&stage, &["--root", "."]);
    for (words, target) in [
        (format!("get big {}", copy.display()), stage.outside("")),
        (format!("put {}", file.display()), stage.root()),
    ] {
        let relay = Relay::to(&daemon.address);
        let line = format!("'{BINARY}' fs {words} --remote ws://{}/ssh", relay.address);
        let mut command = stage.command("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]);
        command.env("TERM", "xterm").env("SHELL", "/bin/sh").env("NO_COLOR", "1");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let has_begun = || {
            let mut names = fs::read_dir(&target).unwrap().map(|it| it.unwrap().path());
            names.any(|name| name.extension().is_some_and(|end| end == "part"))
        };
        crate::outliving::comes("the first part", has_begun);
        relay.stall();
        // Nothing is said of a transfer that takes less than a second.
        let stalled = Instant::now();
        crate::outliving::comes("a second", || stalled.elapsed() > Duration::from_millis(1_200));
        relay.go_on();
        let ran = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{words}: {told:?}");
        assert!(told.contains("MiB/s") && told.contains("copied 61.0 MiB"), "{words}: {told:?}");
    }
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn two_gets_of_one_file_at_the_same_time_do_not_disturb_each_other() {
    let stage = Stage::new();
    let content: Vec<u8> = (0..4_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(stage.path("big"), &content).unwrap();
    let copy = stage.outside("copy");
    let get = |flags: &[&str]| {
        let mut command = stage.command(BINARY);
        command.args(["fs", "get"]).args(flags).args(["big", copy.to_str().unwrap()]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [get(&["--force"]), get(&["--force"])];
    for child in both {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
    assert!(fs::read(&copy).unwrap() == content);
    // Without --force, one of them is too late.
    fs::remove_file(&copy).unwrap();
    let codes = [get(&[]), get(&[])].map(|child| child.wait_with_output().unwrap().status.code());
    assert!(codes.contains(&Some(0)), "{codes:?}");
    assert!(codes.iter().all(|code| [Some(0), Some(1)].contains(code)), "{codes:?}");
    assert!(fs::read(&copy).unwrap() == content);
    let left: Vec<_> = fs::read_dir(copy.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().ends_with(".part"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn partial_copies_of_older_versions_are_removed() {
    let stage = Stage::with(&[("a.txt", "new")]);
    let copy = stage.outside("copy.txt");
    let stale = stage.outside(".copy.txt.0123456789abcdef.part");
    let other = stage.outside(".copy.txt.draft.part");
    for path in [&stale, &other] {
        fs::write(path, "old").unwrap();
    }
    assert_eq!(stage.run(&["fs", "get", "a.txt", copy.to_str().unwrap()]).code, 0);
    assert!(!stale.exists() && other.exists());
    fs::write(stage.path(".in.txt.0123456789abcdef.part"), "old").unwrap();
    assert_eq!(stage.run(&["fs", "put", copy.to_str().unwrap(), "in.txt"]).code, 0);
    assert_eq!(stage.names(""), ["a.txt", "in.txt"]);
}

#[test]
fn an_interrupted_transfer_says_how_to_continue() {
    let stage = Stage::new();
    fs::write(stage.path("big"), vec![7; 32_000_000]).unwrap();
    let daemon = Daemon::start(&stage, &["--root", "."]);
    let relay = Relay::to(&daemon.address);
    let url = format!("ws://{}/ssh", relay.address);
    let copy = stage.outside("copy");
    let words = ["fs", "get", "--remote", &url, "big", copy.to_str().unwrap()];
    let child = stage.command(BINARY).args(words).stderr(Stdio::piped()).spawn().unwrap();
    let begun = || {
        let entries = fs::read_dir(copy.parent().unwrap()).unwrap().flatten();
        let mut parts = entries.filter(|it| it.file_name().to_string_lossy().ends_with(".part"));
        parts.any(|part| part.metadata().is_ok_and(|it| it.len() > 0))
    };
    crate::outliving::comes("the first part", begun);
    relay.stall();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(said, "note: interrupted; to continue the transfer, run the same command again\n");
    relay.go_on();
    let ran = stage.run(&words);
    assert!(ran.err.starts_with("note: continuing an interrupted transfer at "), "{}", ran.err);
    assert_eq!((ran.code, fs::metadata(&copy).unwrap().len()), (0, 32_000_000));
    assert_eq!(daemon.end().0, 0);
}

/// What one of them calls a flag, the others call it too.
#[test]
fn commands_that_run_commands_share_their_flags() {
    let stage = Stage::new();
    for command in ["exec", "mcp", "daemon"] {
        let help = stage.out(&[command, "--help"]);
        for flag in [
            "--root",
            "--scope",
            "--isolation",
            "--floor",
            "--network",
            "--hide",
            "--read-only",
            "--bind",
            "--toolchain",
            "--cache-dir",
            "--accept-unenforced",
            "--timeout",
            "--cpu",
            "--memory",
            "--processes",
            "--file-size",
            "--open-files",
            "--max-output",
            "--env",
            "--profile",
            "--rules",
            "--token-file",
        ] {
            let told = help.lines().any(|line| {
                let words = line.trim_start().trim_start_matches("-e, ");
                words.split([' ', ',']).next() == Some(flag)
            });
            assert!(told, "{command} {flag}");
        }
    }
}

/// Sessions have the flags that make sense for them.
#[test]
fn serve_shares_the_flags_of_exec() {
    let stage = Stage::with(&[("team.toml", "")]);
    let help = stage.out(&["serve", "--help"]);
    for flag in [
        "--root",
        "--isolation",
        "--floor",
        "--network",
        "--hide",
        "--read-only",
        "--bind",
        "--toolchain",
        "--timeout",
        "--cpu",
        "--memory",
        "--processes",
        "--file-size",
        "--open-files",
        "--env",
        "--rules",
        "--token-file",
    ] {
        assert!(
            help.contains(&format!("{flag} <")) || help.contains(&format!("{flag}]")),
            "{flag}"
        );
    }
    let flags = ["--isolation", "bwrap", "--floor", "landlock", "--network", "none"];
    let more = ["--toolchain", "none", "--rules", "team.toml", "--token-file", "token"];
    let shown = stage.json(&[&["config", "show", "--json"], &flags[..], &more].concat());
    let text = shown.to_string();
    for part in ["\"bwrap\"", "\"landlock\"", "team.toml"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.matches("flag").count() >= 6, "{text}");
    let limits = ["--timeout", "90s", "--cpu", "1m", "--memory", "2G", "--processes", "99"];
    let limits = [&limits[..], &["--file-size", "1M", "--open-files", "64"]].concat();
    let paths = ["--root", ".", "--hide", "a", "--read-only", "b", "--bind", "/usr/share"];
    let shown = stage.json(
        &[&["config", "show", "--json", "--env", "KEY=s3cret"], &limits[..], &paths].concat(),
    );
    let value = |key: &str| {
        let setting = &shown["values"][key];
        assert_eq!(setting["origin"]["kind"], "flag", "{key}: {setting}");
        setting["value"].clone()
    };
    for (key, expect) in [
        ("sessions.timeout", json!("90s")),
        ("sessions.cpu", json!("1m")),
        ("sessions.memory", json!(2_u64 << 30)),
        ("sessions.processes", json!(99)),
        ("sessions.file-size", json!(1 << 20)),
        ("sessions.open-files", json!(64)),
        ("sessions.env", json!(["KEY"])),
        ("sessions.bind", json!(["/usr/share"])),
        ("hide", json!(["a"])),
        ("read-only", json!(["b"])),
    ] {
        assert_eq!(value(key), expect, "{key}");
    }
    assert!(!shown.to_string().contains("s3cret"), "{shown}");
    stage.run(&["config", "show", "--hide", "a"]).expect_error(2, "root is not");
    stage
        .run(&["config", "show", "--isolation", "software"])
        .expect_error(2, "must be auto or bwrap or landlock");
}

#[test]
fn mcp_keeps_to_limits_and_variables() {
    let stage = Stage::new();
    let flags = ["--env", "GREETING=hello", "--max-output", "1M", "--timeout", "20s"];
    let mut session = crate::mcp::Session::start(&stage, &flags);
    let said = session.text("exec", json!({ "command": "echo $GREETING" }));
    assert!(said.starts_with("hello"), "{said}");
    session.end();
    let ran = stage.run(&["mcp", "--remote", "ws://127.0.0.1:1/ssh", "--memory", "1G"]);
    let told = "error: --memory cannot be used with a remote workspace\nhint: pass the flag to \
                agent-backend daemon on the other machine\n";
    assert_eq!((ran.code, ran.err.as_str()), (2, told));
}

#[test]
fn a_daemon_listens_on_localhost_by_name_and_takes_old_names_of_flags() {
    let stage = Stage::with(&[("in/a", "A")]);
    for flags in [
        &["--root", ".", "--scope", "in", "--profile", "strict", "--host", "localhost"][..],
        &["--rootDir", ".", "--scopePath", "in", "--safety", "strict", "--host", "127.0.0.1"],
    ] {
        let daemon = Daemon::start(&stage, flags);
        assert!(daemon.address.starts_with("127.0.0.1:"), "{}", daemon.address);
        assert!(daemon.notice.contains("rules strict"), "{}", daemon.notice);
        let url = format!("ws://{}/ssh", daemon.address);
        assert_eq!(stage.out(&["fs", "ls", "--remote", &url]), "a\n");
        assert_eq!(daemon.end().0, 0);
    }
    let ran = stage.run(&["daemon", "--root", ".", "--host", "example.com"]);
    let told = "error: invalid value 'example.com' for '--host <ADDRESS>': must be an IP address or \
                localhost\n\nFor more information, try '--help'.\n";
    assert_eq!((ran.code, ran.err.as_str()), (1, told));
}

/// A client that waits for an answer hears within two seconds why there is no workspace.
#[test]
fn mcp_answers_while_its_daemon_is_down() {
    let stage = Stage::new();
    let mut command = stage.command(BINARY);
    command.args(["mcp", "--remote", "ws://127.0.0.1:1/ssh"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } },
    });
    writeln!(input, "{initialize}").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let answer: Value = serde_json::from_str(&line).unwrap();
    let why = "connect: cannot reach 127.0.0.1:1: connection refused";
    let hint = "check the host and port of --remote; on that machine: agent-backend daemon --root DIR --port PORT";
    let error = json!({ "code": -32000, "message": format!("{why} ({hint})") });
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 1, "error": error }));
    drop(input);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, format!("error: {why}\nhint: {hint}\n"));
    assert_eq!(child.wait().unwrap().code(), Some(4));
}

/// `doctor` and `exec --explain` say the same of commands, in whole sentences.
#[test]
fn doctor_and_explain_say_the_same() {
    let stage = Stage::new();
    let explained = stage.out(&["exec", "--explain"]);
    let doctor = stage.out(&["doctor"]);
    assert!(doctor.contains(&explained), "{explained}\n---\n{doctor}");
    for line in explained.lines() {
        assert!(line.ends_with('.'), "{line}");
    }
}

#[test]
fn explain_shows_the_limits_and_the_verdict() {
    let stage = Stage::new();
    let flags = ["--memory", "1G", "--timeout", "90s", "--open-files", "100", "make"];
    let told = stage.out(&[&["exec", "--explain"], &flags[..]].concat());
    assert!(told.starts_with("The rules allow this command.\n"), "{told}");
    for line in
        ["- Memory: At most 1.0 GiB, ", "- Run time: At most 90s, ", "- Open files: At most 100, "]
    {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(told.contains("\n- CPU time: Not limited.\n"), "{told}");
    let told = stage.out(&["exec", "--explain", "--isolation", "none", "rm -rf /"]);
    let first = told.lines().next().unwrap();
    assert!(first.starts_with("This command would be refused: "), "{told}");
    assert!(first.ends_with("(rule destructive.remove-outside)."), "{told}");
    let value = stage.json(&["exec", "--explain", "--json", "--memory", "1G", "rm -rf /"]);
    assert_eq!(value["limits"]["memory"], 1 << 30);
    assert_eq!(value["command"]["verdict"], "deny", "{value}");
    // A limit that the sandbox cannot keep is refused before the command runs.
    if crate::escapes::stands("bwrap") {
        for words in
            [&["exec", "--file-size", "1", "true"][..], &["exec", "--explain", "--file-size", "1"]]
        {
            stage.run(words).expect_error(125, "the bwrap sandbox needs at least 4096");
        }
    }
}
