//! The corpus: every command of it gets its verdict in every profile.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ab_core::Verdict;
use ab_policy::{
    CommandCheckContext, CommandPolicy, PolicyProfile, PolicyRuleFile, PolicyTestSuite,
};

/// Every file of the corpus, by name.
pub(crate) fn files() -> Vec<(String, PolicyTestSuite)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<(String, PolicyTestSuite)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, PolicyTestSuite::parse(&fs::read_to_string(path).unwrap()).unwrap())
        })
        .collect();
    files.sort_by(|one, other| one.0.cmp(&other.0));
    files
}

#[track_caller]
fn holds(name: &str) {
    let corpus = files().into_iter().find(|(each, _)| each == name).unwrap().1;
    let misses = corpus.find_mismatches(&PolicyRuleFile::default()).unwrap();
    let lines: Vec<String> = misses
        .iter()
        .map(|miss| {
            format!(
                "{:?} in {}: {} expected, {} found",
                miss.command, miss.profile, miss.expected, miss.found
            )
        })
        .collect();
    assert!(lines.is_empty(), "{} of {name}:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn destructive_commands_are_refused() {
    holds("destructive");
}

#[test]
fn privileges_are_refused() {
    holds("privilege");
}

#[test]
fn injections_are_refused() {
    holds("injection");
}

#[test]
fn remote_code_is_refused() {
    holds("remote");
}

#[test]
fn network_tampering_is_refused() {
    holds("network");
}

#[test]
fn escapes_are_refused() {
    holds("escape");
}

#[test]
fn programs_that_run_programs_are_seen_through() {
    holds("hooks");
}

#[test]
fn what_only_run_time_knows_is_asked() {
    holds("unknown");
}

#[test]
fn what_cannot_be_parsed_is_refused() {
    holds("unparsable");
}

#[test]
fn ordinary_commands_pass() {
    holds("allowed");
}

#[test]
fn the_corpus_is_large_and_has_no_command_twice() {
    let files = files();
    let commands: Vec<&str> = files
        .iter()
        .flat_map(|(_, corpus)| &corpus.cases)
        .map(|case| case.command.as_str())
        .collect();
    let unique: BTreeSet<&str> = commands.iter().copied().collect();
    assert!(
        unique.len() >= 400 && unique.len() == commands.len(),
        "{} of {}",
        unique.len(),
        commands.len()
    );
    for verdict in [Verdict::Allow, Verdict::Ask, Verdict::Deny] {
        let count: usize =
            files.iter().map(|(_, corpus)| corpus.count_cases_with_guarded_verdict(verdict)).sum();
        assert!(count >= 50, "{count} with {verdict}");
    }
    let judged = files.iter().filter(|(name, _)| name != "executed");
    for case in judged.flat_map(|(_, corpus)| &corpus.cases) {
        let all = [&case.guarded, &case.strict, &case.off];
        assert!(all.iter().all(|verdict| verdict.is_some()), "{:?} lacks a verdict", case.command);
    }
}

#[test]
fn codes_follow_the_category() {
    use ab_core::ErrorCode;
    let policy = CommandPolicy::new(PolicyProfile::Guarded).unwrap();
    let scene = CommandCheckContext::new().with_root_alias("/workspace");
    for (file, expect) in [
        ("destructive", ErrorCode::DangerousOperation),
        ("privilege", ErrorCode::DangerousOperation),
        ("injection", ErrorCode::DangerousOperation),
        ("remote", ErrorCode::DangerousOperation),
        ("network", ErrorCode::DangerousOperation),
        ("escape", ErrorCode::UnsafeCommand),
        ("unknown", ErrorCode::UnsafeCommand),
    ] {
        let corpus = files().into_iter().find(|(each, _)| each == file).unwrap().1;
        for case in &corpus.cases {
            let judged = policy.judge(&case.command, &scene);
            let code = judged.decisive_rule().map(|hit| hit.rule.category.refusal_error_code());
            assert_eq!(code, Some(expect), "{:?}: {:?}", case.command, judged.matched);
        }
    }
}
