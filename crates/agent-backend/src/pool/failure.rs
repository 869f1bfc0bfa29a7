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
    let message = format!("{} callers wait for the pool already", limits.waiting);
    connect(ErrorCode::Timeout, ErrorKind::Timeout, message)
}

pub(super) fn factory_too_slow(limits: &Limits) -> Error {
    let message = format!("the pool's factory made no backend within {:?}", limits.create);
    connect(ErrorCode::Timeout, ErrorKind::Timeout, message)
}

pub(super) fn factory_panicked() -> Error {
    connect(ErrorCode::ConnectionClosed, ErrorKind::Io, "the pool's factory panicked".to_owned())
}

pub(super) fn made_destroyed() -> Error {
    let message = "the pool's factory made a backend that is destroyed already".to_owned();
    connect(ErrorCode::ConnectionClosed, ErrorKind::Destroyed, message)
}

pub(super) fn destroy_too_slow(limits: &Limits) -> Error {
    let message = format!("destroy a backend: it was not done within {:?}", limits.destroy);
    Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message)
}

pub(super) fn destroy_panicked() -> Error {
    Error::new(ErrorCode::ConnectionClosed, ErrorKind::Io, "destroy a backend: its driver panicked")
}

fn connect(code: ErrorCode, kind: ErrorKind, message: String) -> Error {
    Error::new(code, kind, message).with_verb(Verb::Connect)
}
