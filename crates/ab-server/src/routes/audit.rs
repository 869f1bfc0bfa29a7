//! Records every request that changes a session in the session's audit, with its caller and
//! outcome, before the caller gets the response.
//!
//! A single layer behind the check of the caller records all requests, so that no handler can
//! forget it. Calls of agents on their endpoints are recorded where they are performed.

use ab_api::{ApprovalId, ApprovalStatus, AuditEntry, AuditSource, SessionId, Time};
use ab_core::Principal;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::app::HttpApp;

/// The sessions that a request created. Stored as an extension of the response.
#[derive(Clone, Debug)]
pub(crate) struct CreatedSessions(pub(crate) Vec<SessionId>);

/// Method and path of the routes that change the session in their path, and the name of each
/// action.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("DELETE", "/api/v1/sessions/{id}", "cancel"),
    ("POST", "/api/v1/sessions/{id}/stop", "stop"),
    ("POST", "/api/v1/sessions/{id}/continue", "continue"),
    ("POST", "/api/v1/sessions/{id}/prompt", "prompt"),
    ("PUT", "/api/v1/sessions/{id}/prompts/{number}", "change-prompt"),
    ("DELETE", "/api/v1/sessions/{id}/prompts/{number}", "withdraw-prompt"),
    ("POST", "/api/v1/sessions/{id}/finish", "finish"),
    ("POST", "/api/v1/sessions/{id}/pause", "pause"),
    ("POST", "/api/v1/sessions/{id}/resume", "resume"),
    ("GET", "/api/v1/sessions/{id}/ssh", "ssh"),
    ("POST", "/api/v1/sessions/{id}/open/ide", "open"),
    ("POST", "/ui/sessions/{id}/stop", "stop"),
    ("POST", "/ui/sessions/{id}/cancel", "cancel"),
    ("POST", "/ui/sessions/{id}/prompt", "prompt"),
    ("POST", "/ui/sessions/{id}/prompts/{number}/edit", "change-prompt"),
    ("POST", "/ui/sessions/{id}/prompts/{number}/withdraw", "withdraw-prompt"),
    ("POST", "/ui/sessions/{id}/finish", "finish"),
    ("POST", "/ui/sessions/{id}/continue", "continue"),
];
/// Routes that create sessions. Their responses contain the ids.
const CREATIONS: &[&str] =
    &["/api/v1/tasks", "/ui/new", "/api/v1/sessions/{id}/continue", "/ui/sessions/{id}/continue"];
/// Routes that decide the approval whose id is in their path.
const DECISIONS: &[&str] = &["/v1/approvals/{id}", "/ui/approvals/{id}"];

/// Passes the request on, and then records what it did to sessions.
pub(super) async fn recorded(State(app): State<HttpApp>, request: Request, next: Next) -> Response {
    let act = Act::of(&request);
    let response = next.run(request).await;
    if let Some(act) = act {
        let (status, created) = (response.status(), created(&response));
        act.record(&app, status, created).await;
    }
    response
}

/// A request that may change a session.
struct Act {
    actor: String,
    template: String,
    method: Method,
    /// The path of the request. Its parameters are at the same positions as in the template.
    path: String,
}

impl Act {
    fn of(request: &Request) -> Option<Act> {
        let template = request.extensions().get::<MatchedPath>()?.as_str();
        let is_known = ACTIONS.iter().any(|(_, known, _)| *known == template)
            || CREATIONS.contains(&template)
            || DECISIONS.contains(&template);
        if !is_known {
            return None;
        }
        let principal = request.extensions().get::<Principal>();
        Some(Act {
            actor: principal.map_or_else(|| "unknown".to_owned(), Principal::to_string),
            template: template.to_owned(),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
        })
    }

    async fn record(self, app: &HttpApp, status: StatusCode, created: Vec<SessionId>) {
        let success = !status.is_client_error() && !status.is_server_error();
        let entry = |action: &str, subject: Option<String>| AuditEntry {
            at: Time::now(),
            source: AuditSource::Request,
            actor: self.actor.clone(),
            action: action.to_owned(),
            success,
            subject,
            detail: (!success).then(|| format!("answered with {}", status.as_u16())),
        };
        let is_creation =
            success && self.method == Method::POST && CREATIONS.contains(&self.template.as_str());
        let created = if is_creation { created } else { Vec::new() };
        let mut entries: Vec<(SessionId, AuditEntry)> = Vec::new();
        let action = ACTIONS.iter().find(|(method, template, _)| {
            *method == self.method.as_str() && *template == self.template
        });
        if let (Some((_, _, action)), Some(session)) = (action, self.parameter("{id}")) {
            let next = created.first().map(ToString::to_string);
            entries.push((session, entry(action, self.parameter("{number}").or(next))));
        }
        entries.extend(created.iter().map(|session| (*session, entry("create", None))));
        if DECISIONS.contains(&self.template.as_str())
            && self.method == Method::POST
            && let Some(id) = self.parameter::<ApprovalId>("{id}")
            && let Ok(surface) = app.control()
            && let Ok(approval) = surface.control.store().get_approval(id).await
            && let Some(session) = approval.session_id
        {
            let action = match approval.status {
                _ if !success => "decide",
                ApprovalStatus::Approved => "approve",
                ApprovalStatus::Denied | ApprovalStatus::Expired | ApprovalStatus::Pending => {
                    "deny"
                }
            };
            let subject = format!("{id} {}", approval.subject.title);
            entries.push((session, entry(action, Some(subject))));
        }
        let Ok(surface) = app.control() else { return };
        for (session, entry) in entries {
            let appended = surface.control.store().append_audit_entries(session, vec![entry]).await;
            if let Err(error) = appended {
                tracing::error!(%session, %error, "cannot record an action in the audit");
            }
        }
    }

    /// Parses a parameter of the path.
    fn parameter<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        let position = self.template.split('/').position(|part| part == name)?;
        self.path.split('/').nth(position)?.parse().ok()
    }
}

/// The sessions that a successful request created.
fn created(response: &Response) -> Vec<SessionId> {
    if let Some(CreatedSessions(sessions)) = response.extensions().get() {
        return sessions.clone();
    }
    let location = response.headers().get(header::LOCATION).and_then(|it| it.to_str().ok());
    let last = location.and_then(|location| location.rsplit('/').next());
    last.and_then(|id| id.parse().ok()).into_iter().collect()
}
