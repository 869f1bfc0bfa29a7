//! One child process of a task: its command is printed, its output is streamed, and the lines with
//! test counts are collected.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::tally;
use crate::workspace;

/// How long to wait for output after the child has exited. The wait is limited because a grandchild
/// can hold the pipe open forever.
const DRAIN: Duration = Duration::from_secs(2);

/// Longer lines cannot be summaries; they are passed on and not examined.
const LONGEST_LINE: usize = 16 * 1024;

/// The runner whose counts are read. nextest reports on stderr, libtest on stdout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Listen {
    Nobody,
    Nextest,
    Libtest,
}

#[derive(Debug)]
pub(crate) struct Step {
    name: String,
    program: OsString,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    listen: Listen,
    shown: String,
}

/// How a step ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// The lines with test counts, without colours.
    pub(crate) summaries: Vec<String>,
}

impl Step {
    pub(crate) fn new(name: &str, program: impl AsRef<OsStr>, arguments: &[&str]) -> Step {
        let program = program.as_ref().to_owned();
        let shown = program.to_string_lossy().into_owned();
        Step {
            name: name.to_owned(),
            program,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: Vec::new(),
            listen: Listen::Nobody,
            shown,
        }
    }

    pub(crate) fn cargo(name: &str, arguments: &[&str]) -> Step {
        Step { shown: "cargo".to_owned(), ..Step::new(name, workspace::cargo(), arguments) }
    }

    pub(crate) fn env(mut self, key: &'static str, value: impl Into<String>) -> Step {
        self.environment.push((key, value.into()));
        self
    }

    pub(crate) fn listen(mut self, listen: Listen) -> Step {
        self.listen = listen;
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The command line as a user would type it.
    pub(crate) fn command_line(&self) -> String {
        let mut line = String::new();
        for (key, value) in &self.environment {
            line.push_str(&format!("{key}={} ", quoted(value)));
        }
        line.push_str(&self.shown);
        for argument in &self.arguments {
            line.push(' ');
            line.push_str(&quoted(argument));
        }
        line
    }

    /// Prints the command, runs it in the workspace root and waits for it.
    pub(crate) fn run(&self) -> Result<Ending> {
        eprintln!("\n$ {}", self.command_line());
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(workspace::root());
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        match self.listen {
            Listen::Nobody => {}
            Listen::Nextest => drop(command.stderr(Stdio::piped())),
            Listen::Libtest => drop(command.stdout(Stdio::piped())),
        }
        let mut child =
            command.spawn().with_context(|| format!("start `{}`", self.command_line()))?;
        let nextest = child.stderr.take().map(|it| tee(it, io::stderr(), tally::is_nextest));
        let libtest = child.stdout.take().map(|it| tee(it, io::stdout(), tally::is_libtest));
        let status = child.wait().with_context(|| format!("wait for `{}`", self.command_line()))?;
        let summaries = match (nextest, libtest) {
            // A failing test may print text that looks like a summary. The real summary comes last.
            (Some(lines), _) => drain(&lines).into_iter().next_back().into_iter().collect(),
            (None, Some(lines)) => drain(&lines),
            (None, None) => Vec::new(),
        };
        Ok(Ending { status, summaries })
    }
}

/// Quotes a text, so that a shell reads it as one word.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Copies `from` to `to` as it arrives, and sends each line that is `wanted`.
fn tee(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    wanted: fn(&str) -> bool,
) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut chunk = [0; 8192];
        let mut line = Vec::new();
        while let Ok(count @ 1..) = from.read(&mut chunk) {
            let bytes = &chunk[..count];
            // Ignore a failed copy, because the child continues even if the reader of our output is
            // gone.
            let _ = to.write_all(bytes).and_then(|()| to.flush());
            for &byte in bytes {
                if byte != b'\n' {
                    if line.len() < LONGEST_LINE {
                        line.push(byte);
                    }
                    continue;
                }
                let text = tally::plain(&String::from_utf8_lossy(&line));
                line.clear();
                if wanted(&text) && sender.send(text).is_err() {
                    return;
                }
            }
        }
    });
    receiver
}

fn drain(lines: &Receiver<String>) -> Vec<String> {
    let mut found = Vec::new();
    while let Ok(line) = lines.recv_timeout(DRAIN) {
        found.push(line);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_can_be_pasted() {
        let step = Step::cargo("docs", &["doc", "--no-deps", "it's"]).env("FLAGS", "-D warnings");
        assert_eq!(step.command_line(), r"FLAGS='-D warnings' cargo doc --no-deps 'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_tee_keeps_the_lines_that_count() {
        let summary = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured";
        let output = format!("noise\n\u{1b}[32m{summary}\u{1b}[0m\n{}", "x".repeat(100_000));
        let lines = tee(io::Cursor::new(output), io::sink(), tally::is_libtest);
        assert_eq!(drain(&lines), [summary]);
    }

    #[test]
    fn a_tee_copies_everything() {
        let (reader, writer) = io::pipe().unwrap();
        let lines = tee(io::Cursor::new("one\ntwo"), writer, tally::is_libtest);
        assert_eq!(io::read_to_string(reader).unwrap(), "one\ntwo");
        assert!(drain(&lines).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn an_ending_has_the_status_of_the_child() {
        for listen in [Listen::Nobody, Listen::Nextest, Listen::Libtest] {
            let step = Step::new("script", "sh", &["-c", "exit $CODE"]).env("CODE", "3");
            assert_eq!(step.listen(listen).run().unwrap().status.code(), Some(3));
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Step::new("ghost", "no-such-program-here", &[]).run().unwrap_err();
        assert!(format!("{error:#}").contains("no-such-program-here"));
    }
}
