//! Speaks HTTP: one port, one check before every route, every route described.
//!
//! [`HttpServer`] owns a listener and the [`HttpApp`] that is served on it. A request first meets the [`HttpAccessPolicy`], which
//! knows who may ask at all; then its route, which is registered together with its description.
//! Nothing here opens files or runs commands: the surfaces hold a [`Backend`](ab_core::Backend).

mod access;
mod app;
mod beyond;
mod connections;
mod extract;
mod gate;
mod log;
mod page;
mod places;
mod port;
mod problem;
mod routes;
mod sse;
pub mod tar;
mod tls;
mod watched;
mod wire;

pub use app::HttpApp;
pub use gate::{AccessToken, CookieSigningKey, HttpAccessPolicy, Origin, TokenGuessLimits};
pub use port::{HttpServer, HttpServerLimits, RunningHttpServer};
pub use routes::{
    ControlRoutes, DaemonRoutes, GatewayRoutes, ServedFiles, TaskCatalog, TaskDefaults, openapi,
};
pub use tls::{TlsConfig, TlsError};
pub use wire::{EffectivePolicyBody, EffectivePolicyEntryBody};
