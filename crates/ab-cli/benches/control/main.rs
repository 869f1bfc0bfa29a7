//! Speed of the control plane: the built `serve` with real sessions, from a task to its events.
//!
//! Provisioning is measured beside `git worktree add`; ours and git take turns inside a round, and what
//! counts is the median of the ratios of the rounds. `cargo xtask bench control` runs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends at the first thing that is not as it must be"
)]

#[path = "../../tests/surviving/http.rs"]
#[allow(dead_code, reason = "tests look at more of an answer")]
mod http;
#[path = "../mcp/measure.rs"]
#[allow(dead_code, reason = "this bench has no bar from below")]
mod measure;
mod server;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use self::measure::{Bar, Pair, ROUNDS, Table, median};
use self::server::{BINARY, Fixture, Server, git};

/// Files of the large repository, in directories of a hundred.
const FILES: usize = 50_000;
/// Sessions that run while events are timed, and how many events each of them has.
const SESSIONS: usize = 20;
const EVENTS: usize = 40;
/// Sessions in the list that is read by pages.
const LISTED: usize = 10_000;
/// Milliseconds between two events of a session.
const PAUSE: usize = 50;
/// A server that has printed its notice may still have something to do.
const SETTLED: Duration = Duration::from_secs(1);

fn main() {
    println!("bench control: median of {ROUNDS} rounds");
    println!("{}\n", git(Path::new("/"), &["--version"]).trim());
    let mut table = Table::default();
    starts(&mut table);
    first_events(&mut table);
    event_delays(&mut table);
    endings(&mut table);
    idle_sessions(&mut table);
    lists(&mut table);
    provisioning(&mut table);
    // A bar is for a quiet machine, so that it is told and does not fail the run.
    println!("\n{} below their bars", table.missed());
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// From the start of the process to its notice, and the memory of a server without sessions.
fn starts(table: &mut Table) {
    let fixture = Fixture::new();
    let (mut times, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let server = Server::start(&fixture);
        times.push(milliseconds(begun));
        thread::sleep(SETTLED);
        memory.push(server.memory());
    }
    table.alone("serve until ready", "ms", Bar::AtMost(200.0), &times);
    table.alone("memory of an idle serve", "MiB", Bar::AtMost(64.0), &memory);
}

/// From the start of `task --follow` to the first line on its screen. The server and the cache are warm.
fn first_events(table: &mut Table) {
    let fixture = Fixture::new();
    let _server = Server::start(&fixture);
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let mut command = Command::new(BINARY);
        command.args(["task", "Look around", "--follow", "--approve", "always", "--data-dir"]);
        command.arg(fixture.data()).current_dir(fixture.source());
        let begun = Instant::now();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        // The first task fills the cache.
        if round > 0 {
            times.push(milliseconds(begun));
        }
        lines.for_each(drop);
        assert!(child.wait().unwrap().success());
    }
    table.alone("warm task to its first event on screen", "ms", Bar::AtMost(1000.0), &times);
}

/// From the agent's output to a reader of the event stream, while many sessions run.
fn event_delays(table: &mut Table) {
    let step = format!(r#"{{ delay = {PAUSE} }}, {{ say = "now {{now}}\n" }}, "#);
    // The question holds every agent until all of them run.
    let gate = r#"{ ask = { title = "Begin", kind = "execute", command = "begin" } }, "#;
    let scenario = format!("[[turn]]\nsteps = [{gate}{}]\n", step.repeat(EVENTS));
    let fixture = Fixture::with_agent("ticking", &scenario, SESSIONS);
    let server = Server::start(&fixture);
    let (all, together) = (Mutex::new(Vec::new()), Arc::new(Barrier::new(SESSIONS)));
    thread::scope(|scope| {
        for _ in 0..SESSIONS {
            scope.spawn(|| {
                let id = server.create(&fixture, "ticking");
                let mut reader = server.follow(&id);
                let mut delays = Vec::new();
                while let Some(event) = reader.next() {
                    if let Some(question) = event["approvalId"].as_str()
                        && event["type"] == "approvalRequested"
                    {
                        together.wait();
                        server.approve(question);
                    }
                    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
                    let said = event["message"].as_str().and_then(|text| text.strip_prefix("now "));
                    if let Some(said) = said {
                        let said = Duration::from_micros(said.parse().unwrap());
                        delays.push(now.saturating_sub(said).as_secs_f64() * 1000.0);
                    }
                }
                assert_eq!(delays.len(), EVENTS);
                all.lock().unwrap().extend(delays);
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    let what = format!("event to a reader, {SESSIONS} sessions, p50");
    table.alone(&what, "ms", Bar::AtMost(20.0), &all);
    all.sort_by(f64::total_cmp);
    println!("  p95 {:.1} ms, largest {:.1} ms", all[all.len() * 95 / 100], all[all.len() - 1]);
}

/// From a stop or a delete of a session whose agent never answers, to its end.
fn endings(table: &mut Table) {
    let scenario = "[[turn]]\nsteps = [{ say = \"at work\\n\" }, { hang = \"forever\" }]\n";
    let fixture = Fixture::with_agent("hanging", scenario, 1);
    let server = Server::start(&fixture);
    let end = |act: fn(&Server, &str)| {
        let id = server.create(&fixture, "hanging");
        server.follow(&id).find(|event| event["message"] == "at work");
        let begun = Instant::now();
        act(&server, &id);
        milliseconds(begun)
    };
    let (mut stops, mut deletes) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        stops.push(end(Server::stop));
        deletes.push(end(Server::delete));
    }
    table.alone("stop of a hanging agent until its end", "ms", Bar::AtMost(2000.0), &stops);
    table.alone("DELETE of a hanging agent until its end", "ms", Bar::AtMost(2000.0), &deletes);
}

/// What `serve` needs for sessions that wait for a prompt, and the time until all of them are delivered.
fn idle_sessions(table: &mut Table) {
    let fixture =
        Fixture::with_agent("brief", "[[turn]]\nsteps = [{ say = \"done\\n\" }]\n", SESSIONS);
    let server = Server::start(&fixture);
    thread::sleep(SETTLED);
    let before = server.memory();
    let begun = Instant::now();
    let ids: Vec<_> = (0..SESSIONS).map(|_| server.create_open(&fixture, "brief")).collect();
    for id in &ids {
        server.follow(id).find(|event| event["activity"] == "idle");
    }
    println!("  {SESSIONS} sessions from the first request to idle: {:.0} ms", milliseconds(begun));
    thread::sleep(SETTLED);
    let each = (server.memory() - before) / SESSIONS as f64;
    let what = format!("memory of serve for each of {SESSIONS} idle sessions");
    table.alone(&what, "MiB", Bar::AtMost(4.0), &[each]);
    let begun = Instant::now();
    ids.iter().for_each(|id| server.finish(id));
    for id in &ids {
        assert_eq!(server.end_of(id), "completed");
    }
    println!("  all of them finished: {:.0} ms", milliseconds(begun));
}

/// Pages of a long list, with and without filters.
fn lists(table: &mut Table) {
    let fixture = Fixture::new();
    fixture.fill(LISTED);
    let server = Server::start(&fixture);
    for filter in ["", "&status=completed", "&agent=a1", "&projectId=p7", "&label=l%3D3"] {
        let path = format!("/api/v1/sessions?perPage=200&page=2{filter}");
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let list = server.get(&path);
            times.push(milliseconds(begun));
            assert!(list["total"].as_u64().unwrap() >= LISTED as u64 / 100, "{list}");
        }
        let what = format!("list of {LISTED} sessions, {}", filter.get(1..).unwrap_or("all"));
        table.alone(&what, "ms", Bar::AtMost(100.0), &times);
    }
}

/// A second task on a large repository, beside a worktree of git.
fn provisioning(table: &mut Table) {
    let fixture = Fixture::new();
    for number in 0..FILES {
        let directory = fixture.source().join(format!("d{}", number / 100));
        if number % 100 == 0 {
            fs::create_dir(&directory).unwrap();
        }
        fs::write(directory.join(format!("f{number}.txt")), format!("file {number}\n")).unwrap();
    }
    git(&fixture.source(), &["add", "."]);
    git(&fixture.source(), &["commit", "-q", "-m", "Many files"]);
    let server = Server::start(&fixture);
    let ours = || {
        let id = server.create(&fixture, "scripted");
        let mut reader = server.follow(&id);
        let mut begun = None;
        loop {
            let event = reader.next().unwrap();
            if event["status"] == "provisioning" {
                begun = Some(Instant::now());
            }
            let is_made = |text: &str| text.starts_with("The agent runs in a sandbox");
            if event["message"].as_str().is_some_and(is_made) {
                let time = milliseconds(begun.unwrap());
                server.delete(&id);
                return time;
            }
        }
    };
    let mut number = 0;
    let worktree = || {
        number += 1;
        let (path, branch) = (fixture.beside(&format!("w{number}")), format!("w{number}"));
        let path = path.to_str().unwrap();
        let begun = Instant::now();
        git(&fixture.source(), &["worktree", "add", "-q", "-b", &branch, path]);
        let time = milliseconds(begun);
        git(&fixture.source(), &["worktree", "remove", "--force", path]);
        time
    };
    let first = ours();
    let pair = Pair::of(ours, worktree);
    table.compare(
        "second task on 50,000 files, beside worktree add",
        "ms",
        Bar::AtMost(2.0),
        &pair,
    );
    println!("  first task, which fills the cache: {first:.0} ms; ours {:.0}", median(pair.ours));
}
