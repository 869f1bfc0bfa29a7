//! `GET /health`: a health check. Trusted callers also see the served workspace and the controls in
//! force.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::app::HttpApp;
use crate::gate::Caller;
use crate::wire::EffectivePolicyBody;

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default().routes(Access::Public.to(routes!(show)))
}

/// The status of the daemon, and what it serves
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    #[schema(example = "ok")]
    status: &'static str,
    version: &'static str,
    /// The workspace, as it was named when the daemon was started; only for callers that may use it
    #[serde(rename = "rootDir", skip_serializing_if = "Option::is_none")]
    root_dir: Option<String>,
    transports: Transports,
    /// The controls in force for commands, null until they are known; only for callers that may use
    /// them
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

/// Check the health of the daemon
#[utoipa::path(
    get,
    path = "/health",
    tag = "port",
    responses((status = OK, body = Health))
)]
async fn show(State(app): State<HttpApp>, Extension(caller): Extension<Caller>) -> Json<Health> {
    let daemon = app.daemon().ok();
    let of_trusted = daemon.filter(|_| caller.is_admin());
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        root_dir: of_trusted.map(|daemon| daemon.root_dir.clone()),
        transports: Transports {
            mcp: daemon.is_some(),
            ssh_ws: daemon.is_some_and(|daemon| daemon.ssh.is_some()),
            ssh: daemon.is_some_and(|daemon| daemon.conventional_ssh),
        },
        // A daemon that has just started answers before the controls are known.
        effective_policy: of_trusted.map(|daemon| daemon.in_force().map(EffectivePolicyBody::from)),
    })
}
