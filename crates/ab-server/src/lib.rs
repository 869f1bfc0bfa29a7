//! The HTTP server. One port serves all routes, every request passes one check first, and every
//! route has a description.
//!
//! [`HttpServer`] owns a listener and serves an [`HttpApp`] on it. First the [`HttpAccessPolicy`]
//! decides whether a caller may use the port at all. Then the route handles the request. Each route
//! is registered together with its description. This crate does not open files or run commands
//! itself: the routes use a [`Backend`](ab_core::Backend).

mod access;
mod app;
mod beyond;
mod connections;
mod extract;
mod gate;
mod http_metrics;
mod log;
mod page;
mod places;
mod port;
mod problem;
mod routes;
mod sse;
mod tls;
mod unread;
mod watched;
mod wire;

pub use app::HttpApp;
pub use gate::{
    AccessToken, AllowedWebOrigin, CookieSigningKey, HttpAccessPolicy, TokenGuessLimits,
};
pub use port::{HttpServer, HttpServerLimits, RunningHttpServer};
pub use routes::{
    AgentGatewayRoutes, ControlPlaneRoutes, DaemonRoutes, ServedDirectory, SpacesRoutes,
    TaskChoices, TaskDefaults, openapi_description, settings_schema_path,
};
pub use tls::{TlsConfig, TlsError};
pub use wire::{EffectivePolicyBody, EffectivePolicyEntryBody};
