//! The agent gateway: coding agents, files and their configuration at `/v1`.

mod acp;
mod agents;
mod config;
mod content;
mod files;
mod health;
mod problems;
mod upload;

pub use files::ServedDirectory;

use ab_acp::gateway::AgentGateway;
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::app::HttpApp;

/// Default maximum size of a client's message in bytes.
const MAX_MESSAGE: usize = 32 * 1024 * 1024;

/// Coding agents that clients use over HTTP, with everything that is needed to serve them.
#[derive(Debug)]
pub struct AgentGatewayRoutes {
    pub(crate) gateway: AgentGateway,
    pub(crate) max_message: usize,
    pub(crate) files: Option<ServedDirectory>,
    /// A lock that serializes changes of the configuration.
    pub(crate) config_turn: Semaphore,
}

impl AgentGatewayRoutes {
    /// Takes ownership of the gateway. Its agents end when the port closes.
    pub fn new(gateway: AgentGateway) -> AgentGatewayRoutes {
        AgentGatewayRoutes {
            gateway,
            max_message: MAX_MESSAGE,
            files: None,
            config_turn: Semaphore::new(1),
        }
    }

    /// Serves the files of a directory. Without this, the file routes answer 404.
    pub fn with_files(mut self, files: ServedDirectory) -> AgentGatewayRoutes {
        self.files = Some(files);
        self
    }

    /// Sets the maximum size of a message in bytes.
    pub fn with_max_message_bytes(mut self, bytes: usize) -> AgentGatewayRoutes {
        self.max_message = bytes;
        self
    }

    /// Ends every agent.
    pub(crate) async fn close(&self) {
        self.gateway.close().await;
    }
}

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default()
        .routes(Access::Admin.to(routes!(health::show)))
        .routes(Access::Admin.to(routes!(acp::list)))
        .routes(Access::Admin.to(routes!(acp::post, acp::follow, acp::delete)))
        .routes(Access::Admin.to(routes!(agents::list)))
        .routes(Access::Admin.to(routes!(agents::show)))
        .routes(Access::Admin.to(routes!(agents::install)))
        .routes(Access::Admin.to(routes!(files::entries)))
        .routes(Access::Admin.to(routes!(files::stat)))
        .routes(Access::Admin.to(routes!(files::remove)))
        .routes(Access::Admin.to(routes!(files::mkdir)))
        .routes(Access::Admin.to(routes!(files::rename)))
        .routes(Access::Admin.to(routes!(content::read, content::write)))
        .routes(Access::Admin.to(routes!(upload::upload)))
        .routes(Access::Admin.to(routes!(
            config::mcp::read_mcp,
            config::mcp::write_mcp,
            config::mcp::delete_mcp
        )))
        .routes(Access::Admin.to(routes!(config::mcp::list_mcp)))
        .routes(Access::Admin.to(routes!(
            config::skills::read_skills,
            config::skills::write_skills,
            config::skills::delete_skills
        )))
        .routes(Access::Admin.to(routes!(config::skills::list_skills)))
}
