//! Suggests existing paths for a missing path.

use ab_core::backend::GlobOptions;
use ab_core::error::escape_unprintable;
use ab_core::options::ListOptions;
use ab_core::search::{DotfileVisibility, SearchLimits};
use ab_core::{Backend, WsPath};

use crate::bounds::{NEAREST_NAMES, NEAREST_SHOWN, NEAREST_TIME};

/// One line with the existing paths that are nearest to a missing path. These are similar names in
/// the same directory, or files with the same name elsewhere. If there are none, they are the
/// contents of the deepest existing directory on the path.
pub(crate) async fn nearest(backend: &Backend, path: &str) -> Option<String> {
    let missing = backend.parse_path(path).ok()?;
    let (parent, name) = (existing_parent(backend, &missing).await?, missing.name()?);
    let direct = missing.parent().as_ref() == Some(&parent);
    let mut offers = Vec::new();
    let names = names_in(backend, &parent).await;
    if direct {
        offers = alike(&names, name).into_iter().map(|near| below(&parent, near)).collect();
    }
    for elsewhere in of_that_name(backend, name).await {
        if offers.len() < NEAREST_SHOWN && !offers.contains(&elsewhere) {
            offers.push(elsewhere);
        }
    }
    // A dangling link can have the missing name itself.
    offers.retain(|offer| offer != missing.as_str());
    if !offers.is_empty() {
        return Some(format!("nearest: {}", quoted(&offers)));
    }
    let place = if parent.is_root() {
        "the workspace".to_owned()
    } else {
        format!("'{}'", escape_unprintable(parent.as_str()))
    };
    if names.is_empty() {
        return Some(format!("{place} exists, and is empty"));
    }
    let shown: Vec<String> = names.iter().take(10).cloned().collect();
    let more = if names.len() > shown.len() { ", …" } else { "" };
    Some(format!("{place} has: {}{more}", quoted(&shown)))
}

/// The deepest directory above `missing` that exists.
async fn existing_parent(backend: &Backend, missing: &WsPath) -> Option<WsPath> {
    let mut parent = missing.parent()?;
    loop {
        match backend.stat(parent.naming()).await {
            Ok(stat) if stat.kind.is_dir() => return Some(parent),
            _ => parent = parent.parent()?,
        }
    }
}

async fn names_in(backend: &Backend, directory: &WsPath) -> Vec<String> {
    let options = ListOptions { max_entries: NEAREST_NAMES, ..ListOptions::default() };
    match backend.list(directory.naming(), options).await {
        Ok(listing) => {
            let names = listing.entries.iter().filter_map(|entry| entry.path.name());
            names.map(str::to_owned).collect()
        }
        Err(_) => Vec::new(),
    }
}

/// Files with exactly this name, anywhere in the workspace.
async fn of_that_name(backend: &Backend, name: &str) -> Vec<String> {
    let plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
    if !backend.info().capabilities.search || !name.chars().all(plain) {
        return Vec::new();
    }
    let limits = SearchLimits {
        max_matches: NEAREST_SHOWN,
        max_duration: NEAREST_TIME,
        ..SearchLimits::default()
    };
    let exclude = ["node_modules", ".git", "target"].map(str::to_owned).to_vec();
    let options = GlobOptions {
        limits,
        exclude,
        dotfiles: DotfileVisibility::Skip,
        ..GlobOptions::default()
    };
    match backend.glob(name, options).await {
        Ok(names) => names.entries.iter().map(|entry| entry.path.to_string()).collect(),
        Err(_) => Vec::new(),
    }
}

/// The names that are most similar to a missing name, the most similar first.
fn alike<'a>(names: &'a [String], missing: &str) -> Vec<&'a str> {
    let wanted: Vec<char> = missing.to_lowercase().chars().take(64).collect();
    let allowed = (wanted.len() / 3).max(1);
    let mut near: Vec<(usize, &str)> = names
        .iter()
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let candidate: Vec<char> = lower.chars().take(64).collect();
            let stem = |text: &str| text.split('.').next().unwrap_or_default().to_owned();
            let distance = distance(&wanted, &candidate);
            let same_stem =
                !stem(&lower).is_empty() && stem(&lower) == stem(&missing.to_lowercase());
            (distance <= allowed || same_stem).then_some((distance, name.as_str()))
        })
        .collect();
    near.sort();
    near.into_iter().take(NEAREST_SHOWN).map(|(_, name)| name).collect()
}

/// The edit distance: the number of letters that must be changed, added or removed.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

fn below(parent: &WsPath, name: &str) -> String {
    if parent.is_root() { name.to_owned() } else { format!("{parent}/{name}") }
}

fn quoted(paths: &[String]) -> String {
    let quoted: Vec<String> =
        paths.iter().map(|path| format!("'{}'", escape_unprintable(path))).collect();
    quoted.join(", ")
}

/// A path as the text that a backend expects.
trait Naming {
    fn naming(&self) -> &str;
}

impl Naming for WsPath {
    fn naming(&self) -> &str {
        if self.is_root() { "." } else { self.as_str() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_alike_come_nearest_first() {
        let names = ["main.rs", "man.rs", "map.rs", "lib.rs", "Main.RS", "main.py"];
        let names = names.map(str::to_owned);
        assert_eq!(alike(&names, "main.rs"), ["Main.RS", "main.rs", "man.rs"]);
        assert_eq!(alike(&names, "main.txt"), ["Main.RS", "main.py", "main.rs"]);
        assert_eq!(alike(&names, "zebra"), [""; 0]);
    }

    #[test]
    fn distance_counts_changes() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        for (one, other, expect) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)] {
            assert_eq!(distance(&chars(one), &chars(other)), expect);
        }
    }
}
