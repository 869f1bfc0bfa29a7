//! Screens a command line where no wall is to be had.

use ab_core::error::{Code, Kind};
use ab_core::{Error, WsPath};

pub(crate) struct Place<'a> {
    pub(crate) roots: &'a [String],
    pub(crate) fence: &'a WsPath,
    pub(crate) cwd: &'a WsPath,
    pub(crate) readable: &'a [&'a str],
}

/// Refuses everything until it can tell words apart.
pub(crate) fn screen(line: &str, place: &Place<'_>) -> Result<(), Error> {
    let message = format!("cannot screen commands in {:?} yet", place.roots.first());
    let _ = (place.fence, place.cwd, place.readable);
    Err(Error::new(Code::UnsafeCommand, Kind::Denied, message).with_command(line))
}
