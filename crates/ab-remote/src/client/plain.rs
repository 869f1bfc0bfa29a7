//! A workspace on a plain SSH server. This is a server that is not agent-backend and supports only
//! SFTP version 3 and commands.
//!
//! Such a server has no jail, no file versions and only a few error codes. The client replaces some
//! of these features. It looks up names one by one. So it can refuse links that lead out of the
//! workspace, and can determine the kind of an error. It replaces files by a rename. Its file
//! versions distinguish all changes that are made through this connection. [`Plain::capabilities`]
//! and [`Plain::effective_policy`] report the remaining limitations. They exist because files on
//! the server may change between a check and the operation that follows.

mod act;
mod change;
mod command;
mod file;
mod greet;
mod lacks;
mod line;
mod list;
mod look;
mod markers;
mod marks;
mod open;
mod open_file_paths;
mod output_buffer;
mod own_command;
mod policy;
mod read;
mod remove;
mod rename;
mod spot;
mod turns;
mod write;

use std::sync::Arc;

use ab_core::driver::Capabilities;
use ab_core::{EffectivePolicy, Error, ErrorKind, LostCallEffect, Result, Verb, WsPath};
use tokio::sync::{OnceCell, Semaphore};

use self::act::Act;
use self::marks::Marks;
use self::open_file_paths::OpenFilePaths;
use self::turns::Turns;
use super::context::CallContext;
use super::session::Session;

pub(crate) use self::act::refusal;
pub(crate) use self::lacks::keeps_nothing;

/// Maximum number of commands that run at the same time. OpenSSH allows ten channels by default.
/// One of them is for files, and one is for signals.
const COMMANDS: usize = 8;

/// The state of a connection to an SSH server that is not agent-backend.
#[derive(Debug)]
pub(crate) struct Plain {
    /// The path of the root on the server. Empty for `/`.
    root: String,
    /// The root as it is written in the settings, if it differs from `root`.
    alias: Option<String>,
    can: Extensions,
    data_limit: usize,
    /// Whether the server can run commands. Not set until the server has answered.
    runs: OnceCell<bool>,
    marks: Marks,
    turns: Turns,
    open_file_paths: OpenFilePaths,
    commands: Arc<Semaphore>,
    own_commands: Semaphore,
}

/// The OpenSSH extensions that the server offers.
#[derive(Clone, Copy, Debug, Default)]
struct Extensions {
    posix_rename: bool,
    fsync: bool,
    statvfs: bool,
}

impl Default for Plain {
    fn default() -> Self {
        Self {
            root: String::new(),
            alias: None,
            can: Extensions::default(),
            data_limit: greet::LEAST_DATA,
            runs: OnceCell::new(),
            marks: Marks::default(),
            turns: Turns::default(),
            open_file_paths: OpenFilePaths::default(),
            commands: Arc::new(Semaphore::new(COMMANDS)),
            own_commands: Semaphore::new(1),
        }
    }
}

impl Plain {
    pub(crate) fn data_limit(&self) -> usize {
        self.data_limit
    }

    /// The capabilities. Commands count as supported until the server refuses one.
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            exec: self.runs.get().copied().unwrap_or(true),
            detached_processes: false,
            search: true,
            symlinks: true,
            file_modes: true,
            empty_dirs: true,
            jail: false,
            atomic_write: self.can.posix_rename,
            // The kind of an error is determined after the failure, when the file may have changed
            // again.
            exact_error_kinds: false,
        }
    }

    pub(crate) async fn effective_policy(
        &self,
        session: &Session,
        context: CallContext<'_>,
    ) -> Result<EffectivePolicy> {
        Ok(if self.runs(session, context).await? {
            policy::describe()
        } else {
            EffectivePolicy::default()
        })
    }

    /// Whether the server can run commands. The first caller asks the server. Concurrent callers
    /// wait for the same answer. If there is no answer, the next caller asks again.
    async fn runs(&self, session: &Session, context: CallContext<'_>) -> Result<bool> {
        let asking = self.runs.get_or_try_init(|| own_command::can_run(session));
        match context.within(session.time_limit, asking).await {
            Some(known) => known.copied(),
            None => Err(session
                .late(Verb::Exec, 0, false)
                .with_lost_call_effect(LostCallEffect::NotApplied, None)
                .with_hint("it was only asked whether it runs commands; ask again")),
        }
    }

    fn act<'a>(
        &'a self,
        session: &'a Session,
        context: CallContext<'a>,
        verb: Verb,
        path: &'a WsPath,
    ) -> Act<'a> {
        Act { session, context, plain: self, verb, path }
    }

    /// The path on the server of a file in the workspace.
    fn at(&self, real: &str) -> String {
        match (real.is_empty(), self.root.is_empty()) {
            (true, true) => "/".to_owned(),
            (true, false) => self.root.clone(),
            (false, _) => format!("{}/{real}", self.root),
        }
    }
}

fn root_stays(act: &Act<'_>) -> Error {
    act.error(ErrorKind::Invalid, "the root of the workspace cannot be moved or removed")
}
