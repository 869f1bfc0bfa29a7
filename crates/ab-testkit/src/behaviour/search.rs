//! Searches: the same query has the same result on every backend.

use ab_core::backend::{GlobOptions, GrepOptions};
use ab_core::metadata::TruncationCause;
use ab_core::search::{
    CaseSensitivity, DotfileVisibility, EntryKindFilter, IgnoreFileHandling, IgnoredEntryCounts,
    LineSelection, PatternSyntax, SearchLimits, SearchLineRole, SearchMatch, SearchOutputMode,
    SearchResults,
};
use ab_core::{Backend, ErrorCode, ErrorKind, Verb};

use crate::every_call;
use crate::expect::expect_error;

/// A backend that cannot search fails with `Unsupported`; one that can, finds names.
pub async fn needs_the_capability(backend: &Backend) {
    backend.write("dir/needle", "x").await.unwrap();
    let query = every_call::all_names_query();
    if backend.info().capabilities.search {
        let found = backend.search(&query).await.unwrap();
        assert_eq!((paths(&found), found.truncated), (vec!["dir", "dir/needle"], None));
        return;
    }
    let error = expect_error(backend.search(&query).await, ErrorKind::Unsupported);
    assert_eq!((error.code(), error.verb()), (ErrorCode::NotImplemented, Some(Verb::Search)));
}

fn paths(found: &SearchResults) -> Vec<&str> {
    found.matches.iter().map(|found| found.path().as_str()).collect()
}

async fn glob(backend: &Backend, pattern: &str, options: GlobOptions) -> Vec<String> {
    let names = backend.glob(pattern, options).await.unwrap();
    assert!(names.problems.is_empty(), "{:?}", names.problems);
    names.entries.iter().map(|entry| entry.path.to_string()).collect()
}

async fn grep(backend: &Backend, pattern: &str, options: GrepOptions) -> SearchResults {
    let found = backend.grep(pattern, options).await.unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    found
}

async fn plant(backend: &Backend, files: &[(&str, &str)]) {
    for (path, content) in files {
        backend.write(path, *content).await.unwrap();
    }
}

/// Patterns match names at any depth, or from the root.
pub async fn globs_match_as_said(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    let files = [
        "a.rs",
        "b.txt",
        "src/a.rs",
        "src/lib/deep.rs",
        "src/lib/deep.txt",
        "src/[x].rs",
        ".hidden.rs",
        ".config/a.rs",
        ".config/.b.rs",
        "lib/src/a.rs",
        "a.rst",
        "ab/c",
        "wörld.rs",
    ];
    for path in files {
        backend.touch(path).await.unwrap();
    }
    let table: [(&str, &[&str]); 22] = [
        (
            "*.rs",
            &["a.rs", "lib/src/a.rs", "src/[x].rs", "src/a.rs", "src/lib/deep.rs", "wörld.rs"],
        ),
        ("/*.rs", &["a.rs", "wörld.rs"]),
        ("./*.rs", &["a.rs", "wörld.rs"]),
        ("src/*.rs", &["src/[x].rs", "src/a.rs"]),
        ("src/**", &["src/[x].rs", "src/a.rs", "src/lib/deep.rs", "src/lib/deep.txt"]),
        ("src/**/*.rs", &["src/[x].rs", "src/a.rs", "src/lib/deep.rs"]),
        ("**/src/*.rs", &["lib/src/a.rs", "src/[x].rs", "src/a.rs"]),
        ("**/deep.*", &["src/lib/deep.rs", "src/lib/deep.txt"]),
        ("?.rs", &["a.rs", "lib/src/a.rs", "src/a.rs"]),
        ("[ab].*", &["a.rs", "a.rst", "b.txt", "lib/src/a.rs", "src/a.rs"]),
        ("[!a].*", &["b.txt"]),
        ("[^a].*", &["b.txt"]),
        ("\\[x\\].rs", &["src/[x].rs"]),
        ("[[]x].rs", &["src/[x].rs"]),
        ("*.{txt,rst}", &["a.rst", "b.txt", "src/lib/deep.txt"]),
        ("{src,lib}/**/a.rs", &["lib/src/a.rs", "src/a.rs"]),
        ("{a,b{.txt,.md}}*", &["a.rs", "a.rst", "b.txt", "lib/src/a.rs", "src/a.rs"]),
        ("w?rld.rs", &["wörld.rs"]),
        (".*.rs", &[".hidden.rs"]),
        (".config/*", &[".config/a.rs"]),
        ("ab", &[]),
        ("*.md", &[]),
    ];
    for (pattern, expect) in table {
        assert_eq!(glob(backend, pattern, GlobOptions::default()).await, expect, "{pattern}");
    }
    let all = GlobOptions { dotfiles: DotfileVisibility::Include, ..GlobOptions::default() };
    assert_eq!(glob(backend, "*.rs", all).await.len(), 9, "hidden ones when asked for");
    let below = GlobOptions { root: "src".to_owned(), ..GlobOptions::default() };
    assert_eq!(glob(backend, "*.rs", below.clone()).await.len(), 3);
    assert_eq!(
        glob(backend, "/*.rs", below).await,
        ["src/[x].rs", "src/a.rs"],
        "the pattern counts from the root of the search, the answer from that of the workspace"
    );
}

/// A directory comes before its entries, even if other names start with its name.
pub async fn names_come_in_path_order(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    for path in ["a/z", "a-b", "a.b", "a0", "b"] {
        backend.touch(path).await.unwrap();
    }
    let all = GlobOptions { kinds: EntryKindFilter::All, ..GlobOptions::default() };
    assert_eq!(glob(backend, "**", all).await, ["a", "a/z", "a-b", "a.b", "a0", "b"]);
}

/// Directories are found only if requested.
pub async fn kinds_are_chosen(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(backend, &[("test/a", ""), ("x/test/b", ""), ("y/test", "")]).await;
    assert_eq!(glob(backend, "test", GlobOptions::default()).await, ["y/test"]);
    let all = GlobOptions { kinds: EntryKindFilter::All, ..GlobOptions::default() };
    assert_eq!(glob(backend, "test", all).await, ["test", "x/test", "y/test"]);
}

/// Excluded directories are skipped with their contents.
pub async fn excluded_directories_are_left_whole(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(backend, &[("node_modules/a/b.js", ""), ("src/node_modules/c.js", ""), ("src/d.js", "")])
        .await;
    let without =
        |pattern: &str| GlobOptions { exclude: vec![pattern.to_owned()], ..GlobOptions::default() };
    assert_eq!(glob(backend, "*.js", without("node_modules")).await, ["src/d.js"]);
    assert_eq!(glob(backend, "*.js", without("node_modules/")).await, ["src/d.js"]);
    let only_top = glob(backend, "*.js", without("/node_modules")).await;
    assert_eq!(only_top, ["src/d.js", "src/node_modules/c.js"]);
    assert_eq!(glob(backend, "*.js", without("src/**")).await, ["node_modules/a/b.js"]);
}

/// The query chooses case sensitivity and syntax.
pub async fn text_is_literal_unless_asked(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(backend, &[("a", "x.y\nxzy\n"), ("b/c", "X.Y\r\n(x.y)"), ("d", "nothing")]).await;
    type Lines = &'static [(&'static str, u64)];
    let table: [(&str, PatternSyntax, CaseSensitivity, Lines); 8] = [
        ("x.y", PatternSyntax::Literal, CaseSensitivity::Sensitive, &[("a", 1), ("b/c", 2)]),
        (
            "x.y",
            PatternSyntax::Literal,
            CaseSensitivity::Insensitive,
            &[("a", 1), ("b/c", 1), ("b/c", 2)],
        ),
        (
            "x.y",
            PatternSyntax::Regex,
            CaseSensitivity::Sensitive,
            &[("a", 1), ("a", 2), ("b/c", 2)],
        ),
        ("(x.y)", PatternSyntax::Literal, CaseSensitivity::Sensitive, &[("b/c", 2)]),
        (
            "^x",
            PatternSyntax::Regex,
            CaseSensitivity::Insensitive,
            &[("a", 1), ("a", 2), ("b/c", 1)],
        ),
        ("Y$", PatternSyntax::Regex, CaseSensitivity::Sensitive, &[("b/c", 1)]),
        ("y$", PatternSyntax::Regex, CaseSensitivity::Sensitive, &[("a", 1), ("a", 2)]),
        ("absent", PatternSyntax::Literal, CaseSensitivity::Sensitive, &[]),
    ];
    for (pattern, syntax, case, expect) in table {
        let options = GrepOptions { syntax, case, ..GrepOptions::default() };
        let found = grep(backend, pattern, options).await;
        let lines: Vec<(&str, u64)> = found
            .matches
            .iter()
            .map(|found| match found {
                SearchMatch::Line {
                    path, line_number: line, role: SearchLineRole::Match, ..
                } => (path.as_str(), *line),
                other => panic!("asked for lines, got {other:?}"),
            })
            .collect();
        assert_eq!(lines, expect, "{pattern} as {syntax:?}, {case:?}");
        assert_eq!(found.files_searched, 3);
    }
}

/// Lines count from 1, context lines are marked, line ends are removed.
pub async fn lines_have_numbers_and_context(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(backend, &[("f", "one\ntwo\r\nneedle ä\nfour\nfive\nsix needle\n")]).await;
    let options = GrepOptions { context_before: 1, context_after: 1, ..GrepOptions::default() };
    let found = grep(backend, "needle", options).await;
    let lines: Vec<_> = found
        .matches
        .iter()
        .map(|found| match found {
            SearchMatch::Line { line_number: line, text, role, full_line_bytes: None, .. } => {
                (*line, text.as_str(), *role)
            }
            other => panic!("asked for lines, got {other:?}"),
        })
        .collect();
    assert_eq!(
        lines,
        [
            (2, "two", SearchLineRole::Context),
            (3, "needle ä", SearchLineRole::Match),
            (4, "four", SearchLineRole::Context),
            (5, "five", SearchLineRole::Context),
            (6, "six needle", SearchLineRole::Match),
        ]
    );
}

/// The same search can return only files, or counts.
pub async fn files_and_counts(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(backend, &[("a", "x\ny\nx x\n"), ("b", "y\n"), ("c/d", "x")]).await;
    let files = GrepOptions { output_mode: SearchOutputMode::Files, ..GrepOptions::default() };
    assert_eq!(paths(&grep(backend, "x", files).await), ["a", "c/d"]);
    let counts = GrepOptions { output_mode: SearchOutputMode::Counts, ..GrepOptions::default() };
    let found = grep(backend, "x", counts).await;
    let counts: Vec<_> = found
        .matches
        .iter()
        .map(|found| match found {
            SearchMatch::Count { path, matching_lines: lines } => (path.as_str(), *lines),
            other => panic!("asked for counts, got {other:?}"),
        })
        .collect();
    assert_eq!(counts, [("a", 2), ("c/d", 1)], "lines, not occurrences");
}

/// The path, the number and the text of a line.
type FoundLine = (&'static str, u64, &'static str);

/// The same search can return the lines without a match, only the matched parts of lines, the files
/// without a match, and a limited number of lines of each file.
pub async fn lines_are_selected_as_asked(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(backend, &[("a", "x1\ny\nx2 x3\n"), ("b", "y\n"), ("c/d", "x4")]).await;
    let of = |lines, output_mode| GrepOptions {
        syntax: PatternSyntax::Regex,
        lines,
        output_mode,
        ..GrepOptions::default()
    };
    use LineSelection::{Matching, NonMatching};
    let limited =
        GrepOptions { max_lines_per_file: Some(1), ..of(Matching, SearchOutputMode::Lines) };
    let table: [(GrepOptions, &[FoundLine]); 4] = [
        (of(NonMatching, SearchOutputMode::Lines), &[("a", 2, "y"), ("b", 1, "y")]),
        (
            of(Matching, SearchOutputMode::MatchedParts),
            &[("a", 1, "x1"), ("a", 3, "x2"), ("a", 3, "x3"), ("c/d", 1, "x4")],
        ),
        (of(NonMatching, SearchOutputMode::MatchedParts), &[]),
        (limited, &[("a", 1, "x1"), ("c/d", 1, "x4")]),
    ];
    for (options, expect) in table {
        let shown = format!("{options:?}");
        let found = grep(backend, r"x\d", options).await;
        let lines = found.matches.iter().map(|found| match found {
            SearchMatch::Line {
                path,
                line_number: line,
                text,
                role: SearchLineRole::Match,
                ..
            } => (path.as_str(), *line, text.as_str()),
            other => panic!("asked for lines, got {other:?}"),
        });
        assert_eq!(lines.collect::<Vec<_>>(), expect, "{shown}");
    }
    for (options, expect) in [
        (of(Matching, SearchOutputMode::FilesWithoutMatch), &["b"][..]),
        (of(NonMatching, SearchOutputMode::FilesWithoutMatch), &["c/d"]),
        (of(NonMatching, SearchOutputMode::Files), &["a", "b"]),
    ] {
        let shown = format!("{options:?}");
        assert_eq!(paths(&grep(backend, r"x\d", options).await), expect, "{shown}");
    }
}

/// Include and exclude select the files of a text search.
pub async fn files_are_chosen_by_globs(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    let files = [
        "a.rs",
        "a.md",
        "src/b.rs",
        "src/b.md",
        "target/c.rs",
        ".ci/d.rs",
        ".ci/.e.rs",
        "src/.f.rs",
    ];
    for path in files {
        backend.write(path, "x").await.unwrap();
    }
    let by = |include: &[&str], exclude: &[&str], hidden| GrepOptions {
        include: include.iter().map(|glob| (*glob).to_owned()).collect(),
        exclude: exclude.iter().map(|glob| (*glob).to_owned()).collect(),
        dotfiles: hidden,
        ..GrepOptions::default()
    };
    use DotfileVisibility::{Include, Skip};
    let table: [(GrepOptions, &[&str]); 6] = [
        (by(&[], &[], Skip), &["a.md", "a.rs", "src/b.md", "src/b.rs", "target/c.rs"]),
        (by(&["*.rs"], &[], Skip), &["a.rs", "src/b.rs", "target/c.rs"]),
        (by(&["*.rs"], &["target"], Skip), &["a.rs", "src/b.rs"]),
        (by(&["/*.rs", "src/*.md"], &[], Skip), &["a.rs", "src/b.md"]),
        (by(&[".ci/*"], &[], Skip), &[".ci/d.rs"]),
        (
            by(&["*.rs"], &["/a.rs", "target"], Include),
            &[".ci/.e.rs", ".ci/d.rs", "src/.f.rs", "src/b.rs"],
        ),
    ];
    for (options, expect) in table {
        let shown = format!("{options:?}");
        assert_eq!(paths(&grep(backend, "x", options).await), expect, "{shown}");
    }
}

/// Binary files are not searched, but counted.
pub async fn binary_files_are_counted(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    backend.write("binary", b"needle\0\n").await.unwrap();
    backend.write("latin", b"caf\xe9 needle\n").await.unwrap();
    let found = grep(backend, "needle", GrepOptions::default()).await;
    assert_eq!((paths(&found), found.binary_files_skipped), (vec!["latin"], 1));
    assert!(
        matches!(&found.matches[0], SearchMatch::Line { text, .. } if text == "caf\u{fffd} needle")
    );
}

/// Ignore files apply from the root of the workspace down; the deeper file takes precedence.
pub async fn ignore_files_are_honoured_when_asked(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(
        backend,
        &[
            (".gitignore", "*.log\n/top\nbuild/\n# comment\n\n"),
            ("src/.gitignore", "!keep.log\ngen\n"),
        ],
    )
    .await;
    let files = [
        "a.log",
        "top",
        "src/top",
        "src/keep.log",
        "src/b.log",
        "src/gen/x",
        "build/x",
        "src/build",
    ];
    for path in files {
        backend.write(path, "x").await.unwrap();
    }
    let honour = GlobOptions { ignore_files: IgnoreFileHandling::Honour, ..GlobOptions::default() };
    let kept = ["src/build", "src/keep.log", "src/top"];
    assert_eq!(glob(backend, "**", honour.clone()).await, kept);
    let below = GlobOptions { root: "src".to_owned(), ..honour };
    assert_eq!(glob(backend, "**", below).await, kept);
    let text = GrepOptions { ignore_files: IgnoreFileHandling::Honour, ..GrepOptions::default() };
    assert_eq!(paths(&grep(backend, "x", text).await), kept);
    assert_eq!(glob(backend, "*.log", GlobOptions::default()).await.len(), 3, "otherwise not");
}

/// Each ignored directory counts once. An ignored file counts if the search would include it.
/// Excluded entries do not count.
pub async fn what_is_ignored_is_counted(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(
        backend,
        &[
            (".gitignore", "*.log\n/made/\n"),
            ("a.log", "x"),
            ("b.txt", "x"),
            ("c.bin", "x"),
            ("made/d.txt", "x"),
            ("made/e.txt", "x"),
            ("modules/f/g.txt", "x"),
            ("src/modules/h.txt", "x"),
            ("out/i.log", "x"),
        ],
    )
    .await;
    let left = |directories, files| IgnoredEntryCounts { directories, files };
    let (ignore, exclude) = (vec!["modules".to_owned()], vec!["out".to_owned()]);
    let options = GlobOptions {
        ignore: ignore.clone(),
        exclude: exclude.clone(),
        ignore_files: IgnoreFileHandling::Honour,
        ..GlobOptions::default()
    };
    for (pattern, expect) in [("**", left(3, 1)), ("*.txt", left(3, 0)), ("/*.log", left(0, 1))] {
        let names = backend.glob(pattern, options.clone()).await.unwrap();
        assert_eq!(names.ignored_entries, expect, "{pattern}");
    }
    let text = GrepOptions {
        ignore: ignore.clone(),
        exclude,
        ignore_files: IgnoreFileHandling::Honour,
        ..GrepOptions::default()
    };
    let found = grep(backend, "x", text).await;
    assert_eq!((paths(&found), found.ignored_entries), (vec!["b.txt", "c.bin"], left(3, 1)));
    let found = grep(backend, "x", GrepOptions { ignore, ..GrepOptions::default() }).await;
    assert_eq!((found.matches.len(), found.ignored_entries), (6, left(2, 0)), "by globs alone");
    let found = grep(backend, "x", GrepOptions::default()).await;
    assert_eq!(
        (found.matches.len(), found.ignored_entries),
        (8, left(0, 0)),
        "nothing unless asked"
    );
}

/// The result has the first matches and names the limit.
pub async fn limits_cut_and_say_so(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(backend, &[("a", "x\nx\nx\n"), ("b", "x\n"), ("c", "y\n")]).await;
    let limited = |matches, bytes| SearchLimits {
        max_matches: matches,
        max_bytes: bytes,
        ..SearchLimits::default()
    };
    for (limits, expect, truncated) in [
        (limited(4, 1000), vec!["a", "a", "a", "b"], None),
        (limited(2, 1000), vec!["a", "a"], Some(TruncationCause::Count)),
        (limited(3, 1000), vec!["a", "a", "a"], Some(TruncationCause::Count)),
        (limited(100, 4), vec!["a", "a"], Some(TruncationCause::Bytes)),
        (limited(0, 1000), vec![], Some(TruncationCause::Count)),
    ] {
        let found = grep(backend, "x", GrepOptions { limits, ..GrepOptions::default() }).await;
        assert_eq!((paths(&found), found.truncated), (expect, truncated), "{limits:?}");
    }
    let two = GlobOptions { limits: limited(2, 1000), ..GlobOptions::default() };
    let names = backend.glob("*", two).await.unwrap();
    assert_eq!((names.entries.len(), names.truncated), (2, Some(TruncationCause::Count)));
    let three = GlobOptions { limits: limited(3, 1000), ..GlobOptions::default() };
    assert_eq!(backend.glob("*", three).await.unwrap().truncated, None);
}

/// A file may be the root of a text search, also if it is hidden.
pub async fn a_file_may_be_the_root_of_a_text_search(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    plant(backend, &[("dir/.hidden", "needle\n"), ("dir/other", "needle\n")]).await;
    let at = |root: &str| GrepOptions { root: root.to_owned(), ..GrepOptions::default() };
    assert_eq!(paths(&grep(backend, "needle", at("dir/.hidden")).await), ["dir/.hidden"]);
    assert_eq!(paths(&grep(backend, "absent", at("dir/other")).await), [""; 0]);
}

/// A missing root is `NotFound`; a file searched for names is `NotADirectory`.
pub async fn missing_root_is_not_found(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    backend.write("file", "x").await.unwrap();
    let at = |root: &str| GrepOptions { root: root.to_owned(), ..GrepOptions::default() };
    let names = |root: &str| GlobOptions { root: root.to_owned(), ..GlobOptions::default() };
    let error = expect_error(backend.grep("x", at("missing")).await, ErrorKind::NotFound);
    assert_eq!((error.verb(), error.path()), (Some(Verb::Search), Some("missing")));
    expect_error(backend.grep("x", at("file/below")).await, ErrorKind::NotADirectory);
    expect_error(backend.glob("*", names("missing")).await, ErrorKind::NotFound);
    expect_error(backend.glob("*", names("file")).await, ErrorKind::NotADirectory);
    expect_error(backend.grep("x", at("../outside")).await, ErrorKind::PathEscape);
}

/// An invalid or too long pattern is `Invalid`, and the error names it.
pub async fn senseless_patterns_are_refused(backend: &Backend) {
    if !backend.info().capabilities.search {
        return needs_the_capability(backend).await;
    }
    backend.write("file", "x").await.unwrap();
    let long = "a".repeat(1024 * 1024);
    let bomb = "{a,b}".repeat(64);
    for pattern in ["", "[", "{a", "a/../b", &long, &bomb] {
        let error =
            expect_error(backend.glob(pattern, GlobOptions::default()).await, ErrorKind::Invalid);
        assert!(error.message().starts_with("glob '"), "{error}");
        let exclude = GrepOptions { exclude: vec![pattern.to_owned()], ..GrepOptions::default() };
        expect_error(backend.grep("x", exclude).await, ErrorKind::Invalid);
    }
    for pattern in ["", "a\nb", &long] {
        let error =
            expect_error(backend.grep(pattern, GrepOptions::default()).await, ErrorKind::Invalid);
        assert!(error.message().starts_with("pattern '"), "{error}");
    }
    for pattern in ["(", "a{1000}{1000}{1000}", "\\"] {
        let regex = GrepOptions { syntax: PatternSyntax::Regex, ..GrepOptions::default() };
        expect_error(backend.grep(pattern, regex).await, ErrorKind::Invalid);
    }
    let patient = GrepOptions { syntax: PatternSyntax::Regex, ..GrepOptions::default() };
    assert!(grep(backend, "(x*)*y", patient).await.matches.is_empty());
}
