//! `wait`: waits until sessions have ended.

use std::time::Duration;

use ab_api::{Session, SessionId};
use ab_core::{Error, ErrorCode, ErrorKind};
use agent_backend::ServeClient;
use clap::Args;
use serde_json::json;

use super::exec::amount;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::follow::{self, is_success};
use crate::server::ServerFlags;
use crate::session_ref::SessionRef;
use crate::terminal::{Format, Terminal};

/// Wait until sessions have ended
///
/// The exit code is 0 if all sessions completed, 1 if a session failed or was stopped or cancelled, and 4 after the
/// timeout.
#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// IDs of the sessions, or their first characters
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<SessionRef>,

    /// Longest time to wait, such as 90s or 10m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = amount::time)]
    timeout: Option<Duration>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,
}

impl CliCommand for Wait {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(wait: Wait, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = wait.server.client()?;
    let mut ids = Vec::new();
    for session in &wait.sessions {
        ids.push(session.find(&client).await?);
    }
    let all = ended(client, ids);
    let sessions = match wait.timeout {
        None => all.await?,
        Some(limit) => tokio::time::timeout(limit, all).await.unwrap_or_else(|_| {
            let message = format!("the sessions did not end within {} s", limit.as_secs());
            Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message))
        })?,
    };
    match terminal.format() {
        Format::Json => terminal.value(&json!(sessions))?,
        Format::Text => {
            for session in &sessions {
                terminal.line(&follow::summary(session))?;
            }
        }
    }
    let are_completed = sessions.iter().all(|session| is_success(session.status));
    if are_completed { Ok(()) } else { Err(Failure::No) }
}

/// Waits until all sessions have ended, and returns them.
async fn ended(client: ServeClient, ids: Vec<SessionId>) -> Result<Vec<Session>, Error> {
    let mut sessions = Vec::new();
    for id in ids {
        let mut events = client.follow_events(id);
        while events.next().await?.is_some() {}
        sessions.push(client.session(id).await?);
    }
    Ok(sessions)
}
