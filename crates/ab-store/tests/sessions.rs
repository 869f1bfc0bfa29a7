//! Sessions: creation, idempotency keys, lists.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ab_api::{
    Approval, ApprovalSubject, PageRequest, SessionActivity, SessionId, SessionStatus, Time,
};
use ab_store::{
    CreateSessionOutcome, EventLogScope, IdempotencyRecord, NewSession, SessionFilter,
    SessionGroup, SessionRecord, StoreError, StoredSessionProgress, StoredSessionStage,
};

use crate::fixture::{line, new_session, of_many_short_texts, scratch, session, status, stored};

#[tokio::test]
async fn a_session_survives_a_restart_with_its_progress() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    let mut record = scratch.store.session_record(id).await.expect("read");
    record.session.status = SessionStatus::Running;
    record.session.activity = Some(SessionActivity::Working);
    record.progress = StoredSessionProgress {
        generation: 1,
        prompts: 1,
        turn: 1,
        stage: StoredSessionStage::Turn,
        attached: true,
        ending: None,
    };
    let events = vec![status(SessionStatus::Running)];
    scratch.store.update_session(record.clone(), events).await.expect("save");
    let scratch = scratch.reopen().await;
    assert_eq!(scratch.store.unfinished_sessions().await.expect("read"), [record]);
    let session = scratch.store.get_session(id).await.expect("read");
    assert_eq!(session.recent_events.len(), 2);
    assert_eq!(scratch.store.session_prompt(id, 1).await.expect("read").prompt, "a");
}

#[tokio::test]
async fn recent_events_are_the_last_three_of_an_active_session() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    scratch
        .store
        .append_events(id, (0..5).map(|n| line(&n.to_string())).collect())
        .await
        .expect("append");
    let session = scratch.store.get_session(id).await.expect("read");
    let last = |number: &str| line(number).kind;
    let kinds: Vec<_> = session.recent_events.iter().map(|event| event.kind.clone()).collect();
    assert_eq!(kinds, [last("2"), last("3"), last("4")]);
    let mut record = scratch.store.session_record(id).await.expect("read");
    record.session.status = SessionStatus::Completed;
    scratch
        .store
        .update_session(record, vec![status(SessionStatus::Completed)])
        .await
        .expect("save");
    let session = scratch.store.get_session(id).await.expect("read");
    assert_eq!(session.recent_events, []);
    assert_eq!(scratch.store.unfinished_sessions().await.expect("read"), []);
}

#[tokio::test]
async fn a_state_and_its_events_fail_together() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    let mut record = scratch.store.session_record(id).await.expect("read");
    record.session.status = SessionStatus::Running;
    let events = vec![of_many_short_texts()];
    scratch.store.update_session(record, events).await.expect_err("the event is too large");
    let session = scratch.store.get_session(id).await.expect("read");
    assert_eq!(session.status, SessionStatus::Queued);
}

#[tokio::test]
async fn an_unknown_session_is_not_found() {
    let scratch = scratch().await;
    let error = scratch.store.get_session(SessionId::generate()).await.expect_err("unknown");
    assert!(matches!(error, StoreError::NotFound), "{error}");
    let record =
        SessionRecord { session: session("x"), progress: StoredSessionProgress::default() };
    let error = scratch.store.update_session(record, vec![line("x")]).await.expect_err("unknown");
    assert!(matches!(error, StoreError::NotFound), "{error}");
    assert_eq!(scratch.store.event_records(EventLogScope::All, 0, 10).await.expect("read"), []);
}

fn keyed(request: &str) -> NewSession {
    let session = session("k");
    let answer = session.id.to_string();
    let idempotency = Some(IdempotencyRecord {
        scope: "ana".to_owned(),
        key: "key-1".to_owned(),
        request: request.as_bytes().to_vec(),
        response: answer,
    });
    NewSession { idempotency, ..new_session(session) }
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_answer() {
    let scratch = scratch().await;
    let first = keyed("request");
    let answer = first.record.session.id.to_string();
    let racing: Vec<_> = (0..8)
        .map(|_| {
            let store = scratch.store.clone();
            tokio::spawn(async move { store.create_session(keyed("request")).await })
        })
        .collect();
    drop(first);
    let mut created = 0;
    for attempt in racing {
        if attempt.await.expect("a task").expect("no conflict") == CreateSessionOutcome::New {
            created += 1;
        }
    }
    assert_eq!(created, 1);
    let scratch = scratch.reopen().await;
    let again = scratch.store.create_session(keyed("request")).await.expect("the same request");
    let CreateSessionOutcome::Existing { response: stored } = again else { panic!("made twice") };
    assert_ne!(stored, answer);
    let (_, total) = scratch
        .store
        .list_sessions(&SessionFilter::default(), PageRequest::default())
        .await
        .expect("list");
    assert_eq!(total, 1);
}

#[tokio::test]
async fn a_key_with_another_request_is_a_conflict() {
    let scratch = scratch().await;
    scratch.store.create_session(keyed("one")).await.expect("create");
    let error = scratch.store.create_session(keyed("two")).await.expect_err("another request");
    assert!(matches!(error, StoreError::IdempotencyKeyReused), "{error}");
    let mut elsewhere = keyed("two");
    if let Some(key) = &mut elsewhere.idempotency {
        key.scope = "bob".to_owned();
    }
    let made = scratch.store.create_session(elsewhere).await.expect("another caller");
    assert_eq!(made, CreateSessionOutcome::New);
}

#[tokio::test]
async fn lists_are_filtered_paged_and_newest_first() {
    let scratch = scratch().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(stored(&scratch.store, &format!("p{number}")).await);
    }
    ids.sort();
    ids.reverse();
    let mut record = scratch.store.session_record(ids[0]).await.expect("read");
    record.session.status = SessionStatus::Running;
    scratch.store.update_session(record, Vec::new()).await.expect("save");

    let list = async |filter: SessionFilter, page, per_page| {
        let request = PageRequest { page: Some(page), per_page: Some(per_page) };
        let (sessions, total) = scratch.store.list_sessions(&filter, request).await.expect("list");
        (sessions.into_iter().map(|it| it.id).collect::<Vec<_>>(), total)
    };
    assert_eq!(list(SessionFilter::default(), 1, 20).await, (ids.clone(), 5));
    assert_eq!(list(SessionFilter::default(), 2, 2).await, (ids[2..4].to_vec(), 5));
    assert_eq!(list(SessionFilter::default(), 9, 20).await, (Vec::new(), 5));
    let by = |statuses: &[SessionStatus]| SessionFilter {
        statuses: statuses.to_vec(),
        ..SessionFilter::default()
    };
    assert_eq!(list(by(&[SessionStatus::Running]), 1, 20).await, (vec![ids[0]], 1));
    assert_eq!(list(by(&[SessionStatus::Failed]), 1, 20).await.1, 0);
    let both = by(&[SessionStatus::Running, SessionStatus::Queued]);
    assert_eq!(list(both, 1, 20).await.1, 5);
    let text = |value: &str| Some(value.to_owned());
    let table = [
        (SessionFilter { project: text("shop"), ..SessionFilter::default() }, 5),
        (SessionFilter { project: text("other"), ..SessionFilter::default() }, 0),
        (SessionFilter { tenant: text("t"), ..SessionFilter::default() }, 0),
        (SessionFilter { agent: text("scripted"), ..SessionFilter::default() }, 5),
        (SessionFilter { repo: text("https://h/x"), ..SessionFilter::default() }, 5),
        (SessionFilter { repo: text("%"), ..SessionFilter::default() }, 0),
        (
            SessionFilter {
                label: Some(("p".to_owned(), "p3".to_owned())),
                ..SessionFilter::default()
            },
            1,
        ),
    ];
    for (filter, expect) in table {
        assert_eq!(list(filter.clone(), 1, 20).await.1, expect, "{filter:?}");
    }
}

#[tokio::test]
async fn each_session_is_listed_in_one_group() {
    let scratch = scratch().await;
    let mut ids = Vec::new();
    for (number, status) in
        SessionStatus::ALL.into_iter().chain([SessionStatus::Running]).enumerate()
    {
        let id = stored(&scratch.store, &format!("p{number}")).await;
        let mut record = scratch.store.session_record(id).await.expect("read");
        record.session.status = status;
        scratch.store.update_session(record, Vec::new()).await.expect("save");
        ids.push((id, status));
    }
    let (asking, _) = ids.pop().expect("the last one");
    let mut approval = Approval::new_pending(ApprovalSubject::default(), Time::now());
    approval.session_id = Some(asking);
    scratch.store.add_approval(approval).await.expect("ask");
    let list = async |group| {
        let filter = SessionFilter { group: Some(group), ..SessionFilter::default() };
        let page = PageRequest { page: Some(1), per_page: Some(50) };
        let (sessions, total) = scratch.store.list_sessions(&filter, page).await.expect("list");
        let ids: BTreeSet<SessionId> = sessions.into_iter().map(|session| session.id).collect();
        assert_eq!(ids.len() as u64, total);
        ids
    };
    let with = |is_over: bool| {
        let with = ids.iter().filter(|(_, status)| status.is_terminal() == is_over);
        with.map(|(id, _)| *id).collect::<BTreeSet<_>>()
    };
    assert_eq!(list(SessionGroup::Waiting).await, BTreeSet::from([asking]));
    assert_eq!(list(SessionGroup::AtWork).await, with(false));
    assert_eq!(list(SessionGroup::Ended).await, with(true));
}

/// Number of sessions in the test of the list's speed.
const MANY: usize = 10_000;

#[tokio::test]
async fn ten_thousand_sessions_are_listed_with_any_filter_within_100_ms() {
    let scratch = scratch().await;
    let statuses = SessionStatus::ALL;
    let create = |number: usize| {
        let mut session = session(&format!("p{}", number % 100));
        session.status = statuses[number % statuses.len()];
        session.tenant_id = Some(format!("t{}", number % 7));
        session.project_id = Some(format!("j{}", number % 70));
        session.agent.kind = format!("a{}", number % 5);
        session.repo.url = format!("https://h/{}", number % 50);
        let id = session.id;
        let store = scratch.store.clone();
        async move {
            store.create_session(new_session(session)).await.expect("create");
            store.append_events(id, (0..5).map(|_| line("x")).collect()).await.expect("append");
        }
    };
    for group in 0..MANY / 100 {
        futures_util::future::join_all((0..100).map(|n| create(group * 100 + n))).await;
    }
    let text = |value: &str| Some(value.to_owned());
    let all = SessionFilter::default;
    let filters = [
        (all(), MANY),
        (SessionFilter { statuses: vec![SessionStatus::Running], ..all() }, 909),
        (SessionFilter { statuses: statuses.to_vec(), ..all() }, MANY),
        (SessionFilter { tenant: text("t1"), ..all() }, 1429),
        (SessionFilter { project: text("j1"), ..all() }, 143),
        (SessionFilter { agent: text("a1"), ..all() }, 2000),
        (SessionFilter { repo: text("https://h/1"), ..all() }, 200),
        (SessionFilter { label: Some(("p".to_owned(), "p1".to_owned())), ..all() }, 100),
        (SessionFilter { agent: text("a1"), tenant: text("t9"), ..all() }, 0),
        (SessionFilter { group: Some(SessionGroup::Waiting), ..all() }, 0),
        (SessionFilter { group: Some(SessionGroup::AtWork), ..all() }, 6364),
        (SessionFilter { group: Some(SessionGroup::Ended), ..all() }, 3636),
    ];
    for (filter, expect) in filters {
        for page in [1, 40] {
            let request = PageRequest { page: Some(page), per_page: Some(200) };
            let mut best = Duration::MAX;
            for _ in 0..3 {
                let start = Instant::now();
                let listed = scratch.store.list_sessions(&filter, request).await.expect("list");
                best = best.min(start.elapsed());
                assert_eq!(listed.1, expect as u64, "{filter:?}");
            }
            assert!(best < Duration::from_millis(100), "{filter:?}, page {page}: {best:?}");
        }
    }
}
