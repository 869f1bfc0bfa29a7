//! Raises the limit on open files. Every connection is an open file, and the usual limit is meant
//! for a shell.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit to set. This limit is enough for the connections of a port and for the files that the
/// connections use. A higher limit would slow down commands, because commands inherit the limit and
/// some programs loop over all possible descriptors.
const ENOUGH: u64 = 65_536;
/// Below this limit, commands may fail or get weaker isolation, because a sandbox needs several
/// files for each command.
const FEW: u64 = 1024;

/// Raises the limit as far as the host allows. Logs a warning if it is still low.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|current| current < wanted) {
        // If this fails, the daemon can only serve fewer connections.
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
    if let Some(open_files) = getrlimit(Resource::Nofile).current
        && open_files < FEW
    {
        tracing::warn!(
            open_files,
            "the limit of open files is low, so commands may fail or run with weaker isolation; raise ulimit -n"
        );
    }
}
