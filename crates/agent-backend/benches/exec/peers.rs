//! What we are measured beside: std's own way to start a program, and bwrap told the same as ours.

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use agent_backend::Backend;
use agent_backend::process::{ExecRequest, ProcessControlMessage};

pub(crate) fn bwrap_version() -> String {
    let version = Command::new("bwrap").arg("--version").output();
    match version {
        Ok(version) => String::from_utf8_lossy(&version.stdout).trim().to_owned(),
        Err(_) => "no bwrap".to_owned(),
    }
}

/// `sh -c true`, its output read to the end.
pub(crate) fn plain() {
    let output = Command::new("/bin/sh").args(["-c", "true"]).stdin(Stdio::null()).output();
    assert!(output.unwrap().status.success());
}

/// A bwrap that is told exactly what ours is told.
#[derive(Clone)]
pub(crate) struct Bare {
    words: Vec<String>,
    /// What it reads from the handles that it is told of, by the option before the number.
    contents: Vec<(usize, Vec<u8>)>,
}

impl Bare {
    /// Looks at one of ours while it runs.
    pub(crate) async fn like(backend: &Backend) -> Bare {
        let request = ExecRequest::shell("exec sleep 1000");
        let mut process = backend.spawn(request).await.unwrap();
        let words = loop {
            if let Some(words) = running_bwrap() {
                break words;
            }
            tokio::task::yield_now().await;
        };
        process.control.send(ProcessControlMessage::Signal(9)).await.unwrap();
        process.wait().await;
        let mut words = words;
        let line = words.iter().position(|word| word == "exec sleep 1000").unwrap();
        words[line] = "true".to_owned();
        let users = b"root:x:0:0::/:/bin/sh\n".to_vec();
        let number = |option: &str, skip: usize| {
            let found = words.iter().enumerate().filter(|(_, word)| *word == option);
            found.map(|(index, _)| index + 1).nth(skip).unwrap()
        };
        let contents = vec![
            (number("--seccomp", 0), filter()),
            (number("--ro-bind-data", 0), users.clone()),
            (number("--ro-bind-data", 1), users),
        ];
        Bare { words, contents }
    }

    pub(crate) fn run(&self) {
        let mut words = self.words.clone();
        // Handles that a child inherits, as ours does.
        let handles: Vec<OwnedFd> = self
            .contents
            .iter()
            .map(|(index, content)| {
                let flags = rustix::pipe::PipeFlags::empty();
                let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
                std::fs::File::from(writer).write_all(content).unwrap();
                words[*index] = reader.as_raw_fd().to_string();
                reader
            })
            .collect();
        let output = Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        drop(handles);
    }
}

/// As long as the filter of ours, and as quick: every call is compared, and allowed.
fn filter() -> Vec<u8> {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code: u16, jump: u8, k: u32| {
        let mut bytes = code.to_ne_bytes().to_vec();
        bytes.extend([jump, 0]);
        bytes.extend(k.to_ne_bytes());
        bytes
    };
    let mut program = step(LOAD_NUMBER, 0, 0);
    for number in 0..150 {
        program.extend(step(JUMP_EQUAL, 0, 100_000 + number));
    }
    program.extend(step(RETURN, 0, ALLOW));
    program
}

/// The words of a bwrap that runs now, started by us.
fn running_bwrap() -> Option<Vec<String>> {
    let ours = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.into_iter().find_map(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.to_owned();
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<String> = line
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        (parent == ours && words.first()?.ends_with("bwrap"))
            .then(|| words[..words.len() - 1].to_vec())
    })
}
