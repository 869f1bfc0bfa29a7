//! A workspace of its own for each test, and a binary to run in it.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_agent-backend");
pub(crate) const SHORT_BINARY: &str = env!("CARGO_BIN_EXE_ah");

pub(crate) struct Stage {
    keep: TempDir,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let stage = Stage { keep: tempfile::tempdir().unwrap() };
        fs::create_dir(stage.root()).unwrap();
        stage
    }

    /// With these files, by path and content.
    pub(crate) fn with(files: &[(&str, &str)]) -> Stage {
        let stage = Stage::new();
        for (path, content) in files {
            let path = stage.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        stage
    }

    /// The workspace. What lies beside it is outside.
    pub(crate) fn root(&self) -> PathBuf {
        self.keep.path().join("workspace")
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// The names in a directory, as the host sees them.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A command with the workspace as its current directory.
    pub(crate) fn command(&self, binary: &str) -> Command {
        command(binary, &self.root())
    }

    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Ran {
        self.run_with(arguments, b"")
    }

    pub(crate) fn run_with<A: AsRef<OsStr>>(&self, arguments: &[A], stdin: &[u8]) -> Ran {
        let mut command = self.command(BINARY);
        command.args(arguments);
        run(command, stdin)
    }

    /// A command at a terminal, which gets both streams of it.
    pub(crate) fn watched(&self, arguments: &[&str]) -> Ran {
        self.at_terminal(arguments, &[], b"")
    }

    /// As somebody sees it who types `keys`.
    pub(crate) fn typed(&self, arguments: &[&str], keys: &[u8]) -> Ran {
        self.at_terminal(arguments, &[("NO_COLOR", "1")], keys)
    }

    pub(crate) fn watched_without_colours(&self, arguments: &[&str]) -> Ran {
        self.at_terminal(arguments, &[("NO_COLOR", "1")], b"")
    }

    /// A command at a terminal, at which keys are pressed when a text was shown, one pair after the other.
    pub(crate) fn answered(&self, arguments: &[&str], exchange: &[(&str, &str)]) -> String {
        let mut typist = self.typist(arguments);
        for (text, keys) in exchange {
            typist.wait_for(text);
            typist.press(keys);
        }
        typist.finish()
    }

    /// A command at a terminal, for a test that types step by step.
    pub(crate) fn typist(&self, arguments: &[&str]) -> Typist {
        let mut command = self.terminal_command(arguments, &[("NO_COLOR", "1")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (keys, screen) = (child.stdin.take(), child.stdout.take().unwrap());
        Typist { child, keys, screen, shown: String::new(), seen: 0 }
    }

    fn terminal_command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let quoted = |word: &&str| format!("'{}'", word.replace('\'', r"'\''"));
        let words: Vec<String> = [BINARY].iter().chain(arguments).map(quoted).collect();
        let mut command = self.command("script");
        command.args(["-q", "-e", "-c", &words.join(" "), "/dev/null"]);
        command.env("TERM", "xterm").env("SHELL", "/bin/sh").envs(variables.iter().copied());
        command
    }

    fn at_terminal(&self, arguments: &[&str], variables: &[(&str, &str)], keys: &[u8]) -> Ran {
        let mut ran = run(self.terminal_command(arguments, variables), keys);
        // A terminal has its own line ends.
        ran.out = ran.text().replace("\r\n", "\n").into_bytes();
        ran
    }

    /// What a successful command printed.
    #[track_caller]
    pub(crate) fn out<A: AsRef<OsStr>>(&self, arguments: &[A]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.text()
    }

    /// The JSON value of a successful command.
    #[track_caller]
    pub(crate) fn json<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Value {
        let ran = self.run(arguments);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        ran.value()
    }
}

/// Types at the terminal of a command, and reads what it shows.
pub(crate) struct Typist {
    child: Child,
    keys: Option<ChildStdin>,
    screen: ChildStdout,
    shown: String,
    /// The length of what was shown at the last wait.
    seen: usize,
}

impl Typist {
    /// Waits until a text is shown after the one of the last wait.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let mut piece = [0; 65536];
        let found = loop {
            if let Some(found) = self.shown[self.seen..].find(text) {
                break found;
            }
            let length = self.screen.read(&mut piece).unwrap();
            assert!(length > 0, "no {text:?} in {}", self.shown);
            self.shown.push_str(&String::from_utf8_lossy(&piece[..length]));
        };
        self.seen += found + text.len();
    }

    pub(crate) fn press(&self, keys: &str) {
        self.keys.as_ref().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end of the command, and returns everything that was shown.
    pub(crate) fn finish(self) -> String {
        self.end().text()
    }

    /// Waits for the end of the command.
    pub(crate) fn end(mut self) -> Ran {
        drop(self.keys.take());
        let mut rest = Vec::new();
        self.screen.read_to_end(&mut rest).unwrap();
        let code = self.child.wait().unwrap().code().unwrap();
        self.shown.push_str(&String::from_utf8_lossy(&rest));
        Ran { code, out: self.shown.replace("\r\n", "\n").into_bytes(), err: String::new() }
    }
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        assert_eq!(self.text().matches('\n').count(), 1, "one line: {}", self.text());
        serde_json::from_slice(&self.out).unwrap()
    }

    /// The error that was told as JSON.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let value: Value = serde_json::from_str(&self.err).unwrap();
        let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["error"]);
        let error = &value["error"];
        let keys: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            ["code", "kind", "message", "path", "hint", "effect", "ticket", "approval"]
        );
        error.clone()
    }

    /// Nothing on standard output, one error on the other.
    #[track_caller]
    pub(crate) fn expect_error(&self, code: i32, says: &str) {
        assert_eq!((self.code, self.text().as_str()), (code, ""), "{}", self.err);
        assert!(self.err.starts_with("error: "), "{}", self.err);
        assert!(self.err.contains(says), "no {says:?} in: {}", self.err);
    }
}

/// A command that inherits nothing that would change what it prints.
pub(crate) fn command(binary: &str, directory: &Path) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(directory);
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("AGENT_BACKEND_")) {
        command.env_remove(name);
    }
    // The configuration files of the developer are not read either.
    command.env("XDG_CONFIG_HOME", directory.join("no-configuration"));
    command.env("GIT_CONFIG_GLOBAL", "/dev/null");
    for name in ["SSH_AUTH_SOCK", "NO_COLOR", "COLUMNS", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn run(mut command: Command, stdin: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: output.stdout,
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
