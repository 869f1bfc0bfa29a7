//! kill -9 of the server at every crash point and at any other moment: after a restart every session goes on or
//! ends with a stated reason, no event is lost or doubled, and nothing is left behind.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ab_control::CrashTestPoint;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture::{Fixture, Server, Story, task};
use crate::outliving::comes;

/// What becomes of a session whose server is killed at a point.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// The work is done, by the new server or before.
    Completed,
    /// The agent may have the prompt, so that it is not given again: the session waits.
    Idle,
    /// The question stays open; its decision reaches the loaded agent, which completes the work.
    Asked,
}

fn fate(point: CrashTestPoint) -> Fate {
    match point {
        CrashTestPoint::Created
        | CrashTestPoint::CleanupStored
        | CrashTestPoint::WorkspaceMade
        | CrashTestPoint::TokenStored
        | CrashTestPoint::Launched
        | CrashTestPoint::DeliveryBegun
        | CrashTestPoint::Delivered
        | CrashTestPoint::ClosingBegun
        | CrashTestPoint::ProcessesEnded
        | CrashTestPoint::DiffStored
        | CrashTestPoint::Ended
        | CrashTestPoint::CleanedUp => Fate::Completed,
        CrashTestPoint::PromptRecorded
        | CrashTestPoint::PromptDelivered
        | CrashTestPoint::DecisionUsed
        | CrashTestPoint::DecisionDelivered
        | CrashTestPoint::SessionResumed
        | CrashTestPoint::Reloaded
        // `surviving::queue` kills the server here.
        | CrashTestPoint::PromptQueued => Fate::Idle,
        CrashTestPoint::ApprovalStored | CrashTestPoint::DecisionStored | CrashTestPoint::DecisionTold => {
            Fate::Asked
        }
    }
}

/// Creates the session of a test. The same key gives the same session, whatever became of the first answer.
fn create(server: &Server, fixture: &Fixture) -> Option<String> {
    let mut headers = server.operator();
    headers.push(("idempotency-key", "once"));
    let body = task(&fixture.source(), "Describe the project").to_string();
    let created = server.try_ask("POST", "/api/v1/tasks", &headers, &body).ok()?;
    assert_eq!(created.status, 201, "{created:?}");
    created.json()["id"].as_str().map(str::to_owned)
}

fn crash_at(point: CrashTestPoint) {
    let fixture = Fixture::new();
    let mut servers = Vec::new();
    let mut story = Story::default();
    // Some points are only reached by a server that finds an interrupted session.
    let first = match point {
        CrashTestPoint::SessionResumed | CrashTestPoint::Reloaded => {
            CrashTestPoint::PromptDelivered
        }
        CrashTestPoint::DecisionTold => CrashTestPoint::DecisionStored,
        point => point,
    };
    let is_of_a_restart = first != point;
    let server = fixture.start(&["--crash-at", first.as_str()]);
    servers.push(server.pid());
    if let Some(id) = create(&server, &fixture) {
        // Ends with the server.
        let _ = server.work_through(&id, &mut story);
    }
    server.died();
    if is_of_a_restart {
        let server = fixture.spawn(&["--crash-at", point.as_str()]);
        servers.push(server.pid());
        server.died();
    }
    let server = fixture.start(&[]);
    servers.push(server.pid());
    let id = create(&server, &fixture).unwrap();
    // Questions that the first server asked are not asked again.
    server.approve_all(&id);
    server.work_through(&id, &mut story).unwrap();
    if fate(point) == Fate::Asked {
        server.work_to_the_end(&id, &mut story);
    }
    story.assert_whole(&server, &id);
    story.assert_tools_ended();
    let prompts = if fate(point) == Fate::Asked { 2 } else { 1 };
    assert_eq!(story.count("prompt"), prompts, "{story:#?}");
    let notes = story.events.iter().filter(|(_, event)| {
        event["message"].as_str().is_some_and(|text| text.starts_with("Uncommitted changes"))
    });
    assert_eq!(notes.count(), 1, "the left-out change is told once: {story:#?}");

    let session = server.session(&id);
    let branches = fixture.branches();
    match fate(point) {
        Fate::Completed | Fate::Asked => {
            assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
            assert_eq!(session["endReason"], "done", "{session:#}");
            assert_eq!(story.count("delivery"), 1, "{story:#?}");
            let delivered = story.find("delivery").unwrap();
            assert_eq!(branches, [delivered["branch"].as_str().unwrap()], "{delivered}");
            let commit = fixture.git(&["rev-parse", &branches[0]]);
            assert_eq!(commit.trim(), delivered["commit"], "{delivered}");
            let notes = fixture.git(&["show", &format!("{}:NOTES.md", branches[0])]);
            assert!(notes.contains("Describe the project"), "{notes}");
            let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "");
            assert!(diff.body.contains("+++ b/NOTES.md"), "{diff:?}");
        }
        Fate::Idle => {
            let state = (&session["status"], &session["activity"]);
            assert_eq!(state, (&json!("running"), &json!("idle")), "{story:#?}");
            assert_eq!(session["openApprovals"], 0, "{session:#}");
            assert_eq!(branches, [""; 0]);
        }
    }
    server.delete(&id);
    comes("the end of the workspace", || fixture.workspaces() == 0);
    fixture.assert_source_untouched();
    server.end();
    fixture.assert_nothing_left(&servers);
}

/// Crash points in groups, because a test runner starts tests in parallel.
fn crash_at_all(points: &[CrashTestPoint]) {
    if !Fixture::can_run() {
        return;
    }
    // `surviving::queue` kills the server with a queued prompt.
    for point in points.iter().filter(|point| **point != CrashTestPoint::PromptQueued) {
        crash_at(*point);
    }
}

#[test]
fn slow_sessions_survive_a_crash_before_the_first_prompt() {
    crash_at_all(&CrashTestPoint::ALL[..5]);
}

#[test]
fn slow_sessions_survive_a_crash_during_a_turn() {
    crash_at_all(&CrashTestPoint::ALL[5..11]);
}

#[test]
fn slow_sessions_survive_a_crash_while_they_are_delivered_and_closed() {
    crash_at_all(&CrashTestPoint::ALL[11..16]);
}

#[test]
fn slow_sessions_survive_a_crash_at_their_end_and_during_a_restart() {
    crash_at_all(&CrashTestPoint::ALL[16..]);
}

/// Kills in a normal run. `cargo xtask soak kills` goes on for minutes.
const KILLS: usize = 3;
/// Sessions that work at a time.
const SESSIONS: usize = 2;
/// About as many events as these sessions have.
const EVENTS: u64 = 60;

struct Live {
    id: String,
    story: Story,
}

/// Whether nothing more happens to a session by itself.
fn is_settled(session: &Value) -> bool {
    !session["endReason"].is_null()
        || (session["status"] == "running" && session["activity"] == "idle")
}

/// Lets sessions work until all have settled or `events` events were seen, whichever comes first.
fn work(server: &Server, sessions: &mut [Live], events: u64) {
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = sessions
            .iter_mut()
            .map(|Live { id, story }| {
                let seen = &seen;
                // Ends early with the server.
                scope.spawn(move || {
                    let _ = server.approve_open_questions(id);
                    let _ = server.work_through_counting(id, story, seen);
                })
            })
            .collect();
        let enough = || seen.load(Ordering::Relaxed) >= events;
        comes("the next kill", || enough() || readers.iter().all(|it| it.is_finished()));
        if events < u64::MAX {
            server.signal(Signal::KILL);
        }
    });
}

#[test]
fn slow_sessions_survive_kills_at_any_moment() {
    if !Fixture::can_run() {
        return;
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let deadline = number("AB_SOAK_SECONDS").map(|it| Instant::now() + Duration::from_secs(it));
    let seed = number("AB_SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()) + 1);
    eprintln!("AB_SOAK_SEED={seed}");
    let mut random = seed;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let fixture = Fixture::new();
    let (mut sessions, mut settled) = (Vec::<Live>::new(), Vec::<Live>::new());
    let mut servers = Vec::new();
    let mut kills = 0;
    while deadline.map_or(kills < KILLS, |deadline| Instant::now() < deadline) {
        let mut server = fixture.start(&[]);
        servers.push(server.pid());
        let (done, going): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|live| is_settled(&server.session(&live.id)));
        settled.extend(done);
        sessions = going;
        while sessions.len() < SESSIONS {
            let id = server.create(&fixture.source(), &format!("Task {}", next()));
            sessions.push(Live { id, story: Story::default() });
        }
        work(&server, &mut sessions, next() % EVENTS);
        server.wait();
        kills += 1;
    }
    let server = fixture.start(&[]);
    servers.push(server.pid());
    sessions.extend(settled);
    work(&server, &mut sessions, u64::MAX);
    let mut delivered = Vec::new();
    for Live { id, story } in &mut sessions {
        // A server that was killed took the yes to a question with it, and the question is still open.
        while !is_settled(&server.session(id)) {
            server.approve_open_questions(id).unwrap();
            server.work_through(id, story).unwrap();
        }
        story.assert_whole(&server, id);
        let branch = story.find("delivery").and_then(|event| event["branch"].as_str());
        delivered.extend(branch.map(str::to_owned));
        let session = server.session(id);
        assert!(story.count("delivery") <= 1, "{story:#?}");
        assert_eq!(session["status"] == "completed", branch.is_some(), "{session:#}\n{story:#?}");
        let session = server.delete(id);
        assert!(["completed", "cancelled"].contains(&session["status"].as_str().unwrap()));
    }
    delivered.sort();
    assert_eq!(fixture.branches(), delivered);
    comes("the end of workspaces", || fixture.workspaces() == 0);
    fixture.assert_source_untouched();
    server.end();
    fixture.assert_nothing_left(&servers);
    eprintln!("{kills} kills, {} sessions, {} branches", sessions.len(), delivered.len());
}
