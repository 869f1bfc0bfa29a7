//! Everyday toolchains behind walls, with the built binary and its defaults: what they make works, and
//! nothing of theirs is left in the workspace.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ab_testkit::host::{report_optional_program_missing, report_skip};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::escapes::stands;
use crate::mcp::Session;
use crate::stage::{BINARY, Ran, Stage, run};

const MODES: [&str; 2] = ["bwrap", "landlock"];

/// A workspace behind one kind of walls.
struct Site {
    mode: &'static str,
    stage: Stage,
}

impl Site {
    fn run(&self, line: &str) -> Ran {
        self.stage.run(&["exec", "--isolation", self.mode, "--timeout", "5m", "--", line])
    }

    /// What a line says that has to succeed.
    #[track_caller]
    fn says(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{}: {line}\n{}{}", self.mode, ran.text(), ran.err);
        ran.text()
    }

    /// Nothing but these is in the workspace.
    #[track_caller]
    fn has_only(&self, names: &[&str]) {
        assert_eq!(self.stage.names("."), names, "{}", self.mode);
    }
}

/// Whether a program works for whoever runs the tests; if so, the modes in which to try it.
fn sites(program: &str, proof: &[&str]) -> Vec<Site> {
    let works = Command::new(program).args(proof).output().is_ok_and(|out| out.status.success());
    if !works {
        report_skip(program, "it is not installed");
        return Vec::new();
    }
    let modes = MODES.into_iter().filter(|mode| stands(mode));
    modes.map(|mode| Site { mode, stage: Stage::new() }).collect()
}

/// The same for one that is too large to be installed for every run of the tests.
fn sites_if_there(program: &str, proof: &[&str]) -> Vec<Site> {
    if Command::new(program).args(proof).output().is_ok_and(|out| out.status.success()) {
        sites(program, proof)
    } else {
        report_optional_program_missing(program);
        Vec::new()
    }
}

#[test]
fn git_with_an_identity() {
    for site in sites("git", &["--version"]) {
        site.says(
            "git config --global user.email a@example.org && git config --global user.name A",
        );
        let line = "git init -q . && echo x > f && git add f && git commit -qm first && git log";
        let said = site.says(line);
        assert!(said.contains("A <a@example.org>") && said.contains("first"), "{said}");
        site.has_only(&[".git", ".gitconfig", "f"]);
    }
}

#[test]
fn npm_installs_a_package() {
    for site in sites("npm", &["--version"]) {
        site.says(
            r#"mkdir dep app && echo '{"name":"dep","version":"1.0.0","main":"i.js"}' > dep/package.json
               echo 'module.exports = "from dep"' > dep/i.js
               echo '{"name":"app","version":"1.0.0","scripts":{"say":"node say.js"}}' > app/package.json
               echo 'console.log(require("dep"))' > app/say.js
               cd app && npm install --offline --no-audit --no-fund ../dep"#,
        );
        let said = site.says("cd app && npm run --silent say");
        assert_eq!(said.trim(), "from dep", "{}", site.mode);
        site.has_only(&["app", "dep"]);
    }
}

#[test]
fn a_virtual_environment_works_inside_and_outside() {
    const WHEEL: &str = r#"
import zipfile
with zipfile.ZipFile("dep-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("dep.py", "said = 'from dep'\n")
    wheel.writestr("dep-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: dep\nVersion: 1.0\n")
    wheel.writestr("dep-1.0.dist-info/WHEEL",
                   "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("dep-1.0.dist-info/RECORD", "")
"#;
    for site in sites("python3", &["-c", "import ensurepip, venv"]) {
        fs::write(site.stage.path("wheel.py"), WHEEL).unwrap();
        site.says(
            "python3 wheel.py && python3 -m venv env && env/bin/pip install --no-index *.whl",
        );
        let line = "env/bin/python -c 'import dep, sys; print(dep.said, sys.prefix)'";
        let said = site.says(line);
        let prefix = site.stage.root().canonicalize().unwrap().join("env");
        assert_eq!(said.trim(), format!("from dep {}", prefix.display()), "{}", site.mode);
        let outside = Command::new(site.stage.path("env/bin/pip")).arg("show").arg("dep").output();
        let outside = outside.unwrap();
        assert!(outside.status.success(), "{}", String::from_utf8_lossy(&outside.stderr));
        site.has_only(&["dep-1.0-py3-none-any.whl", "env", "wheel.py"]);
    }
}

#[test]
fn cargo_builds_and_tests() {
    for site in sites("cargo", &["--version"]) {
        // Where it is in no place that is known, it has to be named.
        let cargo = std::env::var_os("CARGO").unwrap_or_default();
        let toolchain = Path::new(&cargo).parent().and_then(Path::parent).map(Path::to_owned);
        let named = match (site.run("command -v cargo").code, toolchain) {
            (0, _) | (_, None) => "auto".to_owned(),
            (_, Some(toolchain)) => toolchain.to_str().unwrap().to_owned(),
        };
        let exec = |line: &str| {
            let walls = ["exec", "--isolation", site.mode, "--toolchain", &named];
            site.stage.out(&[&walls[..], &["--timeout", "5m", "--", line]].concat())
        };
        exec("cargo new --quiet --vcs none hello");
        let said = exec("cd hello && cargo build --quiet --offline && target/debug/hello");
        assert_eq!(said, "Hello, world!\n", "{}", site.mode);
        site.has_only(&["hello"]);
    }
}

#[test]
fn go_builds() {
    for site in sites_if_there("go", &["version"]) {
        site.says(
            "go mod init example.org/hello && printf 'package main\\nimport \"fmt\"\\n\
             func main() { fmt.Println(\"hello\") }\\n' > main.go",
        );
        assert_eq!(site.says("go build -o hello . && ./hello"), "hello\n", "{}", site.mode);
        site.has_only(&["go.mod", "hello", "main.go"]);
    }
}

#[test]
fn java_compiles_and_maven_starts() {
    for site in sites_if_there("javac", &["-version"]) {
        site.says(
            "printf 'class A { public static void main(String[] a) throws Exception {\\n\
             java.nio.file.Files.createTempFile(\"a\", \"b\");\\n\
             javax.net.ssl.SSLContext.getDefault(); System.out.println(\"hello\"); } }' > A.java",
        );
        let temporary = "-Djava.io.tmpdir=${TMPDIR:-/tmp}";
        let said = site.says(&format!("javac A.java && java {temporary} A"));
        assert_eq!(said, "hello\n", "{}", site.mode);
        site.has_only(&["A.class", "A.java"]);
    }
    for site in sites_if_there("mvn", &["--version"]) {
        assert!(site.says("mvn --version").contains("Maven home"), "{}", site.mode);
        // It needs its plugins from the network; offline, it has to fail for that reason only.
        site.says(
            "printf '<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId>\
             <artifactId>a</artifactId><version>1</version></project>' > pom.xml",
        );
        let ran = site.run("mvn -o -B compile");
        let said = ran.text();
        assert!(said.contains("offline mode") || ran.code == 0, "{}: {said}", site.mode);
        site.has_only(&["pom.xml"]);
    }
}

#[test]
fn make_and_a_c_compiler() {
    for site in sites("make", &["--version"]) {
        site.says(
            "printf '#include <stdio.h>\\nint main(void) { puts(\"built\"); return 0; }\\n' > a.c && \
             printf 'a: a.c\\n\\t$(CC) -o a a.c\\n' > Makefile && make --silent",
        );
        assert_eq!(site.says("./a"), "built\n", "{}", site.mode);
    }
}

#[test]
fn a_node_server_and_its_client() {
    const SERVER: &str = r#"
const http = require("http");
const { fork, execFileSync } = require("child_process");
if (process.send) {
    const server = http.createServer((_, answer) => answer.end("served"));
    server.listen(0, "127.0.0.1", () => process.send(server.address().port));
} else {
    console.log(execFileSync("echo", ["child"]).toString().trim());
    const child = fork(__filename);
    child.on("message", (port) => http.get({ host: "127.0.0.1", port }, (answer) => {
        answer.on("data", (data) => console.log(data.toString()));
        answer.on("end", () => child.kill());
    }));
}
"#;
    for site in sites("node", &["--version"]) {
        fs::write(site.stage.path("server.js"), SERVER).unwrap();
        assert_eq!(site.says("node server.js"), "child\nserved\n", "{}", site.mode);
    }
}

#[test]
fn python_multiprocessing() {
    const PIPES: &str = r#"
from multiprocessing import Pipe, Process
def work(end):
    end.send("from a process")
if __name__ == "__main__":
    ours, theirs = Pipe()
    process = Process(target=work, args=(theirs,))
    process.start()
    print(ours.recv())
    process.join()
"#;
    const POOL: &str = r#"
from multiprocessing import Pool
if __name__ == "__main__":
    with Pool(2) as pool:
        print(sum(pool.map(abs, [-1, -2, -3])))
"#;
    for site in sites("python3", &["--version"]) {
        fs::write(site.stage.path("pipes.py"), PIPES).unwrap();
        fs::write(site.stage.path("pool.py"), POOL).unwrap();
        assert_eq!(site.says("python3 pipes.py"), "from a process\n", "{}", site.mode);
        let pool = site.run("python3 pool.py");
        match site.mode {
            // Semaphores are files in /dev/shm, which all programs of the host share.
            "landlock" => {
                assert!(pool.err.contains("PermissionError"), "{}", pool.err);
                let explained = site.stage.out(&["exec", "--isolation", "landlock", "--explain"]);
                assert!(explained.contains("/dev/shm"), "{explained}");
            }
            _ => assert_eq!(pool.text(), "6\n", "{}", pool.err),
        }
    }
}

/// Whoever names a directory wants to hear that it is not there.
#[test]
fn a_toolchain_that_is_missing_is_refused() {
    let stage = Stage::new();
    let refused = stage.run(&["exec", "--toolchain", "/no/such/compiler", "--", "true"]);
    refused.expect_error(125, "/no/such/compiler");
}

/// A home directory with programs in known places, and with what must not be seen.
struct Home<'a> {
    stage: &'a Stage,
    mode: &'static str,
    path: PathBuf,
}

impl<'a> Home<'a> {
    fn new(stage: &'a Stage, mode: &'static str) -> Self {
        let path = stage.outside("home");
        for (file, text) in [
            (".cargo/bin/ab-test-tool", "#!/bin/sh\necho found\n"),
            (".cargo/credentials.toml", "secret"),
            (".nvm/versions/node/v1.2.3/bin/ab-test-node", "#!/bin/sh\necho node\n"),
            (".npmrc", "secret"),
        ] {
            let file = path.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { stage, mode, path }
    }

    /// The binary, started by the user whose home directory this is.
    fn command(&self) -> Command {
        let mut command = self.stage.command(BINARY);
        command.env("HOME", &self.path);
        for name in ["CARGO_HOME", "RUSTUP_HOME", "NVM_DIR", "PYENV_ROOT"] {
            command.env_remove(name);
        }
        command
    }

    fn exec(&self, arguments: &[&str], line: &str) -> Ran {
        let mut command = self.command();
        command.args(["exec", "--isolation", self.mode]).args(arguments).args(["--", line]);
        run(command, b"")
    }

    /// A line that succeeds only if the programs are found; it prints what else can be read.
    fn line(&self) -> String {
        let home = self.path.display();
        format!(
            "ab-test-tool && ab-test-node || exit; \
             cat {home}/.cargo/credentials.toml {home}/.npmrc; ls -a {home}; true"
        )
    }

    #[track_caller]
    fn expect_programs_only(&self, surface: &str, said: &str) {
        assert!(said.starts_with("found\nnode\n"), "{surface}, {}: {said}", self.mode);
        let seen = said.contains("secret") || said.contains(".npmrc");
        assert!(!seen, "{surface}, {}: {said}", self.mode);
    }
}

#[test]
fn toolchains_in_the_home_directory_are_offered_without_credentials() {
    for mode in MODES.into_iter().filter(|mode| stands(mode)) {
        let stage = Stage::new();
        let home = Home::new(&stage, mode);
        let ran = home.exec(&[], "ab-test-tool; ab-test-node");
        assert_eq!((ran.code, ran.text().as_str()), (0, "found\nnode\n"), "{mode}: {}", ran.err);
        home.expect_programs_only("exec", &home.exec(&["--profile", "off"], &home.line()).text());
        let ran = home.exec(&["--toolchain", "none"], "ab-test-tool");
        assert_eq!(ran.code, 127, "{mode}: {}", ran.err);
        let write = format!("echo x >> {}/.cargo/bin/ab-test-tool", home.path.display());
        assert_ne!(home.exec(&["--profile", "off"], &write).code, 0, "{mode}");
    }
}

/// In a workspace with the home directory, a command can put a link in the place of a toolchain.
#[test]
fn toolchains_in_the_workspace_lead_nowhere_else() {
    for mode in MODES.into_iter().filter(|mode| stands(mode)) {
        let stage = Stage::new();
        let home = Home::new(&stage, mode);
        let outside = stage.outside("outside");
        fs::create_dir(&outside).unwrap();
        fs::create_dir(home.path.join("scope")).unwrap();
        fs::write(outside.join("file"), "secret").unwrap();
        let root = ["--root", home.path.to_str().unwrap(), "--profile", "off"];
        let ran = home.exec(&root, "ab-test-tool");
        assert_eq!((ran.code, ran.text().as_str()), (0, "found\n"), "{mode}: {}", ran.err);
        let line = format!("mkdir .deno && ln -s {} .deno/bin", outside.display());
        let ran = home.exec(&root, &line);
        assert_eq!(ran.code, 0, "{mode}: {}", ran.err);
        let line = format!(
            "cat {0}/.deno/bin/file {1}/file; true",
            home.path.display(),
            outside.display()
        );
        for scope in [&["--scope", "scope"][..], &[]] {
            let ran = home.exec(&[&root, scope].concat(), &line);
            assert_eq!((ran.code, ran.text().as_str()), (0, ""), "{mode} {scope:?}");
        }
    }
}

#[test]
fn servers_offer_toolchains_in_the_home_directory_without_credentials() {
    for mode in MODES.into_iter().filter(|mode| stands(mode)) {
        let stage = Stage::new();
        let home = Home::new(&stage, mode);
        let walls = ["--isolation", mode, "--profile", "off"];
        let exec = json!({ "command": home.line() });
        let none = json!({ "command": "ab-test-tool" });

        let mcp = |flags: &[&str]| {
            let mut command = home.command();
            command.args(["mcp", "--quiet"]).args(walls).args(flags);
            Session::of(command)
        };
        let said = mcp(&[]).call("exec", exec.clone());
        home.expect_programs_only("mcp", said["structuredContent"]["stdout"].as_str().unwrap());
        let said = mcp(&["--toolchain", "none"]).call("exec", none.clone());
        assert_eq!(said["structuredContent"]["exitCode"], 127, "{mode}: {said}");

        let daemon = |flags: &[&str]| {
            let mut command = home.command();
            command.args(["daemon", "--port", "0", "--root", "."]).args(walls).args(flags);
            command.arg("--ssh-host-key").arg(stage.outside("host_key"));
            Daemon::spawn(command)
        };
        let called = |daemon: &Daemon, arguments: &Value| {
            let (status, answer) = daemon.call("exec", arguments.clone(), &[]);
            assert_eq!(status, 200, "{mode}: {answer}");
            answer["result"]["structuredContent"].clone()
        };
        let said = called(&daemon(&[]), &exec);
        home.expect_programs_only("daemon", said["stdout"].as_str().unwrap());
        let said = called(&daemon(&["--toolchain", "none"]), &none);
        assert_eq!(said["exitCode"], 127, "{mode}: {said}");
    }
}

#[test]
fn doctor_lists_toolchains() {
    let stage = Stage::new();
    let home = stage.outside("home");
    fs::create_dir_all(home.join(".deno/bin")).unwrap();
    let mut command = stage.command(BINARY);
    command.env("HOME", &home).env_remove("DENO_INSTALL").args(["doctor", "--json"]);
    let value = run(command, b"").value();
    let found = value["toolchains"].as_array().unwrap();
    let deno = found.iter().find(|found| found["name"] == "deno").unwrap();
    let bin = deno["bin"][0].as_str().unwrap();
    assert!(Path::new(bin).ends_with("home/.deno/bin"), "{bin}");
}

#[test]
fn settings_of_the_system_can_be_read() {
    let public = ["/etc/os-release", "/etc/debian_version", "/etc/alternatives"];
    // Behind bwrap these are not there, which programs do not mind.
    let seen = ["/etc/profile", "/etc/wgetrc", "/etc/bash.bashrc"];
    for mode in MODES.into_iter().filter(|mode| stands(mode)) {
        let more = if mode == "landlock" { &seen[..] } else { &[] };
        for path in public.iter().chain(more).filter(|path| Path::new(path).exists()) {
            let line = format!("head -c 1 {path} >/dev/null 2>&1 || ls {path}/ >/dev/null");
            let ran = Stage::new().run(&["exec", "--isolation", mode, "--", &line]);
            assert_eq!(ran.code, 0, "{mode}: {path}: {}", ran.err);
        }
    }
}
