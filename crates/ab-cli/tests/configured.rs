//! `config show`, and servers that are started with a configuration file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::serve::{Server, client, repository};
use crate::stage::{BINARY, Ran, Stage, run};

fn config(stage: &Stage, text: &str) -> PathBuf {
    let path = stage.outside("config.toml");
    fs::write(&path, text).unwrap();
    path
}

/// `config show --json` with a variable in the environment.
fn shown(stage: &Stage, text: &str, variable: (&str, &str), flags: &[&str]) -> Ran {
    let mut command = stage.command(BINARY);
    command.args(["config", "show", "--json", "--config"]).arg(config(stage, text)).args(flags);
    command.env(variable.0, variable.1);
    run(command, b"")
}

#[test]
fn every_value_has_its_origin() {
    let stage = Stage::new();
    let text = "port = 4000\nlog-level = \"info\"\nhost = \"::1\"\n[sessions]\nkeep = true\n";
    let ran = shown(&stage, text, ("AGENT_BACKEND_LOG_LEVEL", "debug"), &["--host", "127.0.0.2"]);
    let value = ran.value();
    let setting = |key: &str| {
        let setting = &value["values"][key];
        (setting["value"].clone(), setting["origin"]["kind"].as_str().unwrap().to_owned())
    };
    let expect = |value: Value, origin: &str| (value, origin.to_owned());
    assert_eq!(setting("host"), expect("127.0.0.2".into(), "flag"));
    assert_eq!(setting("log-level"), expect("debug".into(), "env"));
    assert_eq!(setting("port"), expect(4000.into(), "file"));
    assert_eq!(value["values"]["sessions.keep"]["origin"]["line"], 5);
    assert_eq!(setting("sessions.network"), expect("shared".into(), "default"));
}

#[test]
fn secrets_are_not_shown() {
    let stage = Stage::new();
    let text = "[[agents]]\nid = \"a\"\nargv = [\"a\"]\nenv = { KEY = \"s3cret-value\" }\n";
    let ran = shown(&stage, text, ("AGENT_BACKEND_AUTH_TOKEN", "s3cret-token"), &[]);
    assert!(!ran.text().contains("s3cret"), "{}", ran.text());
    let value = ran.value();
    assert_eq!(value["values"]["auth-token"]["value"], "(redacted)");
    assert_eq!(value["agents"][1]["env"]["KEY"], "(redacted)");
}

#[test]
fn mistakes_in_the_file_name_the_key_and_the_line() {
    let stage = Stage::new();
    for (text, says) in [
        ("\nprot = 1", "unknown key \"prot\" (line 2 of "),
        (
            "[sessions]\nisolation = \"none\"",
            "invalid sessions.isolation: must be auto or bwrap or landlock",
        ),
        ("[sessions]\nidle-timeout = \"soon\"", "invalid sessions.idle-timeout: "),
        ("tls-cert = \"c.pem\"", "tls-cert is set"),
        (
            "[[agents]]\nid = \"a\"\nargv = [\"a\"]\ntoolchains = [\"/no/such\"]",
            "/no/such cannot be used",
        ),
        (
            "[[agents]]\nid = \"a\"\nargv = [\"a\"]\ntoolchains = [\"/\"]",
            "contains the data directory",
        ),
        ("[[agents]]\nid = \"a\"\nargv = []", "argv is empty (line 1 of "),
        ("[[agents]]\nid = \"mock\"\nargv = [\"a\"]", "is taken by agent \"scripted\""),
    ] {
        let mut command = stage.command(BINARY);
        command.args(["serve", "--port", "0", "--config"]).arg(config(&stage, text));
        command.arg("--data-dir").arg(stage.outside("data"));
        let ran = run(command, b"");
        assert_eq!(ran.code, 2, "{text}: {}", ran.err);
        assert!(ran.err.contains(says), "{text}: {}", ran.err);
    }
    assert!(!stage.outside("data").exists());
}

#[test]
fn agent_of_the_configuration_does_a_task() {
    let stage = repository();
    let programs = stage.outside("programs");
    fs::create_dir(&programs).unwrap();
    let program = programs.join("my-agent");
    fs::write(&program, "#!/bin/sh\nexec \"$SCRIPTED\" agent script\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        "[sessions]\nallow-disabled-runtime = true\n\
         [[agents]]\nid = \"mine\"\nargv = [\"my-agent\"]\ntoolchains = [\"programs\"]\n\
         env = {{ SCRIPTED = \"{BINARY}\" }}\n\
         [[agents]]\nid = \"gone\"\nargv = [\"no-such-agent\"]\n"
    );
    let path = config(&stage, &text);
    let server = Server::start_with(&stage, &["--config", path.to_str().unwrap()]);
    let follow = ["--follow", "--approve", "always"];

    let done = client(&stage, &[&["task", "x", "--agent", "mine"], &follow[..]].concat());
    assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
    assert!(done.text().contains("✓ completed"), "{}", done.text());

    let gone = client(&stage, &[&["task", "x", "--agent", "gone"], &follow[..]].concat());
    assert_eq!(gone.code, 1, "{}", gone.err);
    let says = "agent \"gone\": the program \"no-such-agent\" was not found";
    assert!(gone.text().contains(says), "{}", gone.text());

    let none = ["task", "x", "--network", "none"];
    let quiet = client(&stage, &[&none, &follow[..]].concat());
    assert_eq!(quiet.code, 0, "{}\n{}", quiet.text(), quiet.err);
    assert!(quiet.text().contains("without a network"), "{}", quiet.text());

    let open = ["task", "x", "--runtime", "disabled"];
    let open = client(&stage, &[&open, &follow[..]].concat());
    assert_eq!(open.code, 0, "{}\n{}", open.text(), open.err);
    assert!(open.text().contains("it can act as you"), "{}", open.text());
    assert_eq!(server.end().0, 0);
}
