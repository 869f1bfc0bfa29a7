//! Local workspaces as the other crates get them.

mod launcher;
mod session;
