//! Spaces with a store: queue, lifetimes, bounds, and readers.

use std::time::Duration;

use ab_api::{
    ApprovalDecider, ApprovalDecision, ApprovalStatus, ApproveOrDeny, DeciderKind, PageRequest,
    Run, RunId, RunStatus, SpaceId, Time,
};
use ab_core::{Principal, PrincipalKind};
use ab_local::LocalWorkspaceConfig;
use ab_spaces::{
    EventsMessage, MessageStatus, SpaceRequest, Spaces, SpacesError, SpacesSettings,
    parse_operations_message,
};
use ab_store::{DataDir, EventLogReader, EventLogScope, Store};
use serde_json::{Value, json};

use crate::stage::fits;

struct Server {
    directory: tempfile::TempDir,
    spaces: Spaces,
}

impl Server {
    async fn new(change: impl FnOnce(&mut SpacesSettings)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let spaces = start(&directory, change).await;
        Self { directory, spaces }
    }

    async fn restarted(self) -> Self {
        self.spaces.shutdown().await;
        self.spaces.store().close().await;
        let Self { directory, spaces } = self;
        drop(spaces);
        let spaces = start(&directory, |_| {}).await;
        Self { directory, spaces }
    }

    async fn space(&self, body: Value) -> SpaceId {
        let request = SpaceRequest::parse(body.to_string().as_bytes()).expect("valid");
        self.spaces.create_space(request, None).await.expect("a space").id
    }

    async fn run(&self, space: SpaceId, operations: Value) -> EventsMessage {
        let run = self.start(space, operations).await;
        self.events(run).await
    }

    /// The events of a run up to its end or its next question.
    async fn events(&self, run: RunId) -> EventsMessage {
        let message = self.spaces.wait_for_run_events(run, 0).await.expect("an end");
        fits(&json!(message));
        message
    }

    /// A run in the store that no task has begun, as a crash leaves it.
    async fn stored(&self, space: SpaceId, operations: &[&str]) -> RunId {
        let now = Time::now();
        let run = Run {
            id: RunId::generate(),
            space_id: space,
            status: RunStatus::Queued,
            operation_count: u32::try_from(operations.len()).expect("few"),
            pending_approval: None,
            created_by: "person:ada".to_owned(),
            created_at: now,
            updated_at: now,
            ended_at: None,
        };
        let id = run.id;
        let operations = operations.iter().map(|text| (*text).to_owned()).collect();
        self.spaces.store().create_run(run, operations, None).await.expect("stored");
        id
    }

    async fn start(&self, space: SpaceId, operations: Value) -> RunId {
        let message = json!({ "protocolVersion": "1.0", "operations": operations });
        let message = parse_operations_message(&message).expect("valid");
        let by = Principal::new(PrincipalKind::Person, "ada");
        self.spaces.create_run(space, message, &by, None).await.expect("a run").id
    }

    /// The next record of a kind in the log of a run.
    async fn record(&self, log: &mut EventLogReader, kind: &str) -> Value {
        loop {
            let record = log.next().await.expect("a record");
            if record.kind == kind {
                return serde_json::from_str(&record.json).expect("JSON");
            }
            assert!(!record.is_last_of_stream(), "no {kind} came");
        }
    }
}

async fn start(directory: &tempfile::TempDir, change: impl FnOnce(&mut SpacesSettings)) -> Spaces {
    let data = DataDir::open(directory.path().join("data")).expect("a data directory");
    let template = LocalWorkspaceConfig::new(directory.path());
    let mut settings = SpacesSettings::new(data.path().join("spaces"), template);
    change(&mut settings);
    let store = Store::open(data).await.expect("a store");
    Spaces::start(store, settings).await.expect("spaces")
}

fn permissive() -> Value {
    json!({ "policy": "permissive", "policyOverrides": { "network": { "enabled": false } } })
}

fn by() -> ApprovalDecider {
    ApprovalDecider { kind: DeciderKind::Person, name: "ada".to_owned(), via: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_space_take_turns() {
    let server = Server::new(|_| {}).await;
    let space = server.space(permissive()).await;
    let command = "test ! -e busy && touch busy && sleep 0.05 && rm busy";
    let operations = json!([{ "type": "shell", "command": command }]);
    let runs = (0..6).map(|_| server.run(space, operations.clone()));
    for message in futures_util::future::join_all(runs).await {
        let event = json!(message.events[0]);
        assert_eq!(event["success"], true, "two runs at a time: {event}");
    }
    let (runs, total) =
        server.spaces.store().list_runs(space, PageRequest::default()).await.expect("runs");
    assert_eq!((runs.len(), total), (6, 6));
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_too_long_ends_with_a_timeout() {
    let server = Server::new(|settings| settings.run_timeout = Duration::from_millis(300)).await;
    let space = server.space(permissive()).await;
    let message = server
        .run(
            space,
            json!([
                { "type": "shell", "command": "sleep 60" },
                { "type": "createFile", "path": "after", "content": "" },
            ]),
        )
        .await;
    assert_eq!(message.status, MessageStatus::Error);
    let events = json!(message.events);
    assert_eq!((&events[0]["type"], &events[0]["success"]), (&json!("shell"), &json!(false)));
    assert_eq!((&events[1]["type"], &events[1]["category"]), (&json!("error"), &json!("timeout")));
    assert_eq!(message.events.len(), 2);
    server.spaces.shutdown().await;
}

/// Writes, and waits until a file is there.
const WAITING: &str =
    "printf 'gr\\303\\274n\\n'; while [ ! -e go ]; do sleep 0.02; done; echo ended; echo bad >&2";

#[tokio::test(flavor = "multi_thread")]
async fn output_of_a_command_is_in_the_log_while_it_runs() {
    let server = Server::new(|_| {}).await;
    let space = server.space(permissive()).await;
    let run =
        server.start(space, json!([{ "type": "shell", "id": "s", "command": WAITING }])).await;
    let mut log = server.spaces.store().follow_events(EventLogScope::Run(run), 0);
    let output = server.record(&mut log, "output").await;
    let expect = json!({ "operationId": "s", "channel": "stdout", "text": "grün\n" });
    assert_eq!(output, expect);
    let workspace = server.spaces.space_workspace(space).await.expect("a workspace");
    workspace.backend().write("go", "").await.expect("a file");
    let message = server.events(run).await;
    // There is one event for the operation, and it has everything.
    let events = json!(message.events);
    assert_eq!(message.events.len(), 1, "{events}");
    assert_eq!(
        (&events[0]["stdout"], &events[0]["stderr"]),
        (&json!("grün\nended\n"), &json!("bad\n"))
    );
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_command_is_stopped_by_a_cancel() {
    let server = Server::new(|_| {}).await;
    let space = server.space(permissive()).await;
    let operations = json!([
        { "type": "shell", "command": WAITING },
        { "type": "createFile", "path": "after", "content": "" },
    ]);
    let run = server.start(space, operations).await;
    let mut log = server.spaces.store().follow_events(EventLogScope::Run(run), 0);
    server.record(&mut log, "output").await;
    let cancelled = server.spaces.cancel_run(run).await.expect("cancelled");
    assert_eq!(cancelled.status, RunStatus::Cancelled);
    let events = json!(server.spaces.run_events(run).await.expect("events"));
    assert_eq!((&events[0]["type"], &events[0]["success"]), (&json!("shell"), &json!(false)));
    assert_eq!(events[1]["category"], "execution", "{events}");
    let again = server.spaces.cancel_run(run).await;
    assert!(matches!(again, Err(SpacesError::RunEnded(RunStatus::Cancelled))), "{again:?}");
    // The space goes on, without what was cancelled.
    let message = server.run(space, json!([{ "type": "readFile", "path": "after" }])).await;
    assert_eq!(json!(message.events[0])["error"], "File not found");
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_run_is_cancelled_before_its_turn() {
    let server = Server::new(|_| {}).await;
    let space = server.space(json!({})).await;
    let asks = json!([{ "type": "shell", "id": "s", "command": "rm -rf data" }]);
    let parked = server.run(space, asks).await.run_id;
    let write = |path: &str| json!([{ "type": "createFile", "path": path, "content": "" }]);
    let (second, third) =
        (server.start(space, write("second")).await, server.start(space, write("third")).await);
    let cancelled = server.spaces.cancel_run(second).await.expect("cancelled");
    assert_eq!(cancelled.status, RunStatus::Cancelled);
    let message = server.events(second).await;
    assert_eq!(message.status, MessageStatus::Error);
    assert_eq!(json!(message.events)[0]["message"], "the run was cancelled");
    // The others are as they were.
    let status = server.spaces.get_run(parked).await.expect("a run").status;
    assert_eq!(status, RunStatus::AwaitingApproval);
    server.spaces.resume_run(parked, "s", ApproveOrDeny::Deny, None, by()).await.expect("resumed");
    let message = server.events(third).await;
    assert_eq!(message.status, MessageStatus::Completed);
    let workspace = server.spaces.space_workspace(space).await.expect("a workspace");
    assert_eq!(workspace.backend().readdir(".").await.expect("a list"), ["third"]);
    // It holds the store, which the restart opens again.
    drop(workspace);
    // Also one that a restart finds in the queue.
    let parked = server
        .run(space, json!([{ "type": "shell", "id": "s", "command": "rm -rf data" }]))
        .await
        .run_id;
    let queued = server.start(space, write("queued")).await;
    let server = server.restarted().await;
    let cancelled = server.spaces.cancel_run(queued).await.expect("cancelled");
    assert_eq!(cancelled.status, RunStatus::Cancelled);
    assert_eq!(
        server.spaces.get_run(parked).await.expect("a run").status,
        RunStatus::AwaitingApproval
    );
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_removed_space_say_so_and_started_operations_have_events() {
    let server = Server::new(|_| {}).await;
    let space = server.space(permissive()).await;
    let operations = json!([
        { "type": "message", "content": "first" },
        { "type": "shell", "id": "s", "command": WAITING },
        { "type": "createFile", "path": "after", "content": "" },
    ]);
    let run = server.start(space, operations).await;
    let queued = server.start(space, json!([{ "type": "message", "content": "x" }])).await;
    let mut log = server.spaces.store().follow_events(EventLogScope::Run(run), 0);
    server.record(&mut log, "output").await;
    let (message, removed) = tokio::join!(server.events(run), server.spaces.destroy_space(space));
    removed.expect("removed");
    assert_eq!(message.status, MessageStatus::Error);
    let events = json!(message.events);
    let why = "the space was removed";
    assert_eq!((&events[0]["type"], &events[0]["success"]), (&json!("message"), &json!(true)));
    assert_eq!((&events[1]["operationId"], &events[1]["error"]), (&json!("s"), &json!(why)));
    assert_eq!((&events[2]["category"], &events[2]["message"]), (&json!("execution"), &json!(why)));
    assert_eq!(events[3], Value::Null, "{events}");
    let stored = server.spaces.run_events(run).await.expect("events");
    assert_eq!(json!(stored), events, "the run shows what its caller was told");
    for run in [run, queued] {
        let ended = server.spaces.get_run(run).await.expect("a run");
        assert_eq!(ended.status, RunStatus::Cancelled);
    }
    let events = json!(server.spaces.run_events(queued).await.expect("events"));
    assert_eq!((&events[0]["category"], &events[0]["message"]), (&json!("execution"), &json!(why)));
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_cannot_be_kept_is_a_system_error() {
    let server = Server::new(|_| {}).await;
    let space = server.space(permissive()).await;
    let workspace = server.spaces.space_workspace(space).await.expect("a workspace");
    // Every byte is six characters of JSON.
    workspace.backend().write("control", vec![1u8; 4 << 20]).await.expect("a file");
    let message = server
        .run(
            space,
            json!([{ "type": "readFile", "id": "big", "path": "control" }, { "type": "message", "content": "x" }]),
        )
        .await;
    let events = json!(message.events);
    assert_eq!((&events[0]["type"], &events[0]["category"]), (&json!("error"), &json!("system")));
    assert_eq!(events[0]["operationId"], "big", "a client waits for the event of this operation");
    assert_eq!(message.status, MessageStatus::Completed);
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_nobody_decides_is_a_no() {
    let server =
        Server::new(|settings| settings.approval_timeout = Duration::from_millis(50)).await;
    let space = server.space(json!({})).await;
    let message = server.run(space, json!([{ "type": "shell", "command": "rm -rf data" }])).await;
    assert_eq!(message.status, MessageStatus::AwaitingApproval);
    let run = message.run_id;
    let mut log = server.spaces.store().follow_events(EventLogScope::Run(run), 0);
    while !log.next().await.expect("a record").is_last_of_stream() {}
    let events = server.spaces.run_events(run).await.expect("events");
    assert_eq!(events[1]["type"], "policyDenied", "{events:?}");
    assert_eq!(events[1]["reason"], "the approval expired before a person decided");
    let late = server.spaces.resume_run(run, "op-1", ApproveOrDeny::Approve, None, by()).await;
    assert!(matches!(late, Err(SpacesError::RunEnded(RunStatus::Completed))), "{late:?}");
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_resumes_at_once_one_counts_and_the_inbox_resumes_too() {
    let server = Server::new(|_| {}).await;
    let space = server.space(json!({})).await;
    let asks = json!([{ "type": "shell", "id": "s", "command": "rm -rf data" }]);
    let run = server.run(space, asks.clone()).await.run_id;
    let resume = || server.spaces.resume_run(run, "s", ApproveOrDeny::Approve, None, by());
    let (one, other) = tokio::join!(resume(), resume());
    assert_eq!(
        [one.is_ok(), other.is_ok()].iter().filter(|it| **it).count(),
        1,
        "{one:?} {other:?}"
    );
    // The same command in another run is another question, which the inbox decides.
    let message = server.run(space, asks).await;
    assert_eq!(message.status, MessageStatus::AwaitingApproval, "a yes counts once");
    let run = server.spaces.get_run(message.run_id).await.expect("a run");
    let pending = run.pending_approval.expect("an approval");
    let yes = ApprovalDecision::from(ApproveOrDeny::Approve);
    let store = server.spaces.store();
    store.decide_approval(pending.approval_id, yes, by()).await.expect("decided");
    let mut log = store.follow_events(EventLogScope::Run(run.id), 0);
    while !log.next().await.expect("a record").is_last_of_stream() {}
    let ended = server.spaces.get_run(run.id).await.expect("a run");
    assert_eq!(ended.status, RunStatus::Completed);
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_space_survives_a_restart_and_ends_with_its_lifetime() {
    let server = Server::new(|_| {}).await;
    let space = server.space(permissive()).await;
    let memory = server.space(json!({ "backend": "memory" })).await;
    server.run(space, json!([{ "type": "createFile", "path": "a", "content": "x" }])).await;
    server.run(memory, json!([{ "type": "createFile", "path": "a", "content": "x" }])).await;
    let server = server.restarted().await;
    let message = server.run(space, json!([{ "type": "readFile", "path": "a" }])).await;
    assert_eq!(json!(message.events[0])["content"], "x");
    let message = server.run(memory, json!([{ "type": "readFile", "path": "a" }])).await;
    assert_eq!(json!(message.events[0])["error"], "File not found");
    let request = SpaceRequest::parse(br#"{"ttlSeconds":1}"#).expect("valid");
    let short = server.spaces.create_space(request, None).await.expect("a space");
    let gone = async {
        while server.spaces.get_space(short.id).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("its time is over");
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_space_whose_lifetime_is_over() {
    let server = Server::new(|_| {}).await;
    let space = server.space(json!({ "ttlSeconds": 1 })).await;
    let asks = json!([
        { "type": "createFile", "path": "a", "content": "x" },
        { "type": "shell", "id": "s", "command": "rm -rf data" },
    ]);
    let run = server.run(space, asks).await.run_id;
    let pending =
        server.spaces.get_run(run).await.expect("a run").pending_approval.expect("parked");
    let files = server.directory.path().join("data/spaces").join(space.to_string());
    assert!(files.join("files/a").exists());
    let over = async {
        while server.spaces.get_space(space).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), over).await.expect("its time is over");
    // It is in no list either, although it may not be removed yet.
    let listed = server.spaces.list_spaces(PageRequest::default()).await.expect("a list");
    assert_eq!(listed, (Vec::new(), 0));
    // It takes nothing more, and the next start removes it.
    let late = server.spaces.space_workspace(space).await;
    assert!(matches!(late, Err(SpacesError::SpaceNotFound)), "{late:?}");
    let server = server.restarted().await;
    let mut log = server.spaces.store().follow_events(EventLogScope::Run(run), 0);
    while !log.next().await.expect("a record").is_last_of_stream() {}
    let ended = server.spaces.get_run(run).await.expect("the record stays");
    assert_eq!(ended.status, RunStatus::Cancelled);
    let events = json!(server.spaces.run_events(run).await.expect("events"));
    let why = "the space has expired";
    assert_eq!((&events[2]["operationId"], &events[2]["error"]), (&json!("s"), &json!(why)));
    assert_eq!((&events[3]["category"], &events[3]["message"]), (&json!("execution"), &json!(why)));
    let approval = server.spaces.store().get_approval(pending.approval_id).await.expect("it stays");
    assert_eq!(approval.status, ApprovalStatus::Expired);
    assert_eq!(approval.reason.as_deref(), Some("the space has expired"));
    // The files are removed once that is stored.
    let removed = async {
        while files.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), removed).await.expect("the files are removed");
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_of_a_long_run_lose_nothing() {
    let server = Server::new(|_| {}).await;
    let space = server.space(permissive()).await;
    let operations: Vec<Value> = (0..1000)
        .map(
            |number| json!({ "type": "createFile", "path": format!("d/{number}"), "content": "x" }),
        )
        .collect();
    let message = json!({ "protocolVersion": "1.0", "operations": operations });
    let message = parse_operations_message(&message).expect("valid");
    let who = Principal::new(PrincipalKind::Person, "ada");
    let run = server.spaces.create_run(space, message, &who, None).await.expect("a run").id;
    // One reader sleeps until the end.
    let asleep = server.spaces.store().follow_events(EventLogScope::Run(run), 0);
    let readers: Vec<_> = (0..200)
        .map(|_| {
            let mut log = server.spaces.store().follow_events(EventLogScope::Run(run), 0);
            tokio::spawn(async move {
                let mut seqs = Vec::new();
                loop {
                    let record = log.next().await.expect("a record");
                    seqs.push(record.seq);
                    if record.is_last_of_stream() {
                        return seqs;
                    }
                }
            })
        })
        .collect();
    let expect: Vec<u64> = (1..=2001).collect();
    for reader in readers {
        assert_eq!(reader.await.expect("a reader"), expect);
    }
    let mut asleep = asleep;
    for seq in expect {
        assert_eq!(asleep.next().await.expect("a record").seq, seq);
    }
    assert_eq!(server.spaces.run_events(run).await.expect("events").len(), 1000);
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_space_starts_with_a_copy_of_a_directory() {
    let server = Server::new(|_| {}).await;
    let source = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(source.path().join("src")).expect("a directory");
    std::fs::write(source.path().join("src/a"), "one").expect("a file");
    let space = server.space(json!({ "copyOf": source.path() })).await;
    let edit = json!([
        { "type": "editFile", "path": "src/a", "edits": [{ "oldContent": "one", "newContent": "two" }] },
        { "type": "readFile", "path": "src/a" },
    ]);
    let message = server.run(space, edit).await;
    assert_eq!(json!(message.events[1])["content"], "two");
    assert_eq!(std::fs::read_to_string(source.path().join("src/a")).expect("a file"), "one");
    // The data directory has the token of the server, and neither it nor what contains it is copied.
    let data = server.directory.path().join("data");
    for bad in [source.path().join("none"), source.path().join("src/a"), data, "/".into()] {
        let request = SpaceRequest::parse(json!({ "copyOf": bad }).to_string().as_bytes());
        let made = server.spaces.create_space(request.expect("valid"), None).await;
        assert!(matches!(made, Err(SpacesError::InvalidCopySource(_))), "{bad:?}: {made:?}");
    }
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_cannot_be_read_is_a_system_error() {
    let server = Server::new(|_| {}).await;
    let space = server.space(permissive()).await;
    let write = json!({ "type": "createFile", "id": "w", "path": "a", "content": "x" }).to_string();
    let newer = r#"{"type":"moveFile","id":"m"}"#;
    let run = server.stored(space, &[newer, "{", &write]).await;
    let server = server.restarted().await;
    let message = server.events(run).await;
    assert_eq!(message.status, MessageStatus::Completed);
    let events = json!(message.events);
    for (number, id) in [(0, json!("m")), (1, Value::Null)] {
        let event = &events[number];
        assert_eq!((&event["type"], &event["category"]), (&json!("error"), &json!("system")));
        assert_eq!(event["message"], "a stored operation cannot be read", "{event}");
        assert_eq!(event["operationId"], id, "{event}");
    }
    assert_eq!((&events[2]["operationId"], &events[2]["success"]), (&json!("w"), &json!(true)));
    assert_eq!(message.events.len(), 3);
    server.spaces.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_memory_space_end_with_an_error_after_a_restart() {
    let server = Server::new(|_| {}).await;
    let space = server.space(json!({ "backend": "memory" })).await;
    let write = json!({ "type": "createFile", "id": "w", "path": "a", "content": "x" }).to_string();
    let run = server.stored(space, &[&write]).await;
    let server = server.restarted().await;
    let message = server.events(run).await;
    assert_eq!(message.status, MessageStatus::Error);
    let event = json!(message.events[0]);
    assert_eq!((&event["type"], &event["category"]), (&json!("error"), &json!("execution")));
    assert!(event["message"].as_str().is_some_and(|why| why.contains("in memory")), "{event}");
    assert_eq!(message.events.len(), 1);
    assert_eq!(server.spaces.get_run(run).await.expect("a run").status, RunStatus::Error);
    server.spaces.shutdown().await;
}
