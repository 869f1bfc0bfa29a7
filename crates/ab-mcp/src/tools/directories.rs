//! `list_directory` and `list_directory_with_sizes`: list the contents of a directory.

use ab_core::options::{EntryDetailLevel, ListOptions};
use ab_core::{Backend, DirEntry, FileKind};

use super::Outcome;
use crate::answer::{ToolAnswer, joined};
use crate::arguments::Arguments;
use crate::bounds::{DEFAULT_ENTRIES, DEFAULT_MAX_RESULT_BYTES, MAX_ENTRIES};
use crate::failure::Failure;
use crate::quantity::{grouped, size};

#[derive(Clone, Copy)]
enum Order {
    Name,
    Size,
}

pub(crate) async fn names(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let page = Page::from(&mut arguments)?;
    let entries = entries(backend, &mut arguments, EntryDetailLevel::Kind).await?;
    let rows = page.of(&entries).iter().map(|entry| format!("{} {}", mark(entry), name(entry)));
    let (text, shown, _) = joined(rows, DEFAULT_MAX_RESULT_BYTES);
    Ok(ToolAnswer::noted(text, page.note(shown, Total::Known(entries.len()))))
}

pub(crate) async fn sizes(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let page = Page::from(&mut arguments)?;
    let order = arguments.choice("sortBy", &[("name", Order::Name), ("size", Order::Size)])?;
    let mut entries = entries(backend, &mut arguments, EntryDetailLevel::Stat).await?;
    let bytes = |entry: &DirEntry| entry.stat.as_ref().map_or(0, |stat| stat.size);
    match order {
        Order::Name => {}
        Order::Size => entries.sort_by_key(|entry| std::cmp::Reverse(bytes(entry))),
    }
    let rows = page.of(&entries).iter().map(|entry| {
        let size = match entry.kind {
            FileKind::Dir => String::new(),
            FileKind::File | FileKind::Symlink | FileKind::Other => {
                format!("{:>10}", size(bytes(entry)))
            }
        };
        format!("{} {:<30} {size}", mark(entry), name(entry))
    });
    let (text, shown, _) = joined(rows, DEFAULT_MAX_RESULT_BYTES);
    let directories = entries.iter().filter(|entry| entry.kind.is_dir()).count();
    let total: u64 = entries.iter().filter(|entry| !entry.kind.is_dir()).map(bytes).sum();
    // If there are rows, an empty line separates them from the totals.
    let gap = if text.is_empty() { "\n" } else { "\n\n" };
    let text = format!(
        "{text}{gap}Total: {} files, {directories} directories\nCombined size: {}",
        entries.len() - directories,
        size(total)
    );
    Ok(ToolAnswer::noted(text, page.note(shown, Total::Known(entries.len()))))
}

async fn entries(
    backend: &Backend,
    arguments: &mut Arguments,
    detail: EntryDetailLevel,
) -> Result<Vec<DirEntry>, Failure> {
    let path = arguments.text("path")?;
    let options = ListOptions { detail, ..ListOptions::default() };
    Ok(backend.list(&path, options).await?.entries)
}

fn mark(entry: &DirEntry) -> &'static str {
    match entry.kind {
        FileKind::Dir => "[DIR]",
        FileKind::File | FileKind::Other | FileKind::Symlink => "[FILE]",
    }
}

/// The name of an entry. Line breaks and other unprintable characters are escaped.
fn name(entry: &DirEntry) -> String {
    ab_core::error::escape_unprintable(entry.path.name().unwrap_or_default())
}

/// Which rows of a list are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    skip: usize,
    limit: usize,
}

impl Page {
    pub(crate) fn from(arguments: &mut Arguments) -> Result<Page, Failure> {
        let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Page {
            skip: whole(arguments.count("offset")?.unwrap_or(1)) - 1,
            limit: arguments.count("limit")?.map_or(DEFAULT_ENTRIES, whole).min(MAX_ENTRIES),
        })
    }

    pub(crate) fn of<T>(self, rows: &[T]) -> &[T] {
        let start = self.skip.min(rows.len());
        &rows[start..start.saturating_add(self.limit).min(rows.len())]
    }

    /// The number of rows that a search must find for this page, plus one to detect whether there
    /// are more.
    pub(crate) fn reach(self) -> usize {
        self.skip.saturating_add(self.limit).saturating_add(1)
    }

    /// A note with the position of the page and how to continue. `None` if the page contains all
    /// rows.
    pub(crate) fn note(self, shown: usize, total: Total) -> Option<String> {
        let (first, last) = (self.skip as u64 + 1, self.skip as u64 + shown as u64);
        let (all, more) = match total {
            Total::Known(total) => (grouped(total as u64), last < total as u64),
            Total::More => ("more".to_owned(), true),
        };
        if shown == 0 {
            let note = || format!("offset {} is past the end: there are {all}", grouped(first));
            return (self.skip > 0).then(note);
        }
        (first > 1 || more).then(|| {
            let rest =
                if more { format!("; go on with offset {}", last + 1) } else { String::new() };
            format!("{}-{} of {all}{rest}", grouped(first), grouped(last))
        })
    }
}

/// The total number of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Total {
    Known(usize),
    /// There are more rows than were examined.
    More,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_say_where_they_are() {
        let page = Page { skip: 2, limit: 2 };
        assert_eq!(page.of(&[1, 2, 3, 4, 5]), [3, 4]);
        assert_eq!(page.of(&[1]), [0; 0]);
        assert_eq!(page.note(2, Total::Known(5)).as_deref(), Some("3-4 of 5; go on with offset 5"));
        assert_eq!(page.note(2, Total::Known(4)).as_deref(), Some("3-4 of 4"));
        assert_eq!(
            page.note(0, Total::Known(1)).as_deref(),
            Some("offset 3 is past the end: there are 1")
        );
        assert_eq!(page.note(2, Total::More).as_deref(), Some("3-4 of more; go on with offset 5"));
        assert_eq!(Page { skip: 0, limit: 9 }.note(5, Total::Known(5)), None);
    }
}
