//! `search_files`: finds files by a glob.

use ab_core::backend::GlobOptions;
use ab_core::metadata::TruncationCause;
use ab_core::search::{DotfileVisibility, EntryKindFilter, SearchLimits};
use ab_core::{Backend, DirEntry};

use super::Outcome;
use super::directories::{Page, Total};
use super::ignored::{self, Ignoring};
use crate::answer::{ToolAnswer, joined};
use crate::arguments::Arguments;
use crate::bounds::{DEFAULT_MAX_RESULT_BYTES, MAX_PATTERNS};

#[derive(Clone, Copy)]
enum Order {
    Path,
    Changed,
}

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let page = Page::from(&mut arguments)?;
    let (root, pattern) = (arguments.text("path")?, arguments.text("pattern")?);
    let exclude = arguments.texts("excludePatterns", MAX_PATTERNS)?;
    let ignoring = Ignoring::from(&mut arguments)?;
    let order = arguments.choice("sortBy", &[("path", Order::Path), ("mtime", Order::Changed)])?;
    let limits = match order {
        Order::Path => SearchLimits { max_matches: page.reach(), ..SearchLimits::default() },
        // The newest file may come last, so all matches are needed.
        Order::Changed => SearchLimits::default(),
    };
    let options = GlobOptions {
        root,
        kinds: EntryKindFilter::All,
        exclude,
        ignore: ignoring.globs,
        ignore_files: ignoring.files,
        dotfiles: DotfileVisibility::Include,
        limits,
    };
    let mut found = backend.glob(&pattern, options).await?;
    if let Order::Changed = order {
        newest_first(backend, &mut found.entries).await;
    }
    if found.entries.is_empty() && found.truncated.is_none() {
        return Ok(ToolAnswer::noted(
            "No matches found".to_owned(),
            ignored::note(found.ignored_entries),
        ));
    }
    let rows = page.of(&found.entries).iter();
    let rows = rows.map(|entry| ab_core::error::escape_unprintable(&entry.path.to_string()));
    let (text, shown, _) = joined(rows, DEFAULT_MAX_RESULT_BYTES);
    let note = match found.truncated {
        Some(TruncationCause::Time) => {
            Some("the time was up: narrow the path or the pattern".to_owned())
        }
        Some(TruncationCause::Count | TruncationCause::Bytes) => page.note(shown, Total::More),
        None => page.note(shown, Total::Known(found.entries.len())),
    };
    let notes = [note, ignored::note(found.ignored_entries)];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    Ok(ToolAnswer::noted(text, (!notes.is_empty()).then(|| notes.join("; "))))
}

/// Sorts by modification time. Files without a known time come last.
async fn newest_first(backend: &Backend, entries: &mut Vec<DirEntry>) {
    let mut dated = Vec::with_capacity(entries.len());
    for entry in entries.drain(..) {
        let stat = backend.stat(&entry.path.to_string()).await;
        dated.push((stat.ok().map(|stat| stat.modified), entry));
    }
    dated.sort_by(|(one, _), (other, _)| other.cmp(one));
    entries.extend(dated.into_iter().map(|(_, entry)| entry));
}
