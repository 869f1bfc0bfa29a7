//! Verdicts on commands: shell text is parsed, and every command in it is judged by rules that are
//! data.
//!
//! [`Policy::judge`] takes a command line and a [`CommandCheckContext`] and returns a
//! [`Judgement`]. [`CommandGuard`] calls it before every command of a backend. Text that cannot be
//! parsed, or that exceeds the limits of the analysis, is never allowed. The policy catches
//! mistakes and is not a security boundary: programs do things that their command line does not
//! show.
//!
//! This crate does not touch files, processes or the network.

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
pub use corpus::{PolicyTestCase, PolicyTestHomeLocation, PolicyTestMismatch, PolicyTestSuite};
pub use document::{
    DocumentAccess, DocumentControl, DocumentEnforcement, DocumentGuard, DocumentHit,
    FilesystemPolicy, NetworkPolicy, PolicyDocument, PolicyIssue, ShellPolicy,
};
pub use guard::CommandGuard;
pub use place::{CommandCheckContext, CommandStdin, HomeLocation, PathLocation};
pub use policy::{Judgement, MatchedRule, Policy, built_in_rules, rule_example_context};
pub use profile::PolicyProfile;
pub use rules::{
    ArgumentPatterns, Rule, RuleCategory, RuleFile, SandboxProtection, WordAlternatives,
};
pub use shell::MAX_COMMAND_BYTES;
