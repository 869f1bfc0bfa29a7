//! The paths that searches skip by default: the paths in `.gitignore`, build output and caches.

use ab_core::search::{COMMON_IGNORE_GLOBS, IgnoreFileHandling, IgnoredEntryCounts};

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::quantity::counted;

/// The globs and ignore files that a search uses.
pub(crate) struct Ignoring {
    pub(crate) globs: Vec<String>,
    pub(crate) files: IgnoreFileHandling,
}

impl Ignoring {
    pub(crate) fn from(arguments: &mut Arguments) -> Result<Ignoring, Failure> {
        Ok(if arguments.flag("includeIgnored", false)? {
            Ignoring { globs: Vec::new(), files: IgnoreFileHandling::Disregard }
        } else {
            Ignoring {
                globs: COMMON_IGNORE_GLOBS.map(str::to_owned).into(),
                files: IgnoreFileHandling::Honour,
            }
        })
    }
}

/// A note about how many entries were skipped. `None` if none were.
pub(crate) fn note(left_out: IgnoredEntryCounts) -> Option<String> {
    let count = |count: u64, one, many| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        (count > 0).then(|| counted(count, one, many))
    };
    let directories = count(left_out.directories, "directory", "directories");
    let files = count(left_out.files, "file", "files");
    let parts: Vec<String> = [directories, files].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        format!(
            "left out {} that .gitignore or the usual ignores name, such as node_modules; \
             includeIgnored: true searches them too",
            parts.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_counts_what_was_left_out() {
        assert_eq!(note(IgnoredEntryCounts::default()), None);
        for (directories, files, expect) in
            [(1, 0, "left out 1 directory that"), (2, 1, "left out 2 directories and 1 file that")]
        {
            let note = note(IgnoredEntryCounts { directories, files }).unwrap();
            assert!(note.starts_with(expect), "{note}");
        }
    }
}
