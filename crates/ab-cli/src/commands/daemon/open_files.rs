//! How many files may be open: connections are files, and the usual limit is meant for a shell.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as the connections of a port take, and what they work on. Not more, since commands
/// inherit it, and some programs walk through all that could be open.
const ENOUGH: u64 = 65_536;
/// With fewer, walls that take several files for each command may not stand.
const FEW: u64 = 1024;

/// Raises the limit as far as the host allows, and warns if that is not far.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|current| current < wanted) {
        // Where it cannot be raised, fewer connections fit.
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
    if let Some(open_files) = getrlimit(Resource::Nofile).current
        && open_files < FEW
    {
        tracing::warn!(
            open_files,
            "few files may be open: commands may fail or have weaker walls; raise ulimit -n"
        );
    }
}
