//! Speaks HTTP: one port, one check before every route, every route described.
//!
//! [`Port`] owns a listener and the [`App`] that is served on it. A request first meets the [`Gate`], which
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

pub use app::App;
pub use gate::{BrowserKey, Gate, Origin, Token, TokenGuessLimits};
pub use port::{Port, PortLimits, RunningPort};
pub use routes::{
    ControlSurface, DaemonSurface, GatewaySurface, ServedFiles, TaskCatalog, TaskDefaults, openapi,
};
pub use tls::{Tls, TlsError};
pub use wire::{Control, EffectivePolicyBody};
