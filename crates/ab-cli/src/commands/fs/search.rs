//! Code that `fs glob` and `fs grep` share: which files are searched, the limits, and the notes
//! about incomplete results.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use ab_core::metadata::{TruncationCause, WalkProblem};
use ab_core::search::{
    COMMON_IGNORE_GLOBS, DEFAULT_MAX_SEARCH_MATCHES, DotfileVisibility, IgnoreFileHandling,
    IgnoredEntryCounts, SearchLimits,
};
use ab_core::{Error, ErrorKind, Verb, WsPath};
use clap::Args;

use super::ls::at_least_one;
use crate::count::counted;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

/// Maximum time limit of a search in seconds: one day.
const MAX_SECONDS: f64 = 86_400.0;

#[derive(Args, Debug)]
#[command(next_help_heading = "Search")]
pub(crate) struct SearchFlags {
    /// Skip names that match; can be repeated
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,

    /// Include names that start with a dot
    #[arg(long)]
    hidden: bool,

    /// Include ignored files, build output, caches and .git
    #[arg(long)]
    no_ignore: bool,

    /// Leave out files that .gitignore names; this is the default
    #[arg(long, hide = true, conflicts_with = "no_ignore")]
    gitignore: bool,

    /// Stop after N matches
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_MAX_SEARCH_MATCHES,
        value_parser = at_least_one
    )]
    limit: usize,

    /// Stop after N seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    time: Duration,
}

impl SearchFlags {
    pub(crate) fn exclude(&self, root: &WsPath) -> Result<Vec<String>, Error> {
        patterns(&self.exclude, root)
    }

    pub(crate) fn hidden(&self) -> DotfileVisibility {
        if self.hidden { DotfileVisibility::Include } else { DotfileVisibility::Skip }
    }

    pub(crate) fn ignore_files(&self) -> IgnoreFileHandling {
        if self.no_ignore { IgnoreFileHandling::Disregard } else { IgnoreFileHandling::Honour }
    }

    /// The globs of ignored files. Empty with `--no-ignore`.
    pub(crate) fn ignore(&self) -> Vec<String> {
        if self.no_ignore { Vec::new() } else { COMMON_IGNORE_GLOBS.map(str::to_owned).into() }
    }

    pub(crate) fn limits(&self) -> SearchLimits {
        SearchLimits { max_matches: self.limit, max_duration: self.time, ..SearchLimits::default() }
    }
}

/// Converts pattern arguments to text. Invalid UTF-8 causes the same error as an invalid pattern.
pub(crate) fn patterns(patterns: &[OsString], root: &WsPath) -> Result<Vec<String>, Error> {
    patterns.iter().map(|pattern| Ok(pattern_text(pattern, root)?.to_owned())).collect()
}

pub(crate) fn pattern_text<'p>(pattern: &'p OsStr, root: &WsPath) -> Result<&'p str, Error> {
    pattern.to_str().ok_or_else(|| {
        let message = format!("pattern '{}': not valid UTF-8", pattern.to_string_lossy());
        Error::for_path(Verb::Search, root, ErrorKind::Invalid, message)
    })
}

/// Converts the error for an invalid pattern to a usage error.
pub(crate) fn senseless(failure: Failure) -> Failure {
    match failure {
        Failure::Call(error) if error.kind() == ErrorKind::Invalid => Failure::Usage(error),
        Failure::Call(_)
        | Failure::Usage(_)
        | Failure::Plain(_)
        | Failure::Exec(..)
        | Failure::ClosedPipe
        | Failure::Told(_)
        | Failure::No => failure,
    }
}

/// What a search result does not contain, and why.
#[derive(Debug)]
pub(crate) struct Gaps<'a> {
    pub(crate) left_out: IgnoredEntryCounts,
    /// The size of the result, in words.
    pub(crate) shown: String,
    pub(crate) truncated: Option<TruncationCause>,
    pub(crate) problems: &'a [WalkProblem],
}

impl Gaps<'_> {
    /// Prints warnings and notes about incomplete results. JSON output already contains this
    /// information.
    pub(crate) fn tell(&self, terminal: &mut Terminal) {
        if terminal.format() == Format::Json {
            return;
        }
        for problem in self.problems {
            terminal.warn(&problem.error);
        }
        if !self.left_out.is_empty() {
            let IgnoredEntryCounts { directories, files } = self.left_out;
            let (are, them) = if directories + files == 1 { ("is", "it") } else { ("are", "them") };
            let directories =
                (directories > 0).then(|| counted(directories, "directory", "directories"));
            let files = (files > 0).then(|| counted(files, "file", "files"));
            let parts: Vec<String> = [directories, files].into_iter().flatten().collect();
            let parts = parts.join(" and ");
            terminal.note(&format!(
                "skipped {parts} that {are} ignored; to include {them}, pass --no-ignore"
            ));
        }
        if let Some(cut) = self.truncated {
            let flag = match cut {
                TruncationCause::Count => "--limit",
                TruncationCause::Bytes => "--bytes",
                TruncationCause::Time => "--time",
            };
            terminal.note(&format!("stopped after {}; to see more, raise {flag}", self.shown));
        }
    }
}

/// The exit status of a search. If a search found nothing, and was stopped or could not search
/// everything, the answer is not known, which is a failure.
pub(crate) fn verdict(
    found: bool,
    truncated: Option<TruncationCause>,
    problems: &[WalkProblem],
) -> Result<(), Failure> {
    match (found, truncated, problems) {
        (true, _, _) => Ok(()),
        (false, None, []) => Err(Failure::No),
        (false, _, _) => Err(Failure::Told(Exit::Unavailable)),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && seconds <= MAX_SECONDS => Ok(time),
        _ => Err(format!("must be more than 0 and at most {MAX_SECONDS}")),
    }
}

#[cfg(test)]
mod tests {
    use ab_core::search::DEFAULT_SEARCH_TIMEOUT;

    use super::*;

    #[test]
    fn time_is_positive_and_bounded() {
        assert_eq!(seconds("30"), Ok(DEFAULT_SEARCH_TIMEOUT), "the default in the help");
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(seconds("86400"), Ok(Duration::from_hours(24)));
        for text in ["0", "-1", "86401", "inf", "NaN", "1e-30", "", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_a_search_that_ended_says_no() {
        let exit = |found, truncated, problems: &[WalkProblem]| {
            verdict(found, truncated, problems).map_err(|failure| failure.exit())
        };
        let message = "permission denied";
        let error = Error::for_path(Verb::Search, &WsPath::root(), ErrorKind::Io, message);
        let problems = [WalkProblem { path: "a".to_owned(), error }];
        assert_eq!(exit(true, None, &problems), Ok(()));
        assert_eq!(exit(true, Some(TruncationCause::Count), &[]), Ok(()));
        assert_eq!(exit(false, None, &[]), Err(Exit::Failed));
        assert_eq!(exit(false, Some(TruncationCause::Time), &[]), Err(Exit::Unavailable));
        assert_eq!(exit(false, None, &problems), Err(Exit::Unavailable));
    }
}
