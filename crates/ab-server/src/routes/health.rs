//! `GET /health`: alive, and what is served; who is trusted also learns what is in force.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use super::workspace::Served;
use crate::gate::Caller;
use crate::problem::Refusal;
use crate::wire::EffectivePolicy;

/// That the daemon is alive, and what it serves
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    #[schema(example = "ok")]
    status: &'static str,
    version: &'static str,
    /// The workspace, as it was named when the daemon was started; only for callers that may use it
    #[serde(rename = "rootDir", skip_serializing_if = "Option::is_none")]
    root_dir: Option<String>,
    transports: Transports,
    /// What is in force for commands, null while that is being found out; only for callers that
    /// may use them
    #[serde(rename = "effectivePolicy", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<EffectivePolicy>)]
    effective_policy: Option<Option<EffectivePolicy>>,
}

/// Ways to reach the workspace
#[derive(Debug, Serialize, ToSchema)]
struct Transports {
    mcp: bool,
    #[serde(rename = "ssh-ws")]
    ssh_ws: bool,
    ssh: bool,
}

/// That the daemon is alive, and what it serves
#[utoipa::path(
    get,
    path = "/health",
    tag = "port",
    responses(
        (status = OK, body = Health),
        (status = BAD_REQUEST, description = "Headers that make no sense", body = Refusal),
        (status = FORBIDDEN, description = "Host or Origin is not allowed", body = Refusal),
        (status = TOO_MANY_REQUESTS, description = "Too many wrong tokens: see Retry-After", body = Refusal)
    )
)]
pub(crate) async fn show(
    State(served): State<Arc<Served>>,
    Extension(caller): Extension<Caller>,
) -> Json<Health> {
    let trusted = match caller {
        Caller::Trusted => true,
        Caller::Wrong | Caller::Unknown => false,
    };
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        root_dir: trusted.then(|| served.root_dir.clone()),
        transports: Transports {
            mcp: true,
            ssh_ws: served.ssh.is_some(),
            ssh: served.conventional_ssh,
        },
        // A daemon that has just been started says that it is alive before it knows.
        effective_policy: trusted.then(|| served.in_force().map(EffectivePolicy::from)),
    })
}
