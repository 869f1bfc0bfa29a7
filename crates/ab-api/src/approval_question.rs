//! Questions of programs outside the server, and the use of the decisions.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::approval::{ApprovalSubject, MAX_APPROVAL_DETAIL_BYTES, SubjectDescriber};
use crate::fields::{self, Fields};
use crate::violation::FieldViolations;

/// Maximum length of the name of a requester in bytes.
const MAX_REQUESTER_BYTES: usize = 200;
/// Maximum length of the title in bytes.
const MAX_TITLE_BYTES: usize = 500;
/// Maximum length of the action in bytes.
const MAX_ACTION_BYTES: usize = 64;
/// The number of characters of a SHA-256 digest in hexadecimal.
const DIGEST_CHARS: usize = 64;
/// Maximum number of seconds after which an approval of a program expires: one week.
const MAX_EXPIRES_IN: u64 = 7 * 24 * 60 * 60;

/// The body of `POST /v1/approvals`: a question of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalQuestion {
    /// The name that the program gives itself, such as `agent:chat-1`. At most 200 bytes.
    pub requester: String,
    /// One line for people, such as `Run npm install`. At most 500 bytes.
    pub title: String,
    /// The kind of action: `execute`, `edit`, `delete`, `move`, `read`, `fetch`, or another word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Everything that would be done, such as the whole command or all arguments. At most 1 MiB.
    pub detail: String,
    /// The SHA-256 digest of what would be done, as 64 lower case hexadecimal digits. The decision
    /// is valid for this digest only.
    pub digest: String,
    /// The number of seconds after which the question expires, which counts as a refusal. At most
    /// one week. The default is the server's `sessions.approval-timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 604800)]
    pub expires_in: Option<u64>,
}

impl ApprovalQuestion {
    /// Parses and checks the body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not such an object or a field is invalid.
    pub fn parse(body: &[u8]) -> Result<ApprovalQuestion, FieldViolations> {
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let requester = bounded_text("requester", MAX_REQUESTER_BYTES, &mut body, &mut found);
        let title = bounded_text("title", MAX_TITLE_BYTES, &mut body, &mut found);
        let detail = bounded_text("detail", MAX_APPROVAL_DETAIL_BYTES, &mut body, &mut found);
        let digest = digest(&mut body, &mut found);
        let action = body.text("action", &mut found).map(str::to_owned);
        if let Some(action) = &action {
            check_length("action", action, MAX_ACTION_BYTES, &mut found);
        }
        let expires_in = seconds(body.number("expiresIn", &mut found), &mut found);
        body.end(&mut found);
        found.into_result(ApprovalQuestion { requester, title, action, detail, digest, expires_in })
    }

    /// The time after which the question expires, if the question sets one.
    pub fn lifetime(&self) -> Option<Duration> {
        self.expires_in.map(Duration::from_secs)
    }

    /// The subject of the approval.
    pub fn subject(&self) -> ApprovalSubject {
        ApprovalSubject {
            title: self.title.clone(),
            action: self.action.clone(),
            detail: Some(self.detail.clone()),
            described_by: SubjectDescriber::Program,
            digest: Some(self.digest.clone()),
            ..ApprovalSubject::default()
        }
    }
}

/// The body of `POST /v1/approvals/{id}/use`, with which a program uses the decision of its
/// approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalUse {
    /// The digest of what the program is about to do. It must be the digest of the question.
    pub digest: String,
}

impl ApprovalUse {
    /// Parses and checks the body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not such an object or the digest is invalid.
    pub fn parse(body: &[u8]) -> Result<ApprovalUse, FieldViolations> {
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let digest = digest(&mut body, &mut found);
        body.end(&mut found);
        found.into_result(ApprovalUse { digest })
    }
}

fn digest(body: &mut Fields<'_>, found: &mut FieldViolations) -> String {
    let Some(digest) = body.required_text("digest", found) else { return String::new() };
    let is_hex = digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if digest.len() != DIGEST_CHARS || !is_hex {
        found.add_invalid("digest", "must be 64 lower case hexadecimal digits");
    }
    digest.to_owned()
}

fn bounded_text(
    name: &'static str,
    limit: usize,
    body: &mut Fields<'_>,
    found: &mut FieldViolations,
) -> String {
    let Some(text) = body.required_text(name, found) else { return String::new() };
    check_length(name, text, limit, found);
    text.to_owned()
}

fn check_length(name: &str, text: &str, limit: usize, found: &mut FieldViolations) {
    if text.trim().is_empty() {
        found.add_invalid(name, "must not be empty");
    } else if text.len() > limit {
        found.add_invalid(name, format!("must have at most {limit} bytes"));
    }
}

fn seconds(number: Option<f64>, found: &mut FieldViolations) -> Option<u64> {
    let number = number?;
    if number.fract() != 0.0 || !(1.0..=MAX_EXPIRES_IN as f64).contains(&number) {
        let message = format!("must be a whole number of seconds from 1 to {MAX_EXPIRES_IN}");
        found.add_invalid("expiresIn", message);
        return None;
    }
    Some(number as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn question() -> Value {
        json!({ "requester": "bot", "title": "Deploy", "detail": "deploy {}", "digest": "a".repeat(64) })
    }

    #[test]
    fn a_question_is_read_back() {
        let mut body = question();
        body["expiresIn"] = json!(60);
        body["action"] = json!("execute");
        let question = ApprovalQuestion::parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::to_value(&question).unwrap(), body);
        assert_eq!(question.lifetime(), Some(Duration::from_secs(60)));
        let subject = question.subject();
        assert_eq!(subject.described_by, SubjectDescriber::Program);
        assert_eq!(subject.detail.as_deref(), Some("deploy {}"));
    }

    #[test]
    fn every_wrong_field_is_named() {
        for (field, value, says) in [
            ("requester", Value::Null, "is required"),
            ("requester", json!(" "), "must not be empty"),
            ("requester", json!("r".repeat(201)), "at most 200 bytes"),
            ("title", json!(1), "must be a string"),
            ("title", json!("t".repeat(501)), "at most 500 bytes"),
            ("detail", json!(""), "must not be empty"),
            ("detail", json!("d".repeat(MAX_APPROVAL_DETAIL_BYTES + 1)), "at most 1048576 bytes"),
            ("action", json!("a".repeat(65)), "at most 64 bytes"),
            ("digest", Value::Null, "is required"),
            ("digest", json!("a".repeat(63)), "64 lower case hexadecimal digits"),
            ("digest", json!("A".repeat(64)), "64 lower case hexadecimal digits"),
            ("expiresIn", json!(0), "from 1 to 604800"),
            ("expiresIn", json!(1.5), "from 1 to 604800"),
            ("expiresIn", json!(604_801), "from 1 to 604800"),
            ("sessionId", json!("x"), "is not a known field"),
        ] {
            let mut body = question();
            body[field] = value;
            let found = ApprovalQuestion::parse(body.to_string().as_bytes()).unwrap_err();
            let messages = found.messages_by_field();
            let said = messages.get(field).map(|messages| messages.join(" ")).unwrap_or_default();
            assert!(said.contains(says), "{field}: {messages:?}");
            assert_eq!(messages.len(), 1, "{field}: {messages:?}");
        }
    }

    #[test]
    fn the_use_of_an_answer_needs_its_digest() {
        let body = json!({ "digest": "0".repeat(64) });
        assert!(ApprovalUse::parse(body.to_string().as_bytes()).is_ok());
        for body in ["{}", "[]", r#"{"digest":"x"}"#] {
            assert!(ApprovalUse::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
