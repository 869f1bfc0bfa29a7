//! How commands of a local workspace are judged: the types of ab-policy.

pub use ab_local::CommandPolicySettings;
pub use ab_policy::{
    CommandCheckContext, CommandGuard, CommandStdin, HomeLocation, Judgement, Policy,
    PolicyProfile, PolicyTestSuite, Rule, RuleFile, built_in_rules, check_command_paths,
};
