//! Approvals: decided at most once, and waited for.

use std::time::Duration;

use ab_api::{
    Approval, ApprovalDecider, ApprovalDecision, ApprovalId, ApprovalRequester, ApprovalStatus,
    ApprovalSubject, ApproveOrDeny, DeciderKind, MAX_APPROVAL_DETAIL_BYTES, PageRequest,
    SessionEndReason, SessionId, SessionStatus, SpaceId, Time,
};
use ab_store::{
    ApprovalFilter, ApprovalOwner, EventLogScope, Store, StoreError, StoredSessionEnd,
    UseDecisionError,
};

use crate::fixture::{line, scratch, stored, stored_space};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn question(session: SessionId, digest: &str) -> Approval {
    let subject = ApprovalSubject {
        title: "Run ls".to_owned(),
        digest: Some(digest.to_owned()),
        ..ApprovalSubject::default()
    };
    let approval =
        Approval { session_id: Some(session), ..Approval::new_pending(subject, Time::now()) };
    approval.expiring_after(HOUR)
}

async fn ask(store: &Store, session: SessionId) -> ApprovalId {
    let approval = question(session, "d");
    let id = approval.id;
    store.add_approval(approval).await.expect("ask");
    id
}

/// A question whose time is over and that nothing has expired yet.
async fn ask_overdue(store: &Store, session: SessionId) -> ApprovalId {
    let approval = Approval { expires_at: Some(Time::from_millis(2000)), ..question(session, "d") };
    let id = approval.id;
    store.add_approval(approval).await.expect("ask");
    id
}

fn by(name: &str) -> ApprovalDecider {
    ApprovalDecider { kind: DeciderKind::Person, name: name.to_owned(), via: None }
}

fn yes() -> ApprovalDecision {
    ApproveOrDeny::Approve.into()
}

fn no(reason: &str) -> ApprovalDecision {
    ApprovalDecision { reason: Some(reason.to_owned()), ..ApproveOrDeny::Deny.into() }
}

async fn pending(store: &Store, session: SessionId) -> u64 {
    let filter = ApprovalFilter { status: Some(ApprovalStatus::Pending), session: Some(session) };
    store.list_approvals(filter, PageRequest::default()).await.expect("list").1
}

#[tokio::test]
async fn of_many_decisions_one_counts() {
    let scratch = scratch().await;
    let session = stored(&scratch.store, "a").await;
    let id = ask(&scratch.store, session).await;
    let racing: Vec<_> = (0..16)
        .map(|number| {
            let store = scratch.store.clone();
            let decision = if number % 2 == 0 { yes() } else { no("never") };
            tokio::spawn(async move {
                store.decide_approval(id, decision, by(&number.to_string())).await
            })
        })
        .collect();
    let mut decided = Vec::new();
    for attempt in racing {
        match attempt.await.expect("a task") {
            Ok(approval) => decided.push(approval),
            Err(StoreError::AlreadyDecided(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(decided.len(), 1);
    let scratch = scratch.reopen().await;
    assert_eq!(scratch.store.get_approval(id).await.expect("read"), decided[0]);
    let records =
        scratch.store.event_records(EventLogScope::Session(session), 0, 10).await.expect("read");
    let kinds: Vec<_> = records.iter().map(|record| record.kind.as_str()).collect();
    assert_eq!(kinds, ["status", "approvalRequested", "approvalDecided"]);
}

#[tokio::test]
async fn waiting_ends_with_the_decision() {
    let scratch = scratch().await;
    let session = stored(&scratch.store, "a").await;
    let id = ask(&scratch.store, session).await;
    assert_eq!(pending(&scratch.store, session).await, 1);
    assert_eq!(scratch.store.get_session(session).await.expect("read").open_approvals, 1);
    let decide = scratch.store.decide_approval(id, no("too risky"), by("ana"));
    let (waited, also, decided) = tokio::join!(
        scratch.store.wait_for_decision(id),
        scratch.store.wait_for_decision(id),
        decide
    );
    let waited = waited.expect("decided");
    assert_eq!(waited.status, ApprovalStatus::Denied);
    assert_eq!(waited.reason.as_deref(), Some("too risky"));
    assert_eq!(Some(&waited), also.as_ref().ok());
    assert_eq!(waited, decided.expect("the first decision"));
    assert_eq!(scratch.store.wait_for_decision(id).await.expect("decided before"), waited);
    assert_eq!(pending(&scratch.store, session).await, 0);
}

#[tokio::test]
async fn pending_approvals_expire_with_their_time_or_their_session() {
    let scratch = scratch().await;
    let session = stored(&scratch.store, "a").await;
    let early = ask_overdue(&scratch.store, session).await;
    let next = scratch.store.next_approval_expiry().await.expect("the next");
    assert_eq!(next, Some(Time::from_millis(2000)));
    let expired =
        scratch.store.expire_overdue_approvals(Time::from_millis(1999)).await.expect("expire");
    assert_eq!(expired, []);
    let expired =
        scratch.store.expire_overdue_approvals(Time::from_millis(2000)).await.expect("expire");
    assert_eq!(expired, [early]);
    let decider =
        scratch.store.get_approval(early).await.expect("read").decided_by.expect("a decider");
    assert_eq!(decider.kind, DeciderKind::Timeout);
    let late = ask(&scratch.store, session).await;
    let mut record = scratch.store.session_record(session).await.expect("read");
    let (status, reason) = (SessionStatus::Stopped, SessionEndReason::Stopped);
    record.progress.ending = Some(StoredSessionEnd { status, reason });
    let end = scratch.store.update_session(record.clone(), vec![line("the end begins")]);
    let (waited, ended) = tokio::join!(scratch.store.wait_for_decision(late), end);
    ended.expect("end");
    let waited = waited.expect("expired");
    assert_eq!(waited.status, ApprovalStatus::Expired);
    assert_eq!(waited.reason.as_deref(), Some("the session ended"));
    let error = scratch.store.decide_approval(late, yes(), by("ana")).await.expect_err("too late");
    assert!(matches!(error, StoreError::AlreadyDecided(_)), "{error}");
    // One transaction: the decision comes with the change that it belongs to.
    let records = scratch.store.event_records(EventLogScope::Session(session), 0, 10).await;
    let kinds: Vec<_> =
        records.expect("read").into_iter().map(|record| record.kind.clone()).collect();
    assert_eq!(kinds[kinds.len() - 2..], ["approvalDecided", "log"]);
    record.session.status = status;
    scratch.store.update_session(record, Vec::new()).await.expect("end");
    let error = scratch.store.add_approval(question(session, "d")).await.expect_err("ended");
    assert!(matches!(error, StoreError::NotFound), "{error}");
}

#[tokio::test]
async fn waiting_ends_when_the_store_closes() {
    let scratch = scratch().await;
    let session = stored(&scratch.store, "a").await;
    let id = ask(&scratch.store, session).await;
    let (waited, ()) = tokio::join!(scratch.store.wait_for_decision(id), scratch.store.close());
    assert!(matches!(waited, Err(StoreError::Closed)), "{waited:?}");
}

#[tokio::test]
async fn unknown_approvals_are_not_found() {
    let scratch = scratch().await;
    let id = ApprovalId::generate();
    let error = scratch.store.decide_approval(id, yes(), by("ana")).await.expect_err("unknown");
    assert!(matches!(error, StoreError::NotFound), "{error}");
    let error = scratch.store.wait_for_decision(id).await.expect_err("unknown");
    assert!(matches!(error, StoreError::NotFound), "{error}");
}

#[tokio::test]
async fn a_decision_after_the_expiry_is_refused_and_the_approval_is_expired() {
    let scratch = scratch().await;
    let session = stored(&scratch.store, "a").await;
    let id = ask_overdue(&scratch.store, session).await;
    let error = scratch.store.decide_approval(id, yes(), by("ana")).await.expect_err("too late");
    let StoreError::AlreadyDecided(late) = error else { panic!("{error}") };
    assert_eq!(late.status, ApprovalStatus::Expired);
    assert_eq!(scratch.store.get_approval(id).await.expect("read"), *late);
    assert_eq!(pending(&scratch.store, session).await, 0);
}

#[tokio::test]
async fn what_is_not_shown_whole_can_only_be_denied() {
    let scratch = scratch().await;
    let session = stored(&scratch.store, "a").await;
    let mut approval = question(session, "d");
    approval.subject = approval.subject.with_detail("x".repeat(MAX_APPROVAL_DETAIL_BYTES + 1));
    assert!(approval.subject.is_cut);
    let id = approval.id;
    scratch.store.add_approval(approval).await.expect("ask");
    let error = scratch.store.decide_approval(id, yes(), by("ana")).await.expect_err("cut");
    assert!(matches!(error, StoreError::SubjectNotFullyShown(_)), "{error}");
    let denied = scratch.store.decide_approval(id, no("unseen"), by("ana")).await.expect("deny");
    assert_eq!(denied.status, ApprovalStatus::Denied);
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> UseDecisionError {
    match outcome.expect_err("refused") {
        StoreError::UseDecision(refusal) => refusal,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_yes_counts_once_for_one_operation_of_its_session_or_space() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let (space, other) = (stored_space(store).await.id, SpaceId::generate());
    let subject = ApprovalSubject { digest: Some("d".to_owned()), ..ApprovalSubject::default() };
    let approval =
        Approval { space_id: Some(space), ..Approval::new_pending(subject, Time::now()) };
    let id = approval.id;
    store.add_approval(approval.clone()).await.expect("ask");
    let using = |id, space, digest: &str| {
        store.use_decision_of_approval(id, ApprovalOwner::Space(space), digest.to_owned())
    };
    let waiting = UseDecisionError::NotApproved(ApprovalStatus::Pending);
    assert_eq!(refusal(using(id, space, "d").await), waiting);
    store.decide_approval(id, yes(), by("ana")).await.expect("approve");
    let forged = using(ApprovalId::generate(), space, "d").await.expect_err("forged");
    assert!(matches!(forged, StoreError::NotFound), "{forged}");
    assert_eq!(refusal(using(id, other, "d").await), UseDecisionError::DifferentOwner);
    let session = ApprovalOwner::Session(SessionId::generate());
    assert_eq!(
        refusal(store.use_decision_of_approval(id, session, "d".to_owned()).await),
        UseDecisionError::DifferentOwner
    );
    assert_eq!(refusal(using(id, space, "e").await), UseDecisionError::DifferentOperation);
    // Of two at once one gets it.
    let (one, other) = tokio::join!(using(id, space, "d"), using(id, space, "d"));
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    assert_eq!(refusal(if one.is_ok() { other } else { one }), UseDecisionError::AlreadyUsed);
    let scratch = scratch.reopen().await;
    let scope = ApprovalOwner::Space(space);
    let again = scratch.store.use_decision_of_approval(id, scope.clone(), "d".to_owned()).await;
    assert_eq!(refusal(again), UseDecisionError::AlreadyUsed);
    let late = Approval {
        id: ApprovalId::generate(),
        status: ApprovalStatus::Approved,
        expires_at: Some(Time::from_millis(2000)),
        ..approval
    };
    let id = late.id;
    scratch.store.add_approval(late).await.expect("store");
    let late = scratch.store.use_decision_of_approval(id, scope, "d".to_owned()).await;
    assert_eq!(refusal(late), UseDecisionError::Expired);
}

#[tokio::test]
async fn a_feed_has_what_waits_and_then_every_change() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let (session, other) = (stored(store, "a").await, stored(store, "b").await);
    let (first, second) = (ask(store, session).await, ask(store, session).await);
    store.decide_approval(first, yes(), by("ana")).await.expect("approve");
    let filter = ApprovalFilter { status: Some(ApprovalStatus::Pending), session: Some(session) };
    let mut feed = store.follow_approvals_and_changes(filter, None);
    let mut waits = feed.next().await.expect("the snapshot");
    assert_eq!(waits.approval.id, second);
    ask(store, other).await;
    store.decide_approval(second, no("x"), by("ana")).await.expect("deny");
    let third = ask(store, session).await;
    for (id, status) in [(second, ApprovalStatus::Denied), (third, ApprovalStatus::Pending)] {
        let change = feed.next().await.expect("a change");
        assert_eq!((change.approval.id, change.approval.status), (id, status));
        assert!(change.revision > waits.revision);
        waits = change;
    }
    // A reader that comes back has what changed meanwhile, also after a restart.
    drop(feed);
    let scratch = scratch.reopen().await;
    take_answer_once(&scratch.store, session, second).await;
    let mut feed = scratch.store.follow_approvals_and_changes(filter, Some(waits.revision));
    assert_eq!(feed.next().await.expect("a change").approval.id, second);
    // A cursor of another database begins the feed again.
    for unknown in [waits.revision + 100, u64::MAX] {
        let mut feed = scratch.store.follow_approvals_and_changes(filter, Some(unknown));
        assert_eq!(feed.next().await.expect("the snapshot").approval.id, third);
        let fourth = ask(&scratch.store, session).await;
        assert_eq!(feed.next().await.expect("a change").approval.id, fourth);
        scratch.store.decide_approval(fourth, yes(), by("ana")).await.expect("approve");
    }
    let mut feed = scratch
        .store
        .follow_approvals_and_changes(filter, Some(scratch.store.last_approval_revision()));
    let (closed, ()) = tokio::join!(feed.next(), scratch.store.close());
    assert!(matches!(closed, Err(StoreError::Closed)), "{closed:?}");
}

async fn take_answer_once(store: &Store, session: SessionId, id: ApprovalId) {
    let take =
        || store.use_decision_of_approval(id, ApprovalOwner::Session(session), "d".to_owned());
    take().await.expect("take the answer");
    assert_eq!(refusal(take().await), UseDecisionError::AlreadyUsed);
}

#[tokio::test]
async fn a_decision_is_taken_once_for_its_own_digest_and_space() {
    let scratch = scratch().await;
    let space = stored_space(&scratch.store).await.id;
    let subject = ApprovalSubject { digest: Some("d1".to_owned()), ..ApprovalSubject::default() };
    let approval = Approval {
        space_id: Some(space),
        ..Approval::new_pending(subject, Time::from_millis(1000))
    };
    let id = approval.id;
    scratch.store.add_approval(approval).await.expect("ask");
    let take = |space, digest: &str| {
        let (store, digest) = (scratch.store.clone(), digest.to_owned());
        async move {
            store.use_decision_for_digest(ApprovalOwner::Space(space), digest).await.expect("use")
        }
    };
    let waiting = scratch.store.pending_approval_of_space(space, "d1").await.expect("find");
    assert_eq!(waiting.map(|it| it.id), Some(id));
    assert_eq!(take(space, "d1").await, None, "nobody has decided");
    scratch.store.decide_approval(id, yes(), by("ada")).await.expect("decide");
    assert_eq!(take(space, "d2").await, None, "another digest");
    assert_eq!(take(SpaceId::generate(), "d1").await, None, "another space");
    let (one, other) = tokio::join!(take(space, "d1"), take(space, "d1"));
    let used: Vec<Approval> = one.into_iter().chain(other).collect();
    assert_eq!(used.len(), 1, "{used:?}");
    assert!(used[0].used_at.is_some());
    // A no is told once too, with its reason. One whose time is over is not told.
    for expires in [None, Some(Time::from_millis(2000))] {
        let subject =
            ApprovalSubject { digest: Some("d3".to_owned()), ..ApprovalSubject::default() };
        let pending = Approval::new_pending(subject, Time::from_millis(1000));
        let approval = Approval { space_id: Some(space), expires_at: expires, ..pending };
        let id = approval.id;
        scratch.store.add_approval(approval).await.expect("ask");
        let no =
            ApprovalDecision { reason: Some("not now".to_owned()), ..ApproveOrDeny::Deny.into() };
        let decided = scratch.store.decide_approval(id, no, by("ada")).await;
        assert_eq!(decided.is_ok(), expires.is_none(), "{decided:?}");
        let told = take(space, "d3").await;
        let reason = told.and_then(|it| it.reason);
        assert_eq!(reason.as_deref(), expires.is_none().then_some("not now"));
        assert_eq!(take(space, "d3").await, None, "it is told once");
    }
}

/// The question of a program.
fn of_program(name: &str, digest: &str) -> Approval {
    let subject = ApprovalSubject {
        title: "Deploy".to_owned(),
        digest: Some(digest.to_owned()),
        ..ApprovalSubject::default()
    };
    let requester = ApprovalRequester { principal: "api-key:ci".to_owned(), name: name.to_owned() };
    let approval =
        Approval { requester: Some(requester), ..Approval::new_pending(subject, Time::now()) };
    approval.expiring_after(HOUR)
}

#[tokio::test]
async fn a_program_that_asks_again_finds_its_approval_until_it_used_the_answer() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let request = async |approval| store.request_approval(approval).await.expect("ask");
    let first = request(of_program("a", "d")).await;
    assert!(first.is_new);
    let id = first.approval.id;
    let again = request(of_program("a", "d")).await;
    assert_eq!((again.approval.id, again.is_new), (id, false));
    // Another program and another digest are other questions.
    assert!(request(of_program("b", "d")).await.is_new);
    assert!(request(of_program("a", "e")).await.is_new);
    // A person sees the text: the same digest with another text is refused.
    let mut other = of_program("a", "d");
    other.subject.title = "Tidy up".to_owned();
    let refused = store.request_approval(other).await.expect_err("another text");
    assert!(matches!(refused, StoreError::DigestReused(same) if same == id), "{refused}");

    store.decide_approval(id, yes(), by("ana")).await.expect("approve");
    let scratch = scratch.reopen().await;
    let store = &scratch.store;
    let decided = store.request_approval(of_program("a", "d")).await.expect("ask");
    assert_eq!((decided.approval.id, decided.is_new), (id, false));
    assert_eq!(decided.approval.status, ApprovalStatus::Approved);
    let take = |approval: &Approval, digest: &str| {
        store.use_decision_of_approval(
            id,
            ApprovalOwner::for_approval(approval).expect("a scope"),
            digest.to_owned(),
        )
    };
    let foreign = take(&of_program("b", "d"), "d").await;
    assert_eq!(refusal(foreign), UseDecisionError::DifferentOwner);
    let mine = of_program("a", "d");
    assert_eq!(refusal(take(&mine, "e").await), UseDecisionError::DifferentOperation);
    take(&mine, "d").await.expect("take the answer");
    assert_eq!(refusal(take(&mine, "d").await), UseDecisionError::AlreadyUsed);
    let next = store.request_approval(of_program("a", "d")).await.expect("ask");
    assert!(next.is_new && next.approval.id != id);
}

#[tokio::test]
async fn an_overdue_approval_of_a_program_is_not_found_again() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let over = |status| Approval {
        status,
        expires_at: Some(Time::from_millis(2000)),
        ..of_program("a", "d")
    };
    for status in [ApprovalStatus::Pending, ApprovalStatus::Approved, ApprovalStatus::Denied] {
        let late = over(status);
        let id = late.id;
        store.add_approval(late).await.expect("store");
        let asked = store.request_approval(of_program("a", "d")).await.expect("ask");
        assert!(asked.is_new, "{status:?}");
        if status == ApprovalStatus::Pending {
            let expired = store.get_approval(id).await.expect("read");
            assert_eq!(expired.status, ApprovalStatus::Expired);
        }
        let by = ApprovalDecider::for_server_rule("test");
        store.withdraw_approval(asked.approval.id, by, String::new()).await.expect("withdraw");
    }
}

#[tokio::test]
async fn programs_have_a_bounded_number_of_open_questions() {
    let scratch = scratch().await;
    let store = &scratch.store;
    for number in 0..1000 {
        let asked = of_program("a", &number.to_string());
        assert!(store.request_approval(asked).await.expect("ask").is_new);
    }
    let refused = store.request_approval(of_program("b", "d")).await.expect_err("one too many");
    assert!(matches!(refused, StoreError::TooManyPending { limit: 1000 }), "{refused}");
    // One that is open is found, and those of sessions are not counted.
    assert!(!store.request_approval(of_program("a", "7")).await.expect("find").is_new);
    let session = stored(store, "s").await;
    ask(store, session).await;
}
