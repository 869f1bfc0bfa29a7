//! The server, met by the programs of others and by clients that mean no good.

mod beyond;
mod client;
mod fuzz;
mod hostile;
mod openssh;
mod protocol;
mod stage;
mod websocket;
