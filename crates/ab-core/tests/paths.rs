//! Paths as properties: whatever text comes in, what comes out is a path below the root, or an
//! error that names the text.

use ab_core::path::{
    MAX_PATH_BYTES, MAX_PATH_SEGMENT_BYTES, PathParser, Platform, TEMP_FILE_PREFIX, WsPath,
};
use ab_core::{ErrorCode, ErrorKind};
use ab_testkit::fuzz;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;

const ALIAS: &str = "/w/s";

/// Every set of rules, with a name for messages.
pub(crate) fn every_rules() -> Vec<(&'static str, PathParser)> {
    let lenient = PathParser::lenient;
    vec![
        ("lenient", lenient()),
        ("lenient with an alias", lenient().with_root_alias(ALIAS)),
        ("lenient with the root as alias", lenient().with_root_alias("/")),
        ("lenient in a scope", scope_rules().for_scope(&scope_path())),
        (
            "lenient on windows",
            lenient().for_platform(Platform::Windows).with_root_alias("C:\\w\\s"),
        ),
        ("strict", PathParser::strict()),
        ("strict on windows", PathParser::strict().for_platform(Platform::Windows)),
    ]
}

fn scope_rules() -> PathParser {
    PathParser::lenient().with_root_alias(ALIAS)
}

fn scope_path() -> WsPath {
    scope_rules().parse("users/a").unwrap()
}

/// Text that is likely to matter: parts that mean something, glued with anything that separates.
pub(crate) fn raw_path() -> impl Strategy<Value = String> {
    let named = prop_oneof![
        6 => select(vec!["a", "b", "w", "s", "users", "w/s", "C:", "c:", "C:x", "..."]),
        6 => select(vec!["..", ".", "", "/", "\\", "//", "//?/", "\\\\srv\\share", "~", "%2e%2e"]),
        2 => select(vec![".ab-tmp-", ".ab-tmp-1", "x.ab-tmp-1", "nul", "COM1.txt", "a.", "a "]),
        1 => select(vec!["\0", "\n", ":", "a:b", "\u{fe}", "\u{ff0f}", "\u{2025}", "\u{202e}"]),
    ];
    let part = prop_oneof![
        15 => named.prop_map(str::to_owned),
        1 => (200..300usize).prop_map(|length| "n".repeat(length)),
        1 => (1000..2100usize).prop_map(|depth| "d/".repeat(depth)),
    ];
    let glue = select(vec!["/", "/", "/", "/", "\\", "", "//", "/./"]);
    let glued = vec((part, glue), 0..8)
        .prop_map(|parts| parts.into_iter().map(|(part, glue)| part + glue).collect::<String>());
    prop_oneof![6 => glued, 2 => any::<String>(), 1 => Just(String::new())]
}

/// What must hold of any text under any rules.
pub(crate) fn check_any(raw: &str) -> TestCaseResult {
    for (name, rules) in every_rules() {
        let parsed = rules.parse(raw);
        let as_bytes = rules.parse_bytes(raw.as_bytes());
        prop_assert_eq!(parsed.is_ok(), as_bytes.is_ok(), "{}: bytes and text differ", name);
        match parsed {
            Ok(path) => check_path(name, &rules, &path)?,
            Err(error) => {
                let code = match error.kind() {
                    ErrorKind::PathEscape => ErrorCode::PathEscapeAttempt,
                    _ => ErrorCode::InvalidPath,
                };
                prop_assert_eq!((error.code(), error.path()), (code, Some(raw)), "{}", name);
            }
        }
    }
    Ok(())
}

fn check_path(name: &str, rules: &PathParser, path: &WsPath) -> TestCaseResult {
    let text = path.as_str();
    prop_assert!(text.len() <= MAX_PATH_BYTES && !text.contains('\0'), "{}: {:?}", name, path);
    if !path.is_root() {
        for segment in text.split('/') {
            let plain =
                !matches!(segment, "" | "." | "..") && segment.len() <= MAX_PATH_SEGMENT_BYTES;
            let reserved = segment.starts_with(TEMP_FILE_PREFIX);
            prop_assert!(plain && !reserved, "{}: {:?} has {:?}", name, path, segment);
        }
    }
    prop_assert_eq!(path.segments().collect::<Vec<_>>().join("/"), text);
    prop_assert!(!path.has_scope_root(), "{}: nobody asked for a scope root", name);
    let shown = path.to_string();
    match rules.parse(&shown) {
        Ok(again) => prop_assert_eq!(&again, path, "{}: {:?} is read as another path", name, shown),
        Err(error) => prop_assert!(false, "{}: refuses its own {:?}: {}", name, shown, error),
    }
    let inside = scope_path().into_scope_root().join(path);
    prop_assert!(inside.starts_with(&scope_path()), "{}: {:?} left the scope", name, inside);
    prop_assert_eq!(inside.innermost_scope_root(), scope_path());
    prop_assert_eq!(inside.strip_prefix(&scope_path()), Some(path.clone()));
    Ok(())
}

/// The three cases, written down a second time: relative, absolute under an alias, absolute
/// elsewhere. Nothing when the path climbs out.
fn expected(raw: &str, alias: &[&str]) -> Option<Vec<String>> {
    let mut stack: Vec<&str> = Vec::new();
    let mut left_the_alias = false;
    let absolute = raw.starts_with('/');
    for part in raw.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part != ".." {
            stack.push(part);
            continue;
        }
        left_the_alias |= absolute && stack == alias;
        stack.pop()?;
    }
    let below = match stack.strip_prefix(alias) {
        Some(below) if absolute => below,
        _ if left_the_alias => return None,
        _ => &stack,
    };
    Some(below.iter().map(|part| (*part).to_owned()).collect())
}

#[test]
fn whatever_text_gives_a_path_or_names_the_text() {
    fuzz::check_property("any path", raw_path(), |raw| check_any(&raw));
}

#[test]
fn the_three_cases_decide() {
    fuzz::check_property("three cases", raw_path(), |raw| {
        for (rules, alias) in [
            (PathParser::lenient().with_root_alias(ALIAS), vec!["w", "s"]),
            (scope_rules().for_scope(&scope_path()), vec!["w", "s", "users", "a"]),
        ] {
            let result = rules.parse(&raw);
            match result {
                Ok(path) => {
                    let segments: Vec<String> = path.segments().map(str::to_owned).collect();
                    prop_assert_eq!(Some(segments), expected(&raw, &alias));
                }
                Err(error) if error.kind() == ErrorKind::PathEscape => {
                    prop_assert_eq!(expected(&raw, &alias), None);
                }
                Err(_) => {}
            }
        }
        Ok(())
    });
}

#[test]
fn escapes_hide_behind_nothing_valid() {
    let segments = vec(select(vec!["a", "b", "..", ".", ""]), 0..10);
    fuzz::check_property("escapes", segments, |segments| {
        let raw = segments.join("/");
        if raw.is_empty() {
            return Ok(());
        }
        let escapes = expected(&raw, &["w", "s"]).is_none();
        let kind = PathParser::lenient().parse(&raw).err().map(|error| error.kind());
        prop_assert_eq!(kind, escapes.then_some(ErrorKind::PathEscape), "{:?}", raw);
        Ok(())
    });
}

#[test]
fn a_drive_hides_behind_nothing() {
    let windows = || PathParser::lenient().for_platform(Platform::Windows).with_root_alias("C:\\w");
    let strict = PathParser::strict;
    for (rules, raw) in [
        (strict(), "./C:x"),
        (strict(), ".//C:/x"),
        (strict().for_platform(Platform::Windows), "./C:x"),
        (windows(), ".\\C:\\x"),
        (windows(), "a/../C:/x"),
        (windows(), "C:/C:/x"),
        (windows(), "C:\\w\\D:\\x"),
        (windows(), "\\\\srv\\share\\C:\\x"),
    ] {
        let error = rules.parse(raw).unwrap_err();
        assert_eq!((error.code(), error.path()), (ErrorCode::InvalidPath, Some(raw)), "{rules:?}");
    }
}

#[test]
fn order_is_that_of_a_walk() {
    let name = select(vec!["a", "b", "a.txt", "a-", "a b", "B"]);
    let path = vec(name, 1..4).prop_map(|names| names.join("/"));
    fuzz::check_property("order", vec(path, 0..8), |paths| {
        let rules = PathParser::lenient();
        let mut parsed: Vec<WsPath> = paths.iter().map(|path| rules.parse(path).unwrap()).collect();
        parsed.sort();
        let mut by_segments = parsed.clone();
        by_segments.sort_by_key(|path| path.segments().map(str::to_owned).collect::<Vec<String>>());
        prop_assert_eq!(&parsed, &by_segments);
        for pair in parsed.windows(2) {
            prop_assert!(!pair[0].starts_with(&pair[1]) || pair[0] == pair[1]);
        }
        Ok(())
    });
}

#[test]
fn what_is_no_text_is_refused() {
    fuzz::check_property("bytes", vec(any::<u8>(), 0..40), |bytes| {
        for (name, rules) in every_rules() {
            match std::str::from_utf8(&bytes) {
                Ok(text) => {
                    prop_assert_eq!(rules.parse_bytes(&bytes).ok(), rules.parse(text).ok());
                }
                Err(_) => {
                    let error = rules.parse_bytes(&bytes).unwrap_err();
                    prop_assert_eq!(error.code(), ErrorCode::InvalidPath, "{}", name);
                }
            }
        }
        Ok(())
    });
}
