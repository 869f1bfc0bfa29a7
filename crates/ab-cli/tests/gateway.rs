//! `server` as a process: what its end leaves, the memory that files take, and registries that misbehave.

mod escapes;
mod installed;
mod limits;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use ab_testkit::host::report_skip;
use serde_json::{Value, json};

use crate::escapes::stands;
use crate::outliving::comes;
use crate::serve::Server;
use crate::stage::{BINARY, Ran, Stage, run};

/// An agent that starts a process beside it and tells of both.
const AGENT: &str = "#!/bin/sh
sleep 300 & while read -r l; do echo '{\"id\":1,\"result\":['$$','$!']}'; done\n";
const START: &str = r#"{"id":1,"method":"start"}"#;

struct Gateway {
    child: Child,
    address: String,
    notice: String,
}

/// Adds a program to the folder of sandbox-agent, which is below the directory for temporary files.
fn add_program(stage: &Stage, path: &str, text: &str) {
    let path = stage.outside("share/sandbox-agent/bin").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

impl Gateway {
    fn start(stage: &Stage) -> Gateway {
        Gateway::start_with(stage, &[])
    }

    fn start_with(stage: &Stage, flags: &[&str]) -> Gateway {
        Gateway::start_by(stage.command(BINARY), stage, flags)
    }

    /// By a command that has variables already.
    fn start_by(mut command: Command, stage: &Stage, flags: &[&str]) -> Gateway {
        command.args(["server", "--port", "0"]).args(flags);
        command.env("XDG_DATA_HOME", stage.outside("share")).env("HOME", stage.outside("home"));
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut notice = String::new();
        while !notice.contains("  isolation ") {
            let length = said.read_line(&mut notice).unwrap();
            assert!(length > 0, "it ended early: {notice}");
        }
        let address = notice.lines().find(|line| line.contains("serves agents at ")).unwrap();
        let address = address.rsplit('/').next().unwrap().to_owned();
        // What it goes on to say is read, so that it never has to wait for a reader.
        thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Gateway { child, address, notice }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        ask(&self.address, "", method, path, body)
    }

    /// The most memory that the process has had, in KiB.
    fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended has no process to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status and the JSON of an answer.
fn ask(address: &str, headers: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let json =
        if headers.contains("content-type") { "" } else { "content-type: application/json\r\n" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}{json}\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn is_gone(pid: &Value) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.is_empty() || status.contains("State:\tZ")
}

#[test]
fn killed_server_leaves_no_agent_and_the_next_one_knows_of_none() {
    let stage = Stage::with(&[]);
    add_program(&stage, "agent_processes/two-acp", AGENT);
    let mut gateway = Gateway::start(&stage);
    let (status, started) = gateway.ask("POST", "/v1/acp/a?agent=two", START);
    assert_eq!(status, 200, "{started}");
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    let pids = started["result"].as_array().unwrap();
    comes("the end of the agent", || pids.iter().all(is_gone));

    let gateway = Gateway::start(&stage);
    assert_eq!(gateway.ask("GET", "/v1/acp", ""), (200, json!({ "servers": [] })));
    let (status, problem) = gateway.ask("POST", "/v1/acp/a", START);
    assert_eq!(status, 400, "{problem}");
    let (status, problem) = gateway.ask("GET", "/v1/acp/a", "");
    assert_eq!(
        (status, &problem["type"]),
        (404, &"urn:sandbox-agent:error:session_not_found".into())
    );
    assert_eq!(gateway.ask("POST", "/v1/acp/a?agent=two", START).0, 200);
}

/// The launcher starts an unpacked program beside it, and that one a program of the folder by its name.
#[test]
fn launchers_start_in_every_isolation_and_say_why_they_cannot() {
    const RUN: &str =
        "#!/bin/sh\nwhile read -r l; do echo '{\"id\":1,\"result\":\"'$(native)'\"}'; done\n";
    let stage = Stage::with(&[]);
    let unpacked = stage.outside("share/sandbox-agent/bin/agent_processes/own/run");
    let launcher = format!("#!/bin/sh\nexec {} \"$@\"\n", unpacked.display());
    add_program(&stage, "agent_processes/own-acp", &launcher);
    add_program(&stage, "agent_processes/own/run", RUN);
    add_program(&stage, "native", "#!/bin/sh\necho native\n");
    let interpreter = stage.outside("interpreter");
    fs::copy("/bin/sh", &interpreter).unwrap();
    let text = format!(
        "#!{}\nread -r l; echo '{{\"id\":1,\"result\":2}}'; read -r l\n",
        interpreter.display()
    );
    add_program(&stage, "agent_processes/other-acp", &text);
    add_program(&stage, "agent_processes/broken-acp", "#!/no/such/interpreter\n");
    for isolation in ["none", "auto", "bwrap", "landlock"] {
        if !["none", "auto"].contains(&isolation) && !stands(isolation) {
            continue;
        }
        let gateway = Gateway::start_with(&stage, &["--isolation", isolation]);
        let line = gateway.notice.lines().find(|line| line.contains("isolation")).unwrap();
        let shown = line.trim().trim_start_matches("isolation").trim();
        match isolation {
            "auto" => assert!(["bwrap", "landlock"].contains(&shown), "{line}"),
            named => assert_eq!(shown, named),
        }
        let (status, answer) = gateway.ask("POST", "/v1/acp/own?agent=own", START);
        // Without a sandbox agents get the `PATH` of the server.
        let expect = if isolation == "none" { "" } else { "native" };
        assert_eq!((status, &answer["result"]), (200, &expect.into()), "{isolation}: {answer}");
        let (status, answer) = gateway.ask("POST", "/v1/acp/other?agent=other", START);
        assert_eq!((status, &answer["result"]), (200, &2.into()), "{isolation}: {answer}");
        let (status, problem) = gateway.ask("POST", "/v1/acp/broken?agent=broken", START);
        assert_eq!(status, 502, "{isolation}: {problem}");
        let says = "names the interpreter /no/such/interpreter, which does not exist";
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    }
}

/// `server` has the routes of sandbox-agent and those of every port, and describes no other.
#[test]
fn server_has_no_surface_but_the_gateway() {
    const ELSEWHERE: [(&str, &str); 13] = [
        ("GET", "/ui"),
        ("GET", "/ui/login?ticket=x"),
        ("POST", "/api/v1/login-links"),
        ("GET", "/api/v1/sessions"),
        ("POST", "/api/v1/tasks"),
        ("GET", "/v1/approvals"),
        ("GET", "/v1/spaces"),
        ("GET", "/v1/runs/x"),
        ("GET", "/v1/policies"),
        ("POST", "/mcp"),
        ("GET", "/ssh"),
        ("POST", "/v1/rpc"),
        ("GET", "/opencode/session"),
    ];
    let stage = Stage::new();
    let open = Gateway::start(&stage);
    let guarded = Gateway::start_with(&stage, &["--token", "the-token"]);
    let with_token =
        |path: &str| ask(&guarded.address, "authorization: Bearer the-token\r\n", "GET", path, "");
    for (method, path) in ELSEWHERE {
        assert_eq!(open.ask(method, path, "{}").0, 404, "{method} {path}");
        assert_eq!(guarded.ask(method, path, "{}").0, 401, "{method} {path}");
    }
    assert_eq!(with_token("/ui").0, 404);
    // What every port has.
    assert_eq!((open.ask("GET", "/health", "").0, guarded.ask("GET", "/health", "").0), (200, 200));
    assert_eq!((guarded.ask("GET", "/metrics", "").0, with_token("/metrics").0), (401, 200));
    let described = with_token("/api/v1/openapi.json").1;
    for path in described["paths"].as_object().unwrap().keys() {
        let is_own = ["/v1/health", "/v1/acp", "/v1/agents", "/v1/fs/", "/v1/config/"]
            .iter()
            .any(|prefix| path.starts_with(prefix));
        let is_common = ["/", "/health", "/metrics", "/api/v1/openapi.json"];
        assert!(is_own || is_common.contains(&path.as_str()), "{path}");
    }
}

#[test]
fn root_that_does_not_exist_is_an_error_of_the_start() {
    let stage = Stage::with(&[("file", "")]);
    let missing = stage.outside("missing");
    let missing = missing.to_str().unwrap();
    for (flag, path) in [("--root", missing), ("--fs-root", missing), ("--root", "file")] {
        let ran = stage.run(&["server", "--port", "0", flag, path]);
        assert_ne!(ran.code, 0);
        assert!(ran.err.contains(&format!("open the directory {path}")), "{}", ran.err);
        assert!(
            ran.err.contains(&format!("name an existing directory with {flag}")),
            "{}",
            ran.err
        );
    }
}

#[test]
fn large_files_take_no_memory() {
    const SIZE: usize = 64 * 1024 * 1024;
    let stage = Stage::with(&[]);
    let gateway = Gateway::start(&stage);
    assert_eq!(gateway.ask("GET", "/v1/fs/entries", "").0, 200);
    let before = gateway.peak();
    let piece = vec![b'x'; 1024 * 1024];
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    let host = &gateway.address;
    let head = format!(
        "PUT /v1/fs/file?path=large HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
         content-length: {SIZE}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..SIZE / piece.len() {
        stream.write_all(&piece).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(fs::metadata(stage.path("large")).unwrap().len(), SIZE as u64);

    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    let head =
        format!("GET /v1/fs/file?path=large HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let received = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    assert!(received >= SIZE as u64, "{received}");
    let grown = gateway.peak() - before;
    assert!(grown < 32 * 1024, "{grown} KiB for a file of {SIZE} bytes");
}

/// Installs goose with the machine's npm from a registry at this address.
fn install(stage: &Stage, registry: &str) -> Option<Ran> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join("npm").is_file()) {
        report_skip("npm", "it is not installed");
        return None;
    }
    let mut command = stage.command(BINARY);
    command.args(["agent", "install", "goose", "--data-dir"]).arg(stage.outside("data"));
    command.env("npm_config_registry", registry);
    command.env("npm_config_cache", stage.outside("cache"));
    Some(run(command, b""))
}

/// What an installation left, beside its lock.
fn installed(stage: &Stage) -> Vec<PathBuf> {
    let entries = stage.outside("data/agents").read_dir().unwrap().flatten();
    entries.map(|entry| entry.path()).filter(|path| !path.ends_with("lock")).collect()
}

#[test]
fn registry_that_is_away_is_named() {
    let stage = Stage::with(&[]);
    // The listener is closed again, so connections are refused.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Some(ran) = install(&stage, &format!("http://{address}")) else { return };
    assert_ne!(ran.code, 0);
    assert!(
        ran.err.contains("fetching @aaif/goose-binary-linux-x64 1.52.0 with npm"),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("the registry that npm is configured for cannot be reached"),
        "{}",
        ran.err
    );
    assert_eq!(installed(&stage), [""; 0].map(Path::new));
}

#[test]
fn package_that_is_not_the_pinned_one_is_refused() {
    let stage = Stage::with(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer_npm(stream, &address.to_string()));
        }
    });
    let Some(ran) = install(&stage, &format!("http://{address}")) else { return };
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("different package than the pinned one"), "{}", ran.err);
    assert_eq!(installed(&stage), [""; 0].map(Path::new));
}

/// A registry that knows one package and sends another content for it.
fn answer_npm(stream: TcpStream, address: &str) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    for _ in lines.by_ref().take_while(|line| !line.is_empty()) {}
    let (name, version) = ("@aaif/goose-binary-linux-x64", "1.52.0");
    let (kind, body) = if request.contains(".tgz") {
        ("application/octet-stream", "another content".to_owned())
    } else {
        let dist = json!({ "tarball": format!("http://{address}/goose.tgz") });
        let package = json!({ "name": name, "version": version, "dist": dist });
        let all = json!({
            "name": name, "dist-tags": { "latest": version }, "versions": { version: package },
        });
        ("application/json", all.to_string())
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    // npm may have given up.
    let _ = (&stream).write_all(answer.as_bytes());
}

const KEY: &str = "the-credential-of-this-test";

/// A server of sessions without a root, its address and the header with its token. Its agent `where` says in which
/// directory it is, how much is there, and how long its key is.
fn serve_without_root(stage: &Stage) -> (Server, String, String) {
    let config = stage.outside("config.toml");
    let says = "while read -r l; do \
                echo '{\"id\":1,\"result\":\"'$(pwd) $(ls -A | wc -l) ${#MY_KEY}'\"}'; done";
    let argv = json!(["sh", "-c", says]);
    let entry = format!("[[agents]]\nid = \"where\"\nargv = {argv}\ncredentials = [\"MY_KEY\"]\n");
    fs::write(&config, entry).unwrap();
    let mut command = stage.command(BINARY);
    command.env("XDG_DATA_HOME", stage.outside("share")).env("MY_KEY", KEY);
    // A sandbox shows directories only by paths without `..`.
    let flags =
        ["--data-dir", "../data", "--config", config.to_str().unwrap(), "--log-level", "trace"];
    let server = Server::start_by(command, &flags);
    let token = fs::read_to_string(stage.outside("data/token")).unwrap();
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    (server, address, format!("authorization: Bearer {}\r\n", token.trim()))
}

#[test]
fn without_a_root_there_are_no_files() {
    let (server, address, token) = serve_without_root(&Stage::new());
    for (method, path) in [
        ("GET", "/v1/fs/entries"),
        ("GET", "/v1/fs/file?path=a"),
        ("PUT", "/v1/fs/file?path=a"),
        ("DELETE", "/v1/fs/entry?path=a"),
        ("POST", "/v1/fs/mkdir?path=a"),
        ("POST", "/v1/fs/move"),
        ("GET", "/v1/fs/stat?path=a"),
        ("POST", "/v1/fs/upload-batch"),
    ] {
        let body = if path.ends_with("move") { r#"{"from":"a","to":"b"}"# } else { "x" };
        let headers = match path {
            "/v1/fs/upload-batch" => format!("{token}content-type: application/x-tar\r\n"),
            _ => token.clone(),
        };
        let (status, problem) = ask(&address, &headers, method, path, body);
        assert_eq!(status, 404, "{method} {path}: {problem}");
        assert_eq!(problem["type"], "urn:sandbox-agent:error:not_found", "{path}: {problem}");
    }
    assert_eq!(server.end().0, 0);
}

#[test]
fn without_a_root_each_server_has_an_empty_directory_of_its_own() {
    if !stands("bwrap") {
        return;
    }
    let stage = Stage::new();
    // Launchers of sandbox-agent are for `server` only.
    add_program(&stage, "agent_processes/own-acp", AGENT);
    let (server, address, token) = serve_without_root(&stage);
    let start = |server: &str, agent: &str| {
        ask(&address, &token, "POST", &format!("/v1/acp/{server}?agent={agent}"), START)
    };
    let (status, problem) = start("a", "own");
    assert_eq!(
        (status, &problem["type"]),
        (400, &"urn:sandbox-agent:error:unsupported_agent".into()),
        "{problem}"
    );
    let data = stage.outside("data").canonicalize().unwrap();
    let directories: Vec<PathBuf> = ["a", "b"]
        .map(|server| {
            let (status, answer) = start(server, "where");
            assert_eq!(status, 200, "{answer}");
            let said = answer["result"].as_str().unwrap().to_owned();
            let [directory, entries, key]: [&str; 3] =
                said.split(' ').collect::<Vec<_>>().try_into().unwrap();
            assert_eq!((entries, key), ("0", KEY.len().to_string().as_str()), "{said}");
            assert!(Path::new(directory).starts_with(&data), "{said}");
            PathBuf::from(directory)
        })
        .to_vec();
    assert_ne!(directories[0], directories[1]);
    assert!(directories.iter().all(|directory| directory.is_dir()), "{directories:?}");
    assert_eq!(ask(&address, &token, "DELETE", "/v1/acp/a", "").0, 204);
    comes("the end of the directory", || !directories[0].exists());
    assert!(directories[1].exists(), "{directories:?}");
    // The key of a running agent is in no argument of a command, and in no log.
    for process in Path::new("/proc").read_dir().unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(KEY), "{process:?}");
    }
    let (code, said) = server.end();
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains(KEY), "{said}");
    assert!(!directories[1].exists());
}

#[test]
fn root_with_the_data_directory_has_no_agents_and_says_so() {
    let stage = Stage::with(&[("a.txt", "a")]);
    let data = stage.path("state");
    let (root, data) = (stage.root(), data.to_str().unwrap().to_owned());
    let server = Server::start_at(&stage, &["--data-dir", &data, "--root", root.to_str().unwrap()]);
    assert!(server.notice.contains("agents     none at /v1/acp"), "{}", server.notice);
    let token = fs::read_to_string(stage.path("state/token")).unwrap();
    let token = format!("authorization: Bearer {}\r\n", token.trim());
    let url = server.url();
    let address = url.strip_prefix("http://").unwrap();
    let (status, problem) = ask(address, &token, "POST", "/v1/acp/a?agent=mock", START);
    assert_eq!(status, 502, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("--data-dir outside of it"), "{problem}");
    let (status, files) = ask(address, &token, "GET", "/v1/fs/entries", "");
    assert_eq!((status, files.to_string().contains("state")), (200, false), "{files}");
    assert_eq!(server.end().0, 0);
}
