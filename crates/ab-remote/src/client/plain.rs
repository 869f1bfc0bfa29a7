//! A workspace behind a server that speaks SFTP version 3 and runs commands, and nothing else.
//!
//! Such a server has no jail, no versions and few words for what went wrong. What can be made up for
//! from here is: names are looked up one by one, so that links which lead out are refused and
//! failures get their kind; files are replaced by a rename; versions tell every change that goes
//! through this connection from the one before. What cannot is said by [`Plain::capabilities`] and
//! [`Plain::effective_policy`]: between a look and an act the other side may change.

mod act;
mod change;
mod command;
mod ear;
mod errand;
mod file;
mod greet;
mod lacks;
mod line;
mod list;
mod look;
mod markers;
mod marks;
mod open;
mod policy;
mod read;
mod remove;
mod rename;
mod spot;
mod turns;
mod whereabouts;
mod write;

use std::sync::Arc;

use ab_core::driver::Capabilities;
use ab_core::{EffectivePolicy, Error, ErrorKind, LostCallEffect, Result, Verb, WsPath};
use tokio::sync::{OnceCell, Semaphore};

use self::act::Act;
use self::marks::Marks;
use self::turns::Turns;
use self::whereabouts::Whereabouts;
use super::context::CallContext;
use super::session::Session;

pub(crate) use self::act::refusal;
pub(crate) use self::lacks::keeps_nothing;

/// Commands that run at a time. OpenSSH opens ten channels unless told otherwise; one is for files
/// and one for signals.
const COMMANDS: usize = 8;

/// What is known of a plain server.
#[derive(Debug)]
pub(crate) struct Plain {
    /// The root on the other side, as the server names it; empty for `/`.
    root: String,
    /// The root as the settings name it, where that is another text.
    alias: Option<String>,
    can: Extensions,
    data_limit: usize,
    /// Whether it runs commands; nothing as long as it has not said.
    runs: OnceCell<bool>,
    marks: Marks,
    turns: Turns,
    whereabouts: Whereabouts,
    commands: Arc<Semaphore>,
    errands: Semaphore,
}

/// What of OpenSSH's additions there is.
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
            whereabouts: Whereabouts::default(),
            commands: Arc::new(Semaphore::new(COMMANDS)),
            errands: Semaphore::new(1),
        }
    }
}

impl Plain {
    pub(crate) fn data_limit(&self) -> usize {
        self.data_limit
    }

    /// What it can do. That it runs commands is believed until it says otherwise.
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            exec: self.runs.get().copied().unwrap_or(true),
            detached: false,
            search: true,
            links: true,
            modes: true,
            empty_dirs: true,
            jail: false,
            atomic_write: self.can.posix_rename,
            // What is looked at after a failure may have changed since.
            exact_kinds: false,
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

    /// Whether it runs commands. It is asked when somebody first needs to know, and again as long as
    /// it gave no answer; whoever asks at the same time waits for the same one.
    async fn runs(&self, session: &Session, context: CallContext<'_>) -> Result<bool> {
        let asking = self.runs.get_or_try_init(|| errand::can_run(session));
        match context.within(session.patience, asking).await {
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

    /// Where something of the workspace is on the other side.
    fn at(&self, real: &str) -> String {
        match (real.is_empty(), self.root.is_empty()) {
            (true, true) => "/".to_owned(),
            (true, false) => self.root.clone(),
            (false, _) => format!("{}/{real}", self.root),
        }
    }
}

fn root_stays(act: &Act<'_>) -> Error {
    act.error(ErrorKind::Invalid, "the root of the workspace stays where it is")
}
