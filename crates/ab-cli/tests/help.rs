//! Help texts as people see them: whole outputs, kept in `tests/help`.

use std::fs;
use std::path::PathBuf;

use crate::stage::Stage;

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
const SCREEN: (usize, usize) = (36, 100);

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

#[test]
fn short_help_fits_a_screen() {
    let stage = Stage::new();
    for words in COMMANDS {
        let text = stage.out(&[*words, &["-h"]].concat());
        assert!(text.lines().count() <= SCREEN.0, "{words:?} has {} lines", text.lines().count());
        for line in text.lines() {
            assert!(line.chars().count() <= SCREEN.1, "{words:?}: {line}");
        }
        let flags = text.lines().filter(|line| line.trim_start().starts_with('-'));
        assert!(flags.count() <= 9, "{words:?}: {text}");
        // A flag whose text does not fit its line goes on far to the right.
        let wrapped = text.lines().find(|line| line.starts_with("                "));
        assert_eq!(wrapped, None, "{words:?}: {text}");
    }
}

#[test]
fn remote_flags_come_last() {
    let stage = Stage::new();
    for words in [&["exec"][..], &["mcp"], &["fs", "ls"], &["fs", "grep"], &["job", "list"]] {
        let text = stage.out(&[words, &["--help"]].concat());
        let headings: Vec<&str> = text
            .lines()
            .filter(|line| line.ends_with(':') && !line.starts_with(' ') && *line != "Examples:")
            .collect();
        let after = ["Exit codes:", "In the configuration of an MCP client:"];
        let last = headings.iter().rfind(|heading| !after.contains(heading));
        assert_eq!(last, Some(&"Remote workspace:"), "{words:?}: {headings:?}");
    }
}
