//! Renders a unified diff as coloured lines, one part for each file.

use maud::{Markup, html};

use super::rows::counts;
use super::text::{clean, cut};

/// Maximum number of lines of a diff on the page. The patch that can be downloaded is complete.
const SHOWN_LINES: usize = 4_000;
/// Maximum number of bytes that are shown of one line.
const SHOWN_BYTES: usize = 2_000;
/// A file with more lines than this is collapsed at first.
const OPEN_LINES: usize = 400;

/// Maximum number of files in the list of their names.
const LISTED_FILES: usize = 500;

/// The files of a unified diff.
#[derive(Debug)]
pub(super) struct Diff<'a> {
    /// All files, including those that are not shown.
    files: Vec<DiffFile<'a>>,
    /// The number of all lines, including those that are not shown.
    lines: usize,
}

#[derive(Debug)]
struct DiffFile<'a> {
    name: &'a str,
    /// A change of the file that is not a change of its lines.
    note: Option<&'static str>,
    /// The lines of the hunks that are shown, without the file header.
    body: Vec<&'a str>,
    /// Whether the file begins within the lines that are shown.
    is_shown: bool,
    /// The number of all added lines, including those that are not shown.
    added: u64,
    removed: u64,
}

impl<'a> Diff<'a> {
    pub(super) fn parse(text: &'a str) -> Diff<'a> {
        let lines: Vec<&str> = text.split_terminator('\n').collect();
        let is_start = |line: &&str| line.starts_with("diff --git ");
        let starts: Vec<usize> =
            lines.iter().enumerate().filter(|(_, line)| is_start(line)).map(|(at, _)| at).collect();
        let ends = starts.iter().skip(1).copied().chain([lines.len()]);
        let files = starts.iter().copied().zip(ends).map(|(start, end)| {
            DiffFile::parse(&lines[start..end], SHOWN_LINES.saturating_sub(start))
        });
        Diff { files: files.collect(), lines: lines.len() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// A list of the file names, each with a link to the file's part of the page.
    pub(super) fn list(&self) -> Markup {
        html! {
            ul.files {
                @for (at, file) in self.files.iter().take(LISTED_FILES).enumerate() {
                    li {
                        @if file.is_shown {
                            a.mono href={ "#file-" (at) } title=(clean(file.name)) { (clean(file.name)) }
                        } @else {
                            span.mono title=(clean(file.name)) { (clean(file.name)) }
                        }
                        (counts(file.added, file.removed))
                    }
                }
            }
            @if self.files.len() > LISTED_FILES {
                p.quiet.small { "And " (self.files.len() - LISTED_FILES) " more files." }
            }
            @if self.lines > SHOWN_LINES {
                p.quiet.small { "Only the first " (SHOWN_LINES) " of " (self.lines) " lines are shown on this page." }
            }
        }
    }

    pub(super) fn files(&self, patch: &str) -> Markup {
        let (added, removed) = self
            .files
            .iter()
            .fold((0, 0), |(added, removed), file| (added + file.added, removed + file.removed));
        html! {
            p.meta {
                span { (self.files.len()) @if self.files.len() == 1 { " file " } @else { " files " } (counts(added, removed)) }
                a href=(patch) { "Patch" }
            }
            @for (at, file) in self.files.iter().enumerate().filter(|(_, file)| file.is_shown) { (file.shown(at)) }
            @if self.lines > SHOWN_LINES {
                p.quiet { "The first " (SHOWN_LINES) " of " (self.lines) " lines are shown. The patch has them all." }
            }
        }
    }
}

impl<'a> DiffFile<'a> {
    /// Parses the lines of one file, of which the first `shown` are shown.
    fn parse(lines: &[&'a str], shown: usize) -> DiffFile<'a> {
        let start = lines.iter().position(|line| line.starts_with("@@")).unwrap_or(lines.len());
        let (header, body) = lines.split_at(start);
        let count = |sign: char| body.iter().filter(|line| line.starts_with(sign)).count() as u64;
        let says = |start: &str| header.iter().any(|line| line.starts_with(start));
        let note = [
            ("new file", "new"),
            ("deleted file", "deleted"),
            ("rename from", "renamed"),
            ("Binary files", "binary"),
            ("GIT binary patch", "binary"),
            ("new mode", "mode changed"),
        ];
        DiffFile {
            name: name(header),
            note: note.into_iter().find(|(start, _)| says(start)).map(|(_, note)| note),
            body: body[..body.len().min(shown.saturating_sub(header.len()))].to_vec(),
            is_shown: shown > 0,
            added: count('+'),
            removed: count('-'),
        }
    }

    fn shown(&self, at: usize) -> Markup {
        html! {
            details.diff id={ "file-" (at) } open[self.body.len() <= OPEN_LINES] {
                summary {
                    span.name.mono { (clean(self.name)) }
                    @if let Some(note) = self.note { span.tag { (note) } }
                    (counts(self.added, self.removed))
                }
                @if !self.body.is_empty() {
                    pre tabindex="0" { @for line in &self.body { (one(line)) } }
                }
            }
        }
    }
}

fn one(line: &str) -> Markup {
    let (kept, left_out) = cut(line, SHOWN_BYTES);
    // Replace carriage returns, so that they cannot hide the rest of the line.
    let kept = kept.replace('\r', "␍");
    let class = match line.as_bytes().first() {
        Some(b'+') => "a",
        Some(b'-') => "r",
        Some(b'@' | b'\\') => "h",
        _ => "c",
    };
    html! {
        span class=(class) { (clean(&kept)) @if left_out > 0 { "… (" (left_out) " more bytes)" } "\n" }
    }
}

/// The name of the file after the change, or before it if the file was deleted.
fn name<'a>(header: &[&'a str]) -> &'a str {
    let marked = |mark: &str| {
        header.iter().find_map(|line| line.strip_prefix(mark)).filter(|name| *name != "/dev/null")
    };
    let named = marked("+++ ").or_else(|| marked("--- ")).or_else(|| marked("rename to "));
    let named = named.unwrap_or_else(|| {
        header.first().and_then(|line| line.rsplit(' ').next()).unwrap_or_default()
    });
    named.strip_prefix("b/").or_else(|| named.strip_prefix("a/")).unwrap_or(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "diff --git a/old.txt b/new.txt\n--- a/old.txt\n+++ b/new.txt\n@@ -1 +1,2 @@\n-<b>one</b>\n+two\n+--- \u{202e}three\r\n\
                       diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";

    fn shown(text: &str) -> String {
        let diff = Diff::parse(text);
        diff.files("/patch").into_string() + &diff.list().into_string()
    }

    #[test]
    fn files_are_named_and_counted() {
        let shown = shown(TWO);
        for part in
            ["new.txt", "+2", "−1", ">gone<", ">deleted<", "&lt;b&gt;one", "\\u{202e}three␍"]
        {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("<b>"), "{shown}");
        assert!(Diff::parse("").is_empty());
    }

    #[test]
    fn files_behind_the_shown_lines_are_listed_and_counted() {
        let head = |name: &str| {
            format!("diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -0,0 +1 @@\n")
        };
        let long = format!("{}{}", head("long"), "+y\n".repeat(SHOWN_LINES + 100));
        let text = format!("{long}{}{}", head("second"), "+z\n-z\n".repeat(7));
        let diff = Diff::parse(&text);
        let (list, files) = (diff.list().into_string(), diff.files("/patch").into_string());
        assert!(list.contains(">second<") && list.contains("+7") && list.contains("−7"), "{list}");
        assert!(list.contains("+4100") && !list.contains("#file-1"), "{list}");
        assert!(list.contains("Only the first 4000 of 4122 lines"), "{list}");
        assert!(files.contains("2 files") && files.contains("+4107"), "{files}");
        assert!(!files.contains("second"), "{files}");
    }

    #[test]
    fn long_diffs_are_cut_and_say_so() {
        let head = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n";
        let many = shown(&format!("{head}{}", "+y\n".repeat(SHOWN_LINES)));
        assert!(many.contains("The patch has them all"));
        assert!(!many.contains("open"), "long files are closed at first");
        let wide = shown(&format!("{head}+{}\n", "y".repeat(1_000_000)));
        assert!(wide.len() < 10_000 && wide.contains("998001 more bytes"), "{}", wide.len());
    }
}
