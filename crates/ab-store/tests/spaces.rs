//! Spaces: what ends with them.

use std::collections::BTreeSet;

use ab_api::{
    Approval, ApprovalDecider, ApprovalStatus, ApprovalSubject, ApproveOrDeny, DeciderKind, Run,
    RunId, RunStatus, SpaceId, Time,
};
use ab_store::{EventLogScope, RunEventRecord, RunUpdate, SpaceEnd, Store, StoreError};

use crate::fixture::{scratch, stored_space};

/// The end of a space that is removed.
pub(crate) fn removed() -> SpaceEnd {
    SpaceEnd { reason: "the space was removed".to_owned(), event: event("the end") }
}

fn event(json: &str) -> RunEventRecord {
    RunEventRecord { number: None, at: Time::now(), json: format!("{json:?}") }
}

/// A run that is queued.
async fn run(store: &Store, space: SpaceId) -> Run {
    let now = Time::now();
    let run = Run {
        id: RunId::generate(),
        space_id: space,
        status: RunStatus::Queued,
        operation_count: 0,
        pending_approval: None,
        created_by: "person:ada".to_owned(),
        created_at: now,
        updated_at: now,
        ended_at: None,
    };
    store.create_run(run.clone(), Vec::new(), None).await.expect("store");
    run
}

fn question(space: SpaceId, run: Option<RunId>) -> Approval {
    let subject = ApprovalSubject { digest: Some("d".to_owned()), ..ApprovalSubject::default() };
    let pending = Approval::new_pending(subject, Time::now());
    Approval { space_id: Some(space), run_id: run, ..pending }
}

#[tokio::test]
async fn removal_of_a_space_ends_its_runs_and_approvals() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let (space, other) = (stored_space(store).await, stored_space(store).await);
    let (parked, queued) = (run(store, space.id).await, run(store, space.id).await);
    let elsewhere = run(store, other.id).await;
    let (of_tool, of_run) = (question(space.id, None), question(space.id, Some(parked.id)));
    let of_other = question(other.id, None);
    for approval in [&of_tool, &of_other] {
        store.add_approval(approval.clone()).await.expect("ask");
    }
    let waiting = Run { status: RunStatus::AwaitingApproval, ..parked.clone() };
    let asked =
        RunUpdate { requested_approval: Some(of_run.clone()), ..RunUpdate::new(waiting.clone()) };
    store.update_run(asked).await.expect("park");
    let before = store.last_approval_revision();

    let ended = store.destroy_space(space.clone(), removed()).await.expect("remove");
    assert_eq!(BTreeSet::from_iter(ended), BTreeSet::from([parked.id, queued.id]));
    let mut feed = store.follow_approvals_and_changes(Default::default(), Some(before));
    let mut told_ids = BTreeSet::new();
    for asked in [&of_tool, &of_run] {
        let told = feed.next().await.expect("a change").approval;
        assert_eq!(told.status, ApprovalStatus::Expired);
        told_ids.insert(told.id);
        assert_eq!(told.reason.as_deref(), Some("the space was removed"));
        assert_eq!(told.decided_by.map(|by| by.kind), Some(DeciderKind::Rule));
        let by = ApprovalDecider::for_server_rule("test");
        let late = store.decide_approval(asked.id, ApproveOrDeny::Approve.into(), by).await;
        assert!(matches!(late, Err(StoreError::AlreadyDecided(_))), "{late:?}");
    }
    assert_eq!(told_ids, BTreeSet::from([of_tool.id, of_run.id]));
    let status = async |id| store.get_approval(id).await.expect("read").status;
    assert_eq!(status(of_other.id).await, ApprovalStatus::Pending);
    for id in [parked.id, queued.id] {
        assert_eq!(store.get_run(id).await.expect("read").status, RunStatus::Cancelled);
        let records = store.event_records(EventLogScope::Run(id), 0, 10).await.expect("read");
        assert!(records.last().is_some_and(|it| it.is_last_of_stream()), "{records:?}");
        assert_eq!(store.run_events(id).await.expect("read"), [event("the end").json]);
    }
    assert_eq!(store.get_run(elsewhere.id).await.expect("read").status, RunStatus::Queued);

    // What a task still sends comes too late, and nothing asks in a space that is gone.
    let running = Run { status: RunStatus::Running, ..waiting };
    let late = RunUpdate { events: vec![event("late")], ..RunUpdate::new(running.clone()) };
    let unchanged = RunUpdate { is_run_changed: false, ..late.clone() };
    let asking = RunUpdate { requested_approval: Some(of_run.clone()), ..RunUpdate::new(running) };
    for late in [late, unchanged, asking] {
        let late = store.update_run(late).await;
        assert!(matches!(late, Err(StoreError::NotFound)), "{late:?}");
    }
    let late = store.add_approval(question(space.id, None)).await;
    assert!(matches!(late, Err(StoreError::NotFound)), "{late:?}");
    assert_eq!(store.get_run(parked.id).await.expect("read").status, RunStatus::Cancelled);
    let again = store.destroy_space(space, removed()).await;
    assert!(matches!(again, Err(StoreError::NotFound)), "{again:?}");
}
