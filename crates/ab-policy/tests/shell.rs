//! What the analysis lists is what a shell runs: against bash itself, with stubs for programs, and
//! against another parser.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ab_policy::{CommandCheckContext, CommandFindingKind, PolicyTestSuite, analyse_command};
use ab_testkit::host;

use crate::corpus::files;

const BASH: &str = "/bin/bash";
const STUBS: [&str; 3] = ["alpha", "beta", "gamma"];
/// Real programs that start others.
const REAL: [&str; 12] = [
    "env", "nice", "nohup", "timeout", "find", "xargs", "bash", "sh", "cat", "setsid", "stdbuf",
    "sleep",
];

/// A directory with stubs that write down their words, one call to a line.
struct Stage {
    keep: tempfile::TempDir,
}

impl Stage {
    fn new() -> Stage {
        let stage = Stage { keep: tempfile::tempdir().unwrap() };
        let bin = stage.path("bin");
        fs::create_dir_all(&bin).unwrap();
        for name in STUBS {
            let stub = bin.join(name);
            let log = stage.path("log");
            let text = format!(
                "#!/bin/sh\nline={name}\nfor word in \"$@\"; do line=\"$line|$word\"; done\nprintf '%s\\n' \"$line\" >> '{}'\n",
                log.display()
            );
            fs::write(&stub, text).unwrap();
            fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in REAL {
            let real = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
            if let Some(real) = real.iter().find(|path| path.exists()) {
                symlink(real, bin.join(name)).unwrap();
            }
        }
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    /// What bash started, in no particular order.
    fn started(&self, command: &str) -> Vec<String> {
        let work = self.path("work");
        let _ = fs::remove_dir_all(&work);
        let _ = fs::remove_file(self.path("log"));
        fs::create_dir_all(work.join("sub")).unwrap();
        fs::write(work.join("in"), "").unwrap();
        Command::new(BASH)
            .args(["-c", command])
            .current_dir(&work)
            .env_clear()
            .env("PATH", self.path("bin"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// What the analysis says would be started.
    fn listed(&self, command: &str) -> Vec<String> {
        let work = self.path("work").canonicalize().unwrap();
        let scene = CommandCheckContext::new().with_root_alias(&work.display().to_string());
        let analysis = analyse_command(command, &scene);
        let stub = |words: &[ab_policy::analysis::ExpandedShellWord]| {
            STUBS.contains(&words[0].text.as_str()).then(|| {
                let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
                words.join("|")
            })
        };
        let mut lines: Vec<String> = analysis
            .started_commands_with_index()
            .filter_map(|(_, command)| stub(&command.words))
            .collect();
        lines.sort();
        lines
    }
}

fn executed() -> PolicyTestSuite {
    files().into_iter().find(|(name, _)| name == "executed").unwrap().1
}

#[test]
fn what_is_listed_is_what_bash_starts() {
    if !Path::new(BASH).exists() {
        return host::report_skip("compare with bash", "there is no bash");
    }
    let stage = Stage::new();
    let mut wrong = Vec::new();
    for case in executed().cases {
        let started = stage.started(&case.command);
        let listed = stage.listed(&case.command);
        // Text that the analysis cannot know is shown as it was written, and bash knows better.
        let known = !case.command.contains("$0")
            && !case.command.contains("$((")
            && !case.command.contains("xargs");
        let same = if known { started == listed } else { started.len() == listed.len() };
        if !same {
            wrong.push(format!("{:?}: bash {started:?}, we {listed:?}", case.command));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_bash_refuses_to_parse_is_refused() {
    if !Path::new(BASH).exists() {
        return host::report_skip("compare with bash", "there is no bash");
    }
    let mut wrong = Vec::new();
    for (_, corpus) in files() {
        for case in corpus.cases {
            let parsed = Command::new(BASH)
                .args(["-n", "-c", "--", &case.command])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success();
            let found = analyse_command(&case.command, &CommandCheckContext::new()).findings;
            let ours = found.iter().any(|found| {
                matches!(found.kind, CommandFindingKind::Unparsable | CommandFindingKind::OverLimit)
            });
            if !parsed && !ours {
                wrong.push(case.command);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The names of commands in a tree of the other parser; nothing when it sees an error.
fn other_names(command: &str) -> Option<BTreeSet<String>> {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).unwrap();
    let tree = parser.parse(command, None)?;
    if tree.root_node().has_error() {
        return None;
    }
    let mut names = BTreeSet::new();
    let mut open = vec![tree.root_node()];
    while let Some(node) = open.pop() {
        if node.kind() == "command_name" {
            let text = &command[node.byte_range()];
            if text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
                names.insert(text.to_owned());
            }
        }
        open.extend((0..node.child_count()).filter_map(|at| node.child(at)));
    }
    Some(names)
}

#[test]
fn another_parser_sees_no_command_that_we_do_not() {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for (_, corpus) in files() {
        for case in corpus.cases {
            let analysis = analyse_command(
                &case.command,
                &CommandCheckContext::new().with_root_alias("/workspace"),
            );
            let unclear = |effect: CommandFindingKind| {
                matches!(effect, CommandFindingKind::Unparsable | CommandFindingKind::OverLimit)
            };
            // The other parser takes a line that goes on for two words.
            let joined = case.command.contains("\\\n");
            if joined || analysis.findings.iter().any(|found| unclear(found.kind)) {
                continue;
            }
            let Some(names) = other_names(&case.command) else { continue };
            compared += 1;
            let ours: BTreeSet<&str> =
                analysis.commands.iter().map(|command| command.words[0].text.as_str()).collect();
            let keyword = |name: &str| matches!(name, "coproc" | "time" | "select");
            let missing: Vec<&String> = names
                .iter()
                .filter(|name| !ours.contains(name.as_str()) && !keyword(name))
                .collect();
            if !missing.is_empty() {
                wrong.push(format!("{:?}: {missing:?}", case.command));
            }
        }
    }
    assert!(compared > 500, "only {compared} compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
