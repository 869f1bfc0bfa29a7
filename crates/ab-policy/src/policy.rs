//! A policy: the active rules with an index, and the verdicts that result from them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use ab_core::{EnforcedControls, ErrorCode, Result, Verdict};

use crate::analysis::{AnalysedCommand, CommandAnalysis, CommandFindingKind, analyse_command};
use crate::place::CommandCheckContext;
use crate::profile::PolicyProfile;
use crate::rules::{Fit, Matcher, PolicyRule, PolicyRuleCategory, PolicyRuleFile, invalid};

/// The built-in rules, in the order in which they are shown.
const BUILT_IN: [&str; 7] = [
    include_str!("../rules/destructive.toml"),
    include_str!("../rules/privilege.toml"),
    include_str!("../rules/injection.toml"),
    include_str!("../rules/remote.toml"),
    include_str!("../rules/network.toml"),
    include_str!("../rules/escape.toml"),
    include_str!("../rules/strict.toml"),
];

static GUARDED: LazyLock<Result<CommandPolicy>> =
    LazyLock::new(|| CommandPolicy::built_in(PolicyProfile::Guarded));
static STRICT: LazyLock<Result<CommandPolicy>> =
    LazyLock::new(|| CommandPolicy::built_in(PolicyProfile::Strict));

/// The rules by which commands are judged. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CommandPolicy {
    profile: PolicyProfile,
    default: Verdict,
    rules: Arc<Index>,
}

#[derive(Debug, Default)]
struct Index {
    entries: Vec<Entry>,
    /// Rules that name programs.
    by_program: HashMap<String, Vec<usize>>,
    /// Rules without a program name. They must be checked for every command.
    on_any: Vec<usize>,
    /// For each effect, the rules that depend only on effects.
    by_effect: Vec<Vec<usize>>,
}

#[derive(Debug)]
struct Entry {
    rule: Arc<PolicyRule>,
    verdict: Verdict,
    matcher: Matcher,
}

/// A verdict with its reasons.
#[derive(Clone, Debug)]
pub struct PolicyJudgement {
    pub verdict: Verdict,
    /// All rules that matched. The rule that decided comes first.
    pub matched: Vec<MatchedRule>,
    /// Notes about parts that run but were not judged.
    pub notes: Vec<&'static str>,
    pub analysis: CommandAnalysis,
}

/// The note about a shell whose input is not known in advance.
const UNSEEN_INPUT: &str = "a shell reads commands from standard input, which were not judged";

/// A rule that matched.
#[derive(Clone, Debug)]
pub struct MatchedRule {
    pub rule: Arc<PolicyRule>,
    pub verdict: Verdict,
    /// The index of the command that the rule matched. `None` if it matched the whole line.
    pub command_index: Option<usize>,
    /// The part of the text that matched.
    pub detail: String,
}

impl CommandPolicy {
    /// A policy with the built-in rules of a profile.
    pub fn new(profile: PolicyProfile) -> Result<Self> {
        match profile {
            PolicyProfile::Guarded => GUARDED.clone(),
            PolicyProfile::Strict => STRICT.clone(),
            PolicyProfile::Off => Self::built_in(PolicyProfile::Off),
        }
    }

    /// A policy with the built-in rules of a profile and the rules of a user.
    pub fn with_user_rules(profile: PolicyProfile, file: &PolicyRuleFile) -> Result<Self> {
        let mut policy = Self::new(profile)?;
        let built_in = built_in_rules()?;
        let mut index = Index::of(profile, &built_in)?;
        if profile != PolicyProfile::Off {
            for rule in &file.rules {
                let known =
                    |id: &String| built_in.iter().chain(&file.rules).any(|other| other.id == *id);
                if let Some(id) = rule.overrides.iter().find(|id| !known(id)) {
                    let problem = format!("rule '{}': overrides '{id}', which is no rule", rule.id);
                    return Err(invalid(problem));
                }
                if index.entries.iter().any(|entry| entry.rule.id == rule.id) {
                    return Err(invalid(format!(
                        "rule '{}': there is another of that id",
                        rule.id
                    )));
                }
                index.add(rule, rule.verdict)?;
            }
            index.prove(&file.rules)?;
            policy.default = file.default.unwrap_or_default();
        }
        policy.rules = Arc::new(index);
        Ok(policy)
    }

    fn built_in(profile: PolicyProfile) -> Result<Self> {
        let rules = built_in_rules()?;
        let index = Index::of(profile, &rules)?;
        Ok(Self { profile, default: Verdict::Allow, rules: Arc::new(index) })
    }

    pub fn profile(&self) -> PolicyProfile {
        self.profile
    }

    /// The verdict on a command if no rule matches it.
    pub fn default_verdict(&self) -> Verdict {
        self.default
    }

    /// The active rules, each with its verdict in this profile.
    pub fn rules(&self) -> impl Iterator<Item = (&PolicyRule, Verdict)> {
        self.rules.entries.iter().map(|entry| (&*entry.rule, entry.verdict))
    }

    /// Judges a command line as it would run in `context`.
    pub fn judge(&self, command: &str, context: &CommandCheckContext) -> PolicyJudgement {
        let analysis = analyse_command(command, context);
        if self.profile == PolicyProfile::Off {
            let (hits, notes) = (Vec::new(), Vec::new());
            return PolicyJudgement { verdict: Verdict::Allow, matched: hits, notes, analysis };
        }
        // The profile `strict` applies every rule, no matter what is enforced.
        let enforced = match self.profile {
            PolicyProfile::Guarded => context.enforced(),
            PolicyProfile::Strict | PolicyProfile::Off => EnforcedControls::NONE,
        };
        let mut hits = self.rules.hits(&analysis, enforced);
        if self.default > Verdict::Allow {
            let fallback = default_rule(self.default);
            let spoken: HashSet<Option<usize>> = hits.iter().map(|hit| hit.command_index).collect();
            for (at, executed) in analysis.started_commands_with_index() {
                if !spoken.contains(&Some(at)) {
                    hits.push(MatchedRule {
                        rule: fallback.clone(),
                        verdict: self.default,
                        command_index: Some(at),
                        detail: executed
                            .words
                            .first()
                            .map(|word| word.text.clone())
                            .unwrap_or_default(),
                    });
                }
            }
        }
        drop_overridden(&mut hits);
        // If several verdicts are equal, a rule of a dangerous category comes first.
        let weight = |hit: &MatchedRule| {
            (hit.verdict, hit.rule.category.refusal_error_code() == ErrorCode::DangerousOperation)
        };
        hits.sort_by_key(|hit| std::cmp::Reverse(weight(hit)));
        let verdict = hits.first().map_or(Verdict::Allow, |hit| hit.verdict);
        let unseen = |finding: &crate::analysis::CommandFinding| {
            finding.kind == CommandFindingKind::RunsShellCodeFromStdin
        };
        let notes = analysis.findings.iter().any(unseen).then_some(UNSEEN_INPUT);
        PolicyJudgement { verdict, matched: hits, notes: notes.into_iter().collect(), analysis }
    }
}

impl PolicyJudgement {
    /// The rule that decided. `None` if the command is allowed.
    pub fn decisive_rule(&self) -> Option<&MatchedRule> {
        self.matched
            .first()
            .filter(|hit| hit.verdict == self.verdict && self.verdict > Verdict::Allow)
    }

    /// The verdict on a single command, without findings about the whole line.
    pub fn verdict_on_command_at(&self, index: usize) -> Verdict {
        let of = self.matched.iter().filter(|hit| hit.command_index == Some(index));
        of.map(|hit| hit.verdict).max().unwrap_or_default()
    }
}

impl Index {
    fn of(profile: PolicyProfile, rules: &[PolicyRule]) -> Result<Self> {
        let mut index = Self::default();
        for rule in rules.iter().filter(|rule| rule.belongs_to(profile)) {
            let verdict = match (profile, rule.verdict) {
                (PolicyProfile::Strict, Verdict::Ask) => Verdict::Deny,
                (_, verdict) => verdict,
            };
            index.add(rule, verdict)?;
        }
        Ok(index)
    }

    fn add(&mut self, rule: &PolicyRule, verdict: Verdict) -> Result<()> {
        let at = self.entries.len();
        let matcher = Matcher::new(rule)?;
        self.entries.push(Entry { rule: Arc::new(rule.clone()), verdict, matcher });
        let looks_at_words = !rule.command.is_empty()
            || !rule.prefix.is_empty()
            || !rule.path.is_empty()
            || rule.arguments != crate::rules::ArgumentPatterns::default();
        if !looks_at_words {
            self.by_effect.resize(CommandFindingKind::COUNT, Vec::new());
            for effect in &rule.effect {
                self.by_effect[*effect as usize].push(at);
            }
            return Ok(());
        }
        match programs(rule) {
            Some(programs) => {
                for program in programs {
                    self.by_program.entry(program.to_owned()).or_default().push(at);
                }
            }
            None => self.on_any.push(at),
        }
        Ok(())
    }

    fn hits(&self, analysis: &CommandAnalysis, enforced: EnforcedControls) -> Vec<MatchedRule> {
        let mut hits = Vec::new();
        let found: HashSet<(usize, CommandFindingKind)> = analysis
            .findings
            .iter()
            .filter_map(|finding| Some((finding.command_index?, finding.kind)))
            .collect();
        for (at, command) in analysis.commands.iter().enumerate() {
            let named = command.program().and_then(|program| self.by_program.get(program));
            for entry in named.into_iter().flatten().chain(&self.on_any) {
                let entry = &self.entries[*entry];
                if entry.rule.is_enforced(enforced) {
                    continue;
                }
                if let Some(hit) = entry.hit(at, command, &found) {
                    hits.push(hit);
                }
            }
        }
        for finding in &analysis.findings {
            let entries = self.by_effect.get(finding.kind as usize);
            for entry in entries.into_iter().flatten() {
                let entry = &self.entries[*entry];
                if entry.rule.is_enforced(enforced) {
                    continue;
                }
                hits.push(MatchedRule {
                    rule: entry.rule.clone(),
                    verdict: entry.verdict,
                    command_index: finding.command_index,
                    detail: finding.detail.clone(),
                });
            }
        }
        hits
    }

    /// Fails if a rule does not match its own examples (`matches`), or matches an example that it
    /// must not match.
    fn prove(&self, rules: &[PolicyRule]) -> Result<()> {
        let scene = context_for_rule_examples();
        for rule in rules {
            let fits = |command: &String| {
                let hits = self.hits(&analyse_command(command, &scene), EnforcedControls::NONE);
                hits.iter().any(|hit| hit.rule.id == rule.id)
            };
            if let Some(command) = rule.matches.iter().find(|command| !fits(command)) {
                return Err(invalid(format!("rule '{}': it does not match '{command}'", rule.id)));
            }
            if let Some(command) = rule.not_match.iter().find(|command| fits(command)) {
                return Err(invalid(format!("rule '{}': it matches '{command}'", rule.id)));
            }
        }
        Ok(())
    }
}

impl Entry {
    fn hit(
        &self,
        at: usize,
        command: &AnalysedCommand,
        found: &HashSet<(usize, CommandFindingKind)>,
    ) -> Option<MatchedRule> {
        let verdict = match self.matcher.fits(&self.rule, command) {
            Fit::No => return None,
            // It is unknown whether the word matches, so the verdict is `Ask`.
            Fit::Perhaps if self.verdict == Verdict::Allow => return None,
            Fit::Perhaps => Verdict::Ask,
            Fit::Yes => self.verdict,
        };
        let done = |effect: &CommandFindingKind| found.contains(&(at, *effect));
        if !self.rule.effect.is_empty() && !self.rule.effect.iter().any(done) {
            return None;
        }
        let detail =
            command.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        let detail = detail.chars().take(200).collect();
        Some(MatchedRule { rule: self.rule.clone(), verdict, command_index: Some(at), detail })
    }
}

/// The context in which the examples of rules are judged. The root of the workspace is
/// `/workspace`.
pub fn context_for_rule_examples() -> CommandCheckContext {
    CommandCheckContext::new().with_root_alias("/workspace")
}

/// The built-in rules of all profiles. The rules have been checked against their examples.
pub fn built_in_rules() -> Result<Vec<PolicyRule>> {
    static RULES: LazyLock<Result<Vec<PolicyRule>>> = LazyLock::new(|| {
        let mut rules = Vec::new();
        for text in BUILT_IN {
            rules.extend(PolicyRuleFile::from_toml(text)?.rules);
        }
        let mut index = Index::default();
        for rule in &rules {
            index.add(rule, rule.verdict)?;
        }
        index.prove(&rules)?;
        Ok(rules)
    });
    RULES.clone()
}

fn default_rule(verdict: Verdict) -> Arc<PolicyRule> {
    Arc::new(PolicyRule {
        id: "default".to_owned(),
        category: PolicyRuleCategory::UserDefined,
        verdict,
        profiles: Vec::new(),
        command: Vec::new(),
        prefix: Vec::new(),
        arguments: crate::rules::ArgumentPatterns::default(),
        path: Vec::new(),
        writes: false,
        effect: Vec::new(),
        overrides: Vec::new(),
        walls: Vec::new(),
        reason: "no rule allows it".to_owned(),
        suggestion: Some("use a command that a rule allows".to_owned()),
        matches: Vec::new(),
        not_match: Vec::new(),
    })
}

/// Removes the matches of overridden rules. A rule is overridden for a command if another rule that
/// matches this command overrides it.
fn drop_overridden(hits: &mut Vec<MatchedRule>) {
    let overrides: HashSet<(Option<usize>, String)> = hits
        .iter()
        .flat_map(|hit| hit.rule.overrides.iter().map(|id| (hit.command_index, id.clone())))
        .collect();
    if !overrides.is_empty() {
        hits.retain(|hit| !overrides.contains(&(hit.command_index, hit.rule.id.clone())));
    }
}

/// The programs that a rule names. `None` if the rule must be checked for every command.
fn programs(rule: &PolicyRule) -> Option<Vec<&str>> {
    use crate::rules::OneOrMoreWords;
    let named: Vec<&str> = match (rule.command.as_slice(), rule.prefix.first()) {
        ([], None) => return None,
        ([], Some(OneOrMoreWords::Word(word))) => vec![word],
        ([], Some(OneOrMoreWords::Any(words))) => words.iter().map(String::as_str).collect(),
        (commands, _) => commands.iter().map(String::as_str).collect(),
    };
    named.iter().all(|name| !name.contains(['*', '?', '['])).then_some(named)
}
