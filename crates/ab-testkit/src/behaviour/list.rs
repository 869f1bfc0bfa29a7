//! Listings: order, depth, limits, details.

use ab_core::metadata::TruncationCause;
use ab_core::options::{EntryDetailLevel, LinkHandling, ListOptions, StatOptions};
use ab_core::{Backend, ErrorKind, FileKind};

use crate::expect::{expect_error_on_path, list_tree, listing_paths};

async fn plant(backend: &Backend) {
    for path in ["b/two", "b/inner/deep/leaf", "a.txt", "b.txt", "c/one", "b/inner/near"] {
        backend.write(path, path).await.unwrap();
    }
}

fn to_depth(depth: usize) -> ListOptions {
    ListOptions { max_depth: depth, ..ListOptions::default() }
}

/// The direct children, sorted, each once.
pub async fn children_in_order(backend: &Backend) {
    plant(backend).await;
    assert_eq!(backend.readdir(".").await.unwrap(), ["a.txt", "b", "b.txt", "c"]);
    assert_eq!(backend.readdir("b").await.unwrap(), ["inner", "two"]);
    let listing = backend.list("b", ListOptions::default()).await.unwrap();
    let found: Vec<_> =
        listing.entries.iter().map(|e| (e.path.as_str(), e.kind, e.stat.clone())).collect();
    assert_eq!(found, [("b/inner", FileKind::Dir, None), ("b/two", FileKind::File, None)]);
    assert_eq!((listing.truncated, listing.problems.len()), (None, 0));
}

/// A new workspace has no entries.
pub async fn fresh_workspace_is_empty(backend: &Backend) {
    assert_eq!(backend.readdir(".").await.unwrap(), Vec::<String>::new());
    let whole = backend.list("/", to_depth(usize::MAX)).await.unwrap();
    assert_eq!((listing_paths(&whole), whole.truncated, whole.problems.len()), (vec![], None, 0));
}

/// A missing directory is `NotFound`.
pub async fn missing_is_not_found(backend: &Backend) {
    plant(backend).await;
    expect_error_on_path(backend.readdir("missing").await, ErrorKind::NotFound, "missing");
    expect_error_on_path(
        backend.list("b/missing", to_depth(3)).await,
        ErrorKind::NotFound,
        "b/missing",
    );
}

/// Listing a file is `NotADirectory`. Listing a path below a file is also `NotADirectory`.
pub async fn a_file_is_not_a_directory(backend: &Backend) {
    plant(backend).await;
    expect_error_on_path(backend.readdir("a.txt").await, ErrorKind::NotADirectory, "a.txt");
    expect_error_on_path(backend.readdir("a.txt/x").await, ErrorKind::NotADirectory, "a.txt/x");
}

/// No entry is deeper than requested.
pub async fn depth_bounds_the_walk(backend: &Backend) {
    plant(backend).await;
    let none = backend.list("b", to_depth(0)).await.unwrap();
    assert_eq!((listing_paths(&none), none.truncated), (vec![], None));
    let one = backend.list("b", to_depth(1)).await.unwrap();
    assert_eq!(listing_paths(&one), ["b/inner", "b/two"]);
    let two = backend.list("b", to_depth(2)).await.unwrap();
    assert_eq!(listing_paths(&two), ["b/inner", "b/inner/deep", "b/inner/near", "b/two"]);
    let three = backend.list("b", to_depth(3)).await.unwrap();
    let expect = ["b/inner", "b/inner/deep", "b/inner/deep/leaf", "b/inner/near", "b/two"];
    assert_eq!(listing_paths(&three), expect);
}

/// A directory comes before its entries, and these come before the names that sort after it.
pub async fn whole_tree_in_path_order(backend: &Backend) {
    plant(backend).await;
    let expect = [
        ("a.txt", FileKind::File),
        ("b", FileKind::Dir),
        ("b/inner", FileKind::Dir),
        ("b/inner/deep", FileKind::Dir),
        ("b/inner/deep/leaf", FileKind::File),
        ("b/inner/near", FileKind::File),
        ("b/two", FileKind::File),
        ("b.txt", FileKind::File),
        ("c", FileKind::Dir),
        ("c/one", FileKind::File),
    ];
    let expect: Vec<_> = expect.into_iter().map(|(path, kind)| (path.to_owned(), kind)).collect();
    assert_eq!(list_tree(backend).await, expect);
}

/// A truncated listing has the first entries and says that it is truncated.
pub async fn limit_cuts_and_says_so(backend: &Backend) {
    plant(backend).await;
    for (depth, whole) in [
        (1, vec!["a.txt", "b", "b.txt", "c"]),
        (2, vec!["a.txt", "b", "b/inner", "b/two", "b.txt", "c", "c/one"]),
    ] {
        for limit in 1..=whole.len() + 1 {
            let listing = backend
                .list(".", ListOptions { max_entries: limit, ..to_depth(depth) })
                .await
                .unwrap();
            let cut = limit < whole.len();
            assert_eq!(
                (listing_paths(&listing), listing.truncated),
                (whole[..limit.min(whole.len())].to_vec(), cut.then_some(TruncationCause::Count)),
                "depth {depth}, limit {limit}"
            );
        }
    }
}

/// Details equal those of `stat`.
pub async fn details_match_stat(backend: &Backend) {
    plant(backend).await;
    let options = ListOptions { detail: EntryDetailLevel::Stat, ..ListOptions::default() };
    let listing = backend.list(".", options).await.unwrap();
    assert_eq!(listing_paths(&listing), ["a.txt", "b", "b.txt", "c"]);
    for entry in listing.entries {
        let keep = StatOptions { links: LinkHandling::NoFollow };
        let stat = backend.stat_with(&entry.path.to_string(), keep).await.unwrap();
        assert_eq!(entry.kind, stat.kind, "{}", entry.path);
        assert_eq!(entry.stat, Some(stat), "{}", entry.path);
    }
}

/// A listing has names only, without parent directories.
pub async fn names_not_paths(backend: &Backend) {
    plant(backend).await;
    assert_eq!(backend.readdir("b/inner").await.unwrap(), ["deep", "near"]);
    assert_eq!(backend.readdir("b/inner/deep").await.unwrap(), ["leaf"]);
}

/// A directory with many children lists all of them, in order.
pub async fn many_children(backend: &Backend) {
    let names: Vec<String> = (0..500).map(|number| format!("{number:03}")).collect();
    let files = names.iter().rev().map(|name| (name.as_str(), "x".into())).collect();
    for written in backend.write_many(files).await {
        written.unwrap();
    }
    assert_eq!(backend.readdir(".").await.unwrap(), names);
}
