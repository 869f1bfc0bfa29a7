//! Speaks HTTP: one port, one check before every route, every route described.
//!
//! [`Port`] owns a listener and what is served on it. A request first meets the [`Gate`], which
//! knows who may ask at all; then its route, which is registered together with its description.
//! Nothing here opens files or runs commands: the surfaces hold a [`Backend`](ab_core::Backend).

mod beyond;
mod connections;
mod gate;
mod log;
mod places;
mod port;
mod problem;
mod routes;
mod tls;
mod watched;
mod wire;

pub use gate::{Gate, Guessing, Origin, Token};
pub use port::{Bounds, Port, Running};
pub use routes::openapi;
pub use routes::workspace::Served;
pub use tls::{Tls, TlsFailure};
pub use wire::{Control, EffectivePolicy};
