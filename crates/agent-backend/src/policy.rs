//! How commands of a local workspace are judged: the types of ab-policy.

pub use ab_local::CommandPolicy;
pub use ab_policy::{
    CommandGuard, CommandInput, Corpus, Home, Judgement, Policy, Profile, Rule, RuleFile, Scene,
    built_in_rules, screen,
};
