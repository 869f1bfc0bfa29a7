//! Approvals: decided at most once, and waited for.

use ab_api::{
    Approval, ApprovalDecider, ApprovalDecision, ApprovalId, ApprovalStatus, ApprovalSubject,
    ApproveOrDeny, PageRequest, SessionId, SpaceId, Time,
};
use ab_store::{ApprovalFilter, EventLogScope, GrantScope, Store, StoreError};

use crate::fixture::{scratch, stored};

async fn ask(store: &Store, session: SessionId) -> ApprovalId {
    let subject = ApprovalSubject { title: "Run ls".to_owned(), ..ApprovalSubject::default() };
    let approval = Approval {
        session_id: Some(session),
        expires_at: Some(Time::from_millis(2000)),
        ..Approval::pending(subject, Time::from_millis(1000))
    };
    let id = approval.id;
    store.add_approval(approval).await.expect("ask");
    id
}

fn by(name: &str) -> ApprovalDecider {
    ApprovalDecider { kind: "person".to_owned(), name: name.to_owned(), via: None }
}

fn yes() -> ApprovalDecision {
    ApprovalDecision { decision: ApproveOrDeny::Approve, reason: None }
}

fn no(reason: &str) -> ApprovalDecision {
    ApprovalDecision { decision: ApproveOrDeny::Deny, reason: Some(reason.to_owned()) }
}

async fn pending(store: &Store, session: SessionId) -> u64 {
    let filter = ApprovalFilter { status: Some(ApprovalStatus::Pending), session: Some(session) };
    store.approvals(filter, PageRequest::default()).await.expect("list").1
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
            Err(StoreError::Decided(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(decided.len(), 1);
    let scratch = scratch.reopen().await;
    assert_eq!(scratch.store.approval(id).await.expect("read"), decided[0]);
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
    assert_eq!(scratch.store.session(session).await.expect("read").open_approvals, 1);
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
    let early = ask(&scratch.store, session).await;
    let expired =
        scratch.store.expire_overdue_approvals(Time::from_millis(1999)).await.expect("expire");
    assert_eq!(expired, []);
    let expired =
        scratch.store.expire_overdue_approvals(Time::from_millis(2000)).await.expect("expire");
    assert_eq!(expired, [early]);
    let late = ask(&scratch.store, session).await;
    let expire = scratch.store.expire_session_approvals(session, "the session ended".to_owned());
    let (waited, expired) = tokio::join!(scratch.store.wait_for_decision(late), expire);
    expired.expect("expire");
    assert_eq!(waited.expect("expired").status, ApprovalStatus::Expired);
    let error = scratch.store.decide_approval(late, yes(), by("ana")).await.expect_err("too late");
    assert!(matches!(error, StoreError::Decided(_)), "{error}");
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
async fn a_yes_is_used_once_for_its_own_digest_and_space() {
    let scratch = scratch().await;
    let space = SpaceId::generate();
    let subject = ApprovalSubject { digest: Some("d1".to_owned()), ..ApprovalSubject::default() };
    let approval =
        Approval { space_id: Some(space), ..Approval::pending(subject, Time::from_millis(1000)) };
    let id = approval.id;
    scratch.store.add_approval(approval).await.expect("ask");
    let take = |space, digest: &str| {
        let (store, digest) = (scratch.store.clone(), digest.to_owned());
        async move { store.use_grant(GrantScope::Space(space), digest).await.expect("use") }
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
}
