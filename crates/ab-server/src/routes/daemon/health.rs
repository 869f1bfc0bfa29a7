//! `GET /health`: alive, and what is served; who is trusted also learns what is in force.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::gate::Caller;
use crate::problem::Problem;
use crate::wire::EffectivePolicyBody;

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
    #[schema(value_type = Option<EffectivePolicyBody>)]
    effective_policy: Option<Option<EffectivePolicyBody>>,
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
        (status = NOT_FOUND, description = "No workspace is served here")
    )
)]
pub(crate) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Health>, Problem> {
    let daemon = app.daemon()?;
    let trusted = caller.is_admin();
    Ok(Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        root_dir: trusted.then(|| daemon.root_dir.clone()),
        transports: Transports {
            mcp: true,
            ssh_ws: daemon.ssh.is_some(),
            ssh: daemon.conventional_ssh,
        },
        // A daemon that has just been started says that it is alive before it knows.
        effective_policy: trusted.then(|| daemon.in_force().map(EffectivePolicyBody::from)),
    }))
}
