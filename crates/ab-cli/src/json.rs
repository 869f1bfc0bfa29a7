//! The JSON output of the commands. All keys of a value are always present. An empty value is
//! `null`.

use std::time::SystemTime;

use ab_core::effective_policy::EffectivePolicy;
use ab_core::metadata::WalkProblem;
use ab_core::search::{IgnoredEntryCounts, SearchLineRole, SearchMatch, SearchResults};
use ab_core::{ApprovalId, DirEntry, Error, Listing, LostCallEffect, LostCallId, Stat};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(crate) fn error(error: &Error) -> Value {
    json!({
        "code": error.code().as_str(),
        "kind": error.kind().as_str(),
        "message": error.to_string(),
        "path": error.path(),
        "hint": error.hint(),
        "effect": error.lost_call_effect().map(LostCallEffect::as_str),
        "ticket": error.lost_call_id().map(LostCallId::as_str),
        "approval": error.pending_approval_id().map(ApprovalId::as_str),
    })
}

/// The policy that is in force for commands.
pub(crate) fn effective(policy: &EffectivePolicy) -> Value {
    json!(ab_server::EffectivePolicyBody::from(policy))
}

/// A path and its metadata.
pub(crate) fn stat(path: &str, stat: &Stat) -> Value {
    let mut value = object(&[("path", json!(path)), ("kind", json!(stat.kind.as_str()))]);
    value.extend(details(stat));
    Value::Object(value)
}

pub(crate) fn listing(path: &str, listing: &Listing) -> Value {
    json!({
        "path": path,
        "entries": listing.entries.iter().map(entry).collect::<Vec<_>>(),
        "truncated": listing.truncated.map(|cut| cut.as_str()),
        "problems": problems(&listing.problems),
    })
}

/// The result of a text search below `path`.
pub(crate) fn found(path: &str, found: &SearchResults) -> Value {
    json!({
        "path": path,
        "matches": found.matches.iter().map(matched).collect::<Vec<_>>(),
        "truncated": found.truncated.map(|cut| cut.as_str()),
        "searched": found.files_searched,
        "skipped_binary": found.binary_files_skipped,
        "left_out": left_out(found.ignored_entries),
        "problems": problems(&found.problems),
    })
}

/// The number of entries that a search ignored.
pub(crate) fn left_out(left_out: IgnoredEntryCounts) -> Value {
    json!({ "directories": left_out.directories, "files": left_out.files })
}

pub(crate) fn problems(problems: &[WalkProblem]) -> Value {
    problems.iter().map(problem).collect()
}

/// Date and time in UTC with full precision. `None` if the time cannot be represented as a date.
pub(crate) fn time(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|timestamp| timestamp.to_string())
}

/// Date and time in UTC with a precision of seconds, for people.
pub(crate) fn time_for_people(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(timestamp) => timestamp.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => "unknown".to_owned(),
    }
}

/// Permission bits as four octal digits.
pub(crate) fn mode(mode: u32) -> String {
    format!("{mode:04o}")
}

fn entry(entry: &DirEntry) -> Value {
    let mut value = object(&[
        ("path", json!(entry.path.to_string())),
        ("name", json!(entry.path.name())),
        ("kind", json!(entry.kind.as_str())),
    ]);
    if let Some(stat) = &entry.stat {
        value.extend(details(stat));
    }
    Value::Object(value)
}

fn matched(found: &SearchMatch) -> Value {
    match found {
        SearchMatch::Name(found) => entry(found),
        SearchMatch::Line { path, line_number: line, text, full_line_bytes: cut, role } => json!({
            "path": path.to_string(),
            "line": line,
            "text": text,
            "role": match role {
                SearchLineRole::Match => "match",
                SearchLineRole::Context => "context",
            },
            "cut": cut,
        }),
        SearchMatch::File { path } => json!({ "path": path.to_string() }),
        SearchMatch::Count { path, matching_lines: lines } => {
            json!({ "path": path.to_string(), "lines": lines })
        }
    }
}

fn problem(problem: &WalkProblem) -> Value {
    json!({ "path": problem.path, "error": error(&problem.error) })
}

fn details(stat: &Stat) -> Map<String, Value> {
    object(&[
        ("size", json!(stat.size)),
        ("mode", json!(stat.mode.map(mode))),
        ("modified", json!(time(stat.modified))),
        ("accessed", json!(stat.accessed.and_then(time))),
        ("created", json!(stat.created.and_then(time))),
        ("version", json!(stat.version.to_string())),
    ])
}

fn object(pairs: &[(&str, Value)]) -> Map<String, Value> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use ab_core::{ErrorCode, ErrorKind};

    use super::*;

    #[test]
    fn an_error_has_every_key() {
        let bare = Error::new(ErrorCode::InvalidPath, ErrorKind::InvalidPath, "the path is empty");
        assert_eq!(
            error(&bare),
            json!({
                "code": "INVALID_PATH",
                "kind": "invalid_path",
                "message": "the path is empty",
                "path": null,
                "hint": null,
                "effect": null,
                "ticket": null,
                "approval": null,
            })
        );
        let unsure = error(
            &bare
                .clone()
                .with_lost_call_effect(LostCallEffect::Unknown, Some(LostCallId::new("t"))),
        );
        assert_eq!((&unsure["effect"], &unsure["ticket"]), (&json!("unknown"), &json!("t")));
        let full = error(&bare.with_path("a b").with_hint("use '.'"));
        assert_eq!((&full["path"], &full["hint"]), (&json!("a b"), &json!("use '.'")));
        assert_eq!(full["message"], "'a b': the path is empty");
    }

    #[test]
    fn times_are_rfc_3339() {
        let moment = UNIX_EPOCH + Duration::new(1_700_000_000, 120_000_000);
        assert_eq!(time(moment).as_deref(), Some("2023-11-14T22:13:20.12Z"));
        assert_eq!(time_for_people(moment), "2023-11-14 22:13:20Z");
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(time(before).as_deref(), Some("1969-12-31T23:59:59Z"));
        assert_eq!(mode(0o644), "0644");
    }
}
