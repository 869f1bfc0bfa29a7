//! The errors of a pool.

use ab_core::{Error, ErrorCode, ErrorKind, Verb};

use super::options::Limits;

pub(super) fn closed() -> Error {
    connect(ErrorCode::ConnectionClosed, ErrorKind::Destroyed, "the pool was destroyed".to_owned())
}

pub(super) fn no_room(limits: &Limits) -> Error {
    let Limits { backends, acquire, .. } = limits;
    let message = format!("all {backends} backends of the pool were in use for {acquire:?}");
    connect(ErrorCode::Timeout, ErrorKind::Timeout, message)
}

pub(super) fn crowded(limits: &Limits) -> Error {
    let message = format!("too many callers: {} already wait for the pool", limits.waiting);
    connect(ErrorCode::Timeout, ErrorKind::Timeout, message)
}

pub(super) fn factory_too_slow(limits: &Limits) -> Error {
    let message = format!("the pool's factory created no backend within {:?}", limits.create);
    connect(ErrorCode::Timeout, ErrorKind::Timeout, message)
}

pub(super) fn factory_panicked() -> Error {
    connect(ErrorCode::ConnectionClosed, ErrorKind::Io, "the pool's factory panicked".to_owned())
}

pub(super) fn made_destroyed() -> Error {
    let message = "the pool's factory returned a backend that is already destroyed".to_owned();
    connect(ErrorCode::ConnectionClosed, ErrorKind::Destroyed, message)
}

pub(super) fn destroy_too_slow(limits: &Limits) -> Error {
    let message = format!("cannot destroy a backend: timed out after {:?}", limits.destroy);
    Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message)
}

pub(super) fn destroy_panicked() -> Error {
    Error::new(
        ErrorCode::ConnectionClosed,
        ErrorKind::Io,
        "cannot destroy a backend: its driver panicked",
    )
}

fn connect(code: ErrorCode, kind: ErrorKind, message: String) -> Error {
    Error::new(code, kind, message).with_verb(Verb::Connect)
}
