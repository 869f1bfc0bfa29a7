//! Verdicts, and the person who is asked where a rule does not decide alone.

use std::fmt;

use async_trait::async_trait;

use crate::call::{Actor, Verb};
use crate::path::WsPath;

/// What a rule says of a call. Several are combined by the greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    #[default]
    Allow,
    /// Somebody has to say yes first.
    Ask,
    Deny,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is asked: who wants to do what, and why that is a question.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    pub actor: &'a Actor,
    pub verb: Verb,
    /// Where; the working directory of a command.
    pub path: Option<&'a WsPath>,
    pub command: Option<&'a str>,
    /// The rule that asks.
    pub rule: &'a str,
    pub reason: &'a str,
    pub suggestion: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
    /// There was nobody to ask.
    Nobody,
}

/// Takes questions to somebody who may say yes.
#[async_trait]
pub trait Approver: fmt::Debug + Send + Sync {
    async fn ask(&self, question: &Question<'_>) -> Answer;
}

/// Where nobody can be asked, nothing is approved.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyAll;

#[async_trait]
impl Approver for DenyAll {
    async fn ask(&self, _: &Question<'_>) -> Answer {
        Answer::Nobody
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_combine_by_the_greatest() {
        assert!(Verdict::Allow < Verdict::Ask && Verdict::Ask < Verdict::Deny);
        let combined = [Verdict::Ask, Verdict::Allow].into_iter().max();
        assert_eq!(combined.map(Verdict::as_str), Some("ask"));
        assert_eq!(Verdict::default(), Verdict::Allow);
    }
}
