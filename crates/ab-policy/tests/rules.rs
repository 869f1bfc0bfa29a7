//! Built-in rules keep what they promise; a user's rules are read, checked and combined.

use ab_core::Verdict;
use ab_policy::{
    CommandCheckContext, CommandPolicy, PolicyProfile, PolicyRuleFile, built_in_rules,
    context_for_rule_examples,
};

fn verdict(policy: &CommandPolicy, command: &str) -> Verdict {
    policy.judge(command, &context_for_rule_examples()).verdict
}

#[test]
fn every_built_in_rule_fits_its_examples() {
    // Loading refuses the first that does not; here each is seen to have some.
    let rules = built_in_rules().unwrap();
    for rule in &rules {
        assert!(
            !rule.matches.is_empty() && !rule.not_match.is_empty(),
            "{} has no examples",
            rule.id
        );
        assert!(rule.suggestion.is_some(), "{} suggests nothing", rule.id);
        assert!(
            !rule.reason.ends_with('.') && !rule.reason.starts_with(char::is_uppercase),
            "{}",
            rule.id
        );
    }
    let mut ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), rules.len(), "ids are unique");
}

const TOML: &str = r#"
default = "deny"

[[rule]]
id = "own.read"
verdict = "allow"
command = ["cat", "ls", "git", "cp", "cd", "make"]
reason = "reading is fine"
match = ["cat a"]

[[rule]]
id = "own.push"
verdict = "ask"
prefix = ["git", ["push", "fetch"]]
reason = "somebody should look first"
suggestion = "commit and wait"
match = ["git push origin main"]
not_match = ["git status"]

[[rule]]
id = "own.force"
verdict = "deny"
prefix = ["git", "push"]
arguments = { any = ["--force", "-f"] }
reason = "history is shared"

[[rule]]
id = "own.secrets"
verdict = "deny"
path = ["secrets", "*.pem"]
reason = "secrets stay where they are"
match = ["cat secrets/a", "cat deep/secrets/b", "cat src/../x.pem", "ls < secrets/key"]
not_match = ["cat secrets.md"]

[[rule]]
id = "own.generated"
verdict = "deny"
path = ["gen/**"]
writes = true
reason = "generated files are not edited"
match = ["cp a gen/a", "echo x > gen/b/c"]
not_match = ["cat gen/a"]
"#;

#[test]
fn own_rules_combine_by_the_greatest_verdict() {
    let file = PolicyRuleFile::from_toml(TOML).unwrap();
    let policy = CommandPolicy::with_user_rules(PolicyProfile::Guarded, &file).unwrap();
    for (command, expect) in [
        ("cat a", Verdict::Allow),
        ("git status", Verdict::Allow),
        ("git push", Verdict::Ask),
        ("git push --force", Verdict::Deny),
        ("git $VERB --force", Verdict::Ask),
        ("cat secrets/a", Verdict::Deny),
        ("cd secrets && cat a", Verdict::Deny),
        ("cat gen/a", Verdict::Allow),
        ("cp a gen/a", Verdict::Deny),
        ("python x.py", Verdict::Deny),
        ("cat a && python evil.py", Verdict::Deny),
        ("FOO=1 cat a", Verdict::Allow),
        ("cat a | sudo ls", Verdict::Deny),
        ("rm -rf /", Verdict::Deny),
    ] {
        assert_eq!(verdict(&policy, command), expect, "{command}");
    }
    let judged = policy.judge("python x.py", &CommandCheckContext::new());
    assert_eq!(judged.decisive_rule().unwrap().rule.id, "default");
}

#[test]
fn toml_and_json_have_the_same_shape() {
    let file = PolicyRuleFile::from_toml(TOML).unwrap();
    let json = serde_json::to_string(&file).unwrap();
    assert_eq!(PolicyRuleFile::from_json(&json).unwrap(), file);
    assert_eq!(PolicyRuleFile::parse(&json).unwrap(), PolicyRuleFile::parse(TOML).unwrap());
}

#[test]
fn an_allowed_pattern_overrides_the_rules_it_names() {
    let text = r#"
[[rule]]
id = "own.deploy"
verdict = "allow"
prefix = ["ssh", "deploy.example"]
overrides = ["strict.network-tools"]
reason = "deploying is our job"
match = ["ssh deploy.example restart"]
"#;
    let file = PolicyRuleFile::from_toml(text).unwrap();
    let policy = CommandPolicy::with_user_rules(PolicyProfile::Strict, &file).unwrap();
    assert_eq!(verdict(&policy, "ssh deploy.example restart"), Verdict::Allow);
    assert_eq!(verdict(&policy, "ssh elsewhere.example restart"), Verdict::Deny);
    assert_eq!(verdict(&policy, "sudo ssh deploy.example"), Verdict::Deny, "only what is named");
    let strict = CommandPolicy::new(PolicyProfile::Strict).unwrap();
    assert_eq!(verdict(&strict, "gcloud storage rsync -r a gs://b"), Verdict::Allow);
    assert_eq!(verdict(&strict, "rsync -r a b"), Verdict::Deny);
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let rule =
        |body: &str| format!("[[rule]]\nid = \"a\"\nverdict = \"deny\"\nreason = \"r\"\n{body}\n");
    for (text, says) in [
        (rule(""), "looks at nothing"),
        (rule("command = [\"ls\"]\nmatch = [\"cat a\"]"), "does not match 'cat a'"),
        (rule("command = [\"ls\"]\nnot_match = [\"ls -l\"]"), "it matches 'ls -l'"),
        (rule("command = [\"ls\"]\noverrides = [\"x\"]"), "only a rule that allows"),
        (rule("command = [\"ls\"]\nwrites = true"), "without 'path'"),
        (rule("effect = [\"moonlight\"]"), "unknown variant"),
        (rule("colour = \"red\""), "unknown field"),
        (rule("path = [\"{a\"]"), "path"),
        (rule("command = [\"ls\"]").repeat(2), "another of that id"),
        (rule("command = [\"ls\"]").replace("\"a\"", "\"A b\""), "an id is made of"),
        (rule("command = [\"ls\"]").replace("deny", "maybe"), "unknown variant"),
        (rule("command = [\"ls\"]").replace("\"r\"", "\" \""), "no reason"),
        (
            rule("command = [\"ls\"]").replace("deny", "allow") + "overrides = [\"no.rule\"]\n",
            "rule 'a': overrides 'no.rule', which is no rule",
        ),
        (rule("command = \"ls\""), "line 5, rule 'a', field 'command': invalid type"),
        ("default = 3".to_owned(), "cannot read the rules: line 1, field 'default'"),
        ("{".to_owned(), "cannot read the rules"),
    ] {
        let loaded = PolicyRuleFile::parse(&text)
            .and_then(|file| CommandPolicy::with_user_rules(PolicyProfile::Guarded, &file));
        let error = loaded.expect_err(&text);
        assert_eq!(error.code(), ab_core::ErrorCode::InvalidConfiguration);
        assert!(error.message().contains(says), "{says}: {error}");
    }
}

#[test]
fn strict_is_never_milder_than_guarded() {
    let [guarded, strict, off] =
        [PolicyProfile::Guarded, PolicyProfile::Strict, PolicyProfile::Off]
            .map(|profile| CommandPolicy::new(profile).unwrap());
    for rule in built_in_rules().unwrap() {
        for command in rule.matches.iter().chain(&rule.not_match) {
            assert!(verdict(&strict, command) >= verdict(&guarded, command), "{command}");
            assert_eq!(verdict(&off, command), Verdict::Allow);
        }
    }
}
