//! Judges commands. The crate parses shell text and judges every command in it by rules. The rules
//! are data.
//!
//! [`CommandPolicy::judge`] takes a command line and a [`CommandCheckContext`] and returns a
//! [`PolicyJudgement`]. [`CommandGuard`] calls it before every command of a backend. Text that
//! cannot be parsed, or that exceeds the limits of the analysis, is never allowed. The policy
//! catches mistakes and is not a security boundary, because programs can do things that their
//! command line does not show.
//!
//! This crate does not access files, processes or the network.

pub mod analysis;
mod corpus;
mod document;
mod guard;
mod place;
mod policy;
mod profile;
pub mod rules;
mod shell;

pub use analysis::{CommandAnalysis, CommandFindingKind, analyse_command, check_command_paths};
pub use corpus::{PolicyTestCase, PolicyTestHomeDirectory, PolicyTestMismatch, PolicyTestSuite};
pub use document::{
    FilesystemPolicy, NetworkPolicy, PolicyDocument, PolicyDocumentEnforcement,
    PolicyDocumentFileAccess, PolicyDocumentGuard, PolicyDocumentMatch,
    PolicyDocumentRuleEnforcement, PolicyIssue, ShellPolicy,
};
pub use guard::CommandGuard;
pub use place::{CommandCheckContext, CommandPathLocation, CommandStdin, HomeDirectoryMeaning};
pub use policy::{
    CommandPolicy, MatchedRule, PolicyJudgement, built_in_rules, context_for_rule_examples,
};
pub use profile::PolicyProfile;
pub use rules::{
    ArgumentPatterns, OneOrMoreWords, PolicyRule, PolicyRuleCategory, PolicyRuleFile,
    SandboxProtectionKind,
};
pub use shell::MAX_COMMAND_BYTES;
