//! Keys with a passphrase, and headers for what stands before a daemon.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::Far;
use crate::stage::{BINARY, Ran, Stage, command, run};

const PASSPHRASE: &str = "open sesame";

/// A daemon that lets in whoever has the key in `locked`.
fn with_locked_key(stage: &Stage) -> (Far, String) {
    let key = stage.outside("locked");
    let mut made = Command::new("ssh-keygen");
    made.args(["-q", "-t", "ed25519", "-N", PASSPHRASE, "-f"]).arg(&key);
    assert!(made.status().unwrap().success());
    let public = fs::read_to_string(stage.outside("locked.pub")).unwrap();
    let far = Far::start_with(stage, &["--ssh-public-key", &public]);
    (far, key.to_str().unwrap().to_owned())
}

fn listing(far: &Far, stage: &Stage, key: &str) -> Command {
    let mut command = stage.command(BINARY);
    command.args(["fs", "ls", "--remote", &far.ssh, "--host-key", &far.fingerprint]);
    command.args(["--identity", key]);
    command
}

#[test]
fn a_passphrase_comes_from_a_file() {
    let stage = Stage::with(&[("a.txt", "")]);
    let (far, key) = with_locked_key(&stage);
    let by = |passphrase: &str, more: &[&str]| {
        fs::write(stage.outside("passphrase"), passphrase).unwrap();
        let mut command = listing(&far, &stage, &key);
        command.arg("--identity-passphrase-file").arg(stage.outside("passphrase")).args(more);
        run(command, b"")
    };
    assert_eq!(by(&format!("{PASSPHRASE}\n"), &[]).text(), "a.txt\n");
    // A key that has none needs none.
    let free = stage.outside("free");
    let mut made = Command::new("ssh-keygen");
    made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&free);
    assert!(made.status().unwrap().success());
    assert_eq!(by(PASSPHRASE, &["--identity", free.to_str().unwrap()]).text(), "a.txt\n");
    let ran = by("wrong\n", &[]);
    ran.expect_error(1, "passphrase");
    assert!(!ran.err.contains("wrong"), "{}", ran.err);
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn where_nobody_can_be_asked_the_way_is_told() {
    let stage = Stage::new();
    let (far, key) = with_locked_key(&stage);
    let ran = run(listing(&far, &stage, &key), b"open sesame\n");
    ran.expect_error(2, &format!("the key {key} is encrypted"));
    assert!(ran.err.contains("--identity-passphrase-file"), "{}", ran.err);
    assert_eq!(far.daemon.end().0, 0);
}

/// A terminal: the end of whoever sits there, and the other one.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs: OwnedFd = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    (ours.into(), theirs.into())
}

/// A person who types `keys` when asked. How it ended, and what the terminal showed.
fn asked(mut command: Command, keys: &str) -> (Ran, String) {
    let (mut person, theirs) = terminal();
    command.stdin(theirs.try_clone().unwrap()).stderr(theirs).stdout(Stdio::piped());
    let mut child: Child = command.spawn().unwrap();
    // The other end is closed when the command is gone, and not before.
    drop(command);
    let mut shown = Vec::new();
    let mut byte = [0];
    while !shown.ends_with(b"locked: ") {
        person.read_exact(&mut byte).unwrap();
        shown.push(byte[0]);
    }
    person.write_all(keys.as_bytes()).unwrap();
    // A terminal whose other end is closed fails to be read.
    while person.read_exact(&mut byte).is_ok() {
        shown.push(byte[0]);
    }
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    let code = child.wait().unwrap().code().unwrap();
    (Ran { code, out, err: String::new() }, String::from_utf8(shown).unwrap())
}

#[test]
fn a_person_is_asked_and_what_is_typed_is_not_shown() {
    let stage = Stage::with(&[("a.txt", "")]);
    let (far, key) = with_locked_key(&stage);
    let (ran, shown) = asked(listing(&far, &stage, &key), &format!("{PASSPHRASE}\n"));
    assert_eq!((ran.code, ran.text().as_str()), (0, "a.txt\n"), "{shown}");
    assert_eq!(shown.trim(), format!("passphrase of {key}:"));
    let (ran, shown) = asked(listing(&far, &stage, &key), "half\u{3}");
    assert_eq!((ran.code, ran.text().as_str()), (130, ""), "{shown}");
    assert!(!shown.contains("half"), "{shown}");
    assert_eq!(far.daemon.end().0, 0);
}

/// What a server is asked by a command with these flags. It turns everybody away.
fn request(stage: &Stage, flags: &[&str]) -> (String, Ran) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/ssh", server.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut caller, _) = server.accept().unwrap();
        let mut lines = BufReader::new(caller.try_clone().unwrap()).lines();
        let head = lines.by_ref().map(Result::unwrap).take_while(|line| !line.is_empty());
        let head = head.collect::<Vec<_>>().join("\n");
        let answer = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        caller.write_all(answer.as_bytes()).unwrap();
        head
    });
    let mut asking = command(BINARY, &stage.root());
    asking.args(["fs", "ls", "--remote", &url]).args(flags);
    let ran = run(asking, b"");
    (serving.join().unwrap(), ran)
}

#[test]
fn headers_go_along() {
    let stage = Stage::new();
    fs::write(stage.outside("headers"), "X-From-File: secret\n\nX-Both: file\n").unwrap();
    let file = stage.outside("headers").to_str().unwrap().to_owned();
    let flags = ["--header", "X-Named: one: two", "--header", "x-both:named", "--header-file"];
    let (head, ran) = request(&stage, &[&flags[..], &[&file]].concat());
    assert_eq!(ran.code, 3, "{}", ran.err);
    let head = head.to_ascii_lowercase();
    for line in ["x-from-file: secret", "x-named: one: two", "x-both: named"] {
        assert!(head.lines().any(|it| it == line), "no {line} in: {head}");
    }
    assert!(!head.contains("x-both: file"), "{head}");
    let socket = "ws://127.0.0.1:1/ssh";
    for (words, says) in [
        (&["--remote", socket, "--header", "secret"][..], "invalid header: ':' is missing"),
        (&["--remote", socket, "--header", "a b: secret"], "is not a valid header name"),
        (&["--remote", socket, "--header", "Host: secret"], "is set by the WebSocket protocol"),
        (&["--remote", "ssh://a@h", "--header", "x: secret"], "a header can only be set for"),
        (&["--header", "x: secret"], "--header needs --remote"),
        (&["--header-file", &file], "--header-file needs --remote"),
    ] {
        let ran = stage.run(&[&["fs", "ls"], words].concat());
        ran.expect_error(2, says);
        assert!(!ran.err.contains("secret"), "{}", ran.err);
    }
}
