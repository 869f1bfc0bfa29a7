//! Prints tables for people: aligned columns below headings. An empty list prints nothing.

use crate::failure::Failure;
use crate::terminal::Terminal;

/// Prints rows below their headings. Control characters in cells are escaped, so that they cannot
/// move the cursor.
///
/// # Errors
///
/// Fails if standard output cannot be written.
pub(crate) fn print<const COLUMNS: usize>(
    headings: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    for line in lines(headings, rows) {
        let line = terminal.shown(&line).into_owned();
        terminal.line(&line)?;
    }
    Ok(())
}

fn lines<const COLUMNS: usize>(
    headings: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> Vec<String> {
    let headings = headings.map(str::to_owned);
    let all = || std::iter::once(&headings).chain(rows);
    let mut widths = [0; COLUMNS];
    for row in all() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| {
            // Replace line breaks, so that the rest of the row stays under its headings.
            let cell = cell.replace(['\n', '\r'], " ");
            format!("{cell:<width$}")
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "long cell"], ["longer name", "b\nc"]].map(|row| row.map(str::to_owned));
        let expect = ["NAME         WHAT", "a            long cell", "longer name  b c"];
        assert_eq!(lines(["NAME", "WHAT"], &rows), expect);
    }
}
