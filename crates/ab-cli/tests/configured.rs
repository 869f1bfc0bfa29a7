//! `config show`, and servers that are started with a configuration file.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::escapes::stands;
use crate::serve::{Server, client, git, repository};
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
fn localhost_names_the_loopback_address() {
    let stage = Stage::new();
    let text = "host = \"localhost\"\n";
    for (variable, flags, origin) in [
        (("A", "b"), &[][..], "file"),
        (("AGENT_BACKEND_HOST", "localhost"), &[], "env"),
        (("AGENT_BACKEND_HOST", "::1"), &["--host", "localhost"], "flag"),
    ] {
        let host = &shown(&stage, text, variable, flags).value()["values"]["host"];
        assert_eq!(
            (&host["value"], &host["origin"]["kind"]),
            (&"127.0.0.1".into(), &origin.into())
        );
    }
    let ran = shown(&stage, "host = \"example.com\"\n", ("A", "b"), &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("invalid host: must be an IP address or localhost"), "{}", ran.err);
}

#[test]
fn secrets_are_not_shown() {
    let stage = Stage::new();
    let text = "[[agents]]\nid = \"a\"\nargv = [\"a\"]\nenv = { KEY = \"s3cret-value\" }\n";
    let ran = shown(&stage, text, ("AGENT_BACKEND_AUTH_TOKEN", "s3cret-token"), &[]);
    assert!(!ran.text().contains("s3cret"), "{}", ran.text());
    let value = ran.value();
    assert_eq!(value["values"]["auth-token"]["value"], "(redacted)");
    let agents = value["agents"].as_array().unwrap();
    let own = agents.iter().find(|agent| agent["id"] == "a").unwrap();
    assert_eq!(own["env"]["KEY"], "(redacted)");
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
        (
            "[[agents]]\nid = \"a\"\nargv = [\"x\"]\n[[agents]]\nid = \"a\"\nargv = [\"y\"]",
            "the agent id \"a\" is used twice, first in line 1 (line 4 of ",
        ),
        ("[sessions]\nrules = \"none.toml\"", "invalid sessions.rules: "),
        (
            "[sessions]\nrules = \"config.toml\"",
            "config.toml: cannot read the rules: line 1: unknown field `sessions`",
        ),
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
fn rules_of_the_configuration_judge_the_commands_of_agents() {
    let stage = repository();
    let rules = "[[rule]]\nid = \"own.ls\"\ncategory = \"own\"\nverdict = \"deny\"\n\
                 command = [\"ls\"]\nreason = \"nobody lists here\"\n";
    fs::write(stage.outside("rules.toml"), rules).unwrap();
    let ran = shown(&stage, "[sessions]\nrules = \"rules.toml\"\n", ("A", "b"), &[]);
    let setting = &ran.value()["values"]["sessions.rules"];
    assert_eq!(setting["value"], stage.outside("rules.toml").to_str().unwrap());
    let path = stage.outside("config.toml");
    let server = Server::start_with(&stage, &["--config", path.to_str().unwrap()]);
    let done = client(&stage, &["task", "x", "--follow", "--approve", "always"]);
    assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
    assert!(done.text().contains("nobody lists here"), "{}", done.text());
    assert_eq!(server.end().0, 0);
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
         [[agents]]\nid = \"interfaces\"\nargv = [\"{{self}}\", \"agent\", \"script\", \"interfaces.toml\"]\n\
         [[agents]]\nid = \"mine\"\nargv = [\"my-agent\"]\ntoolchains = [\"programs\"]\n\
         env = {{ SCRIPTED = \"{BINARY}\" }}\n\
         [[agents]]\nid = \"gone\"\nargv = [\"no-such-agent\"]\n"
    );
    let path = config(&stage, &text);
    let interfaces = r#"[[turn]]
steps = [{ run = "cut -s -d: -f1 /proc/net/dev | xargs" }, { say = "interfaces: {output}.\n" }]"#;
    fs::write(stage.path("interfaces.toml"), interfaces).unwrap();
    git(&stage.root(), &["add", "interfaces.toml"]);
    git(&stage.root(), &["commit", "-q", "-m", "An agent"]);
    let server = Server::start_with(&stage, &["--config", path.to_str().unwrap()]);
    let follow = ["--follow", "--approve", "always"];

    let done = client(&stage, &[&["task", "x", "--agent", "mine"], &follow[..]].concat());
    assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
    assert!(done.text().contains("✓ completed"), "{}", done.text());

    let gone = client(&stage, &[&["task", "x", "--agent", "gone"], &follow[..]].concat());
    assert_eq!(gone.code, 1, "{}", gone.err);
    let says = "agent \"gone\": the program \"no-such-agent\" was not found";
    assert!(gone.err.contains(says), "{}", gone.err);

    let none = ["task", "x", "--network", "none"];
    let quiet = client(&stage, &[&none, &follow[..]].concat());
    assert_eq!(quiet.code, 0, "{}\n{}", quiet.text(), quiet.err);
    assert!(quiet.text().contains("without a network"), "{}", quiet.text());
    // Its commands see no interface but the loopback.
    let closed = ["task", "x", "--network", "none", "--agent", "interfaces"];
    let closed = client(&stage, &[&closed, &follow[..]].concat());
    assert_eq!(closed.code, 0, "{}\n{}", closed.text(), closed.err);
    assert!(closed.text().contains("interfaces: lo."), "{}", closed.text());

    let open = ["task", "x", "--runtime", "disabled"];
    let open = client(&stage, &[&open, &follow[..]].concat());
    assert_eq!(open.code, 0, "{}\n{}", open.text(), open.err);
    assert!(open.text().contains("it can act as you"), "{}", open.text());
    assert_eq!(server.end().0, 0);
}

/// The server has the keys of two agents, and each agent gets its own.
#[test]
fn agent_gets_only_the_credentials_that_its_entry_names() {
    let stage = repository();
    let programs = stage.outside("programs");
    fs::create_dir(&programs).unwrap();
    let program = programs.join("keyed-agent");
    // Their values are not shown in the story of a session.
    let says = "A:${KEY_A:+set} B:${KEY_B:+set} C:${KEY_C:+set}.";
    let reports = format!(
        "#!/bin/sh\ncat > \"$HOME/says.toml\" <<END\n\
         [[turn]]\nsteps = [{{ say = \"{says}\\n\" }}]\nEND\n\
         exec \"$SCRIPTED\" agent script \"$HOME/says.toml\"\n"
    );
    fs::write(&program, reports).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let entry = |id: &str, key: &str| {
        format!(
            "[[agents]]\nid = \"{id}\"\nargv = [\"keyed-agent\"]\ntoolchains = [\"programs\"]\n\
             env = {{ SCRIPTED = \"{BINARY}\" }}\ncredentials = [\"{key}\"]\n"
        )
    };
    let path = config(&stage, &format!("{}{}", entry("first", "KEY_A"), entry("second", "KEY_B")));
    let mut command = stage.command(BINARY);
    command.env("KEY_A", "value-a").env("KEY_B", "value-b").env("KEY_C", "value-c");
    let data = stage.outside("data");
    let flags = ["--data-dir", data.to_str().unwrap(), "--config", path.to_str().unwrap()];
    let server = Server::start_by(command, &flags);
    for (agent, says) in [("first", "A:set B: C:."), ("second", "A: B:set C:.")] {
        let task = ["task", "x", "--follow", "--approve", "always", "--agent", agent];
        let done = client(&stage, &task);
        assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
        assert!(done.text().contains(says), "{agent}: {}", done.text());
    }
    assert_eq!(server.end().0, 0);
}

#[test]
fn open_server_warns_and_gives_sessions_no_network() {
    let stage = repository();
    let elsewhere = client(&stage, &["serve", "--port", "0", "--no-auth", "--host", "0.0.0.0"]);
    elsewhere.expect_error(2, "--no-auth needs a loopback address");
    let server = Server::start_with(&stage, &["--no-auth"]);
    assert!(server.notice.starts_with("warning: --no-auth"), "{}", server.notice);
    assert!(!stage.outside("data").join("token").exists());
    let shared = client(&stage, &["task", "x", "--network", "shared"]);
    assert_eq!(shared.code, 1, "{}", shared.err);
    assert!(shared.err.contains("--network must be \"none\""), "{}", shared.err);
    let none = ["task", "x", "--follow", "--approve", "always"];
    let done = client(&stage, &none);
    assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
    let link = client(&stage, &["webui", "--no-open"]);
    assert!(link.text().ends_with("/ui\n"), "{}", link.text());
    assert_eq!(server.end().0, 0);
}

#[test]
fn server_for_other_machines_warns_unless_it_has_a_certificate() {
    let stage = repository();
    let server = Server::start_with(&stage, &["--host", "0.0.0.0"]);
    let says = "warning: other machines can reach 0.0.0.0, and connections are not encrypted";
    assert!(server.notice.starts_with(says), "{}", server.notice);
    assert_eq!(server.end().0, 0);
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let written = |name: &str, text: String| {
        let path = stage.outside(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let certificate = written("cert.pem", made.cert.pem());
    let key = written("key.pem", made.signing_key.serialize_pem());
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let server = Server::start_with(&stage, &[&["--host", "0.0.0.0"], &tls[..]].concat());
    assert!(!server.notice.contains("warning"), "{}", server.notice);
    let url = server.url();
    let address = url.strip_prefix("https://127.0.0.1:").unwrap();

    let trusting = |arguments: &[&str]| {
        let mut command = stage.command(BINARY);
        command.args(arguments).arg("--data-dir").arg(stage.outside("data"));
        command.env("SSL_CERT_FILE", &certificate);
        run(command, b"")
    };
    let done = trusting(&["task", "x", "--follow", "--approve", "always"]);
    assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
    assert!(done.text().contains("✓ completed"), "{}", done.text());
    client(&stage, &["session", "list"]).expect_error(3, "the certificate of 127.0.0.1");
    // Who does not encrypt gets no answer of HTTP.
    let mut plain = TcpStream::connect(format!("127.0.0.1:{address}")).unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // The connection may end with an error.
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/"), "{answer:?}");
    assert_eq!(server.end().0, 0);
}

#[test]
fn browser_stays_logged_in_when_the_server_starts_again() {
    let stage = repository();
    let server = Server::start_with(&stage, &[]);
    let link = client(&stage, &["webui", "--no-open"]).text();
    let (host, path) = link.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let name = host.split(':').next().unwrap().to_owned();
    let asked = |server: &Server, path: &str, cookie: &str| {
        let address = server.url().strip_prefix("http://").unwrap().to_owned();
        let port = address.rsplit(':').next().unwrap();
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {name}:{port}\r\nconnection: close\r\n\
             accept: text/html\r\ncookie: {cookie}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let login = asked(&server, &format!("/{path}"), "a=b");
    let (_, cookie) = login.split_once("set-cookie: ").unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    assert!(asked(&server, "/ui", &cookie).starts_with("HTTP/1.1 200"));
    assert_eq!(server.end().0, 0);
    let key = stage.outside("data").join("browser-key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);

    let server = Server::start_with(&stage, &[]);
    assert!(asked(&server, "/ui", &cookie).starts_with("HTTP/1.1 200"));
    assert_eq!(server.end().0, 0);
    // Another token logs every browser out.
    fs::remove_file(stage.outside("data").join("token")).unwrap();
    let server = Server::start_with(&stage, &[]);
    let refused = asked(&server, "/ui", &cookie);
    assert!(!refused.starts_with("HTTP/1.1 200"), "{refused}");
    assert_eq!(server.end().0, 0);
}

#[test]
fn running_server_gives_a_new_link_each_time() {
    let stage = repository();
    let server = Server::start_with(&stage, &[]);
    let link = |flags: &[&str]| client(&stage, &[&["webui", "--no-open"], flags].concat());
    let (first, second) = (link(&[]).text(), link(&["--json"]).value());
    let second = second["url"].as_str().unwrap().to_owned();
    assert!(first.contains(".localhost:") && first.contains("/ui/login?ticket="), "{first}");
    assert_ne!(first.trim(), second);
    assert_eq!(server.end().0, 0);
    let none = link(&["--json"]);
    assert_eq!(none.code, 4, "{}", none.err);
}

#[test]
fn access_point_is_another_name_of_serve() {
    let stage = Stage::new();
    let help = |words: &[&str]| -> Vec<String> {
        let text = stage.out(&[words, &["--help"]].concat());
        let first = text.lines().filter_map(|line| line.split_whitespace().next());
        first.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
    };
    assert_eq!(help(&["agent", "access-point"]), help(&["serve"]));
    let data = stage.outside("data");
    let flags = ["--data-dir", data.to_str().unwrap()];
    let server = Server::start_as(stage.command(BINARY), &["agent", "access-point"], &flags);
    let listed = client(&stage, &["session", "list", "--json"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert_eq!(server.end().0, 0);
}

#[test]
fn webui_starts_a_server_when_none_runs() {
    let stage = Stage::new();
    let data = stage.outside("data");
    let flags = ["--no-open", "--data-dir", data.to_str().unwrap()];
    let server = Server::start_as(stage.command(BINARY), &["webui"], &flags);
    let listed = client(&stage, &["session", "list", "--json"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert_eq!(server.end().0, 0);
}

/// The isolation that is in force, in the notice and in each session.
#[test]
fn isolation_of_sessions_is_the_configured_one() {
    let stage = repository();
    if stands("landlock") {
        let server = Server::start_with(&stage, &["--isolation", "landlock"]);
        assert!(server.notice.contains("  isolation  landlock, "), "{}", server.notice);
        let done = client(&stage, &["task", "x", "--follow", "--approve", "always"]);
        assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
        assert!(done.text().contains(", isolated by landlock.\n"), "{}", done.text());
        assert_eq!(server.end().0, 0);
    }
    // Less than the floor: no session starts, and the notice says so.
    let weak = ["--isolation", "landlock", "--floor", "bwrap"];
    let server = Server::start_with(&stage, &weak);
    assert!(server.notice.contains("  isolation  no session can start: "), "{}", server.notice);
    let done = client(&stage, &["task", "x", "--follow", "--approve", "always"]);
    assert_ne!(done.code, 0, "{}", done.text());
    assert_eq!(server.end().0, 0);
}

/// A token of the operator is the only one, and agents do not see it.
#[test]
fn given_token_opens_the_server_and_is_hidden_from_agents() {
    let scenario = "[[turn]]\nsteps = [{ run = \"env; cat /proc/$PPID/environ\" }, { say = \"{output}\\n\" }]\n";
    let stage = repository();
    let root = stage.root();
    fs::create_dir(root.join(".agent-backend")).unwrap();
    fs::write(root.join(".agent-backend/scenario.toml"), scenario).unwrap();
    git(&root, &["add", "."]);
    git(&root, &["commit", "-q", "-m", "Scenario"]);
    let (by_file, by_variable) = ("f".repeat(40), "v".repeat(40));
    let file = stage.outside("given-token");
    fs::write(&file, format!("{by_file}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let data = stage.outside("data");
    let flags = ["--data-dir", data.to_str().unwrap()];
    let from_file = [&flags[..], &["--auth-token-file", file.to_str().unwrap()]].concat();
    for (token, flags) in [(&by_file, &from_file[..]), (&by_variable, &flags[..])] {
        let mut command = stage.command(BINARY);
        if token == &by_variable {
            command.env("AGENT_BACKEND_AUTH_TOKEN", token);
        }
        let server = Server::start_by(command, flags);
        let asked = |token: Option<&str>| http(&server.url(), "GET", "/api/v1/agents", token, "");
        assert!(asked(Some(token)).starts_with("HTTP/1.1 200"));
        assert!(asked(None).starts_with("HTTP/1.1 401"));
        assert!(!data.join("token").exists(), "no other token is made");
        let mut task = stage.command(BINARY);
        task.args(["task", "x", "--follow", "--approve", "always", "--server", &server.url()]);
        task.env("AGENT_BACKEND_AUTH_TOKEN", token);
        let done = run(task, b"");
        assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
        assert!(done.text().contains("HOME="), "{}", done.text());
        assert!(!done.text().contains(token.as_str()), "{}", done.text());
        assert!(!done.text().contains("AUTH_TOKEN"), "{}", done.text());
        assert_eq!(server.end().0, 0);
    }
}

#[test]
fn served_root_hides_the_data_directory() {
    let stage = repository();
    let data = stage.path("state");
    let inside = client(
        &stage,
        &["serve", "--port", "0", "--root", stage.outside("data").to_str().unwrap()],
    );
    inside.expect_error(2, "is inside the data directory");
    let root = stage.root();
    let flags = ["--data-dir", data.to_str().unwrap(), "--root", root.to_str().unwrap()];
    let server = Server::start_at(&stage, &flags);
    let url = server.url();
    let health = http(&url, "GET", "/health", None, "");
    assert!(health.contains(r#""mcp":true"#), "{health}");
    let token = fs::read_to_string(data.join("token")).unwrap();
    let call = |name: &str, arguments: Value| {
        let body = serde_json::json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": name, "arguments": arguments },
        });
        http(&url, "POST", "/mcp", Some(token.trim()), &body.to_string())
    };
    let readme = call("read_text_file", serde_json::json!({ "path": "README.md" }));
    assert!(readme.contains("A project"), "{readme}");
    let secret = call("read_text_file", serde_json::json!({ "path": "state/token" }));
    assert!(!secret.contains(token.trim()), "{secret}");
    let shown = call("exec", serde_json::json!({ "command": "cat state/token; ls -a" }));
    assert!(!shown.contains(token.trim()), "{shown}");
    assert!(http(&url, "POST", "/mcp", None, "{}").starts_with("HTTP/1.1 401"));
    assert_eq!(server.end().0, 0);
}

#[test]
fn server_without_a_root_is_healthy_and_has_no_workspace() {
    let stage = repository();
    let server = Server::start_with(&stage, &[]);
    let url = server.url();
    let health = http(&url, "GET", "/health", None, "");
    assert!(health.starts_with("HTTP/1.1 200") && health.contains(r#""mcp":false"#), "{health}");
    let token = fs::read_to_string(stage.outside("data").join("token")).unwrap();
    let mcp = http(&url, "POST", "/mcp", Some(token.trim()), "{}");
    assert!(mcp.starts_with("HTTP/1.1 404"), "{mcp}");
    assert_eq!(server.end().0, 0);
}

/// The whole answer to one request.
fn http(url: &str, method: &str, path: &str, token: Option<&str>, body: &str) -> String {
    let authority = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(authority).unwrap();
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n{token}\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
