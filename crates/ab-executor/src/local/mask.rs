//! Hides an agent's credentials in the stored data of its session.

use std::collections::BTreeMap;
use std::path::Path;

use ab_acp::agent_readiness::{HostEnvironment, existing_login_files};
use ab_acp::catalog::AgentCatalogEntry;
use ab_acp::login_files::read_login_file_contents;
use ab_api::{ApprovalSubject, EventKind, LogLevel, LogSource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::translate::log;
use crate::report::{AgentQuestion, AgentReport, TurnOutcome};

/// The text that replaces a credential.
const HIDDEN: &str = "[credential]";
/// Minimum length of a value that is hidden. Shorter values occur in ordinary text.
const SHORTEST: usize = 8;
/// Minimum length of a text in a login file that is hidden. Shorter texts are names, not tokens.
const SHORTEST_IN_FILE: usize = 20;

/// The secrets of one agent.
#[derive(Clone, Default)]
pub(super) struct Mask {
    /// The secrets, longest first, because one secret may contain another.
    secrets: Vec<String>,
}

impl Mask {
    /// Creates a mask that hides the values of credentials and the tokens in login files.
    pub(super) fn new(credentials: &BTreeMap<String, String>, login_files: &[String]) -> Mask {
        let mut secrets: Vec<String> =
            credentials.values().filter(|value| value.len() >= SHORTEST).cloned().collect();
        // Text is shown line by line, so a key of several lines is hidden in each of them.
        let several = credentials.values().filter(|value| value.contains('\n'));
        let is_secret = |line: &&str| line.len() >= SHORTEST_IN_FILE && !line.starts_with("-----");
        secrets
            .extend(several.flat_map(|value| value.lines().filter(is_secret)).map(str::to_owned));
        for text in login_files {
            // Login files are JSON or YAML. Their tokens contain no white space and no quotes.
            let is_border = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',');
            let texts = text.split(is_border);
            secrets.extend(texts.filter(|text| text.len() >= SHORTEST_IN_FILE).map(str::to_owned));
        }
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Mask { secrets }
    }

    /// Creates a mask for an agent. The mask hides the variables and login files that the agent's
    /// catalog entry lists. It also hides the logins that the agent renewed in its home.
    ///
    /// # Errors
    ///
    /// Fails if a login file cannot be read.
    pub(super) async fn of_agent(
        entry: &AgentCatalogEntry,
        host: &HostEnvironment,
        home: &Path,
    ) -> ab_core::Result<Mask> {
        let value = |name: &String| Some((name.clone(), host.variables.get(name)?.clone()));
        let credentials = entry.credentials.iter().filter_map(value).collect();
        let files = existing_login_files(entry, host);
        let logins = read_login_file_contents(home, &entry.login_files, &files).await?;
        Ok(Mask::new(&credentials, &logins))
    }

    pub(super) fn text(&self, text: String) -> String {
        self.secrets.iter().fold(text, |text, secret| {
            if text.contains(secret) { text.replace(secret, HIDDEN) } else { text }
        })
    }

    /// Returns the number of bytes of an unfinished text that can be shown now. The rest of the
    /// text may become a credential when more text arrives.
    pub(super) fn end_of_complete_text(&self, text: &str) -> usize {
        let begins = self.secrets.iter().filter_map(|secret| {
            let mut ends = secret.char_indices().rev().map(|(end, _)| end).filter(|end| *end > 0);
            ends.find(|end| text.ends_with(&secret[..*end]))
        });
        let Some(longest) = begins.max() else { return text.len() };
        let before = &text[..text.len() - longest];
        let last_word = before.char_indices().rev().find(|(_, c)| c.is_whitespace());
        last_word.map_or(0, |(at, c)| at + c.len_utf8())
    }

    pub(super) fn report(&self, report: AgentReport) -> AgentReport {
        if self.secrets.is_empty() {
            return report;
        }
        match report {
            AgentReport::Event(event) => {
                AgentReport::Event(self.masked(&event).unwrap_or_else(withheld))
            }
            AgentReport::Question(AgentQuestion { id, subject }) => {
                AgentReport::Question(AgentQuestion { id, subject: self.subject(subject) })
            }
            AgentReport::TurnEnded(TurnOutcome::Failed { detail }) => {
                AgentReport::TurnEnded(TurnOutcome::Failed { detail: self.text(detail) })
            }
            AgentReport::Exited { detail } => AgentReport::Exited { detail: self.text(detail) },
            AgentReport::TurnEnded(TurnOutcome::Done | TurnOutcome::Cancelled) => report,
        }
    }

    pub(super) fn subject(&self, subject: ApprovalSubject) -> ApprovalSubject {
        if self.secrets.is_empty() {
            return subject;
        }
        // If the credentials cannot be hidden, show nothing. Mark the subject as truncated, because
        // a person must not approve a subject that cannot be shown.
        let hidden = || ApprovalSubject { is_cut: true, ..ApprovalSubject::default() };
        self.masked(&subject).unwrap_or_else(hidden)
    }

    fn masked<T: Serialize + DeserializeOwned>(&self, value: &T) -> Option<T> {
        let mut json = serde_json::to_value(value).ok()?;
        self.hide(&mut json);
        serde_json::from_value(json).ok()
    }

    fn hide(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(std::mem::take(text)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item)),
            Value::Object(members) => members.values_mut().for_each(|member| self.hide(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn withheld() -> EventKind {
    log(LogLevel::Warn, LogSource::Session, "An event with a credential was left out.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_in_every_report() {
        let credentials = [("KEY", "sk-12345678"), ("LONG", "sk-12345678-more"), ("SHORT", "x")];
        let credentials = credentials.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = "{\"access\": \"token-of-the-vendor-1\", \"kind\": \"oauth\"}".to_owned();
        let mask = Mask::new(&credentials.into(), &[text]);
        let said = "x sk-12345678-more, sk-12345678 and token-of-the-vendor-1 oauth".to_owned();
        let hidden = "x [credential], [credential] and [credential] oauth";
        let event = AgentReport::Event(EventKind::Thought { thought: said.clone() });
        let expect = AgentReport::Event(EventKind::Thought { thought: hidden.to_owned() });
        assert_eq!(mask.report(event), expect);
        let exited = mask.report(AgentReport::Exited { detail: said });
        assert_eq!(exited, AgentReport::Exited { detail: hidden.to_owned() });
    }

    #[test]
    fn lines_of_a_long_credential_are_hidden() {
        let key = "-----BEGIN KEY-----\nMIGHAgEAMBMGByqGSM49AgEG\nshort\n";
        let mask = Mask::new(&[("KEY".to_owned(), key.to_owned())].into(), &[]);
        assert_eq!(mask.text("a MIGHAgEAMBMGByqGSM49AgEG".to_owned()), "a [credential]");
        assert_eq!(mask.text("short".to_owned()), "short");
    }

    #[test]
    fn word_that_may_become_a_credential_is_not_complete() {
        let key = "sk-0123ä456";
        let mask = Mask::new(&[("KEY".to_owned(), key.to_owned())].into(), &[]);
        for (text, complete) in [
            ("it is sk-01", "it is "),
            ("it is \"sk-0123ä", "it is "),
            ("many file", "many file"),
            ("many files", "many "),
            ("sk-", ""),
            ("it is sk-0123ä456", "it is sk-0123ä456"),
            ("", ""),
        ] {
            assert_eq!(&text[..mask.end_of_complete_text(text)], complete, "{text}");
        }
        assert_eq!(Mask::default().end_of_complete_text("sk-01"), 5);
    }
}
