//! How commands of a local workspace are judged: the types of ab-policy.

pub use ab_local::CommandPolicy;
pub use ab_policy::{
    CommandContext, CommandGuard, CommandInput, HomeLocation, Judgement, Policy, PolicyTestSuite,
    Profile, Rule, RuleFile, built_in_rules, check_command_paths,
};
