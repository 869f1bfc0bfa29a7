//! Common programs work behind walls.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;

use ab_core::Isolation;
use ab_host::{LocalExecSettings, Toolchain};
use ab_testkit::commands::exec_stdout_text;
use ab_testkit::host;

use super::{Fixture, WALLS};

/// Where programs of the system are; commands look nowhere else.
const PLACES: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Runs a line in every kind of walls, if the system has the program.
async fn works(program: &str, line: &str, expect: &str) {
    if !PLACES.iter().any(|place| Path::new(place).join(program).exists()) {
        return host::report_skip(program, "the system has no such program");
    }
    for isolation in WALLS {
        let fixture = Fixture::behind(isolation);
        let said = exec_stdout_text(&fixture.backend, line).await;
        assert!(said.contains(expect), "{isolation}: {said}");
        fixture.leave().await;
    }
}

#[tokio::test]
async fn git() {
    let line = "git init -q . && git config user.email a@b && git config user.name A && \
                echo x > file && git add file && git commit -qm first && git log --oneline";
    works("git", line, "first").await;
}

#[tokio::test]
async fn curl() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Ok(copy) = stream.try_clone() else { return };
            let request = BufReader::new(copy).lines().map_while(Result::ok);
            let _ = request.take_while(|line| !line.is_empty()).count();
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
    works("curl", &format!("curl -s http://127.0.0.1:{port}/"), "hello").await;
}

#[tokio::test]
async fn python() {
    let line = "python3 -c 'import json, subprocess, tempfile; tempfile.TemporaryFile(); \
                print(json.dumps(subprocess.check_output([\"echo\", \"hi\"]).decode()))'";
    works("python3", line, "hi").await;
}

#[tokio::test]
async fn node() {
    let line = "node -e 'console.log(require(\"child_process\").execSync(\"echo hi\").toString())'";
    works("node", line, "hi").await;
}

#[tokio::test]
async fn awk() {
    works("awk", "printf '1\\n2\\n' | awk '{ sum += $1 } END { print sum }'", "3").await;
}

#[tokio::test]
async fn a_compiler() {
    let line = "printf '#include <stdio.h>\\nint main(void) { puts(\"built\"); return 0; }\\n' \
                > main.c && cc -o main main.c && ./main";
    works("cc", line, "built").await;
}

#[tokio::test]
async fn a_toolchain_of_its_own() {
    let Some(cargo) = std::env::var_os("CARGO") else {
        return host::report_skip("a toolchain", "not started by cargo");
    };
    // `bin/cargo` of the toolchain proper, not of what chooses one.
    let Some(toolchain) = Path::new(&cargo).parent().and_then(Path::parent) else {
        return host::report_skip("a toolchain", "cargo is in no directory");
    };
    for isolation in [Isolation::Bwrap, Isolation::Landlock] {
        let toolchains = vec![Toolchain::from_directory(toolchain)];
        let fixture = Fixture::new(LocalExecSettings {
            isolation,
            toolchains,
            ..LocalExecSettings::default()
        });
        assert!(
            exec_stdout_text(&fixture.backend, "cargo --version").await.starts_with("cargo 1.")
        );
        fixture.leave().await;
    }
}

/// Pairs of sockets with which programs talk to their children, and the usual modes of files.
#[tokio::test]
async fn python_talks_to_children_by_pairs() {
    let line = "python3 -c '
import asyncio, socket
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    one.send(b\"paired\")
    assert other.recv(9) == b\"paired\"
async def child():
    child = await asyncio.create_subprocess_exec(\"echo\", \"hi\", stdout=asyncio.subprocess.PIPE)
    return (await child.communicate())[0].decode()
print(asyncio.run(child()))'";
    works("python3", line, "hi").await;
}

#[tokio::test]
async fn node_talks_to_children_by_pairs() {
    let line = "echo 'process.on(\"message\", (m) => { process.send(m + \" back\"); process.exit(); })' > c.js; \
                node -e 'const c = require(\"child_process\").fork(\"./c.js\"); c.send(\"there and\"); \
                c.on(\"message\", (m) => console.log(m))'";
    works("node", line, "there and back").await;
}

#[tokio::test]
async fn modes_without_another_users_rights_are_set() {
    let line = "umask 022; mkdir -m 755 d; mkdir -m 1777 t; install -m 755 /bin/true d/p; touch d/f; \
                chmod 640 d/f; cp -a d copied; tar cf a.tar d && mkdir x && tar xpf a.tar -C x; mkfifo p; \
                stat -c %a d t d/p copied/f x/d/p | tr '\\n' ' '";
    works("tar", line, "755 1777 755 640 755").await;
}
