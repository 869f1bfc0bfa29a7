//! Short commands of our own, each on a channel for itself: whether commands run at all, and
//! signals, which few servers pass on by themselves.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::timeout;

use super::ear::Ear;
use crate::client::carrier::HalfChannel;
use crate::client::session::{Later, Session, Speech};

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of its answer that matter.
const ANSWER: usize = 4096;

/// Whether the server runs what it is told to, and nothing else in its place.
pub(super) async fn can_run(session: &Session) -> bool {
    // Whoever only repeats the line does not say this.
    let said = run(session, "printf 'agent-%s' backend").await;
    said.is_some_and(|said| said.windows(13).any(|words| words == b"agent-backend"))
}

/// Sends a signal to a process.
pub(super) async fn signal(session: &Session, process: u32, signal: i32) {
    alone(session, &format!("kill -s {signal} {process} 2>/dev/null")).await;
}

/// Ends a process group, or its first process where there is no such group.
pub(super) async fn end_group(session: &Session, group: u32) {
    let line = format!("kill -s KILL -- -{group} 2>/dev/null || kill -s KILL {group} 2>/dev/null");
    alone(session, &line).await;
}

/// Runs one line at a time: servers have few channels. To a process that is gone it is nothing.
async fn alone(session: &Session, line: &str) {
    let Speech::Plain(plain) = &session.speech else { return };
    let _turn = plain.errands.acquire().await;
    let _ = run(session, line).await;
}

/// What a line says on its output; nothing if it did not run.
async fn run(session: &Session, line: &str) -> Option<BytesMut> {
    let running = async {
        let half = session.carrier.open().await.ok()?;
        let ear = Arc::new(Ear::default());
        session.lines.add(half.id(), ear.clone());
        let open = Open { session, half: Some(half) };
        let half = open.half.as_ref()?;
        half.exec(line).await.ok()?;
        half.end_of_input().await;
        let mut said = BytesMut::new();
        while let Ok((_, piece)) = ear.next().await {
            ear.taken(piece.len());
            if said.len() < ANSWER {
                said.extend_from_slice(&piece);
            }
        }
        Some(said)
    };
    timeout(PATIENCE, running).await.ok()?
}

/// A channel that is closed when this is dropped.
struct Open<'a> {
    session: &'a Session,
    half: Option<HalfChannel>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(half) = self.half.take() {
            self.session.lines.end(half.id());
            self.session.later(Later::Close(half));
        }
    }
}
