//! The event log: sequence, following, bounds.

use std::sync::Arc;

use ab_api::{Event, EventKind, SessionEndReason, SessionId, SessionStatus};
use ab_store::{
    EventLogReader, EventLogScope, EventRecord, EventStreamId, MAX_EVENT_BYTES, Store, StoreError,
};
use futures_util::StreamExt;

use crate::fixture::{line, of_many_short_texts, scratch, status, stored};

async fn take(follow: &mut EventLogReader, count: usize) -> Vec<Arc<EventRecord>> {
    let mut records = Vec::new();
    for _ in 0..count {
        records.push(follow.next().await.expect("a record"));
    }
    records
}

async fn append(store: &Store, session: SessionId, from: usize, count: usize) {
    for number in from..from + count {
        store.append_events(session, vec![line(&number.to_string())]).await.expect("append");
    }
}

fn seqs(records: &[Arc<EventRecord>]) -> Vec<u64> {
    records.iter().map(|record| record.seq).collect()
}

#[tokio::test]
async fn sequences_count_per_stream_and_positions_over_all() {
    let scratch = scratch().await;
    let (a, b) = (stored(&scratch.store, "a").await, stored(&scratch.store, "b").await);
    scratch.store.append_events(a, vec![line("1"), line("2")]).await.expect("append");
    scratch.store.append_events(b, vec![line("1")]).await.expect("append");
    let all = scratch.store.event_records(EventLogScope::All, 0, 100).await.expect("read");
    let places: Vec<_> = all
        .iter()
        .map(|it| (it.position, it.stream == EventStreamId::Session(a), it.seq))
        .collect();
    assert_eq!(places, [(1, true, 1), (2, false, 1), (3, true, 2), (4, true, 3), (5, false, 2)]);
    assert_eq!(scratch.store.last_event_position().await.expect("read"), 5);
}

#[tokio::test]
async fn following_replays_and_then_goes_on_live() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    append(&scratch.store, id, 0, 300).await;
    let mut follow = scratch.store.follow_events(EventLogScope::Session(id), 100);
    assert_eq!(seqs(&take(&mut follow, 201).await), (101..=301).collect::<Vec<_>>());
    let (records, ()) = tokio::join!(take(&mut follow, 300), append(&scratch.store, id, 300, 300));
    assert_eq!(seqs(&records), (302..=601).collect::<Vec<_>>());
    assert_eq!(follow.cursor(), 601);
}

#[tokio::test]
async fn a_cursor_survives_a_restart() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    append(&scratch.store, id, 0, 5).await;
    let scratch = scratch.reopen().await;
    append(&scratch.store, id, 5, 5).await;
    let mut follow = scratch.store.follow_events(EventLogScope::Session(id), 3);
    assert_eq!(seqs(&take(&mut follow, 8).await), (4..=11).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_lose_and_repeat_nothing() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    let other = stored(&scratch.store, "b").await;
    let readers: Vec<_> = (0..200)
        .map(|number| {
            // Readers start at different cursors and some of them pause on the way.
            let after = number % 5;
            let mut follow = scratch.store.follow_events(EventLogScope::Session(id), after);
            tokio::spawn(async move {
                let mut expect = after + 1;
                while expect <= 401 {
                    assert_eq!(follow.next().await.expect("a record").seq, expect);
                    expect += 1;
                    if expect % 50 == number % 50 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    tokio::join!(append(&scratch.store, id, 0, 400), append(&scratch.store, other, 0, 400));
    for reader in readers {
        reader.await.expect("a reader");
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_session_and_with_the_store() {
    let scratch = scratch().await;
    let (a, b) = (stored(&scratch.store, "a").await, stored(&scratch.store, "b").await);
    scratch
        .store
        .append_events(a, vec![line("x"), status(SessionStatus::Failed)])
        .await
        .expect("append");
    let ended: Vec<_> =
        scratch.store.follow_events(EventLogScope::Session(a), 0).into_stream().collect().await;
    assert_eq!(ended.len(), 3);
    let mut open = scratch.store.follow_events(EventLogScope::Session(b), 0);
    let mut all = scratch.store.follow_events(EventLogScope::All, 0);
    take(&mut open, 1).await;
    take(&mut all, 4).await;
    let (open, all, ()) = tokio::join!(
        open.into_stream().collect::<Vec<_>>(),
        all.into_stream().collect::<Vec<_>>(),
        scratch.store.close()
    );
    assert_eq!((open.len(), all.len()), (0, 0));
    let error = scratch.store.append_events(a, vec![line("late")]).await.expect_err("closed");
    assert!(matches!(error, StoreError::Closed), "{error}");
}

#[tokio::test]
async fn an_event_above_the_bound_takes_its_whole_batch_along() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    let events = vec![line("small"), of_many_short_texts()];
    let error = scratch.store.append_events(id, events).await.expect_err("too large");
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    scratch.store.append_events(id, vec![line("next")]).await.expect("append");
    let records = scratch.store.event_records(EventLogScope::All, 0, 10).await.expect("read");
    assert_eq!(
        records.iter().map(|it| (it.position, it.seq)).collect::<Vec<_>>(),
        [(1, 1), (2, 2)]
    );
}

#[tokio::test]
async fn long_texts_of_events_are_cut_and_prompts_are_not() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    let prompt = "\u{1}".repeat(128 * 1024);
    let status = EventKind::Status {
        status: SessionStatus::Failed,
        activity: None,
        reason: Some(SessionEndReason::Agent),
        message: Some("\"".repeat(MAX_EVENT_BYTES)),
    };
    let kinds = [EventKind::Prompt { number: 1, prompt: prompt.clone() }, status];
    let events = vec![line(&"x".repeat(MAX_EVENT_BYTES))];
    let events = events.into_iter().chain(kinds.map(Event::at_current_time)).collect();
    scratch.store.append_events(id, events).await.expect("append");
    let records = scratch.store.event_records(EventLogScope::Session(id), 1, 10).await;
    let records = records.expect("read");
    let kinds: Vec<EventKind> =
        records.iter().map(|record| record.parse_event().expect("an event").kind).collect();
    let [EventKind::Log { message: log, .. }, sent, EventKind::Status { message: Some(end), .. }] =
        kinds.as_slice()
    else {
        panic!("{kinds:?}")
    };
    assert!(log.ends_with("x\n… (32768 more bytes)"), "{log}");
    assert!(end.ends_with("\"\n… (49152 more bytes)"), "{end}");
    assert_eq!(*sent, EventKind::Prompt { number: 1, prompt });
    assert!(
        records.iter().filter(|it| it.kind != "prompt").all(|it| it.json.len() <= MAX_EVENT_BYTES)
    );
}

#[tokio::test]
async fn changes_that_fail_within_a_group_leave_no_gap_in_a_stream() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    let large = || vec![line("first part"), of_many_short_texts()];
    // Queued at the same time, so that the writer commits them together.
    let appends = (0..30).map(|number| match number % 3 {
        0 => scratch.store.append_events(id, large()),
        _ => scratch.store.append_events(id, vec![line("small"); 2]),
    });
    let outcomes = futures_util::future::join_all(appends).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 20);
    let records = scratch.store.event_records(EventLogScope::All, 0, 100).await.expect("read");
    let found: Vec<(u64, u64)> = records.iter().map(|it| (it.position, it.seq)).collect();
    assert_eq!(found, (1..=41).map(|number| (number, number)).collect::<Vec<_>>());
    assert!(!records.iter().any(|it| it.json.contains("first part")));
}

#[tokio::test]
async fn last_records_can_be_of_one_type() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    let events = vec![line("1"), status(SessionStatus::Running), line("2"), line("3")];
    scratch.store.append_events(id, events).await.expect("append");
    let logs = scratch.store.last_event_records(id, Some("log"), 2).await.expect("read");
    assert_eq!(logs.iter().map(|it| it.seq).collect::<Vec<_>>(), [4, 5]);
    let json = logs[0].json_with_session_id();
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&value["sessionId"], &value["seq"]), (&id.to_string().into(), &4.into()));
    assert_eq!(value["message"], "2");
}
