//! Speed of a verdict, beside the bare parse of the same text by tree-sitter's bash grammar.
//!
//! Ours and the peer take turns inside a round; what counts is the median of the ratios of the
//! rounds. `cargo xtask bench policy` runs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends at the first thing that is not as it must be"
)]

use std::hint::black_box;
use std::time::Instant;

use ab_policy::{
    CommandCheckContext, CommandPolicy, PolicyProfile, PolicyRuleFile, context_for_rule_examples,
};

const ROUNDS: usize = 15;
const TURNS: usize = 2_000;

/// 200 characters, six parts.
const SIX_PARTS: &str = "cd packages/web && npm ci --no-audit && npm run build --if-present 2>&1 | tee build.log && \
grep -rn 'error' build.log | head -20; git add -A src/components && git commit -m 'build: web, cleaned up it'";
const PLAIN: &str = "ls -la src";

fn main() {
    let start = Instant::now();
    let guarded = CommandPolicy::new(PolicyProfile::Guarded).unwrap();
    let load = start.elapsed();
    let scene = context_for_rule_examples();
    println!("bench policy: median of {ROUNDS} rounds of {TURNS} turns; times are microseconds\n");
    println!("built-in rules are read and proved in {} microseconds, once\n", load.as_micros());
    println!("{:<44} {:>9} {:>9} {:>8}  bar", "", "ours", "peer", "ratio");

    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).unwrap();
    let judged = guarded.judge(SIX_PARTS, &scene);
    assert_eq!((SIX_PARTS.len(), judged.analysis.commands.len()), (200, 8), "{judged:?}");
    compare(
        "verdict on 200 characters; bare tree-sitter",
        "at most 1.6, under 100",
        || drop(black_box(guarded.judge(black_box(SIX_PARTS), &scene))),
        || drop(black_box(parser.parse(black_box(SIX_PARTS), None))),
    );
    compare(
        "verdict on `ls -la src`; bare tree-sitter",
        "under 10",
        || drop(black_box(guarded.judge(black_box(PLAIN), &scene))),
        || drop(black_box(parser.parse(black_box(PLAIN), None))),
    );
    let (many, few) = (with_rules(1_000), with_rules(10));
    compare(
        "1,000 own rules; 10 own rules",
        "at most 1.3",
        || drop(black_box(many.judge(black_box(SIX_PARTS), &scene))),
        || drop(black_box(few.judge(black_box(SIX_PARTS), &scene))),
    );
}

/// A policy with so many rules of a user, on programs, prefixes and arguments.
fn with_rules(count: usize) -> CommandPolicy {
    let rule = |n: usize| {
        let look = match n % 3 {
            0 => format!("command = [\"tool{n}\"]"),
            1 => format!("prefix = [\"tool{n}\", [\"push\", \"pull\"]]"),
            _ => format!("command = [\"tool{n}\"]\narguments = {{ any = [\"--force\", \"-f\"] }}"),
        };
        format!("[[rule]]\nid = \"own.r{n}\"\nverdict = \"deny\"\n{look}\nreason = \"a rule\"\n")
    };
    let text: String = (0..count).map(rule).collect();
    let policy = CommandPolicy::with_user_rules(
        PolicyProfile::Guarded,
        &PolicyRuleFile::from_toml(&text).unwrap(),
    )
    .unwrap();
    let judged = policy.judge("tool0", &CommandCheckContext::new());
    assert_eq!(judged.decisive_rule().unwrap().rule.id, "own.r0");
    policy
}

fn compare(what: &str, bar: &str, mut ours: impl FnMut(), mut peer: impl FnMut()) {
    let (mut mine, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (our, their) = (time(&mut ours), time(&mut peer));
        // The first round warms up.
        if round > 0 {
            mine.push(our);
            theirs.push(their);
            ratios.push(our / their);
        }
    }
    println!(
        "{what:<44} {:>9.2} {:>9.2} {:>7.2}x  {bar}",
        median(mine),
        median(theirs),
        median(ratios)
    );
}

/// Microseconds of one turn.
fn time(step: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..TURNS {
        step();
    }
    start.elapsed().as_secs_f64() * 1e6 / TURNS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
