//! The server, met by the programs of others and by clients that mean no good.

mod openssh;
mod stage;
