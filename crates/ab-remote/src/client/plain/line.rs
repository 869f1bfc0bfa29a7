//! Builds the line that the login shell of the server runs for a command. The line contains the
//! directory, the environment, and shell code around the command (the wrapper). The wrapper reports
//! the start, the process id and the exit status of the command, and kills the remaining processes
//! of its process group. The functions here convert a request to text, without I/O.

use std::collections::BTreeMap;

use ab_core::environment::{self, CodeLoadingEnvVariablePolicy};
use ab_core::process::{Command, StderrMode};
use ab_core::{Error, ErrorCode, ErrorKind, Result, Verb};
use bytes::Bytes;

/// Maximum length in bytes of a line for a login shell. Linux limits one argument to 128 KiB.
const LONGEST: usize = 120 * 1024;
/// Maximum length of a command in bytes. A command that is too long for the line is sent as input,
/// and the shell reads it byte by byte.
pub(super) const LONGEST_COMMAND: usize = 4 * 1024 * 1024;

const TERMINAL: &str = "xterm-256color";

/// The data that is sent to the server to start a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    /// A script that the shell reads from its input. It is sent before the input of the command.
    pub(super) script: Bytes,
}

/// The directory, the environment and other settings with which a command runs.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) cwd: &'a str,
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) terminal: bool,
    pub(super) stderr: StderrMode,
    /// The random word that marks the messages of the wrapper, which is the shell code around the
    /// command.
    pub(super) word: &'a str,
}

pub(super) fn terminal() -> &'static str {
    TERMINAL
}

pub(super) fn line(command: &Command, scene: &Scene<'_>) -> Result<Line> {
    let words: Vec<&str> = match command {
        Command::Shell(line) => vec![line],
        Command::Argv(words) => words.iter().map(String::as_str).collect(),
    };
    if words.iter().any(|word| word.contains('\0')) {
        let message = "the command holds a NUL byte";
        return Err(
            Error::new(ErrorCode::ExecError, ErrorKind::Invalid, message).with_verb(Verb::Exec)
        );
    }
    if words.iter().map(|word| word.len()).sum::<usize>() > LONGEST_COMMAND {
        return Err(too_long(LONGEST_COMMAND));
    }
    for (name, value) in scene.env {
        environment::check_env_variable(name, value, CodeLoadingEnvVariablePolicy::Refused)?;
    }
    let (run, check) = match command {
        Command::Shell(_) => ("exec /bin/sh -c \"$1\"", ""),
        Command::Argv(_) => ("exec \"$@\"", LOOK_UP),
    };
    let merged = match scene.stderr {
        StderrMode::Separate => "",
        StderrMode::Merged => " 2>&1",
    };
    // The inner shell prints its own process id, and then replaces itself by the command.
    let inner = format!("{}{run}{merged}", marker(scene, "+", "\"$0,$$\"", 2));
    let run = format!("/bin/sh -c {} $$ \"$@\"", quoted(&inner));
    let text = assembled(scene, check, &run, &words);
    if text.len() <= LONGEST {
        return Ok(Line { text, script: Bytes::new() });
    }
    match command {
        Command::Shell(line) if !scene.terminal => {
            let began = marker(scene, "+", "\"$$,$p\"", 2);
            let count = line.len();
            let run = format!(
                "l=$(dd bs=1 count={count} 2>/dev/null); set --; \
                 (p=$(exec /bin/sh -c 'echo $PPID'); {began}eval \"$l\"{merged})"
            );
            let text = assembled(scene, "", &run, &[]);
            if text.len() > LONGEST {
                return Err(too_long(LONGEST));
            }
            Ok(Line { text, script: Bytes::copy_from_slice(line.as_bytes()) })
        }
        Command::Shell(_) | Command::Argv(_) => Err(too_long(LONGEST)),
    }
}

fn too_long(most: usize) -> Error {
    let message = format!("the command and its environment are longer than {most} bytes");
    Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message).with_verb(Verb::Exec)
}

/// Shell code that reports a missing program before anything is run.
const LOOK_UP: &str = "(set -f; IFS=:; case $1 in \
    */*) [ -f \"$1\" ] && [ -x \"$1\" ];; \
    *) for d in $PATH; do [ -f \"${d:-.}/$1\" ] && [ -x \"${d:-.}/$1\" ] && exit 0; done; exit 1;; \
    esac) || { printf '\\036WORD?;'; exit 127; }; ";

/// Signals that may be sent to the whole process group. The wrapper ignores them, so that it can
/// still report the end of the command.
const TRAPPED: &str = "HUP INT QUIT ABRT ALRM PIPE TERM USR1 USR2";

/// Shell code that writes a marker to both output channels, so that the end of the output is known
/// on each channel.
fn marker(scene: &Scene<'_>, sign: &str, value: &str, stderr: u8) -> String {
    let first = format!("printf '\\036WORD{sign}%s;' {value}; ");
    if scene.terminal { first } else { format!("{first}printf '\\036WORD{sign};' >&{stderr}; ") }
}

fn assembled(scene: &Scene<'_>, check: &str, run: &str, words: &[&str]) -> String {
    let ended = marker(scene, "-", "\"$c\"", 4);
    // If the server did not create a process group for the command, the group `-$$` does not exist
    // and nothing is killed.
    let sweep = "kill -s 0 -- -$$ 2>/dev/null && kill -s KILL -- -$$; exit \"$c\"";
    // Hide the message that the shell prints when the command is killed.
    let quiet = "exec 4>&2 2>/dev/null";
    let wrapper =
        format!("trap : {TRAPPED}; {quiet}; {check}{run} 2>&4 4>&-; c=$?; {ended}{sweep}")
            .replace("WORD", scene.word);
    let term = if scene.terminal { TERMINAL } else { "dumb" };
    let mut variables = BTreeMap::from([
        ("HOME", scene.cwd),
        ("LANG", "C.UTF-8"),
        ("PWD", scene.cwd),
        ("TERM", term),
    ]);
    variables.extend(scene.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mut line = format!("cd {} && exec env -i PATH=\"$PATH\"", quoted(scene.cwd));
    for (name, value) in variables {
        line.push(' ');
        line.push_str(name);
        line.push('=');
        line.push_str(&quoted(value));
    }
    line.push_str(" /bin/sh -c ");
    line.push_str(&quoted(&wrapper));
    line.push_str(" sh");
    for word in words {
        line.push(' ');
        line.push_str(&quoted(word));
    }
    line
}

/// Quotes a word for the shell.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(env: &BTreeMap<String, String>) -> Scene<'_> {
        Scene {
            cwd: "/some/$(place)",
            env,
            terminal: false,
            stderr: StderrMode::Separate,
            word: "w0rd",
        }
    }

    #[test]
    fn words_stay_words() {
        for (word, expect) in [
            ("", "''"),
            ("plain", "'plain'"),
            ("it's", "'it'\\''s'"),
            ("$(touch x) `y` \"z\" \\", "'$(touch x) `y` \"z\" \\'"),
            ("two\nlines", "'two\nlines'"),
        ] {
            assert_eq!(quoted(word), expect);
        }
        let env = BTreeMap::from([("GIVEN".to_owned(), "a'b".to_owned())]);
        let line = line(&Command::Shell("echo 'x'".to_owned()), &scene(&env)).unwrap();
        assert!(line.text.starts_with("cd '/some/$(place)' && exec env -i "), "{}", line.text);
        assert!(line.text.contains(" GIVEN='a'\\''b' "), "{}", line.text);
        assert!(line.text.ends_with(" sh 'echo '\\''x'\\'''"), "{}", line.text);
        assert!(line.script.is_empty());
    }

    #[test]
    fn long_commands_go_by_the_channel() {
        let env = BTreeMap::new();
        let long = "x".repeat(LONGEST);
        let line = super::line(&Command::Shell(long.clone()), &scene(&env)).unwrap();
        assert_eq!(line.script, long);
        assert!(line.text.len() < 4096);
        let check = |command: Command, kind: ErrorKind| {
            assert_eq!(super::line(&command, &scene(&env)).unwrap_err().kind(), kind);
        };
        check(Command::Shell("x".repeat(LONGEST_COMMAND + 1)), ErrorKind::TooLarge);
        check(Command::Argv(vec!["printf".to_owned(), long]), ErrorKind::TooLarge);
        check(Command::Shell("a\0b".to_owned()), ErrorKind::Invalid);
        let env = BTreeMap::from([("LD_PRELOAD".to_owned(), "x".to_owned())]);
        assert!(super::line(&Command::Shell("true".to_owned()), &scene(&env)).is_err());
    }
}
