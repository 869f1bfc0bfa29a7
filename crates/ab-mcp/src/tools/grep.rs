//! `grep`: searches text in files.

use ab_core::backend::GrepOptions;
use ab_core::error::escape_unprintable;
use ab_core::metadata::TruncationCause;
use ab_core::search::{
    CaseSensitivity, DotfileVisibility, MatchLineMode, PatternSyntax, SearchLimits, SearchLineRole,
    SearchMatch, SearchResults, file_type,
};
use ab_core::{Backend, ErrorKind};

use super::Outcome;
use super::ignored::{self, Ignoring};
use crate::answer::{ToolAnswer, joined};
use crate::arguments::Arguments;
use crate::bounds::{
    DEFAULT_MATCHES, DEFAULT_MAX_RESULT_BYTES, MAX_CONTEXT, MAX_MATCHES, MAX_PATTERNS,
};
use crate::failure::Failure;
use crate::quantity::{counted, grouped};

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments) -> Outcome {
    use ab_core::search::SearchOutputMode as Wanted;
    let pattern = arguments.text("pattern")?;
    let root = arguments.optional_text("path")?.unwrap_or_else(|| ".".to_owned());
    let include = included(&mut arguments)?;
    let exclude = arguments.texts("excludePatterns", MAX_PATTERNS)?;
    let ignoring = Ignoring::from(&mut arguments)?;
    let answer = arguments.choice(
        "outputMode",
        &[
            ("content", Wanted::Lines),
            ("files_with_matches", Wanted::Files),
            ("count", Wanted::Counts),
        ],
    )?;
    let case = if arguments.flag("caseInsensitive", false)? {
        CaseSensitivity::Insensitive
    } else {
        CaseSensitivity::Sensitive
    };
    let syntax = if arguments.flag("literal", false)? {
        PatternSyntax::Literal
    } else {
        PatternSyntax::Regex
    };
    let span = if arguments.flag("multiline", false)? {
        MatchLineMode::MultiLine
    } else {
        MatchLineMode::SingleLine
    };
    let around = lines(&mut arguments, "contextAround")?;
    let before = lines(&mut arguments, "contextBefore")?.or(around).unwrap_or(0);
    let after = lines(&mut arguments, "contextAfter")?.or(around).unwrap_or(0);
    let numbered = arguments.flag("lineNumbers", true)?;
    let limit = arguments.count("headLimit")?.map_or(DEFAULT_MATCHES, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX).min(MAX_MATCHES)
    });
    let options = GrepOptions {
        root,
        syntax,
        case,
        line_mode: span,
        context_before: before,
        context_after: after,
        output_mode: answer,
        include,
        exclude,
        ignore: ignoring.globs,
        ignore_files: ignoring.files,
        dotfiles: DotfileVisibility::Skip,
        limits: SearchLimits { max_matches: limit, ..SearchLimits::default() },
        ..GrepOptions::default()
    };
    let found = backend.grep(&pattern, options).await.map_err(|error| match error.kind() {
        ErrorKind::Invalid => {
            error.with_hint("to search for the text as it is, pass literal: true")
        }
        _ => error,
    })?;
    Ok(answered(found, numbered, limit))
}

/// The globs of files that are searched. A file must match one of them.
fn included(arguments: &mut Arguments) -> Result<Vec<String>, Failure> {
    let glob = arguments.optional_text("glob")?;
    let Some(kind) = arguments.optional_text("type")? else {
        return Ok(glob.into_iter().collect());
    };
    if glob.is_some() {
        return Err(Failure::misuse("give glob or type, not both"));
    }
    file_type::file_type_globs(&kind).ok_or_else(|| {
        let kind = escape_unprintable(&kind.chars().take(100).collect::<String>());
        Failure::misuse(format!("no such type of files: '{kind}'; choose files with glob"))
    })
}

fn lines(arguments: &mut Arguments, name: &str) -> Result<Option<usize>, Failure> {
    let lines = arguments.whole(name)?;
    Ok(lines.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX).min(MAX_CONTEXT)))
}

fn answered(found: SearchResults, numbered: bool, limit: usize) -> ToolAnswer {
    let skipped = (found.binary_files_skipped > 0).then(|| {
        let count = usize::try_from(found.binary_files_skipped).unwrap_or(usize::MAX);
        format!("{} not searched", counted(count, "binary file was", "binary files were"))
    });
    let left_out = ignored::note(found.ignored_entries);
    let together = |notes: [Option<String>; 3]| {
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    };
    if found.matches.is_empty() && found.truncated.is_none() {
        return ToolAnswer::noted(
            "No matches found".to_owned(),
            together([None, skipped, left_out]),
        );
    }
    let (text, shown, whole) =
        joined(found.matches.iter().map(|found| row(found, numbered)), DEFAULT_MAX_RESULT_BYTES);
    let cut = match (found.truncated, whole) {
        (Some(TruncationCause::Time), _) => {
            Some("the time was up: narrow the path or the glob".to_owned())
        }
        (Some(TruncationCause::Count), true) => Some(format!(
            "the first {}; raise headLimit, or narrow the path or the glob",
            counted(limit, "match", "matches")
        )),
        (Some(TruncationCause::Bytes), _) | (_, false) => Some(format!(
            "the first {} rows; narrow the path or the glob, or ask for files_with_matches",
            grouped(shown as u64)
        )),
        (None, true) => None,
    };
    ToolAnswer::noted(text, together([cut, skipped, left_out]))
}

fn row(found: &SearchMatch, numbered: bool) -> String {
    let path = escape_unprintable(&found.path().to_string());
    match found {
        SearchMatch::Line { line_number: line, text, full_line_bytes: cut, role, .. } => {
            let mark = match role {
                SearchLineRole::Match => ':',
                SearchLineRole::Context => '-',
            };
            let text = text.trim_end_matches(['\n', '\r']);
            let cut = cut.map(|bytes| format!(" [line cut: {} bytes in all]", grouped(bytes)));
            let cut = cut.unwrap_or_default();
            if numbered {
                format!("{path}{mark}{line}{mark}{text}{cut}")
            } else {
                format!("{path}{mark}{text}{cut}")
            }
        }
        SearchMatch::Count { matching_lines: lines, .. } => format!("{path}:{lines}"),
        SearchMatch::File { .. } | SearchMatch::Name(_) => path,
    }
}
