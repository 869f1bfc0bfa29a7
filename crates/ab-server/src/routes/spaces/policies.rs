//! `/v1/policies`: the presets, and the judgement of a policy about an operation.

use std::collections::BTreeMap;

use ab_core::EnforcedControls;
use ab_core::effective_policy::PolicyControlKind;
use ab_core::environment::{CodeLoadingEnvVariablePolicy, check_env_variable};
use ab_policy::{
    CommandCheckContext, CommandPolicy, PolicyDocument, PolicyDocumentFileAccess,
    PolicyDocumentMatch, PolicyProfile,
};
use ab_spaces::{InvalidMessage, Operation, ValidationIssue};
use axum::extract::State;
use axum::{Extension, Json};
use base64::Engine as _;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::envelope::Enveloped;
use super::problems::{SpaceProblems, invalid, of_spaces};
use crate::app::HttpApp;
use crate::extract::JsonBytes;
use crate::log::RequestId;
use crate::problem::Problem;

/// The judgement of a policy about an operation
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyEvaluation {
    /// Whether the operation may run, if necessary after an approval
    allowed: bool,
    requires_approval: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<String>,
    /// The rule that decided
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
}

/// List the presets
#[utoipa::path(
    get,
    path = "/v1/policies/presets",
    tag = "spaces",
    responses((status = OK, description = "The presets", body = serde_json::Value), SpaceProblems)
)]
pub(crate) async fn presets(
    State(app): State<HttpApp>,
    Extension(request_id): Extension<RequestId>,
) -> Result<Json<Enveloped<Vec<Value>>>, Problem> {
    app.spaces()?;
    let presets = PolicyDocument::PRESETS.iter().filter_map(|name| PolicyDocument::preset(name));
    let presets = presets.map(|preset| json!(preset)).collect();
    Ok(Json(Enveloped::new(presets, &request_id)))
}

/// Judge an operation without performing it
///
/// The body has `policy`, `policyOverrides` and `operation`. Commands are judged as in a run of a
/// directory space on this server.
#[utoipa::path(
    post,
    path = "/v1/policies/validate",
    tag = "spaces",
    request_body = serde_json::Value,
    responses((status = OK, body = Enveloped<PolicyEvaluation>), SpaceProblems)
)]
pub(crate) async fn validate(
    State(app): State<HttpApp>,
    Extension(request_id): Extension<RequestId>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Enveloped<PolicyEvaluation>>, Problem> {
    let spaces = &app.spaces()?.spaces;
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut issues = Vec::new();
    let mut add = |pointer: &str, message: &str| {
        let (pointer, message) = (pointer.to_owned(), message.to_owned());
        issues.push(ValidationIssue { pointer, message });
    };
    if !value.is_object() {
        add("", "must be a JSON object");
    }
    let document = PolicyDocument::resolve(value.get("policy"), value.get("policyOverrides"));
    if let Err(found) = &document {
        found.iter().for_each(|issue| add(&issue.pointer, &issue.message));
    }
    let operation = match value.get("operation") {
        None => {
            add("/operation", "is required");
            None
        }
        Some(operation) => match ab_spaces::parse_operation(operation) {
            Ok(operation) => Some(operation),
            Err(error) => {
                for issue in &error.issues {
                    add(&format!("/operation{}", issue.pointer), &issue.message);
                }
                None
            }
        },
    };
    match (document, operation) {
        (Ok(document), Some(operation)) if issues.is_empty() => {
            let enforced = match &operation {
                Operation::Shell { .. } => {
                    spaces.enforced_controls(&document).await.map_err(of_spaces)?
                }
                _ => EnforcedControls::NONE,
            };
            let evaluation = evaluated(judged(&document, &operation, enforced));
            Ok(Json(Enveloped::new(evaluation, &request_id)))
        }
        _ => Err(invalid(&InvalidMessage { issues })),
    }
}

/// The judgement about an operation. `None` means that it is allowed.
fn judged(
    document: &PolicyDocument,
    operation: &Operation,
    enforced: EnforcedControls,
) -> Option<(PolicyDocumentMatch, String)> {
    let file = |access, path: &str, size| {
        let hit = document.judge_file(access, path, size)?;
        let rule = hit.rule.to_owned();
        Some((hit, rule))
    };
    match operation {
        Operation::Message { .. } => None,
        Operation::ReadFile { path, .. } => file(PolicyDocumentFileAccess::Read, path, None),
        Operation::CreateFile { path, content, encoding, .. } => {
            let size = match encoding {
                ab_spaces::ContentEncoding::Utf8 => content.len(),
                ab_spaces::ContentEncoding::Base64 => {
                    let decoded = base64::engine::general_purpose::STANDARD.decode(content);
                    decoded.map_or(0, |bytes| bytes.len())
                }
            };
            file(PolicyDocumentFileAccess::Write, path, Some(size as u64))
        }
        Operation::EditFile { path, .. } | Operation::DeleteFile { path, .. } => {
            file(PolicyDocumentFileAccess::Write, path, None)
        }
        Operation::Shell { command, cwd, env, .. } => {
            if let Some(hit) = judged_env(env, enforced) {
                let rule = hit.rule.to_owned();
                return Some((hit, rule));
            }
            let policy = CommandPolicy::new(PolicyProfile::Guarded).ok()?;
            let context = CommandCheckContext::new()
                .in_directory(cwd.as_deref().unwrap_or_default())
                .with_enforced_controls(enforced)
                .with_env(env);
            let judgement = policy.judge(command, &context);
            let own = document.judge_command(&judgement.analysis);
            let built_in = judgement.decisive_rule().map(|hit| {
                let (reason, suggestion) = (hit.rule.reason.clone(), hit.rule.suggestion.clone());
                let hit = PolicyDocumentMatch {
                    verdict: hit.verdict,
                    rule: "shell",
                    reason,
                    suggestion: suggestion.unwrap_or_default(),
                };
                (hit, judgement.decisive_rule().map_or_else(String::new, |it| it.rule.id.clone()))
            });
            let own = own.map(|hit| {
                let rule = hit.rule.to_owned();
                (hit, rule)
            });
            match (built_in, own) {
                (Some(built_in), Some(own)) if own.0.verdict >= built_in.0.verdict => Some(own),
                (Some(built_in), _) => Some(built_in),
                (None, own) => own,
            }
        }
    }
}

/// The judgement about the environment variables of a command.
fn judged_env(
    env: &BTreeMap<String, String>,
    enforced: EnforcedControls,
) -> Option<PolicyDocumentMatch> {
    // In a sandbox, a variable that makes a program load code affects only the command itself.
    let code = if enforced.contains(PolicyControlKind::Files) {
        CodeLoadingEnvVariablePolicy::Allowed
    } else {
        CodeLoadingEnvVariablePolicy::Refused
    };
    let error = env.iter().find_map(|(name, value)| check_env_variable(name, value, code).err())?;
    Some(PolicyDocumentMatch {
        verdict: ab_core::Verdict::Deny,
        rule: "env",
        reason: error.message().to_owned(),
        suggestion: error.hint().unwrap_or("leave the variable out").to_owned(),
    })
}

fn evaluated(hit: Option<(PolicyDocumentMatch, String)>) -> PolicyEvaluation {
    let Some((hit, rule)) = hit else {
        return PolicyEvaluation {
            allowed: true,
            requires_approval: false,
            reason: None,
            suggestion: None,
            policy: None,
        };
    };
    let requires_approval = hit.verdict == ab_core::Verdict::Ask;
    PolicyEvaluation {
        allowed: requires_approval,
        requires_approval,
        reason: Some(hit.reason),
        suggestion: Some(hit.suggestion).filter(|text| !text.is_empty()),
        policy: Some(rule),
    }
}
