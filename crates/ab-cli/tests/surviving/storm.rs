//! Sessions that are created, prompted, paused, stopped and deleted at random while their server is killed: no request
//! fails with a 500, no event is lost or doubled, and nothing is left behind. Then one server lives on with many sessions,
//! and holds no more than before. At last all sessions are removed, and no row or directory of theirs is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ab_store::{DataDir, Store};
use rustix::process::Signal;
use serde_json::json;

use super::fixture::{Fixture, Server, Story, task};
use crate::outliving::{TIMEOUT, comes};

/// Rounds of a normal run; each ends with a kill. `cargo xtask soak sessions` goes on for minutes.
const ROUNDS: usize = 2;
/// Sessions at a time, and requests in each round.
const SESSIONS: usize = 4;
const REQUESTS: usize = 25;
/// At most so many events pass between two requests.
const EVENTS: u64 = 8;
/// Open files that a server may have more after the storm than before.
const FILES: usize = 4;
/// Batches of sessions of a server that lives on, in a normal run.
const BATCHES: usize = 3;
/// Threads and memory that it may have more after them. Threads for blocking calls come and go.
const THREADS: u64 = 8;
const MEMORY_KIB: u64 = 32 * 1024;

struct Live {
    id: String,
    story: Story,
}

/// A generator of random numbers that a printed seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// One request at random. A server that is killed may not answer it.
fn request(server: &Server, id: &str, random: &mut Random) -> Option<u16> {
    let session = format!("/api/v1/sessions/{id}");
    let text = format!("Do more {}", random.below(u64::MAX));
    let (method, path, body) = match random.below(12) {
        0..=2 => ("POST", format!("{session}/prompt"), json!({ "prompt": text })),
        3 => ("POST", format!("{session}/prompt"), json!({ "prompt": text, "now": true })),
        4 => ("DELETE", format!("{session}/prompts/2"), json!({})),
        5 => ("PUT", format!("{session}/prompts/2"), json!({ "prompt": text })),
        6 => ("POST", format!("{session}/pause"), json!({})),
        7 | 8 => ("POST", format!("{session}/resume"), json!({})),
        9 => ("POST", format!("{session}/finish"), json!({})),
        10 => ("POST", format!("{session}/stop"), json!({})),
        _ => ("DELETE", session, json!({})),
    };
    let answer = server.try_ask(method, &path, &server.operator(), &body.to_string()).ok()?;
    let expected = [200, 202, 204, 404, 409, 410, 429];
    assert!(expected.contains(&answer.status), "{method} {path}: {answer:?}");
    Some(answer.status)
}

/// Makes requests while readers answer every question, then kills the server or, in the last round, does not.
fn storm(server: &Server, sessions: &mut [Live], random: &mut Random) {
    let (seen, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let ids: Vec<_> = sessions.iter().map(|live| live.id.clone()).collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = sessions
            .iter_mut()
            .map(|live| {
                let (seen, is_over) = (&seen, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        // Ends early with the server, and stays at a session that is idle.
                        let open = server.approve_open_questions(&live.id);
                        let read = server.work_through_counting(&live.id, &mut live.story, seen);
                        if open.is_err() || read.is_err() {
                            break;
                        }
                    }
                })
            })
            .collect();
        for _ in 0..REQUESTS {
            let id = &ids[random.below(ids.len() as u64) as usize];
            let Some(_) = request(server, id, random) else { break };
            let target = seen.load(Ordering::Relaxed) + random.below(EVENTS);
            let enough = || seen.load(Ordering::Relaxed) >= target;
            let settled = || ids.iter().all(|id| is_waiting(server, id));
            comes("the next request", || {
                enough() || readers.iter().all(|it| it.is_finished()) || settled()
            });
        }
        is_over.store(true, Ordering::Relaxed);
        server.signal(Signal::KILL);
    });
}

/// Whether nothing more happens to a session by itself.
fn is_waiting(server: &Server, id: &str) -> bool {
    let session = server.session(id);
    let is = |name: &str, value: &str| session[name] == value;
    !session["endReason"].is_null() || is("activity", "idle") || is("status", "paused")
}

/// Waits until no workspace is left. If one stays, shows the sessions that did not remove theirs.
fn workspaces_end(fixture: &Fixture, server: &Server) {
    let start = Instant::now();
    while fixture.workspaces() > 0 {
        if start.elapsed() > TIMEOUT {
            let sessions = server.get("/api/v1/sessions?perPage=100");
            let kept = sessions["items"].as_array().unwrap().iter().filter(|session| {
                session["status"] != "cancelled" && session["status"] != "completed"
            });
            let kept: Vec<_> = kept.collect();
            panic!("{} workspaces stayed: {kept:#?}\n{}", fixture.workspaces(), server.said());
        }
        std::thread::yield_now();
    }
}

fn open_files(server: &Server) -> usize {
    Path::new("/proc").join(server.pid().to_string()).join("fd").read_dir().unwrap().count()
}

/// What a server holds.
#[derive(Debug)]
struct Held {
    files: usize,
    threads: u64,
    memory_kib: u64,
    /// Readers of the event log, by its own count.
    readers: u64,
}

impl Held {
    fn by(server: &Server) -> Held {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let number = |text: &str, name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let metrics = server.ask("GET", "/metrics", "").body;
        Held {
            files: open_files(server),
            threads: number(&status, "Threads:"),
            memory_kib: number(&status, "VmRSS:"),
            readers: number(&metrics, "agent_backend_event_readers "),
        }
    }

    fn is_back_at(&self, before: &Held) -> bool {
        self.files <= before.files + FILES
            && self.threads <= before.threads + THREADS
            && self.memory_kib <= before.memory_kib + MEMORY_KIB
            && self.readers <= before.readers
    }
}

/// Sessions that begin and end, each with readers that hang up before its end.
fn live_through(fixture: &Fixture, server: &Server, random: &mut Random) {
    let ids: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let mut task = task(&fixture.source(), &format!("Task {}", random.below(u64::MAX)));
            task["keepOpen"] = (random.below(2) == 0).into();
            server.create_from(&task)
        })
        .collect();
    for id in &ids {
        // One reader is at the beginning; the other has a cursor of another log.
        for after in [0, u64::MAX] {
            let mut reader = server.follow(id, after).unwrap();
            assert!(reader.next().unwrap().is_some());
        }
        for _ in 0..random.below(3) {
            assert!(request(server, id, random).is_some());
        }
        // The one that is still open when its session ends is told, and ends too.
        let mut last = server.follow(id, 0).unwrap();
        server.delete(id);
        while last.next().unwrap().is_some() {}
    }
}

fn rows_without_owner(fixture: &Fixture) -> Vec<(&'static str, u64)> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(DataDir::open(fixture.data()).unwrap()).await.unwrap();
        let rows = store.count_rows_without_owner().await.unwrap();
        store.close().await;
        rows
    })
}

/// The data directory has what a server needs, and nothing of a session.
fn assert_no_directory_left(data: &Path) {
    let names = |directory: &str| -> BTreeSet<String> {
        let entries = data.join(directory).read_dir().into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    for directory in ["sessions/workspaces", "uploads", "spaces", "agent-servers"] {
        assert_eq!(names(directory), BTreeSet::new(), "{directory}");
    }
    let expected = ["cache", "git", "workspaces"].map(str::to_owned);
    assert_eq!(names("sessions"), BTreeSet::from(expected));
    let caches = names("sessions/cache");
    assert_eq!(caches.iter().filter(|name| name.ends_with(".git")).count(), 1, "{caches:?}");
    let directories = names("").into_iter().filter(|name| data.join(name).is_dir());
    let known = ["agent-servers", "agents", "sessions", "spaces", "uploads"];
    let unknown: Vec<_> = directories.filter(|name| !known.contains(&name.as_str())).collect();
    assert_eq!(unknown, [""; 0]);
}

/// A server whose sessions have all ended long ago removes them. Returns its process id.
fn remove_sessions(fixture: &Fixture) -> u32 {
    fs::write(fixture.config(), "[retention]\nsessions = \"1ms\"\n").unwrap();
    let server = fixture.start(&[]);
    comes("the end of old sessions", || {
        assert_eq!(server.ask("POST", "/api/v1/cleanup", "").status, 200);
        server.get("/api/v1/sessions")["total"] == 0
    });
    let pid = server.pid();
    server.end();
    pid
}

#[test]
fn slow_sessions_stand_random_requests_and_kills() {
    if !Fixture::can_run() {
        return;
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (begun, seconds) = (Instant::now(), number("AB_SOAK_SECONDS"));
    let after = |share: f64| seconds.map(|it| begun + Duration::from_secs(it).mul_f64(share));
    let (deadline, end_of_life) = (after(0.7), after(1.0));
    let seed = number("AB_SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()) + 1);
    eprintln!("AB_SOAK_SEED={seed}");
    let mut random = Random(seed);
    let fixture = Fixture::new();
    let (mut live, mut ended) = (Vec::<Live>::new(), Vec::<Live>::new());
    let mut servers = Vec::new();
    let mut rounds = 0;
    while deadline.map_or(rounds < ROUNDS, |deadline| Instant::now() < deadline) {
        let mut server = fixture.start(&[]);
        servers.push(server.pid());
        let is_over = |it: &Live| !server.session(&it.id)["endReason"].is_null();
        let (done, going): (Vec<_>, Vec<_>) = live.into_iter().partition(is_over);
        ended.extend(done);
        live = going;
        while live.len() < SESSIONS {
            let mut task = task(&fixture.source(), &format!("Task {}", random.below(u64::MAX)));
            task["keepOpen"] = (random.below(2) == 0).into();
            live.push(Live { id: server.create_from(&task), story: Story::default() });
        }
        storm(&server, &mut live, &mut random);
        server.wait();
        rounds += 1;
    }
    let server = fixture.start(&[]);
    servers.push(server.pid());
    let files = open_files(&server);
    ended.extend(live);
    let mut delivered = Vec::new();
    for Live { id, story } in &mut ended {
        let session = server.delete(id);
        server.work_to_the_end(id, story);
        story.assert_whole(&server, id);
        story.assert_tools_ended();
        let branch = story.find("delivery").and_then(|event| event["branch"].as_str());
        delivered.extend(branch.map(str::to_owned));
        assert!(story.count("delivery") <= 1, "{story:#?}");
        assert!(session["status"] != "completed" || branch.is_some(), "{session:#}\n{story:#?}");
    }
    delivered.sort();
    assert_eq!(fixture.branches(), delivered);
    workspaces_end(&fixture, &server);
    comes("the end of open files", || open_files(&server) <= files + FILES);

    live_through(&fixture, &server, &mut random);
    workspaces_end(&fixture, &server);
    let before = Held::by(&server);
    let mut batches = 0;
    while end_of_life.map_or(batches < BATCHES, |end| Instant::now() < end) {
        live_through(&fixture, &server, &mut random);
        batches += 1;
    }
    workspaces_end(&fixture, &server);
    comes("what the server held before", || Held::by(&server).is_back_at(&before));
    let after = Held::by(&server);
    eprintln!("{batches} batches: {before:?}, then {after:?}");
    fixture.assert_source_untouched();
    server.end();
    fixture.assert_nothing_left(&servers);
    assert_eq!(rows_without_owner(&fixture), []);
    assert_no_directory_left(&fixture.data());
    servers.push(remove_sessions(&fixture));
    fixture.assert_nothing_left(&servers);
    assert_eq!(rows_without_owner(&fixture), []);
    eprintln!("{rounds} rounds, {} sessions, {} branches", ended.len(), delivered.len());
}
