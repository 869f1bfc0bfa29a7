//! A unified diff as coloured lines.

use maud::{Markup, html};

/// Larger diffs are cut on the page; the patch itself is whole.
const SHOWN_LINES: usize = 4_000;

/// The files of a unified diff.
pub(super) fn diff(text: &str) -> Markup {
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[..lines.len().min(SHOWN_LINES)];
    let starts: Vec<usize> = shown
        .iter()
        .enumerate()
        .filter(|(_, line)| line.starts_with("diff --git "))
        .map(|(at, _)| at)
        .collect();
    let ends = starts.iter().skip(1).copied().chain([shown.len()]);
    html! {
        @for (start, end) in starts.iter().copied().zip(ends) { (file(&shown[start..end])) }
        @if lines.len() > shown.len() {
            p.meta { "The first " (SHOWN_LINES) " of " (lines.len()) " lines. The patch has them all." }
        }
    }
}

fn file(lines: &[&str]) -> Markup {
    let is_body = |line: &&&str| !line.starts_with("+++") && !line.starts_with("---");
    let count = |sign: char| {
        lines.iter().filter(is_body).filter(|line| line.starts_with(sign)).count() as u64
    };
    html! {
        section.diff {
            div.file { span.name { (name(lines)) } (super::events::counts(count('+'), count('-'))) }
            pre {
                @for line in lines.iter().skip_while(|line| !line.starts_with("@@") && !line.starts_with("Binary")) {
                    span class=(class(line)) { (line) "\n" }
                }
            }
        }
    }
}

/// The name of the file after the change, or before it where it was deleted.
fn name<'a>(lines: &[&'a str]) -> &'a str {
    let marked = |mark: &str| {
        lines.iter().find_map(|line| line.strip_prefix(mark)).filter(|name| *name != "/dev/null")
    };
    let named = marked("+++ ").or_else(|| marked("--- ")).unwrap_or_else(|| {
        lines.first().and_then(|line| line.rsplit(' ').next()).unwrap_or_default()
    });
    named.strip_prefix("b/").or_else(|| named.strip_prefix("a/")).unwrap_or(named)
}

fn class(line: &str) -> &'static str {
    match line.as_bytes().first() {
        Some(b'+') => "a",
        Some(b'-') => "r",
        Some(b'@' | b'\\') => "h",
        _ => "c",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "diff --git a/old.txt b/new.txt\n--- a/old.txt\n+++ b/new.txt\n@@ -1 +1,2 @@\n-<b>one</b>\n+two\n+three\n\
                       diff --git a/gone b/gone\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";

    #[test]
    fn files_are_named_and_counted() {
        let shown = diff(TWO).into_string();
        for part in ["new.txt", "+2", "−1", "gone", "&lt;b&gt;one"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("<b>"), "{shown}");
    }

    #[test]
    fn long_diffs_are_cut_and_say_so() {
        let long = format!(
            "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n{}",
            "+y\n".repeat(SHOWN_LINES)
        );
        assert!(diff(&long).into_string().contains("The patch has them all"));
    }
}
