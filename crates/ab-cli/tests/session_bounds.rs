//! The control group of a session: limits on everything in it, pause and resume, and nothing left after it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ab_api::{EventKind, SessionEndReason, SessionId, SessionStatus};
use ab_executor::ExecutorSettings;
use ab_host::{ControlGroup, ControlGroupLimits};
use serde_json::json;
use tokio::time::timeout;

use crate::session_endpoint::{ask, said};
use crate::sessions::{ADMIN, Server};

const MIB: u64 = 1024 * 1024;

/// A server whose sessions have these limits. Nothing where the host has no sandbox or cannot enforce them.
async fn bounded(steps: &str, limits: ControlGroupLimits) -> Option<Server> {
    if let Err(error) = ControlGroup::create(limits).await {
        ab_testkit::host::report_skip("limits of sessions", error.message());
        return None;
    }
    Server::start_with(Some(steps), |settings: &mut ExecutorSettings| {
        settings.session_limits = limits
    })
    .await
}

async fn reaches(server: &Server, id: SessionId, expect: SessionStatus) {
    let reached = |kind: &EventKind| match kind {
        EventKind::Status { status, .. } if *status == expect => Some(()),
        _ => None,
    };
    server.event(id, reached).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_bomb_of_an_agent_is_contained() {
    // Through the endpoint and in the agent's own directory.
    for mcp in [true, false] {
        let steps = format!(
            r#"[agent]
            mcp_http = {mcp}
            [[turn]]
            steps = [
                {{ run = "sh -c 'while :; do sleep 1000 > /dev/null 2>&1 & done'" }},
                {{ say = "bomb: {{output}}\n" }},
                {{ run = "echo alive" }},
                {{ say = "then: {{output}}\n" }},
            ]"#
        );
        let limits = ControlGroupLimits { processes: Some(96), ..ControlGroupLimits::default() };
        let Some(server) = bounded(&steps, limits).await else { return };
        let id = server.create("scenario").await;
        let session = server.ended(id).await;
        let (story, said) = (server.story(id).await, said(&server, id).await);
        assert!(said.to_lowercase().contains("cannot fork"), "{story:#?}");
        if mcp {
            // The command's processes end with it, and the agent goes on.
            assert_eq!(session.status, SessionStatus::Completed, "{story:#?}");
            assert!(said.contains("alive"), "{said}");
        }
        assert_eq!(session.limits.and_then(|limits| limits.processes), Some(96));
        server.control.cancel_session(id).await.unwrap();
        server.assert_clean(0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_bomb_of_an_agent_is_contained() {
    let steps = r#"[agent]
        uses_mcp = false
        [[turn]]
        steps = [{ run = "tail -n 1 /dev/zero" }, { say = "bomb: {output}\n" }]"#;
    let limits = ControlGroupLimits::default();
    let Some(server) =
        bounded(steps, ControlGroupLimits { memory: Some(256 * MIB), ..limits }).await
    else {
        return;
    };
    // The task asks for less than the default.
    let id =
        server.create_with("scenario", json!({ "resources": { "cpu": 1.5, "memoryMiB": 200 } }));
    let id = id.await;
    let session = server.ended(id).await;
    let (story, said) = (server.story(id).await, said(&server, id).await);
    let limits = session.limits.unwrap();
    assert_eq!((limits.cpu, limits.memory_mib), (Some(1.5), Some(200)), "{story:#?}");
    // The kernel kills the largest process, which is the bomb.
    assert_eq!(session.status, SessionStatus::Completed, "{story:#?}");
    assert!(said.contains("bomb: Killed"), "{said}");
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_agent_gets_only_the_processor_time_that_its_task_asked_for() {
    // Busy for three seconds; then it tells its processor time and that of its children, in ticks.
    let steps = r#"[agent]
        uses_mcp = false
        [[turn]]
        steps = [
            { run = "end=$(($(date +%s)+3)); while [ $(date +%s) -lt $end ]; do :; done; cut -d' ' -f14-17 /proc/$$/stat" },
            { say = "used: {output}\n" },
        ]"#;
    let Some(server) = bounded(steps, ControlGroupLimits::default()).await else { return };
    let id = server.create_with("scenario", json!({ "resources": { "cpu": 0.2 } })).await;
    let session = server.ended(id).await;
    let said = said(&server, id).await;
    assert_eq!(session.limits.and_then(|limits| limits.cpu), Some(0.2));
    let (_, used) = said.split_once("used: ").unwrap_or_else(|| panic!("{said}"));
    let used: u64 =
        used.split_whitespace().take(4).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    assert!(used < 120, "{used} hundredths of a second in 3 seconds");
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_runs_out_of_memory_says_so() {
    let steps = r#"[agent]
        uses_mcp = false
        [[turn]]
        steps = [{ run = "exec 3>&1; tail -n 1 /dev/zero; kill -9 $PPID" }]"#;
    let limits = ControlGroupLimits { memory: Some(200 * MIB), ..ControlGroupLimits::default() };
    let Some(server) = bounded(steps, limits).await else { return };
    let id = server.create("scenario").await;
    let session = server.ended(id).await;
    assert_eq!(
        (session.status, session.end_reason),
        (SessionStatus::Failed, Some(SessionEndReason::Agent))
    );
    let detail = session.end_detail.unwrap();
    assert!(detail.ends_with("the session ran out of its 200 MiB of memory"), "{detail}");
    server.assert_clean(1).await;
}

/// The processor time of all processes that work in a directory, in ticks.
fn busy(place: &Path) -> u64 {
    let entries = Path::new("/proc").read_dir().unwrap().flatten().map(|entry| entry.path());
    let inside = |process: &std::path::PathBuf| {
        process.join("cwd").read_link().is_ok_and(|cwd| cwd.starts_with(place))
    };
    let ticks = |process: std::path::PathBuf| {
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.to_owned())?;
        let mut fields = fields.split(' ').skip(11).map(|field| field.parse::<u64>().unwrap());
        Some(fields.next()? + fields.next()?)
    };
    entries.filter(inside).filter_map(ticks).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_session_stands_still_until_it_is_resumed() {
    let steps = r#"[[turn]]
        steps = [
            { say = "ready\n" },
            { run = "while [ ! -e go ]; do :; done; echo went" },
            { say = "{output}\n" },
        ]"#;
    let Some(server) = bounded(steps, ControlGroupLimits::default()).await else { return };
    let id = server.create("scenario").await;
    server.said(id, "ready").await;
    let path = |act: &str| format!("/api/v1/sessions/{id}/{act}");
    let post = async |act: &str| ask(&server, "POST", &path(act), Some(ADMIN), &json!({})).await.0;
    assert_eq!(post("resume").await, 409, "it is not paused");
    let tree = server.control.store().get_session(id).await.unwrap().workspace.mount_path.unwrap();
    // The command works.
    let begun = busy(tree.as_ref());
    while busy(tree.as_ref()) <= begun {
        tokio::task::yield_now().await;
    }
    assert_eq!(post("pause").await, 202);
    reaches(&server, id, SessionStatus::Paused).await;
    assert_eq!(post("pause").await, 202, "again is harmless");
    let stands = busy(tree.as_ref());
    assert!(stands > 0);
    fs::write(Path::new(&tree).join("go"), "").unwrap();
    // Long enough for a command that goes on to be seen.
    assert!(timeout(Duration::from_millis(500), server.said(id, "went")).await.is_err());
    assert_eq!(busy(tree.as_ref()), stands, "a paused session used processor time");
    let (status, diff) = ask(&server, "GET", &path("diff"), Some(ADMIN), &json!({})).await;
    assert_eq!((status, diff.contains("b/go")), (200, true), "{diff}");
    assert_eq!(post("resume").await, 202);
    server.said(id, "went").await;
    let session = server.ended(id).await;
    assert_eq!(session.status, SessionStatus::Completed, "{:#?}", server.story(id).await);
    assert_eq!((post("pause").await, post("resume").await), (410, 410));
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_session_can_be_stopped_and_cancelled() {
    let steps = r#"[[turn]]
        steps = [{ say = "ready\n" }, { hang = "until_cancelled" }]"#;
    let Some(server) = bounded(steps, ControlGroupLimits::default()).await else { return };
    for (expect, reason) in [
        (SessionStatus::Stopped, SessionEndReason::Stopped),
        (SessionStatus::Cancelled, SessionEndReason::Cancelled),
    ] {
        let id = server.create("scenario").await;
        server.said(id, "ready").await;
        server.control.pause_session(id).await.unwrap();
        reaches(&server, id, SessionStatus::Paused).await;
        match expect {
            SessionStatus::Stopped => server.control.stop_session(id).await.unwrap(),
            _ => server.control.cancel_session(id).await.unwrap(),
        };
        let session = server.ended(id).await;
        assert_eq!((session.status, session.end_reason), (expect, Some(reason)));
    }
    server.assert_clean(1).await;
}
