//! Help, version, completions and doctor; and that both binaries are one.

use serde_json::{Value, json};

use crate::stage::{BINARY, Ran, SHORT_BINARY, Stage, run};

/// The names and one-line descriptions under `Commands:`.
fn listed_commands(help: &str) -> Vec<String> {
    let after = help.split("Commands:\n").nth(1).unwrap();
    after.lines().take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn help_lists_every_command() {
    let stage = Stage::new();
    let top = stage.out(&["--help"]);
    assert_eq!(
        listed_commands(&top),
        [
            "fs           Read and change the files of a workspace",
            "exec         Run a command in the workspace, in a sandbox",
            "job          List, watch and end background commands",
            "run          Perform a list of operations in a directory or in a space",
            "space        Create, list, show and remove spaces of a server",
            "policy       Show which commands the rules allow, and why",
            "mcp          Serve the workspace to an MCP client over standard input and output",
            "daemon       Serve a workspace to other programs and machines",
            "serve        Take tasks for agents and run them in sandboxes",
            "server       Serve coding agents over HTTP, compatible with sandbox-agent",
            "webui        Open the web page of the server",
            "task         Give an agent a task on a repository",
            "draft        Save tasks that are not complete yet, and start them later",
            "session      Show, continue and end sessions of the server",
            "approvals    Show and answer approvals",
            "wait         Wait until sessions have ended",
            "remote       Show what a server offers: agents, runtimes, executors, repositories, workspaces",
            "key          Create, list and revoke API keys of a server",
            "cleanup      Remove old workspaces, caches and sessions of a server now",
            "backup       Back up the data of a server; the server can keep running",
            "restore      Restore a backup into an empty data directory",
            "config       Show the configuration of serve",
            "agent        List, install and run coding agents",
            "ssh-proxy    Connect ssh to a daemon: a ProxyCommand for ssh and sftp",
            "doctor       Show how commands are isolated on this machine",
            "version      Print the version and the build",
            "completions  Print the completion script of a shell",
            "help         Print this message or the help of the given subcommand(s)",
        ]
    );
    let fs = stage.out(&["fs", "--help"]);
    let names: Vec<String> = listed_commands(&fs)
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let expect = [
        "ls", "tree", "glob", "grep", "cat", "write", "edit", "diff", "cp", "mv", "rm", "get",
        "put", "mkdir", "stat", "touch", "help",
    ];
    assert_eq!(names, expect);
    for name in &expect[..16] {
        let long = stage.out(&["fs", name, "--help"]);
        let short = stage.out(&["fs", name, "-h"]);
        for flag in ["--root", "--scope", "--json"] {
            assert!(long.contains(flag), "{name} {flag}");
        }
        assert!(short.contains("--root") && short.contains("--json"), "{name}");
        assert_eq!(stage.out(&["help", "fs", name]), long);
    }
}

#[test]
fn help_tells_the_exit_codes_and_examples() {
    let stage = Stage::new();
    let long = stage.out(&["--help"]);
    let codes = long.split("Exit codes:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let codes: Vec<&str> =
        codes.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(codes, ["0", "1", "2", "3", "4", "70", "130"]);
    assert!(long.contains("\nExamples:\n  agent-backend fs write "), "{long}");
    assert!(long.lines().all(|line| line.chars().count() <= 100), "{long}");
    let short = stage.out(&["-h"]);
    assert!(short.lines().count() < long.lines().count() && short.contains("--help"), "{short}");
}

#[test]
fn nonsense_is_a_usage_error() {
    let stage = Stage::new();
    for line in [
        &["nonsense"][..],
        &["fs", "nonsense"],
        &["fs", "ls", "--nonsense"],
        &["fs", "ls", "--depth", "0"],
        &["fs", "ls", "--limit", "many"],
        &["fs", "cat"],
        &["completions", "nonsense"],
    ] {
        stage.run(line).expect_error(2, "error: ");
    }
    for line in [&[][..], &["fs"]] {
        let ran = stage.run(line);
        assert_eq!((ran.code, ran.text().as_str()), (2, ""));
        assert!(ran.err.contains("Commands:"), "{}", ran.err);
    }
    let ran = stage.run(&["fs", "cat", "--json"]);
    assert_eq!((ran.code, ran.error()["code"].clone()), (2, json!("INVALID_CONFIGURATION")));
}

#[test]
fn names_of_other_programs_lead_to_ours() {
    let stage = Stage::new();
    for (line, name) in [
        (["fs", "find"], "glob"),
        (["fs", "head"], "cat"),
        (["fs", "delete"], "rm"),
        (["job", "ps"], "list"),
        // One that is spelt alike is found by its letters.
        (["fs", "grpe"], "grep"),
    ] {
        let tip = format!("  tip: a similar subcommand exists: '{name}'\n");
        stage.run(&line).expect_error(2, &tip);
    }
}

#[test]
fn flags_of_other_programs_lead_to_ours() {
    let stage = Stage::new();
    for (line, name) in [
        (&["exec", "--volume", ".:/src", "true"][..], "--bind"),
        (&["exec", "--mount=type=bind", "true"], "--bind"),
        (&["exec", "--chdir", "src", "true"], "--cwd"),
        (&["mcp", "--directory", "src"], "--root"),
        (&["daemon", "--root", ".", "--listen", "::1"], "--host"),
        (&["fs", "tree", "--max-depth", "2"], "--depth"),
        // One that is spelt alike is found by its letters.
        (&["exec", "--isolate", "none", "true"], "--isolation"),
    ] {
        let ran = stage.run(line);
        let tip = format!("  tip: a similar argument exists: '{name}'\n");
        assert!(ran.code != 0 && ran.err.contains(&tip), "{line:?}: {}", ran.err);
    }
    // A flag that the command does not have is not named.
    let ran = stage.run(&["fs", "ls", "--volume", "."]);
    assert!(ran.code == 2 && !ran.err.contains("tip:"), "{}", ran.err);
    // The long forms of docker are taken.
    let line = ["exec", "--quiet", "--interactive", "--workdir", "d", "--", "cat; basename $PWD"];
    let stage = Stage::with(&[("d/e", "")]);
    let ran = stage.run_with(&line, b"piped\n");
    assert_eq!((ran.code, ran.text().as_str()), (0, "piped\nd\n"), "{}", ran.err);
    let ran = stage.run(&["exec", "--quiet", "--tty", "--", "test -t 1 && echo terminal"]);
    assert!(ran.code == 0 && ran.text().contains("terminal"), "{}{}", ran.text(), ran.err);
}

/// A short help has groups of names, and `--help` describes each command.
#[test]
fn long_lists_of_commands_are_grouped_in_the_short_help() {
    let stage = Stage::new();
    for words in [&[][..], &["fs"], &["session"], &["remote"]] {
        let short = stage.out(&[words, &["-h"]].concat());
        let usage = |text: &str| {
            text.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default().to_owned()
        };
        let long = stage.out(&[words, &["--help"]].concat());
        assert_eq!(usage(&short), usage(&long));
        assert_eq!(stage.out(&[&["help"], words].concat()), long);
        assert_eq!(stage.run(words).err, short, "{words:?}");
        let names = listed_commands(&short);
        let mut names: Vec<&str> =
            names.iter().flat_map(|line| line.rsplit("  ").next().unwrap().split(", ")).collect();
        let described = listed_commands(&long);
        let mut described: Vec<&str> = described
            .iter()
            .filter(|line| line.contains("  "))
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        names.sort_unstable();
        described.sort_unstable();
        assert_eq!(names, described, "{words:?}");
    }
}

#[test]
fn version_says_which_build_this_is() {
    let stage = Stage::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(stage.out(&["--version"]), format!("agent-backend {version}\n"));
    let text = stage.out(&["version"]);
    assert!(text.starts_with(&format!("agent-backend {version} (")), "{text}");
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    assert_eq!(
        stage.json(&["version", "--json"]),
        json!({ "name": "agent-backend", "version": version, "target": target })
    );
}

#[test]
fn completions_are_made_for_every_shell() {
    let stage = Stage::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stage.out(&["completions", shell]);
        assert!(script.contains("agent-backend") && script.contains("doctor"), "{shell}");
    }
    let mut short = stage.command(SHORT_BINARY);
    short.args(["completions", "bash"]);
    let script = run(short, b"").text();
    assert!(script.contains("complete -F _ah"), "completions for the short name");
}

#[test]
fn doctor_explains_whatever_is_missing() {
    let stage = Stage::new();
    let value = stage.json(&["doctor", "--json"]);
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["facilities", "isolation", "summary", "toolchains", "agents", "in_force"]);
    let facilities = value["facilities"].as_array().unwrap();
    let names: Vec<&str> = facilities.iter().map(|each| each["name"].as_str().unwrap()).collect();
    let expect = [
        "kernel",
        "openat2",
        "pidfd",
        "landlock",
        "seccomp",
        "user-namespaces",
        "bwrap",
        "overlayfs",
        "cgroups",
        "reflink",
    ];
    assert_eq!(names, expect);
    for facility in facilities {
        expect_explained(facility);
    }
    assert!(stage.names(".").is_empty(), "doctor leaves nothing");
}

#[track_caller]
fn expect_explained(facility: &Value) {
    let keys: Vec<&String> = facility.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["name", "state", "detail", "cause", "remedy"]);
    let filled = |key: &str| facility[key].as_str().is_some_and(|text| !text.is_empty());
    assert!(filled("detail"), "{facility}");
    match facility["state"].as_str().unwrap() {
        "working" => assert!(facility["cause"].is_null() && facility["remedy"].is_null()),
        "partial" | "missing" => assert!(filled("cause") && filled("remedy"), "{facility}"),
        other => panic!("unknown state {other}"),
    }
}

#[test]
fn doctor_is_an_answer_even_where_everything_lacks() {
    let stage = Stage::new();
    let mut command = stage.command(BINARY);
    command.arg("doctor").env("PATH", stage.path("no-programs"));
    let ran = run(command, b"");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let text = ran.text();
    let no_bwrap = "no      bwrap            commands cannot be isolated by namespaces\n";
    let cause = format!("{:25}cause: no program 'bwrap' on the path\n", "");
    let remedy = format!("{:25}do: install bubblewrap\n", "");
    assert!(text.contains(&format!("{no_bwrap}{cause}{remedy}")), "{text}");
    assert!(
        text.lines().last().unwrap().starts_with("File operations stay in the workspace. "),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "no colours in a pipe");
}

#[test]
fn both_binaries_are_one() {
    let stage = Stage::with(&[("a", "A"), ("d/b", "B")]);
    for line in [
        &["fs", "ls"][..],
        &["fs", "tree", "--json"],
        &["fs", "cat", "a", "missing"],
        &["fs", "cat", "../a"],
        &["fs", "grep", "B"],
        &["fs", "glob", "nothing"],
        &["fs", "diff", "a", "d/b"],
        &["version", "--json"],
        &["--version"],
        &["fs", "rm", "d"],
    ] {
        let [one, other] = [BINARY, SHORT_BINARY].map(|binary| {
            let mut command = stage.command(binary);
            command.args(line);
            run(command, b"")
        });
        let parts = |ran: Ran| (ran.code, ran.out, ran.err);
        assert_eq!(parts(one), parts(other), "{line:?}");
    }
}
