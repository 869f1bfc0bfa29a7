//! The command policy of local workspaces: re-exports from ab-policy.

pub use ab_local::CommandPolicySettings;
pub use ab_policy::{
    CommandCheckContext, CommandGuard, CommandStdin, HomeLocation, Judgement, Policy,
    PolicyProfile, PolicyTestSuite, Rule, RuleFile, built_in_rules, check_command_paths,
};
