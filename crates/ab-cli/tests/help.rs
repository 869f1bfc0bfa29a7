//! Help texts as people see them: whole outputs, kept in `tests/help`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::stage::{BINARY, Stage, run};

/// Rows and columns of a screen.
const SCREEN: (usize, usize) = (24, 80);

/// One file for each command of the top, with the texts of all of its subcommands. Set `UPDATE_HELP=1` to write them
/// anew after a change that was meant.
#[test]
fn help_texts_are_the_kept_ones() {
    let stage = Stage::new();
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let update = std::env::var_os("UPDATE_HELP").is_some();
    let mut texts = BTreeMap::<String, String>::new();
    for words in all_commands(&stage, &[]) {
        let name = words.first().map_or("agent-backend", String::as_str);
        let file = texts.entry(format!("{name}.txt")).or_default();
        for flag in ["-h", "--help"] {
            let line = [&["agent-backend".to_owned()], &words[..], &[flag.to_owned()]].concat();
            file.push_str(&format!("$ {}\n{}\n", line.join(" "), narrow(&stage, &words, flag)));
        }
    }
    if update {
        fs::remove_dir_all(&kept).unwrap();
        fs::create_dir_all(&kept).unwrap();
        for (file, text) in &texts {
            fs::write(kept.join(file), text).unwrap();
        }
    }
    for (file, text) in &texts {
        let expected = fs::read_to_string(kept.join(file)).unwrap_or_default();
        assert_eq!(*text, expected, "{file} has changed; UPDATE_HELP=1 writes it anew");
    }
    let files = fs::read_dir(&kept).unwrap().flatten();
    let files = files.map(|entry| entry.file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), texts.into_keys().collect());
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
    // The flags of `daemon` for commands have the same heading.
    names.filter(|name| *name != "help" && !name.starts_with('-')).map(str::to_owned).collect()
}

/// Every command, with all of its subcommands.
pub(crate) fn all_commands(stage: &Stage, words: &[String]) -> Vec<Vec<String>> {
    let mut all = vec![words.to_vec()];
    for name in listed(&narrow(stage, words, "--help")) {
        all.extend(all_commands(stage, &[words, &[name]].concat()));
    }
    all
}

#[test]
fn short_help_fits_a_screen_and_has_an_example() {
    let stage = Stage::new();
    let all = all_commands(&stage, &[]);
    assert!(all.len() > 60, "{all:?}");
    for words in all {
        let text = narrow(&stage, &words, "-h");
        let lines = text.lines().count();
        // The program itself has more commands than fit on one screen with an example.
        let most = if words.is_empty() { SCREEN.0 + 6 } else { SCREEN.0 };
        assert!(lines <= most, "{words:?} has {lines} lines:\n{text}");
        assert!(text.contains("Example"), "{words:?} has no example:\n{text}");
    }
}

/// Lines of examples and tables are not wrapped, and paragraphs are wrapped once.
#[test]
fn long_help_is_wrapped_once() {
    let stage = Stage::new();
    for words in all_commands(&stage, &[]) {
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
