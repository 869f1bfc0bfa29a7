//! Verdicts on commands.

mod shell;
pub mod analysis;
mod place;
pub use analysis::{Analysis, Effect, analyse};
pub use place::{Home, Place, Scene};
