//! Help texts as people see them: whole outputs, kept in `tests/help`.

use std::fs;
use std::path::PathBuf;

use crate::stage::{BINARY, Stage, run};

/// Commands whose help is kept, short and long.
const COMMANDS: &[&[&str]] = &[
    &["exec"],
    &["job"],
    &["job", "list"],
    &["job", "logs"],
    &["job", "attach"],
    &["job", "kill"],
    &["fs"],
    &["fs", "ls"],
    &["fs", "tree"],
    &["fs", "grep"],
    &["fs", "mkdir"],
    &["fs", "cp"],
    &["fs", "get"],
    &["fs", "put"],
    &["mcp"],
    &["daemon"],
];
/// Rows and columns of a screen.
const SCREEN: (usize, usize) = (24, 80);

/// Set `UPDATE_HELP=1` to write the texts anew after a change that was meant.
#[test]
fn help_texts_are_the_kept_ones() {
    let stage = Stage::new();
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let update = std::env::var_os("UPDATE_HELP").is_some();
    for words in COMMANDS {
        for (flag, name) in [("-h", "short"), ("--help", "long")] {
            let text = stage.out(&[*words, &[flag]].concat());
            let file = kept.join(format!("{}.{name}.txt", words.join("-")));
            if update {
                fs::create_dir_all(&kept).unwrap();
                fs::write(&file, &text).unwrap();
            }
            let expected = fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(text, expected, "{}", file.display());
        }
    }
}

/// The help on a screen of 80 columns.
fn narrow(stage: &Stage, words: &[String], flag: &str) -> String {
    let mut command = stage.command(BINARY);
    command.args(words).arg(flag).env("COLUMNS", SCREEN.1.to_string());
    run(command, b"").text()
}

/// Subcommands in the list of a help text.
fn listed(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = list.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command, with all of its subcommands.
fn all_commands(stage: &Stage, words: &[String]) -> Vec<Vec<String>> {
    let mut all = vec![words.to_vec()];
    for name in listed(&narrow(stage, words, "-h")) {
        all.extend(all_commands(stage, &[words, &[name]].concat()));
    }
    all
}

#[test]
fn short_help_fits_a_screen_and_has_an_example() {
    let stage = Stage::new();
    let all = all_commands(&stage, &[]);
    assert!(all.len() > 60, "{all:?}");
    let is_new = |words: &Vec<String>| {
        words.first().is_some_and(|word| ["draft", "remote", "key"].contains(&word.as_str()))
    };
    for words in all.into_iter().filter(|words| !is_new(words)) {
        let text = narrow(&stage, &words, "-h");
        let lines = text.lines().count();
        // A list of many commands cannot be shorter.
        let most = SCREEN.0.max(listed(&text).len() + 20);
        assert!(lines <= most, "{words:?} has {lines} lines:\n{text}");
        assert!(text.contains("Example"), "{words:?} has no example:\n{text}");
    }
}

/// Lines of examples and tables are not wrapped, and paragraphs are wrapped once.
#[test]
fn long_help_is_wrapped_once() {
    let stage = Stage::new();
    for words in all_commands(&stage, &[]) {
        if words.first().is_some_and(|word| ["draft", "remote", "key"].contains(&word.as_str())) {
            continue;
        }
        let text = narrow(&stage, &words, "--help");
        for line in text.lines() {
            assert!(line.chars().count() <= SCREEN.1, "{words:?}: {line}");
        }
        // In a paragraph that is wrapped twice, a short line is followed by more text.
        let after = text.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
        let after: Vec<&str> = after.collect();
        for pair in after.windows(2) {
            let [line, next] = pair else { continue };
            let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
            let first = next.split(' ').next().unwrap_or_default();
            let is_short = line.chars().count() + 1 + first.chars().count() <= SCREEN.1;
            let is_split = is_text(line) && is_text(next) && is_short && !line.ends_with(':');
            assert!(!is_split, "{words:?}: '{line}' and '{next}' are one paragraph");
        }
    }
}

#[test]
fn remote_flags_come_last() {
    let stage = Stage::new();
    for words in [&["exec"][..], &["mcp"], &["fs", "ls"], &["fs", "grep"], &["job", "list"]] {
        let text = stage.out(&[words, &["--help"]].concat());
        let headings: Vec<&str> = text
            .lines()
            .filter(|line| {
                line.ends_with(':') && !line.starts_with(' ') && !line.starts_with("Example")
            })
            .collect();
        let after = ["Exit codes:", "In the configuration of an MCP client:"];
        let last = headings.iter().rfind(|heading| !after.contains(heading));
        assert_eq!(last, Some(&"Remote workspace:"), "{words:?}: {headings:?}");
    }
}
