//! A real port, spoken to by bytes, so that odd requests can be sent as they are.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod caller;
mod closing;
mod control;
mod crowds;
mod description;
mod doors;
mod encryption;
mod fuzz;
mod gateway;
mod guessing;
mod login;
mod remote;
mod requests;
mod secure_shell;
