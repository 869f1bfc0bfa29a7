//! Tables of markdown: their rows and cells.

/// The cells of a table row. A bar after a backslash belongs to the text of its cell.
pub(crate) fn cells(line: &str) -> Option<Vec<String>> {
    let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let kept = inside.replace("\\|", "\u{0}");
    Some(kept.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect())
}

/// Whether this is the line of dashes between the head of a table and its rows.
pub(crate) fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('|') && line.contains('-') && line.chars().all(|c| "|-: ".contains(c))
}

/// The rows of the tables whose first column is called `head`, with their lines.
pub(crate) fn rows_below(text: &str, head: &str) -> Vec<(usize, Vec<String>)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut rows = Vec::new();
    let mut in_table = false;
    for (index, line) in lines.iter().enumerate() {
        let Some(cells) = cells(line) else {
            in_table = false;
            continue;
        };
        if lines.get(index + 1).is_some_and(|next| is_rule(next)) {
            in_table = cells.first().is_some_and(|first| first == head);
        } else if in_table && !is_rule(line) {
            rows.push((index + 1, cells));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_named_table_are_found() {
        let text = "| a | b |\n|---|---|\n| 1 | x \\| y |\n\n| c | d |\n|---|---|\n| 2 | z |\n";
        let row = |line, one: &str, two: &str| (line, vec![one.to_owned(), two.to_owned()]);
        assert_eq!(rows_below(text, "a"), [row(3, "1", "x | y")]);
        assert_eq!(rows_below(text, "c"), [row(7, "2", "z")]);
        assert_eq!(rows_below(text, "b"), []);
    }
}
