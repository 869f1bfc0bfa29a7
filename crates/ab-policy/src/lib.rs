//! Verdicts on commands: shell text is parsed, every command in it is judged by rules that are data.
//!
//! [`Policy::judge`] is the one question: a command line and a [`CommandCheckContext`] in, a [`Judgement`] out.
//! [`CommandGuard`] asks it before every command of a backend. What cannot be parsed, and what is
//! beyond the bounds of the analysis, is never allowed. It is a seat belt, not a wall: programs do
//! things that their command line does not say.
//!
//! Nothing here touches a file, a process or the network.

pub mod analysis;
mod corpus;
mod guard;
mod place;
mod policy;
mod profile;
pub mod rules;
mod shell;

pub use analysis::{CommandAnalysis, CommandFindingKind, analyse_command, check_command_paths};
pub use corpus::{PolicyTestCase, PolicyTestHome, PolicyTestMismatch, PolicyTestSuite};
pub use guard::CommandGuard;
pub use place::{CommandCheckContext, CommandStdin, HomeLocation, PathLocation};
pub use policy::{Judgement, MatchedRule, Policy, built_in_rules, rule_example_context};
pub use profile::PolicyProfile;
pub use rules::{
    ArgumentPatterns, Rule, RuleCategory, RuleFile, SandboxProtection, WordAlternatives,
};
pub use shell::{MAX_COMMAND_BYTES, MAX_SHELL_NESTING_DEPTH};
