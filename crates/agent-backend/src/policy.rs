//! The command policy of local workspaces: re-exports from ab-policy.

pub use ab_local::CommandPolicySettings;
pub use ab_policy::{
    CommandCheckContext, CommandGuard, CommandPolicy, CommandStdin, HomeDirectoryMeaning,
    PolicyJudgement, PolicyProfile, PolicyRule, PolicyRuleFile, PolicyTestSuite, built_in_rules,
    check_command_paths,
};
