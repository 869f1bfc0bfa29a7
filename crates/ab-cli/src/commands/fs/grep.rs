//! `fs grep`: finds text in files.

mod printer;

use std::ffi::{OsStr, OsString};

use ab_core::backend::GrepOptions;
use ab_core::search::text::{MAX_CONTEXT_LINES, MAX_SEARCH_LINE_BYTES};
use ab_core::search::{
    CaseSensitivity, DEFAULT_MAX_TOTAL_MATCH_BYTES, LineSelection, MatchLineMode, PatternSyntax,
    SearchLimits, SearchLineRole, SearchMatch, SearchOutputMode, SearchResults,
};
use ab_core::{Backend, WsPath};
use clap::Args;

use self::printer::{Needle, Printer};
use super::ls::at_least_one;
use super::search::{Gaps, SearchFlags, patterns, verdict};
use crate::count::counted;
use crate::failure::Failure;
use crate::json;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Characters that are common in regular expressions and rare in literal text. Used for a hint.
const REGEX_SIGNS: [char; 8] = ['*', '+', '^', '$', '|', '\\', '[', '?'];

/// Find text in files
///
/// The pattern is plain text unless -E or -e is given. Subdirectories are searched. Files
/// that .gitignore names, build output, caches and binary files are left out; standard error says how many. Matches are
/// printed as path:line:text and lines around them as path-line-text; on a terminal the path is a heading.
///
/// The exit code is 0 if something was found and 1 if not, 2 for an invalid pattern, and 4 if nothing was found but a
/// limit ended the search or a file could not be read.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent-backend fs grep 'fn main'
  agent-backend fs grep -E 'fn \\w+_test' src --include '*.rs' -C 2
  agent-backend fs grep -w -e error -e warning
  agent-backend fs grep -o -e 'https?://[^ )]+' README.md
  agent-backend fs grep -q unsafe src && echo found
  agent-backend fs grep -i todo --no-ignore --count")]
pub(crate) struct Grep {
    /// Text to find
    #[arg(value_name = "PATTERN", required_unless_present = "patterns")]
    pattern: Option<OsString>,

    /// Directory to search, or a single file [default: .]
    #[arg(value_name = "PATH")]
    path: Option<OsString>,

    /// Take the pattern as a regular expression
    #[arg(short = 'E', long)]
    regex: bool,

    /// Ignore case
    #[arg(short, long)]
    ignore_case: bool,

    /// Ignore case if the pattern has no capital letter
    #[arg(short = 'S', long, conflicts_with = "ignore_case")]
    smart_case: bool,

    /// Match whole words only
    #[arg(short, long)]
    word_regexp: bool,

    /// Match whole lines only
    #[arg(short = 'x', long, conflicts_with = "word_regexp")]
    line_regexp: bool,

    /// Find the lines that do not match
    #[arg(short = 'v', long)]
    invert_match: bool,

    /// Print only the matched parts of lines, each on a line of its own
    #[arg(short = 'o', long, conflicts_with_all = ["invert_match", "context", "after_context", "before_context"])]
    only_matching: bool,

    /// Print nothing; the exit code says whether there is a match
    #[arg(short = 'q', long)]
    silent: bool,

    /// Print only the names of files with a match
    #[arg(short = 'l', long, conflicts_with_all = ["count", "files_without_match"])]
    files_with_matches: bool,

    /// Print only the names of files without a match
    #[arg(short = 'L', long, conflicts_with = "count")]
    files_without_match: bool,

    /// Find at most N lines in each file
    #[arg(short = 'm', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_count: Option<u64>,

    /// Print lines before and after each match
    #[arg(short = 'C', long, value_name = "N", value_parser = context_lines)]
    context: Option<usize>,

    /// Print lines after each match
    #[arg(short = 'A', long, value_name = "N", value_parser = context_lines)]
    after_context: Option<usize>,

    /// Print lines before each match
    #[arg(short = 'B', long, value_name = "N", value_parser = context_lines)]
    before_context: Option<usize>,

    /// Print only the number of matching lines of each file
    #[arg(short, long)]
    count: bool,

    /// Regular expression to find, or plain text with -F; can be repeated
    #[arg(short = 'e', value_name = "PATTERN", allow_hyphen_values = true)]
    patterns: Vec<OsString>,

    /// Let a match span several lines; a dot matches line ends too
    #[arg(short = 'U', long)]
    multiline: bool,

    /// Take the pattern as plain text; this is the default
    #[arg(short = 'F', long, conflicts_with = "regex")]
    fixed_strings: bool,

    /// Print line numbers; this is always done
    #[arg(short = 'n', long)]
    line_number: bool,

    /// Search subdirectories; this is always done
    #[arg(short = 'r', long, visible_short_alias = 'R')]
    recursive: bool,

    /// Search only files that match; can be repeated
    #[arg(short = 'g', long, value_name = "GLOB", help_heading = "Search")]
    include: Vec<OsString>,

    /// Print at most N bytes of paths and lines
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_MAX_TOTAL_MATCH_BYTES,
        value_parser = at_least_one,
        help_heading = "Search"
    )]
    bytes: usize,

    #[command(flatten)]
    flags: SearchFlags,
}

impl Grep {
    fn is_regex(&self) -> bool {
        self.regex || (!self.patterns.is_empty() && !self.fixed_strings)
    }

    /// The path to search. With `-e`, it is the first operand.
    fn path(&self) -> Result<&OsStr, Failure> {
        let default = OsStr::new(".");
        match (self.patterns.is_empty(), &self.pattern, &self.path) {
            (true, _, path) => Ok(path.as_deref().unwrap_or(default)),
            (false, path, None) => Ok(path.as_deref().unwrap_or(default)),
            (false, _, Some(path)) => {
                let message = format!("unexpected argument '{}'", path.to_string_lossy());
                Err(Failure::usage(message).with_hint("with -e PATTERN, name one path at most"))
            }
        }
    }

    /// The text to search for and its syntax. A single pattern is used unchanged. Several patterns,
    /// or patterns that must match whole words, are combined into one regular expression.
    fn query(&self, root: &WsPath) -> Result<(String, PatternSyntax), Failure> {
        let given = match self.patterns.as_slice() {
            [] => self.pattern.as_slice(),
            several => several,
        };
        let texts = patterns(given, root)?;
        if texts.len() <= 1 && !self.word_regexp && !self.line_regexp {
            let syntax =
                if self.is_regex() { PatternSyntax::Regex } else { PatternSyntax::Literal };
            return Ok((texts.into_iter().next().unwrap_or_default(), syntax));
        }
        let part =
            |text: String| if self.is_regex() { format!("(?:{text})") } else { escaped(&text) };
        let any = texts.into_iter().map(part).collect::<Vec<_>>().join("|");
        let pattern = match (self.line_regexp, self.word_regexp) {
            (true, _) => format!("^(?:{any})$"),
            (false, true) => format!(r"\b(?:{any})\b"),
            (false, false) => any,
        };
        Ok((pattern, PatternSyntax::Regex))
    }

    fn span(&self) -> MatchLineMode {
        if self.multiline { MatchLineMode::MultiLine } else { MatchLineMode::SingleLine }
    }

    fn case(&self, pattern: &str) -> CaseSensitivity {
        let is_lower_case = || !pattern.chars().any(char::is_uppercase);
        if self.ignore_case || (self.smart_case && is_lower_case()) {
            CaseSensitivity::Insensitive
        } else {
            CaseSensitivity::Sensitive
        }
    }

    fn lines(&self) -> LineSelection {
        if self.invert_match { LineSelection::NonMatching } else { LineSelection::Matching }
    }

    fn answer(&self) -> SearchOutputMode {
        if self.files_without_match {
            SearchOutputMode::FilesWithoutMatch
        } else if self.files_with_matches || self.silent {
            SearchOutputMode::Files
        } else if self.count {
            SearchOutputMode::Counts
        } else if self.only_matching {
            SearchOutputMode::MatchedParts
        } else {
            SearchOutputMode::Lines
        }
    }

    fn limits(&self) -> SearchLimits {
        let limits = SearchLimits { max_bytes: self.bytes, ..self.flags.limits() };
        // Without output, the first match is enough.
        if self.silent { SearchLimits { max_matches: 1, ..limits } } else { limits }
    }

    fn before(&self) -> usize {
        self.before_context.or(self.context).unwrap_or(0)
    }

    fn after(&self) -> usize {
        self.after_context.or(self.context).unwrap_or(0)
    }
}

pub(crate) async fn run(
    command: &Grep,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = path_text(command.path()?)?;
    let root = backend.parse_path(path)?;
    let (pattern, syntax) = command.query(&root)?;
    let pattern = pattern.as_str();
    let options = GrepOptions {
        root: path.to_owned(),
        syntax,
        case: command.case(pattern),
        line_mode: command.span(),
        lines: command.lines(),
        max_lines_per_file: command.max_count,
        context_before: command.before(),
        context_after: command.after(),
        output_mode: command.answer(),
        include: patterns(&command.include, &root)?,
        exclude: command.flags.exclude(&root)?,
        ignore: command.flags.ignore(),
        dotfiles: command.flags.hidden(),
        ignore_files: command.flags.ignore_files(),
        limits: command.limits(),
    };
    let found = backend.grep(pattern, options).await?;
    match terminal.format() {
        Format::Json => terminal.value(&json::found(&root.to_string(), &found))?,
        Format::Text if command.silent => {
            for problem in &found.problems {
                terminal.warn(&problem.error);
            }
        }
        Format::Text => {
            let needle = match command.lines() {
                LineSelection::Matching => Needle::of(pattern, syntax, command.case(pattern)),
                LineSelection::NonMatching => None,
            };
            let mut printer = Printer::new(needle, command.before() + command.after() > 0);
            for found in &found.matches {
                printer.print(found, terminal)?;
            }
            tell(command, pattern, &found, terminal);
        }
    }
    verdict(!found.matches.is_empty(), found.truncated, &found.problems)
}

/// Prints notes about matches that the printed lines do not contain.
fn tell(command: &Grep, pattern: &str, found: &SearchResults, terminal: &mut Terminal) {
    let is_cut =
        |found: &&SearchMatch| matches!(found, SearchMatch::Line { full_line_bytes: Some(_), .. });
    let cut = found.matches.iter().filter(is_cut).count() as u64;
    if cut > 0 {
        let lines = counted(cut, "line was", "lines were");
        terminal.note(&format!("{lines} cut after {MAX_SEARCH_LINE_BYTES} bytes"));
    }
    if found.binary_files_skipped > 0 {
        let files = counted(found.binary_files_skipped, "binary file was", "binary files were");
        terminal.note(&format!("{files} not searched"));
    }
    let shown = match command.answer() {
        SearchOutputMode::Lines | SearchOutputMode::MatchedParts => {
            let is_match = |found: &&SearchMatch| {
                matches!(found, SearchMatch::Line { role: SearchLineRole::Match, .. })
            };
            let matches = found.matches.iter().filter(is_match).count();
            counted(matches as u64, "match", "matches")
        }
        SearchOutputMode::Files
        | SearchOutputMode::Counts
        | SearchOutputMode::FilesWithoutMatch => {
            counted(found.matches.len() as u64, "file", "files")
        }
    };
    let SearchResults { truncated, ignored_entries: left_out, problems, .. } = found;
    Gaps { shown, truncated: *truncated, left_out: *left_out, problems }.tell(terminal);
    let mistaken = !command.is_regex() && !command.fixed_strings && pattern.contains(REGEX_SIGNS);
    if found.matches.is_empty() && mistaken && terminal.is_watched() {
        terminal.note("the pattern is plain text; for a regular expression, pass -E");
    }
}

/// A regular expression that matches exactly this text.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

fn context_lines(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(lines) if lines <= MAX_CONTEXT_LINES => Ok(lines),
        Ok(_) | Err(_) => Err(format!("must be a whole number, at most {MAX_CONTEXT_LINES}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_bounded() {
        assert_eq!(context_lines("0"), Ok(0));
        assert_eq!(context_lines("1000"), Ok(MAX_CONTEXT_LINES));
        assert_eq!(context_lines("1001"), Err("must be a whole number, at most 1000".to_owned()));
        assert!(context_lines("-1").is_err() && context_lines("all").is_err());
    }
}
