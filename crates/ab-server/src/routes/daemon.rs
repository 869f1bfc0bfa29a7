//! The daemon: one workspace at `/mcp` and `/ssh`.

mod mcp;
mod ssh;
mod workspace;

pub(super) use ssh::PATH as SSH_PATH;
pub(super) use ssh::{SshTarget, accept_ssh};
pub use workspace::DaemonRoutes;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::app::HttpApp;

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default()
        // This route is public, and its handler checks the token, because clients expect the error
        // for a wrong token after the upgrade.
        .routes(Access::Public.to(routes!(ssh::connect)))
        .routes(Access::Admin.to(routes!(mcp::call, mcp::listen, mcp::end)))
}
