//! `policy`, and what `exec` does with it.

use serde_json::json;

use crate::stage::{BINARY, Stage, run};

const RULES: &str = r#"
[[rule]]
id = "own.push"
verdict = "deny"
prefix = ["git", "push"]
reason = "pushing is for people"
suggestion = "commit, and say so"
match = ["git push origin main"]
not_match = ["git status"]
"#;

/// Flags after the first word are the command's, as for `exec`.
#[test]
fn flags_after_the_first_word_belong_to_the_command() {
    let stage = Stage::with(&[("a.txt", "a\n")]);
    let value = stage.json(&["policy", "check", "--json", "sed", "-i", "s/a/b/", "a.txt"]);
    assert_eq!(value["command"], "sed -i s/a/b/ a.txt");
    for words in
        [&["rm", "-rf", "--root", "/"][..], &["rm", "-r", "-f", "/"], &["ls", "--json", "-w", "x"]]
    {
        let isolated = ["--isolation", "none"];
        let checked = stage.run(&[&["policy", "check"], &isolated[..], words].concat());
        let ran = stage.run(&[&["exec", "--quiet"], &isolated[..], words].concat());
        assert_eq!(checked.code == 3, ran.code == 126, "{words:?}: {} {}", checked.text(), ran.err);
    }
}

#[test]
fn check_says_the_verdict_and_why() {
    let stage = Stage::new();
    for empty in ["", "  "] {
        stage.run(&["policy", "check", empty]).expect_error(2, "the command is empty");
    }
    let ran = stage.run(&["policy", "check", "cd src && make"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.text(), "allow\ncommands:\n  allow  cd src\n  allow  make\n");
    let ran = stage.run(&["policy", "check", "ls; sudo rm -rf '/'"]);
    assert_eq!((ran.code, ran.err.as_str()), (3, ""));
    let text = ran.text();
    for line in [
        "deny  privilege.sudo",
        "instead: run the command without sudo; the current user owns the workspace",
        "  allow  ls",
        "  deny   sudo rm -rf /  [privilege.sudo]",
        "  deny     rm -rf /  [destructive.remove-outside]",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let ran = stage.run(&["policy", "check", "--isolation", "none", "$X --help"]);
    assert_eq!(ran.code, 1, "a question is neither yes nor no");
    assert!(ran.text().starts_with("ask  injection.unknown-command\n"), "{}", ran.text());
}

#[test]
fn check_speaks_json() {
    let stage = Stage::new();
    let ran = stage.run(&["policy", "check", "--json", "--isolation", "none", "make && cd .."]);
    assert_eq!((ran.code, ran.err.as_str()), (3, ""));
    let value = ran.value();
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "command",
            "profile",
            "isolation",
            "verdict",
            "code",
            "rule",
            "category",
            "reason",
            "suggestion",
            "commands",
            "allowed",
            "hits",
            "notes"
        ]
    );
    assert_eq!(value["verdict"], "deny");
    assert_eq!(value["code"], "UNSAFE_COMMAND");
    assert_eq!(value["rule"], "escape.directory");
    assert_eq!(value["allowed"], json!(["make"]));
    assert_eq!(value["commands"][1]["words"], json!(["cd", ".."]));
}

#[test]
fn check_knows_the_workspace() {
    let stage = Stage::new();
    let root = stage.root().canonicalize().unwrap();
    let inside = format!("cd '{}/src' && cat ~/notes", root.display());
    for (line, code) in [(inside.as_str(), 0), ("cd src && cd ..", 0), ("cd ..", 3)] {
        let root = root.to_string_lossy();
        let ran = stage.run(&["policy", "check", "--isolation", "none", "--root", &root, line]);
        assert_eq!(ran.code, code, "{line}: {}", ran.text());
    }
    std::fs::create_dir(stage.path("src")).unwrap();
    let flags = ["policy", "check", "--isolation", "none", "--cwd", "src"];
    assert_eq!(stage.run(&[&flags[..], &["cd .."]].concat()).code, 0);
    assert_eq!(stage.run(&[&flags[..], &["cd ../.."]].concat()).code, 3);
    assert_eq!(stage.run(&["policy", "check", "--profile", "strict", "cd src"]).code, 3);
    assert_eq!(stage.run(&["policy", "check", "--profile", "off", "rm -rf /"]).code, 0);
}

#[test]
fn own_rules_are_read_and_tested() {
    let stage = Stage::with(&[
        ("rules.toml", RULES),
        ("bad.toml", &RULES.replace("git status", "git push")),
        (
            "corpus.toml",
            "[[case]]\ncommand = \"git push\"\nguarded = \"deny\"\nrule = \"own.push\"\n",
        ),
    ]);
    let ran = stage.run(&["policy", "check", "--rules", "rules.toml", "git push"]);
    assert_eq!(ran.code, 3);
    assert!(
        ran.text().starts_with("deny  own.push\nreason: pushing is for people\n"),
        "{}",
        ran.text()
    );
    assert_eq!(stage.out(&["policy", "test", "rules.toml"]), "1 rules, 2 examples hold\n");
    stage
        .run(&["policy", "test", "bad.toml"])
        .expect_error(1, "rule 'own.push': it matches 'git push'");
    stage
        .run(&["policy", "check", "--rules", "missing.toml", "ls"])
        .expect_error(2, "missing.toml");
    // No verdict ends with the code of a file that makes no sense, and the file is named.
    let bad = "bad.toml: rule 'own.push': it matches 'git push'";
    stage.run(&["policy", "check", "--rules", "bad.toml", "ls"]).expect_error(2, bad);
    stage.run(&["exec", "--rules", "bad.toml", "--", "ls"]).expect_error(125, bad);
    let ran = stage.run(&["policy", "test", "corpus.toml"]);
    assert_eq!(
        (ran.code, ran.text().as_str()),
        (1, "guarded: deny expected, allow by none found: git push\n1 cases, 1 wrong\n")
    );
    let json = stage.json(&["policy", "test", "corpus.toml", "--rules", "rules.toml", "--json"]);
    assert_eq!(json, json!({ "cases": 1, "misses": [] }));
}

#[test]
fn rules_are_listed() {
    let stage = Stage::with(&[("rules.toml", RULES)]);
    let text = stage.out(&["policy", "rules", "--rules", "rules.toml"]);
    assert!(text.lines().any(|line| line.starts_with("deny   privilege.sudo ")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("deny   own.push ")), "{text}");
    assert!(!text.contains("strict."), "{text}");
    let strict = stage.json(&["policy", "rules", "--profile", "strict", "--json"]);
    let rules = strict["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["id"] == "strict.chain"));
    assert!(rules.iter().all(|rule| rule["verdict"] != "ask"), "strict does not ask");
}

#[test]
fn exec_refuses_what_the_policy_refuses() {
    let stage = Stage::with(&[("keep.txt", "kept"), ("rules.toml", RULES)]);
    let ran = stage.run(&["exec", "--", "rm -rf *; echo done"]);
    ran.expect_error(
        126,
        "exec: refused: it removes everything in the workspace (rule destructive.remove-root)",
    );
    assert_eq!(stage.text("keep.txt"), "kept");
    let ran = stage.run(&["exec", "--isolation", "none", "--json", "--", "cd ..; ls"]);
    assert_eq!((ran.code, ran.error()["code"].clone()), (126, json!("UNSAFE_COMMAND")));
    stage.run(&["exec", "--", "rm", "-rf", "/"]).expect_error(126, "destructive.remove-outside");
    stage.run(&["exec", "--rules", "rules.toml", "--", "git push"]).expect_error(126, "own.push");
    stage
        .run(&["exec", "--profile", "strict", "--", "echo $(echo x)"])
        .expect_error(126, "strict.substitution");
    stage
        .run(&["exec", "--isolation", "none", "--", "rm -rf \"$X\""])
        .expect_error(126, "there is no way to ask for it");
}

#[test]
fn check_agrees_with_exec_in_every_mode() {
    let stage = Stage::with(&[("a.txt", "A\n")]);
    for mode in ["bwrap", "landlock", "software", "none"] {
        if !crate::escapes::stands(mode) {
            continue;
        }
        for (line, env) in [
            ("cd .. && cd /", "A=1"),
            ("cp a.txt /tmp/", "A=1"),
            ("true < /etc/hostname || true", "A=1"),
            ("cat ~/hostname || true", "HOME=/etc"),
            ("ENV=production true", "A=1"),
            ("d=$(mktemp -d); rm -rf \"$d\"", "A=1"),
            ("true", "PATH=/tmp/elsewhere:/usr/bin:/bin"),
            ("echo ok", "A=1"),
            ("sudo true", "A=1"),
            ("rm -rf /", "A=1"),
            ("touch /etc/agent-backend-test || true", "A=1"),
        ] {
            let flags = ["--isolation", mode, "--env", env];
            let checked = stage.run(&[&["policy", "check"], &flags[..], &[line]].concat());
            let ran = stage.run(&[&["exec"], &flags[..], &["--", line]].concat());
            // Without a person to ask, the command is refused.
            let refused = ran.code == 126;
            let expected = matches!(checked.code, 1 | 3);
            assert_eq!(refused, expected, "{mode}: {line}: {} {}", checked.text(), ran.err);
        }
    }
}

/// The same line with the same flags is refused by both or by none.
#[test]
fn check_agrees_with_exec_on_every_flag() {
    let stage = Stage::with(&[("a.txt", "A\n"), ("src/b.txt", "B\n")]);
    let both = |flags: &[&str], line: &str, input: &[u8]| {
        let checked = stage.run_with(&[&["policy", "check"], flags, &[line]].concat(), input);
        let ran = stage.run_with(&[&["exec"], flags, &["--", line]].concat(), input);
        (checked, ran)
    };
    for (flags, line, exit_codes) in [
        // The codes of check, and those of exec.
        (&["-w", "src"][..], "cd ..; true", (0, 0)),
        (&["-w", "src", "--isolation", "none"], "cd ..; true", (0, 0)),
        (&["-w", "src", "--isolation", "none"], "cd ../..; true", (3, 126)),
        (&["-w", "../.."], "true", (3, 125)),
        (&["-w", "/../x"], "true", (3, 125)),
        (&["-w", "missing"], "true", (2, 125)),
        (&["-w", "a.txt"], "true", (2, 125)),
        (&["--root", "missing"], "true", (2, 125)),
        (&["--scope", "src", "--isolation", "none"], "cd ..; true", (3, 126)),
        (&["--scope", "src", "--isolation", "software"], "cat ../a.txt", (3, 126)),
        (&["--scope", "src", "--isolation", "software"], "cat b.txt", (0, 0)),
        (&["--scope", ".."], "true", (3, 125)),
        (&["--isolation", "none", "--floor", "bwrap"], "true", (2, 125)),
        (&["--isolation", "none", "--network", "none"], "true", (2, 125)),
        (&["--isolation", "none", "--hide", "a.txt"], "true", (2, 125)),
        (&["--toolchain", "/no/such"], "true", (2, 125)),
        (&["--timeout", "1m", "--memory", "1G"], "sudo true", (3, 126)),
        (&["--profile", "off", "--isolation", "none", "-e", "LD_PRELOAD=x"], "true", (2, 125)),
        (&["--isolation", "none", "-e", "LD_PRELOAD=x"], "true", (2, 125)),
    ] {
        let (checked, ran) = both(flags, line, b"");
        let told = format!("{flags:?} {line}: {} {} {}", checked.text(), checked.err, ran.err);
        assert_eq!((checked.code, ran.code), exit_codes, "{told}");
    }
    if crate::escapes::stands("bwrap") {
        let (checked, ran) =
            both(&["--isolation", "bwrap", "--hide", "src", "-w", "src"], "ls", b"");
        assert_eq!((checked.code, ran.code), (2, 125), "{} {}", checked.err, ran.err);
        // A variable that loads code is allowed in a sandbox, whatever the rules are.
        let flags = ["--isolation", "bwrap", "--profile", "off", "-e", "PYTHONPATH=src"];
        let (checked, ran) = both(&flags, "true", b"");
        assert_eq!((checked.code, ran.code), (0, 0), "{} {}", checked.err, ran.err);
    }
    // Text for a shell is judged if it is known before the start.
    for (input, codes) in [(&b"sudo ls\n"[..], (3, 126)), (b"true\n", (0, 0))] {
        let (checked, ran) = both(&["--json", "--stdin"], "bash", input);
        assert_eq!((checked.code, ran.code), codes, "{} {}", checked.text(), ran.err);
    }
    let mut remote = stage.command(BINARY);
    remote.args(["policy", "check", "ls"]).env("AGENT_BACKEND_REMOTE", "ws://127.0.0.1:1/ssh");
    run(remote, b"").expect_error(2, "judges commands by its own rules");
}

#[test]
fn mounts_an_isolation_that_does_not_work_here_is_noted() {
    if !rustix::process::geteuid().is_root() {
        return ab_testkit::host::report_skip("a host without bwrap", "only root may mount");
    }
    let stage = Stage::new();
    let mut command = stage.command("unshare");
    let line = format!(
        "mount --bind /dev/null /usr/bin/bwrap && \
         exec '{BINARY}' policy check --isolation bwrap 'cd ..'"
    );
    command.args(["--mount", "/bin/sh", "-c", &line]);
    let ran = run(command, b"");
    assert_eq!((ran.code, ran.text().lines().next()), (0, Some("allow")), "{}", ran.err);
    let note = "note: exec would fail here: the requested isolation does not work here: bwrap: ";
    assert!(ran.err.starts_with(note), "{}", ran.err);
}

#[test]
fn leaving_the_workspace_is_judged_only_where_no_wall_stands() {
    let stage = Stage::new();
    let code = |flags: &[&str], line: &str| {
        stage.run(&[&["policy", "check"], flags, &[line]].concat()).code
    };
    for line in ["cd ..", "cp a /srv/", "PYTHONPATH=src pytest", "eval \"$X\""] {
        assert_eq!(code(&["--isolation", "bwrap"], line), 0, "{line}");
        assert_eq!(code(&["--isolation", "landlock"], line), 0, "{line}");
        assert_eq!(code(&["--isolation", "none"], line), 3, "{line}");
        assert_eq!(code(&["--isolation", "software"], line), 3, "{line}");
        assert_eq!(code(&["--isolation", "bwrap", "--profile", "strict"], line), 3, "{line}");
    }
    // Landlock controls contents, not times.
    assert_eq!(code(&["--isolation", "landlock"], "touch /etc/passwd"), 3);
    let ran = stage.run(&["policy", "check", "--stdin", "bash"]);
    assert!(
        ran.text().contains("note: a shell reads commands from standard input"),
        "{}",
        ran.text()
    );
}

#[test]
fn text_for_a_shell_that_comes_with_the_request_is_judged() {
    let stage = Stage::new();
    for line in ["bash", "sh -s", "bash -", "bash /dev/stdin", "env bash"] {
        let flags = ["exec", "--json", "--stdin", "--profile", "strict", "--", line];
        let ran = stage.run_with(&flags, b"echo a; sudo ls\n");
        assert_eq!(
            (ran.code, ran.error()["code"].clone()),
            (126, json!("DANGEROUS_OPERATION")),
            "{line}"
        );
        let ran = stage.run_with(&["exec", "--json", "--stdin", "--", line], b"echo fine\n");
        assert_eq!(ran.code, 0, "{line}: {}", ran.err);
    }
    // What is no program of a shell is not judged.
    let ran = stage.run_with(&["exec", "--json", "--stdin", "--", "cat"], b"sudo ls\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn exec_runs_what_the_policy_allows() {
    let stage = Stage::with(&[("src/a.txt", "A\n")]);
    assert_eq!(stage.out(&["exec", "--", "cd src && cat a.txt && cd .. && ls"]), "A\nsrc\n");
    let off = stage.out(&["exec", "--profile", "off", "--", "eval 'echo run'"]);
    assert_eq!(off, "run\n");
}

#[test]
fn a_person_at_the_terminal_is_asked() {
    let ask = RULES.replace("deny", "ask").replace("git", "echo");
    let stage = Stage::with(&[("rules.toml", &ask)]);
    // Enter is a carriage return; only a terminal that is not raw makes a line of it.
    for flags in [&[][..], &["--pty"][..]] {
        let words = [&["exec", "--rules", "rules.toml"], flags, &["--", "echo push && echo ran"]];
        let words = words.concat();
        let answered = |keys: &str| {
            let mut typist = stage.typist(&words);
            typist.wait_for("run it? [y/N] ");
            typist.press(keys);
            typist.end()
        };
        let yes = answered("y\r");
        assert_eq!(yes.code, 0, "{flags:?}: {}", yes.text());
        assert!(yes.text().contains("\nran\n"), "{}", yes.text());
        for keys in ["n\r", "\r", "yep\r", "\x04"] {
            let no = answered(keys);
            assert_eq!(no.code, 126, "{flags:?}: {}", no.text());
            assert!(no.text().contains("not approved by person:terminal: "), "{}", no.text());
            assert!(!no.text().contains("\nran\n"), "{}", no.text());
        }
    }
    stage
        .run(&["exec", "--rules", "rules.toml", "--", "echo push"])
        .expect_error(126, "there is no way to ask for it");
}
