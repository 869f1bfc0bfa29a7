//! OpenSSH's own programs, unchanged.

mod shell;
mod transfer;
