//! Handles that report when they can be read or written.

#![allow(unsafe_code, reason = "the runtime asks for a promise that an owned handle keeps")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) fn watch(handle: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned handle refers to the same open file until it is dropped, and the runtime
    // deregisters the handle before it is dropped.
    unsafe { AsyncFd::register_with_interest(handle, interest) }.map_err(Into::into)
}
