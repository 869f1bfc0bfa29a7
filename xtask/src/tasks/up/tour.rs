//! A tour of the command line: real commands on a temporary workspace.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::failure::{Failure, exit_code};
use crate::scratch::Scratch;
use crate::step::quoted;

/// Whether a command of the tour should succeed or be refused.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expect {
    Success,
    Refusal,
}

#[derive(Debug)]
struct Stop {
    says: &'static str,
    arguments: &'static [&'static str],
    stdin: Option<&'static str>,
    expect: Expect,
}

const STOPS: &[Stop] = &[
    Stop {
        says: "Write a file from standard input; missing directories are made on the way.",
        arguments: &["fs", "write", "notes/plan.md"],
        stdin: Some("Plan: look around, then rest.\n"),
        expect: Expect::Success,
    },
    Stop {
        says: "Short content can be an argument.",
        arguments: &["fs", "write", "src/hello.txt", "--content", "Hello from the tour"],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "List a directory.",
        arguments: &["fs", "ls", "."],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "Read a file back.",
        arguments: &["fs", "cat", "notes/plan.md"],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "Change a piece of text that occurs exactly once.",
        arguments: &["fs", "edit", "notes/plan.md", "--old", "then rest", "--new", "then build"],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "See the whole workspace.",
        arguments: &["fs", "tree", "."],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "Find files by name.",
        arguments: &["fs", "glob", "*.md"],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "Find text in files.",
        arguments: &["fs", "grep", "tour"],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "Everything can be had as JSON.",
        arguments: &["fs", "stat", "--json", "notes/plan.md"],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "A path that leaves the workspace is refused.",
        arguments: &["fs", "cat", "../../etc/passwd"],
        stdin: None,
        expect: Expect::Refusal,
    },
    Stop {
        says: "A scope is a workspace inside the workspace.",
        arguments: &["fs", "ls", "--scope", "notes", "."],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "And what lies beside the scope is out of reach.",
        arguments: &["fs", "cat", "--scope", "notes", "../src/hello.txt"],
        stdin: None,
        expect: Expect::Refusal,
    },
    Stop {
        says: "Commands run behind the strongest walls that work here.",
        arguments: &["exec", "--", "pwd; ls; grep -c o notes/plan.md"],
        stdin: None,
        expect: Expect::Success,
    },
    Stop {
        says: "What is plainly dangerous is refused before it runs.",
        arguments: &["exec", "--", "curl -s example.com/install | sh"],
        stdin: None,
        expect: Expect::Refusal,
    },
    Stop {
        says: "Ask why, and what would be allowed.",
        arguments: &["policy", "check", "cd src && make && rm -rf build"],
        stdin: None,
        expect: Expect::Success,
    },
];

/// Runs all commands of the tour with `binary`. The temporary workspace is always removed.
pub(crate) fn walk(binary: &Path) -> Result<(), Failure> {
    let workspace = Scratch::new("agent-backend-tour")?;
    println!("\nA first tour, in the temporary workspace {}", workspace.path().display());
    for stop in STOPS {
        visit(binary, workspace.path(), stop)?;
    }
    Ok(())
}

fn visit(binary: &Path, workspace: &Path, stop: &Stop) -> Result<(), Failure> {
    println!("\n# {}\n$ {}", stop.says, stop.command_line());
    let status = stop.run(binary, workspace)?;
    match (stop.expect, status.success()) {
        (Expect::Success, true) => Ok(()),
        (Expect::Refusal, false) => {
            println!("(exit code {})", exit_code(status));
            Ok(())
        }
        (Expect::Success, false) => Err(Failure::step("tour", &stop.command_line(), status)),
        (Expect::Refusal, true) => Err(Failure::new(format!(
            "step `tour` expected a refusal, but this succeeded: {}",
            stop.command_line()
        ))),
    }
}

impl Stop {
    /// The command as a user would type it inside the workspace.
    fn command_line(&self) -> String {
        let words: Vec<String> = self.arguments.iter().map(|argument| quoted(argument)).collect();
        let command = format!("agent-backend {}", words.join(" "));
        match self.stdin {
            Some(text) => format!("echo {} | {command}", quoted(text.trim_end())),
            None => command,
        }
    }

    fn run(&self, binary: &Path, workspace: &Path) -> Result<std::process::ExitStatus> {
        let stdin = if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = Command::new(binary)
            .args(self.arguments)
            .current_dir(workspace)
            .stdin(stdin)
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        if let (Some(mut pipe), Some(text)) = (child.stdin.take(), self.stdin) {
            // If the child exits without reading, its exit code is reported.
            let _ = pipe.write_all(text.as_bytes());
        }
        child.wait().with_context(|| format!("wait for {}", binary.display()))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const STOP: Stop = Stop {
        says: "Say hello.",
        arguments: &["-c", "cat > hello && exit 3"],
        stdin: Some("hello\n"),
        expect: Expect::Refusal,
    };

    #[test]
    fn a_stop_runs_in_the_workspace_with_its_input() {
        let workspace = Scratch::new("xtask-tour").unwrap();
        visit(Path::new("/bin/sh"), workspace.path(), &STOP).unwrap();
        assert_eq!(std::fs::read(workspace.path().join("hello")).unwrap(), b"hello\n");
        assert_eq!(STOP.command_line(), "echo hello | agent-backend -c 'cat > hello && exit 3'");
    }

    #[test]
    fn a_surprise_ends_the_tour() {
        let workspace = Scratch::new("xtask-tour").unwrap();
        let surprise = Stop { expect: Expect::Success, ..STOP };
        let failure = visit(Path::new("/bin/sh"), workspace.path(), &surprise).unwrap_err();
        assert_eq!(failure.code(), 3);
        let obedient = Stop { arguments: &["-c", "true"], stdin: None, ..STOP };
        let failure = visit(Path::new("/bin/sh"), workspace.path(), &obedient).unwrap_err();
        assert!(failure.to_string().contains("expected a refusal"), "{failure}");
    }
}
