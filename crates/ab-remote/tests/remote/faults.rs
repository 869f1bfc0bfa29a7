//! A storm between client and server: connections are cut at any byte, stalled and slowed, some for
//! longer than a link believes in them; the server is replaced, politely or not, while clients read,
//! write, rename, run and follow.
//!
//! What must hold: every call is answered; what was said to be applied is there, once, and what was
//! said not to be is not; no byte of a process's output is lost or repeated, and a process is lost
//! only with its server; the status goes only where it may; nothing is left open on either side.
//!
//! The weather is made from a seed, which a failure shows: give it as `AB_SOAK_SEED` to have the same
//! weather again. `AB_SOAK_SECONDS` says for how long, `AB_SOAK_DROPS` for how many losses.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ab_core::options::{FileAccess, FileCreationMode, OpenOptions, WritePosition};
use ab_core::process::{Command, ExitCause, Process};
use ab_core::{Backend, ConnectionStatus, Error, ErrorKind, ExecOptions, LostCallEffect, Result};
use ab_remote::client::{
    Keepalive, ReconnectPolicy, RemoteClientSettings, RemoteDriver, RemoteEndpoint,
};
use ab_testkit::ConnectionStatusRecorder;
use agent_backend::LocalWorkspaceConfig;
use tokio::time::{sleep, timeout};

use super::relay::{Relay, Weather};
use super::world::server;

/// No call may take longer, whatever the weather.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Lines that a process says before it ends.
const LINES: u64 = 300_000;
/// How long an attempt to connect may take.
const CONNECTING: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_nothing_is_lost_in_a_storm() {
    let seed = setting("AB_SOAK_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
    });
    println!("AB_SOAK_SEED={seed}");
    let seconds = setting("AB_SOAK_SECONDS").unwrap_or(60);
    let drops = setting("AB_SOAK_DROPS").unwrap_or(0);
    let tally = storm(seed, Duration::from_secs(seconds), drops).await;
    println!("{tally}");
    assert!(tally.drops > 0 && tally.output > 0 && tally.applied > 0, "{tally:?}");
    assert!(seconds < 30 || (tally.silences > 0 && tally.kills > 0), "{tally:?}");
}

fn setting(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// What happened.
#[derive(Debug, Default)]
struct Tally {
    drops: u64,
    /// Losses that only the keepalive can have found.
    silences: u64,
    restarts: u64,
    kills: u64,
    calls: u64,
    failed: u64,
    applied: u64,
    not_applied: u64,
    unknown: u64,
    commands: u64,
    output: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { drops, silences, restarts, kills, calls, failed, .. } = self;
        let Self { applied, not_applied, unknown, commands, output, .. } = self;
        write!(
            f,
            "{drops} losses, {silences} of them in silence, {restarts} restarts and {kills} sudden \
             ends; {calls} calls of which {failed} failed; \
             {applied} changes applied, {not_applied} not, {unknown} unknown; \
             {commands} commands, {output} bytes of output"
        )
    }
}

#[derive(Debug, Default)]
struct Counters {
    silences: AtomicU64,
    restarts: AtomicU64,
    kills: AtomicU64,
    calls: AtomicU64,
    failed: AtomicU64,
    applied: AtomicU64,
    not_applied: AtomicU64,
    unknown: AtomicU64,
    commands: AtomicU64,
    output: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What everybody in the storm shares.
#[derive(Clone)]
struct Ship {
    backend: Backend,
    over: Arc<AtomicBool>,
    counters: Arc<Counters>,
}

impl Ship {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Waits until there is a connection, or none.
    async fn until(&self, connected: bool) {
        let waiting = async {
            while (self.backend.status() == ConnectionStatus::Connected) != connected {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(TIMEOUT, waiting).await.expect("the link does not see what the weather is");
    }

    /// Waits for a call, which must be answered.
    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        count(&self.counters.calls);
        let answer = timeout(TIMEOUT, call).await.expect("a call was never answered");
        if let Err(error) = &answer {
            count(&self.counters.failed);
            let expected = matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Timeout);
            assert!(expected, "the weather is no reason for {error:?}");
        }
        answer
    }

    /// What became of a call that changes something.
    async fn effect<T>(&self, answer: &Result<T>) -> LostCallEffect {
        let effect = match answer {
            Ok(_) => LostCallEffect::Applied,
            Err(error) => self.asked(error).await,
        };
        count(match effect {
            LostCallEffect::Applied => &self.counters.applied,
            LostCallEffect::NotApplied => &self.counters.not_applied,
            LostCallEffect::Unknown => &self.counters.unknown,
        });
        effect
    }

    async fn asked(&self, error: &Error) -> LostCallEffect {
        let Some(ticket) = error.lost_call_id() else {
            // It did not get as far as being sent.
            return error.lost_call_effect().unwrap_or(LostCallEffect::NotApplied);
        };
        loop {
            match self.call(self.backend.query_lost_call(ticket)).await {
                Ok(effect) => return effect,
                Err(_) => continue,
            }
        }
    }
}

/// Numbers that look random and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides.max(1)
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.roll(to - from))
    }
}

async fn storm(seed: u64, length: Duration, drops: u64) -> Tally {
    let keep = tempfile::tempdir().unwrap();
    let mut local = workspace(keep.path());
    let relay = Arc::new(Relay::new(server(local.clone())));
    let settings = RemoteClientSettings {
        reconnection: ReconnectPolicy {
            max_retries: 0,
            initial_delay: Duration::from_millis(5),
            max_delay: Duration::from_millis(20),
            ..ReconnectPolicy::default()
        },
        keepalive: Keepalive { interval: Duration::from_millis(100), max_missed: 3 },
        operation_timeout: Duration::from_secs(20),
        connect_timeout: CONNECTING,
        ..RemoteClientSettings::new(RemoteEndpoint::Stream(relay.clone()))
    };
    let backend = Backend::new(RemoteDriver::new(settings).unwrap());
    let heard = ConnectionStatusRecorder::subscribe(&backend);
    let ship = Ship { backend: backend.clone(), over: Arc::default(), counters: Arc::default() };
    // So that the first connection is there before the weather turns bad: it is not tried twice.
    backend.connect().await.unwrap();
    let mut sailors = tokio::task::JoinSet::new();
    for number in 0..2 {
        sailors.spawn(append(ship.clone(), number));
        sailors.spawn(write_and_read(ship.clone(), number));
        sailors.spawn(rename(ship.clone(), number));
        sailors.spawn(run(ship.clone(), number));
        sailors.spawn(follow(ship.clone(), number));
    }
    let losses = || {
        let lost = (ConnectionStatus::Connected, ConnectionStatus::Disconnected);
        heard.transitions().iter().filter(|each| **each == lost).count() as u64
    };
    let began = Instant::now();
    let mut dice = Dice(seed);
    for gust in 1u64.. {
        if began.elapsed() >= length && losses() >= drops {
            break;
        }
        match gust % 30 {
            10 => silence(&relay, &ship, &mut dice).await,
            20 => local = kill(&relay, &local, keep.path(), &ship).await,
            _ => bad_weather(&relay, &local, &ship, &mut dice).await,
        }
        // Long enough for something to be done in between.
        sleep(dice.millis(10, 90)).await;
        if let Some(ended) = sailors.try_join_next() {
            panic!("a client gave up before the storm was over: {ended:?}");
        }
    }
    relay.set(Weather::Fair);
    ship.over.store(true, Ordering::SeqCst);
    while let Some(ended) = sailors.join_next().await {
        ended.unwrap();
    }
    legal(&heard.transitions());
    timeout(TIMEOUT, backend.destroy()).await.unwrap().unwrap();
    let last = relay.server();
    timeout(TIMEOUT, last.shut_down()).await.unwrap();
    assert_eq!(last.connection_count(), 0);
    for process in local.detached_processes().await.unwrap() {
        assert!(process.exit.is_some(), "left running: {process:?}");
    }
    timeout(TIMEOUT, local.destroy()).await.unwrap().unwrap();
    let counters = ship.counters.clone();
    let drops = losses();
    drop((ship, backend, local, relay, last));
    // A task that was ended lets go when it is looked at next.
    let ended = Instant::now();
    while !open_below(keep.path()).is_empty() && ended.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(open_below(keep.path()), Vec::<String>::new(), "left open");
    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Tally {
        drops,
        silences: number(&counters.silences),
        restarts: number(&counters.restarts),
        kills: number(&counters.kills),
        calls: number(&counters.calls),
        failed: number(&counters.failed),
        applied: number(&counters.applied),
        not_applied: number(&counters.not_applied),
        unknown: number(&counters.unknown),
        commands: number(&counters.commands),
        output: number(&counters.output),
    }
}

fn workspace(root: &Path) -> Backend {
    agent_backend::local_with(LocalWorkspaceConfig::new(root).prevent_dangerous_commands(false))
        .unwrap()
}

/// One gust.
async fn bad_weather(relay: &Relay, local: &Backend, ship: &Ship, dice: &mut Dice) {
    // Whoever was held up may go on, or not.
    let after = match dice.roll(2) {
        0 => Weather::Fair,
        _ => Weather::Slow(Duration::ZERO),
    };
    match dice.roll(12) {
        0..=2 => relay.cut(),
        3..=6 => {
            relay.set(Weather::CutAfter(1 + dice.roll(6000) as usize));
            sleep(dice.millis(1, 60)).await;
            relay.set(Weather::Fair);
        }
        7..=8 => {
            relay.set(Weather::Stalled);
            sleep(dice.millis(1, 80)).await;
            relay.set(after);
        }
        9..=10 => {
            relay.set(Weather::Slow(dice.millis(1, 6)));
            sleep(dice.millis(20, 120)).await;
            relay.set(after);
        }
        _ => {
            count(&ship.counters.restarts);
            let old = relay.replace(server(local.clone()));
            timeout(TIMEOUT, old.shut_down()).await.expect("a server does not end");
            assert_eq!(old.connection_count(), 0);
            relay.set(Weather::Fair);
        }
    }
}

/// Nothing gets through until the link has found out by itself, and for a while after that.
async fn silence(relay: &Relay, ship: &Ship, dice: &mut Dice) {
    ship.until(true).await;
    relay.set(Weather::Stalled);
    ship.until(false).await;
    count(&ship.counters.silences);
    // At times for so long that an attempt to connect is given up too.
    match dice.roll(3) {
        0 => sleep(CONNECTING + dice.millis(100, 400)).await,
        _ => sleep(dice.millis(1, 300)).await,
    }
    relay.set(Weather::Fair);
}

/// The server ends without a word, and what it knew with it: of calls, and of processes. What it was
/// doing to files is done before there is another, as it is when a process was killed.
async fn kill(relay: &Relay, local: &Backend, root: &Path, ship: &Ship) -> Backend {
    ship.until(true).await;
    // For something to be under way.
    sleep(Duration::from_millis(20)).await;
    relay.set(Weather::Cut);
    let next = workspace(root);
    let old = relay.replace(server(next.clone()));
    timeout(TIMEOUT, old.shut_down()).await.expect("a server does not end");
    timeout(TIMEOUT, local.destroy()).await.expect("a workspace does not end").unwrap();
    // Before anybody can hear of it.
    count(&ship.counters.kills);
    relay.set(Weather::Fair);
    next
}

fn legal(transitions: &[(ConnectionStatus, ConnectionStatus)]) {
    use ConnectionStatus::{Connected, Connecting, Disconnected, Reconnecting};
    let mut at = Disconnected;
    for (from, to) in transitions {
        assert_eq!(*from, at, "a transition is missing: {transitions:?}");
        let may = matches!(
            (from, to),
            (Disconnected, Connecting | Reconnecting)
                | (Connecting, Connected)
                | (Connected, Disconnected)
                | (Reconnecting, Connected)
        );
        assert!(may, "{from} to {to}");
        at = *to;
    }
}

/// Files below a directory that this process has open.
fn open_below(directory: &Path) -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let below = names.filter(|name| name.starts_with(directory));
    below.map(|name| name.display().to_string()).collect()
}

/// Adds lines to a file, and knows of each whether it is there.
async fn append(ship: Ship, number: u64) {
    let name = format!("log{number}");
    let options = OpenOptions {
        access: FileAccess::Write,
        create: FileCreationMode::IfMissing,
        position: WritePosition::End,
        ..OpenOptions::default()
    };
    let (mut sure, mut possible) = (Vec::new(), BTreeSet::new());
    let mut next = 0u64;
    while !ship.is_over() {
        let Ok(file) = ship.call(ship.backend.open(&name, options)).await else { continue };
        for _ in 0..10 {
            next += 1;
            let line = format!("{next}\n");
            let written = ship.call(file.write_at(0, line.into())).await;
            match ship.effect(&written).await {
                LostCallEffect::Applied => sure.push(next),
                LostCallEffect::NotApplied => {}
                LostCallEffect::Unknown => {
                    possible.insert(next);
                }
            }
            if written.is_err() {
                break;
            }
        }
    }
    let text = until(|| ship.call(ship.backend.read_text(&name))).await;
    let there: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    let unsure: Vec<u64> = there.iter().copied().filter(|line| !possible.contains(line)).collect();
    assert_eq!(unsure, sure, "lines that were said to be there, in order, and no others");
    let once: BTreeSet<u64> = there.iter().copied().collect();
    assert_eq!(once.len(), there.len(), "a line is there twice");
}

/// Tries until the weather lets it through.
async fn until<T, F: Future<Output = Result<T>>>(mut attempt: impl FnMut() -> F) -> T {
    loop {
        if let Ok(value) = attempt().await {
            return value;
        }
    }
}

/// Replaces a file, small or large, and reads back what it must be.
async fn write_and_read(ship: Ship, number: u64) {
    let name = format!("d/file{number}");
    let mut dice = Dice(number);
    // The contents that the file may have, by their number.
    let mut candidates: Vec<Option<u64>> = vec![None];
    let mut next = 0u64;
    let content = |version: u64| {
        let length = if version.is_multiple_of(7) { 900_000 } else { 2000 };
        version.to_string().repeat(length / version.to_string().len())
    };
    while !ship.is_over() {
        next += 1;
        let written = ship.call(ship.backend.write(&name, content(next))).await;
        match ship.effect(&written).await {
            LostCallEffect::Applied => candidates = vec![Some(next)],
            LostCallEffect::NotApplied => {}
            LostCallEffect::Unknown => candidates.push(Some(next)),
        }
        if dice.roll(2) == 0 {
            continue;
        }
        let read = timeout(TIMEOUT, ship.backend.read_text(&name)).await.expect("never answered");
        match read {
            Ok(text) => {
                let known = candidates.iter().flatten().any(|version| content(*version) == text);
                let version = &text[..text.len().min(12)];
                assert!(known, "{version} is none of {candidates:?}");
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                assert!(candidates.contains(&None), "{candidates:?}");
            }
            Err(error) => assert_eq!(error.retry_advice(), ab_core::RetryAdvice::Safe, "{error:?}"),
        }
    }
}

/// Moves a file to and fro, and knows where it is.
async fn rename(ship: Ship, number: u64) {
    let names = [format!("here{number}"), format!("there{number}")];
    until(|| ship.call(ship.backend.write(&names[0], "x"))).await;
    let mut at = 0;
    while !ship.is_over() {
        let moved = ship.call(ship.backend.rename(&names[at], &names[1 - at])).await;
        match ship.effect(&moved).await {
            LostCallEffect::Applied => at = 1 - at,
            LostCallEffect::NotApplied => {}
            LostCallEffect::Unknown => {
                let there = until(|| ship.call(ship.backend.exists(&names[1 - at]))).await;
                at = if there { 1 - at } else { at };
            }
        }
        if let Ok(there) = ship.call(ship.backend.exists(&names[at])).await {
            assert!(there, "{} is not where it was said to be", names[at]);
        }
        if let Ok(there) = ship.call(ship.backend.exists(&names[1 - at])).await {
            assert!(!there, "{} is there twice", names[at]);
        }
    }
}

/// Runs commands whose answer is known.
async fn run(ship: Ship, number: u64) {
    let mut next = 0u64;
    while !ship.is_over() {
        next += 1;
        let line = format!("echo out {number} {next}; echo err >&2");
        let answer = timeout(TIMEOUT, ship.backend.exec(&line)).await.expect("never answered");
        match answer {
            // It was ended with its server, and its exit says so.
            Ok(output) if output.exit.cause == ExitCause::DroppedByCaller => {}
            Ok(output) => {
                count(&ship.counters.commands);
                let exit = &output.exit;
                assert_eq!(output.stdout_text(), format!("out {number} {next}\n"), "{exit:?}");
                assert_eq!(output.stderr.display_text(), "err\n", "{exit:?}");
            }
            // Its connection was lost while it ran.
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Timeout)
                    || error.message().contains("lost"),
                "the weather is no reason for {error:?}"
            ),
        }
    }
}

/// Follows processes that stay, to their end.
async fn follow(ship: Ship, _number: u64) {
    let expect: String = (1..=LINES).map(|line| format!("{line}\n")).collect();
    let kills = || ship.counters.kills.load(Ordering::Relaxed);
    while !ship.is_over() {
        let before = kills();
        let command = Command::Shell(format!("seq 1 {LINES}"));
        let request = ship.backend.build_exec_request(command, ExecOptions::default()).unwrap();
        let started = ship.call(ship.backend.spawn_detached(request)).await;
        // One that was started without us knowing ends by itself.
        let Ok(mut process) = started else { continue };
        let said = said(&ship, &mut process).await;
        let exit = timeout(TIMEOUT, process.wait()).await.expect("never ended");
        assert!(expect.as_bytes().starts_with(&said), "output was changed");
        if kills() > before {
            // It may have been ended with its server.
            continue;
        }
        assert_eq!(said.len(), expect.len(), "output was lost or repeated");
        assert_eq!(exit.map(|exit| exit.code), Some(Some(0)));
    }
}

async fn said(ship: &Ship, process: &mut Process) -> Vec<u8> {
    let mut said = Vec::new();
    loop {
        let piece = timeout(TIMEOUT, process.output.recv()).await.expect("output never came");
        let Some(piece) = piece else { return said };
        assert_eq!(
            (piece.offset, piece.lost_bytes_before),
            (said.len() as u64, 0),
            "a gap, or bytes twice"
        );
        ship.counters.output.fetch_add(piece.bytes.len() as u64, Ordering::Relaxed);
        said.extend_from_slice(&piece.bytes);
    }
}
