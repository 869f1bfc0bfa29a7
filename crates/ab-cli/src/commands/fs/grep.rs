//! `fs grep`: find text in files.

mod printer;

use std::ffi::OsString;

use ab_core::Backend;
use ab_core::backend::GrepOptions;
use ab_core::search::text::{MAX_CONTEXT_LINES, MAX_SEARCH_LINE_BYTES};
use ab_core::search::{
    CaseSensitivity, DEFAULT_MAX_TOTAL_MATCH_BYTES, MatchLineMode, PatternSyntax, SearchLimits,
    SearchLineRole, SearchMatch, SearchOutputMode, SearchResults,
};
use clap::Args;

use self::printer::{Needle, Printer};
use super::ls::at_least_one;
use super::search::{Gaps, SearchFlags, pattern_text, patterns, verdict};
use crate::count::counted;
use crate::failure::Failure;
use crate::json;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// What a regular expression has and a literal seldom.
const REGEX_SIGNS: [char; 8] = ['*', '+', '^', '$', '|', '\\', '[', '?'];

/// Find text in files
///
/// The pattern is taken literally, unless --regex is given, and looked for line by line. Lines are
/// printed as path:line:text, those around them as path-line-text; a terminal gets the path once,
/// as a heading. Paths count from the root of the workspace. Links are not followed. Binary files
/// are not searched, nor what .gitignore names, build output and caches such as node_modules; how
/// many there were is said on standard error.
///
/// The exit code is 0 when something was found and 1 when there is nothing to find. A search that
/// was cut before it found anything ends with 4, a pattern that makes no sense with 2.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent-backend fs grep 'fn main'
  agent-backend fs grep -e 'fn \\w+_test' src --include '*.rs' -C 2
  agent-backend fs grep -i todo --no-ignore --count")]
pub(crate) struct Grep {
    /// The text to find
    #[arg(value_name = "PATTERN")]
    pattern: OsString,

    /// The directory to begin in, or a single file
    #[arg(value_name = "PATH", default_value = ".")]
    path: OsString,

    /// The pattern is a regular expression
    #[arg(short = 'e', long)]
    regex: bool,

    /// A match may reach over line ends; a dot matches them too
    #[arg(short = 'U', long)]
    multiline: bool,

    /// Upper and lower case are the same
    #[arg(short, long)]
    ignore_case: bool,

    /// Lines to show before and after each match
    #[arg(short = 'C', long, value_name = "N", value_parser = context_lines)]
    context: Option<usize>,

    /// Lines to show after each match
    #[arg(short = 'A', long, value_name = "N", value_parser = context_lines)]
    after_context: Option<usize>,

    /// Lines to show before each match
    #[arg(short = 'B', long, value_name = "N", value_parser = context_lines)]
    before_context: Option<usize>,

    /// Only name the files that have a match
    #[arg(short = 'l', long, conflicts_with = "count")]
    files_with_matches: bool,

    /// Only count the lines that match, in each file that has some
    #[arg(short, long)]
    count: bool,

    /// Only look into files that match; may be given more than once
    #[arg(long, value_name = "GLOB", help_heading = "Search")]
    include: Vec<OsString>,

    /// Most bytes of paths and lines
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
    fn syntax(&self) -> PatternSyntax {
        if self.regex { PatternSyntax::Regex } else { PatternSyntax::Literal }
    }

    fn span(&self) -> MatchLineMode {
        if self.multiline { MatchLineMode::MultiLine } else { MatchLineMode::SingleLine }
    }

    fn case(&self) -> CaseSensitivity {
        if self.ignore_case { CaseSensitivity::Insensitive } else { CaseSensitivity::Sensitive }
    }

    fn answer(&self) -> SearchOutputMode {
        match (self.files_with_matches, self.count) {
            (true, _) => SearchOutputMode::Files,
            (false, true) => SearchOutputMode::Counts,
            (false, false) => SearchOutputMode::Lines,
        }
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
    let path = path_text(&command.path)?;
    let root = backend.parse_path(path)?;
    let pattern = pattern_text(&command.pattern, &root)?;
    let options = GrepOptions {
        root: path.to_owned(),
        syntax: command.syntax(),
        case: command.case(),
        span: command.span(),
        before: command.before(),
        after: command.after(),
        output_mode: command.answer(),
        include: patterns(&command.include, &root)?,
        exclude: command.flags.exclude(&root)?,
        ignore: command.flags.ignore(),
        hidden: command.flags.hidden(),
        ignore_files: command.flags.ignore_files(),
        limits: SearchLimits { bytes: command.bytes, ..command.flags.limits() },
    };
    let found = backend.grep(pattern, options).await?;
    match terminal.format() {
        Format::Json => terminal.value(&json::found(&root.to_string(), &found))?,
        Format::Text => {
            let needle = Needle::of(pattern, command.syntax(), command.case());
            let mut printer = Printer::new(needle, command.before() + command.after() > 0);
            for found in &found.matches {
                printer.print(found, terminal)?;
            }
            tell(command, pattern, &found, terminal);
        }
    }
    verdict(!found.matches.is_empty(), found.truncated)
}

/// Says what the printed lines cannot.
fn tell(command: &Grep, pattern: &str, found: &SearchResults, terminal: &mut Terminal) {
    let is_cut = |found: &&SearchMatch| matches!(found, SearchMatch::Line { cut: Some(_), .. });
    let cut = found.matches.iter().filter(is_cut).count() as u64;
    if cut > 0 {
        let lines = counted(cut, "line was", "lines were");
        terminal.note(&format!("{lines} cut after {MAX_SEARCH_LINE_BYTES} bytes"));
    }
    if found.skipped_binary > 0 {
        let files = counted(found.skipped_binary, "binary file was", "binary files were");
        terminal.note(&format!("{files} not searched"));
    }
    let shown = match command.answer() {
        SearchOutputMode::Lines => {
            let is_match = |found: &&SearchMatch| {
                matches!(found, SearchMatch::Line { role: SearchLineRole::Match, .. })
            };
            let matches = found.matches.iter().filter(is_match).count();
            counted(matches as u64, "match", "matches")
        }
        SearchOutputMode::Files | SearchOutputMode::Counts => {
            counted(found.matches.len() as u64, "file", "files")
        }
    };
    let SearchResults { truncated, ignored: left_out, problems, .. } = found;
    Gaps { shown, truncated: *truncated, left_out: *left_out, problems }.tell(terminal);
    let mistaken = command.syntax() == PatternSyntax::Literal && pattern.contains(REGEX_SIGNS);
    if found.matches.is_empty() && mistaken && terminal.is_watched() {
        terminal.note("the pattern was taken literally; for a regular expression give --regex");
    }
}

fn context_lines(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(lines) if lines <= MAX_CONTEXT_LINES => Ok(lines),
        Ok(_) => Err(format!("must be at most {MAX_CONTEXT_LINES}")),
        Err(error) => Err(format!("{error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_bounded() {
        assert_eq!(context_lines("0"), Ok(0));
        assert_eq!(context_lines("1000"), Ok(MAX_CONTEXT_LINES));
        assert_eq!(context_lines("1001"), Err("must be at most 1000".to_owned()));
        assert!(context_lines("-1").is_err() && context_lines("all").is_err());
    }
}
