//! Prints a unified diff on standard output.

use anstyle::{AnsiColor, Style};

use crate::failure::Failure;
use crate::terminal::Terminal;

pub(crate) const ADDED: Style = AnsiColor::Green.on_default();
pub(crate) const REMOVED: Style = AnsiColor::Red.on_default();
const PLACE: Style = AnsiColor::Cyan.on_default();
const FILE: Style = Style::new().bold();

/// Prints a diff. On a terminal, it is coloured and control characters are removed.
pub(crate) fn print(diff: &str, terminal: &mut Terminal) -> Result<(), Failure> {
    if !terminal.is_watched() {
        return terminal.bytes(diff.as_bytes());
    }
    for line in diff.lines() {
        let shown = terminal.shown(line).into_owned();
        let painted = terminal.painted(style_of(line), &shown);
        terminal.line(&painted)?;
    }
    Ok(())
}

fn style_of(line: &str) -> Style {
    match line.as_bytes() {
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => FILE,
        [b'+', ..] => ADDED,
        [b'-', ..] => REMOVED,
        [b'@', ..] => PLACE,
        _ => Style::new(),
    }
}
