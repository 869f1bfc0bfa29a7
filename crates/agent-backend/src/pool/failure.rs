//! What a pool refuses with.

use ab_core::{Code, Error, Kind, Verb};

use super::options::Limits;

pub(super) fn closed() -> Error {
    connect(Code::ConnectionClosed, Kind::Destroyed, "the pool was destroyed".to_owned())
}

pub(super) fn no_room(limits: &Limits) -> Error {
    let Limits { backends, acquire, .. } = limits;
    let message = format!("all {backends} backends of the pool were in use for {acquire:?}");
    connect(Code::Timeout, Kind::Timeout, message)
}

pub(super) fn crowded(limits: &Limits) -> Error {
    let message = format!("{} callers wait for the pool already", limits.waiting);
    connect(Code::Timeout, Kind::Timeout, message)
}

pub(super) fn factory_too_slow(limits: &Limits) -> Error {
    let message = format!("the pool's factory made no backend within {:?}", limits.create);
    connect(Code::Timeout, Kind::Timeout, message)
}

pub(super) fn factory_panicked() -> Error {
    connect(Code::ConnectionClosed, Kind::Io, "the pool's factory panicked".to_owned())
}

pub(super) fn made_destroyed() -> Error {
    let message = "the pool's factory made a backend that is destroyed already".to_owned();
    connect(Code::ConnectionClosed, Kind::Destroyed, message)
}

pub(super) fn destroy_too_slow(limits: &Limits) -> Error {
    let message = format!("destroy a backend: it was not done within {:?}", limits.destroy);
    Error::new(Code::Timeout, Kind::Timeout, message)
}

pub(super) fn destroy_panicked() -> Error {
    Error::new(Code::ConnectionClosed, Kind::Io, "destroy a backend: its driver panicked")
}

fn connect(code: Code, kind: Kind, message: String) -> Error {
    Error::new(code, kind, message).with_verb(Verb::Connect)
}
