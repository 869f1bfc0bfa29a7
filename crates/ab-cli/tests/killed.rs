//! A daemon that is killed as a process, again and again, while somebody works on its workspace: what
//! was said of a call is what became of it, no file is half written, nothing of a killed daemon is
//! left running, and the client is back by itself.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use ab_core::options::{OverwriteMode, RenameOptions};
use ab_core::process::Command as Line;
use agent_backend::remote::{LostCallEffect, ReconnectPolicy};
use agent_backend::{
    Backend, ConnectionStatus, Edit, EditOptions, Error, ErrorKind, ExecOptions, RemoteConfig,
    RetryAdvice,
};

use crate::daemon::Daemon;
use crate::escapes::stands;
use crate::outliving::{comes, held};
use crate::stage::{BINARY, Stage};

const KILLS: usize = 5;
/// Calls that every writer has made with a daemon before it is killed.
const CALLS: u64 = 12;
/// Lines of a file: enough that writing it takes a while.
const LINES: usize = 10_000;

/// A port that no other program is given by chance: below those that the system hands out. Each time
/// another one, because a test leaves its own for a moment when it kills its daemon.
pub(crate) fn port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let apart = 100 * (CALLS.fetch_add(1, Ordering::Relaxed) % 20);
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap() + apart;
    (first..32_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

pub(crate) fn daemon(stage: &Stage, port: u16) -> Daemon {
    let mut command = stage.command(BINARY);
    command.args(["daemon", "--rootDir", ".", "--port", &port.to_string(), "--ssh-host-key"]);
    command.arg(stage.outside("host_key"));
    Daemon::spawn(command)
}

/// The content of a version, every line of which says which one it is.
fn version(number: u64) -> String {
    format!("version {number}\n").repeat(LINES)
}

/// Which version a file is. A part of one, or of two, is none.
fn found(path: &Path) -> Option<u64> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
            return None;
        }
    };
    let first = text.lines().next().unwrap_or_else(|| panic!("{} is empty", path.display()));
    let number = first.strip_prefix("version ").unwrap().parse().unwrap();
    assert!(text == version(number), "{} is a part of {first}", path.display());
    Some(number)
}

/// One who makes calls, one after another, and looks what became of each.
struct Writer {
    backend: Backend,
    root: PathBuf,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    over: AtomicBool,
    done: [AtomicU64; 3],
    lost: AtomicU64,
}

impl Writer {
    fn file(&self, name: &str) -> Option<u64> {
        found(&self.root.join(name))
    }

    fn goes_on(&self) -> bool {
        !self.seen.over.load(Ordering::SeqCst)
    }

    /// What became of a call, as far as anybody says.
    async fn told<T>(&self, which: usize, answer: Result<T, Error>) -> LostCallEffect {
        let error = match answer {
            Ok(_) => {
                self.seen.done[which].fetch_add(1, Ordering::SeqCst);
                return LostCallEffect::Applied;
            }
            Err(error) => error,
        };
        self.seen.lost.fetch_add(1, Ordering::SeqCst);
        assert!(is_interrupted(&error), "{error}");
        let (Some(LostCallEffect::Unknown), Some(ticket)) =
            (error.lost_call_effect(), error.lost_call_id())
        else {
            return error.lost_call_effect().unwrap_or(LostCallEffect::NotApplied);
        };
        loop {
            // Who is asked may be killed as well, and then the next one is.
            match self.backend.query_lost_call(ticket).await {
                Ok(effect) => return effect,
                Err(again) => assert_eq!(again.retry_advice(), RetryAdvice::Safe, "{again}"),
            }
        }
    }

    /// Whether it was done, where it is `before` or `after` that is there now.
    fn was_done(&self, effect: LostCallEffect, now: &State, before: &State, after: &State) -> bool {
        match effect {
            LostCallEffect::Applied => assert_eq!(now, after, "said to be applied"),
            LostCallEffect::NotApplied => assert_eq!(now, before, "said not to be applied"),
            LostCallEffect::Unknown => assert!(now == before || now == after, "{now:?}"),
        }
        now == after
    }

    /// Replaces a file by the next version of it.
    async fn writes(self) {
        let mut last = 0;
        while self.goes_on() {
            let next = last + 1;
            let answer = self.backend.write("whole", version(next)).await;
            let effect = self.told(0, answer).await;
            let before = [(last > 0).then_some(last), None];
            if self.was_done(effect, &[self.file("whole"), None], &before, &[Some(next), None]) {
                last = next;
            }
        }
    }

    /// Puts a new file in the place of an old one.
    async fn renames(self) {
        let mut last = 0;
        while self.goes_on() {
            let next = last + 1;
            // From outside, so that it is only the rename that can be lost.
            fs::write(self.root.join("from"), version(next)).unwrap();
            let before = [Some(next), (last > 0).then_some(last)];
            let options = RenameOptions { overwrite: OverwriteMode::Replace };
            let answer = self.backend.rename_with("from", "to", options).await;
            let effect = self.told(1, answer).await;
            let now = [self.file("from"), self.file("to")];
            if self.was_done(effect, &now, &before, &[None, Some(next)]) {
                last = next;
            }
        }
    }

    /// Changes every line of a file.
    async fn edits(self) {
        let mut last = 1;
        fs::write(self.root.join("edited"), version(last)).unwrap();
        while self.goes_on() {
            let next = last + 1;
            let edit = Edit::new(format!("version {last}\n"), format!("version {next}\n"));
            let answer =
                self.backend.edit("edited", &[edit.replace_all()], EditOptions::default()).await;
            let effect = self.told(2, answer).await;
            let now = [self.file("edited"), None];
            if self.was_done(effect, &now, &[Some(last), None], &[Some(next), None]) {
                last = next;
            }
        }
    }
}

/// Whether the end of a daemon is the reason.
fn is_interrupted(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Timeout)
}

/// The versions of the files that a writer works on.
type State = [Option<u64>; 2];

/// A command that holds a file open and goes on for longer than anybody waits.
async fn left_running(backend: &Backend, stage: &Stage, name: &str) {
    let line = Line::Shell(format!("exec 9>>{name}; sleep 100000"));
    let request = backend.build_exec_request(line, ExecOptions::default()).unwrap();
    // The client may still have to hear that the daemon before this one is gone.
    while let Err(error) = backend.spawn_detached(request.clone()).await {
        assert!(is_interrupted(&error), "{error}");
    }
    comes("the command", || stage.path(name).exists() && held(stage, name) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_what_a_killed_daemon_said_holds() {
    let stage = Stage::new();
    let port = port();
    let mut served = daemon(&stage, port);
    let url = format!("ws://127.0.0.1:{port}/ssh");
    let config = RemoteConfig::parse(&url).unwrap().reconnection(ReconnectPolicy {
        initial_delay: Duration::from_millis(20),
        max_delay: Duration::from_millis(500),
        max_retries: 0,
        ..ReconnectPolicy::default()
    });
    let backend = agent_backend::remote_with(config).unwrap();
    let connections = Arc::new(AtomicU64::new(0));
    let counted = connections.clone();
    let _subscription = backend.on_status_change(move |change| {
        if change.to == ConnectionStatus::Connected {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let walled = stands("bwrap");
    let seen = Arc::new(Seen::default());
    let writer = || Writer { backend: backend.clone(), root: stage.root(), seen: seen.clone() };
    let writers = [
        tokio::spawn(writer().writes()),
        tokio::spawn(writer().renames()),
        tokio::spawn(writer().edits()),
    ];
    for kill in 0..=KILLS {
        if walled {
            left_running(&backend, &stage, &format!("alive-{kill}")).await;
        }
        let begun: Vec<u64> = seen.done.iter().map(|it| it.load(Ordering::SeqCst)).collect();
        let worked = || {
            let mut done = seen.done.iter().zip(&begun);
            done.all(|(now, begun)| now.load(Ordering::SeqCst) >= begun + CALLS)
        };
        while !worked() {
            assert!(writers.iter().all(|it| !it.is_finished()), "a writer has failed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if kill < KILLS {
            drop(served);
            if walled {
                comes("the end of its command", || held(&stage, &format!("alive-{kill}")) == 0);
            }
            served = daemon(&stage, port);
        }
    }
    seen.over.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(seen.lost.load(Ordering::SeqCst) > 0, "no call was under way when it was killed");
    assert_eq!(connections.load(Ordering::SeqCst), KILLS as u64 + 1);
    for name in ["whole", "to", "edited"] {
        let there = backend.read(name).await.unwrap();
        assert_eq!(there, stage.text(name).as_bytes(), "{name}");
    }
    backend.destroy().await.unwrap();
    assert_eq!(served.end().0, 0);
    if walled {
        comes("the end of the last command", || held(&stage, &format!("alive-{KILLS}")) == 0);
    }
}
