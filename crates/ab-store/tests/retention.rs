//! Removal of what is old, and copies of the database.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;

use ab_api::{
    Approval, ApprovalSubject, AuditEntry, AuditSource, PageRequest, SessionId, SessionStatus, Time,
};
use ab_store::{
    EndedRecord, EndedRecordId, EventLogScope, MAX_AUDIT_ENTRIES, NewSession, PendingCleanup,
    SessionFilter, Store, StoreError, check_backup, copy_database,
};

use crate::fixture::{line, new_session, scratch, session, status, stored};

/// Ends a session.
async fn end(store: &Store, id: SessionId, last: SessionStatus) {
    let mut record = store.session_record(id).await.expect("read");
    record.session.status = last;
    record.session.updated_at = Time::now();
    store.update_session(record, vec![status(last)]).await.expect("save");
}

fn later() -> Time {
    Time::from_millis(Time::now().as_millis() + 10)
}

async fn add_workspace(store: &Store, id: SessionId) -> String {
    let token = format!("w-{id}");
    let cleanup = PendingCleanup { token: token.clone(), session: id, executor: "x".to_owned() };
    store.add_pending_cleanup(cleanup).await.expect("add");
    token
}

#[tokio::test]
async fn removed_session_leaves_no_row_and_no_number_is_given_again() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let (kept, gone) = (stored(store, "a").await, stored(store, "b").await);
    for _ in 0..25 {
        let lines = (0..100).map(|number| line(&number.to_string())).collect();
        store.append_events(gone, lines).await.expect("append");
    }
    store.put_session_artifact(gone, "diff", "x".repeat(2 << 20)).await.expect("put");
    store.add_session_token(gone, "secret").await.expect("token");
    let approval = Approval {
        session_id: Some(gone),
        ..Approval::new_pending(ApprovalSubject::default(), Time::now())
    };
    store.add_approval(approval.clone()).await.expect("ask");
    store.append_audit_entries(gone, vec![entry("stop")]).await.expect("audit");
    let before = Time::from_millis(Time::now().as_millis() - 1);
    assert!(!store.remove_session(gone).await.expect("a live session"), "it has not ended");
    end(store, gone, SessionStatus::Stopped).await;
    let token = add_workspace(store, gone).await;
    assert!(!store.remove_session(gone).await.expect("ask"), "its workspace is kept");
    let listed = store.ended_records(later(), 0).await.expect("list");
    assert_eq!(listed.iter().map(|it| it.has_workspace).collect::<Vec<_>>(), [true]);
    store.remove_pending_cleanup(token).await.expect("remove");
    assert_eq!(store.ended_records(before, 0).await.expect("list"), [], "it ended later");
    assert_eq!(store.ended_records(later(), 1).await.expect("list"), [], "there is one");
    let listed = store.ended_records(later(), 0).await.expect("list");
    let [EndedRecord { id, has_workspace: false, .. }] = listed[..] else { panic!("{listed:?}") };
    assert_eq!(id, EndedRecordId::Session(gone));
    let counted = store.ended_record_size(id).await.expect("count");
    assert!((2 << 20..3 << 20).contains(&counted), "{counted}");

    let size = store.database_size().await.expect("size");
    let position = store.last_event_position().await.expect("position");
    assert!(store.remove_session(gone).await.expect("remove"));
    assert!(!store.remove_session(gone).await.expect("again"));
    let error = store.get_session(gone).await.expect_err("removed");
    assert!(matches!(error, StoreError::NotFound), "{error}");
    assert_eq!(store.last_event_position().await.expect("position"), position);
    let cursor = store.resume_cursor(EventLogScope::All, position).await.expect("cursor");
    assert_eq!(cursor, position, "the reader has everything");
    let left = store.event_records(EventLogScope::Session(gone), 0, 10).await.expect("read");
    assert_eq!(left, []);
    assert_eq!(store.count_rows_without_owner().await.expect("count"), []);
    assert!(store.get_approval(approval.id).await.is_err());
    let (all, _) =
        store.list_sessions(&SessionFilter::default(), PageRequest::default()).await.expect("list");
    assert_eq!(all.iter().map(|session| session.id).collect::<Vec<_>>(), [kept]);
    let used = store.database_size().await.expect("size");
    assert!(used.used_bytes() + (2 << 20) < size.used_bytes(), "{used:?} after {size:?}");
    store.compact().await.expect("compact");
    let compact = store.database_size().await.expect("size");
    assert!(compact.bytes < size.bytes / 2, "{compact:?} after {size:?}");

    // A reader that has seen the removed events sees everything that comes after them.
    let scratch = scratch.reopen().await;
    scratch.store.append_events(kept, vec![line("new")]).await.expect("append");
    let next = scratch.store.event_records(EventLogScope::All, position, 10).await.expect("read");
    assert_eq!(next.iter().map(|it| it.position).collect::<Vec<_>>(), [position + 1]);
}

#[tokio::test]
async fn workspace_that_is_being_removed_cannot_be_continued() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let (ended, live) = (stored(store, "a").await, stored(store, "b").await);
    add_workspace(store, ended).await;
    let live_token = add_workspace(store, live).await;
    assert_eq!(store.ended_workspaces().await.expect("list"), []);
    end(store, ended, SessionStatus::Failed).await;
    let listed = store.ended_workspaces().await.expect("list");
    assert_eq!(listed.iter().map(|it| it.session).collect::<Vec<_>>(), [ended]);

    // Another session continues first: then the workspace stays.
    let continuing = |before: SessionId| NewSession {
        continues_session: Some(before),
        ..new_session(session("c"))
    };
    let next = continuing(ended);
    let next_id = next.record.session.id;
    store.create_session(next).await.expect("continue");
    assert!(!store.begin_workspace_removal(listed[0].clone()).await.expect("begin"));
    end(store, next_id, SessionStatus::Stopped).await;
    let listed = store.ended_workspaces().await.expect("list");
    let mut foreign = listed[0].clone();
    (foreign.token, foreign.session) = (live_token, live);
    assert!(!store.begin_workspace_removal(foreign).await.expect("a live session"));

    // The removal begins first: then no session continues.
    assert!(store.begin_workspace_removal(listed[0].clone()).await.expect("begin"));
    let error = store.create_session(continuing(next_id)).await.expect_err("removed");
    assert!(matches!(error, StoreError::NoWorkspaceToContinue), "{error}");
    assert_eq!(store.ended_workspaces().await.expect("list"), []);
    let scratch = scratch.reopen().await;
    let begun = scratch.store.begun_workspace_removals().await.expect("list");
    assert_eq!(begun.iter().map(|it| it.session).collect::<Vec<_>>(), [next_id]);
}

fn entry(action: &str) -> AuditEntry {
    AuditEntry {
        at: Time::now(),
        source: AuditSource::Request,
        actor: "person:ana".to_owned(),
        action: action.to_owned(),
        success: true,
        subject: None,
        detail: None,
    }
}

#[tokio::test]
async fn audit_is_paged_and_bounded_by_source() {
    let scratch = scratch().await;
    let id = stored(&scratch.store, "a").await;
    let call = AuditEntry { source: AuditSource::Endpoint, ..entry("write") };
    let calls = vec![call; MAX_AUDIT_ENTRIES as usize + 10];
    scratch.store.append_audit_entries(id, calls).await.expect("append");
    scratch.store.append_audit_entries(id, vec![entry("stop")]).await.expect("append");
    let request = PageRequest { page: Some(51), per_page: Some(200) };
    let (last, total) = scratch.store.list_audit_entries(id, request).await.expect("read");
    assert_eq!((last.len(), total), (1, MAX_AUDIT_ENTRIES + 1));
    assert_eq!(last[0].action, "stop", "calls of an agent do not displace what people did");
    let request = PageRequest { page: Some(50), per_page: Some(200) };
    let (page, _) = scratch.store.list_audit_entries(id, request).await.expect("read");
    assert_eq!(page[199].action, "end-of-audit");
    let unknown = SessionId::generate();
    scratch.store.append_audit_entries(unknown, vec![entry("stop")]).await.expect("left out");
    let (none, total) = scratch.store.list_audit_entries(unknown, request).await.expect("read");
    assert_eq!((none, total), (Vec::new(), 0));
}

#[tokio::test]
async fn copy_of_a_database_in_use_is_whole_and_checked() {
    let scratch = scratch().await;
    let writing = (0..40).map(|number| {
        let store = scratch.store.clone();
        async move { stored(&store, &format!("p{number}")).await }
    });
    let copy = scratch.dir.path().join("copy.db");
    drop(File::create(&copy).expect("create"));
    let data = scratch.store.data_dir().path().to_owned();
    let first = stored(&scratch.store, "first").await;
    let (made, copied) =
        tokio::join!(futures_util::future::join_all(writing), copy_database(&data, &copy));
    copied.expect("copy");
    assert_eq!(made.len(), 40);
    let check = check_backup(&copy).await.expect("whole");
    assert!((1..=41).contains(&check.sessions), "{check:?}");

    // A cut copy and a foreign file are refused.
    let bytes = std::fs::read(&copy).expect("read");
    std::fs::write(&copy, &bytes[..bytes.len() / 2]).expect("cut");
    let error = check_backup(&copy).await.expect_err("cut");
    assert!(matches!(error, StoreError::Corrupt { .. } | StoreError::Database(_)), "{error}");
    std::fs::write(&copy, "no database at all, but a text that is long enough").expect("write");
    check_backup(&copy).await.expect_err("a text");

    // The copy is a store of its own.
    let restored = scratch.dir.path().join("restored");
    DirBuilder::new().mode(0o700).create(&restored).expect("create");
    std::fs::write(restored.join("state.db"), &bytes).expect("write");
    let store = Store::open(ab_store::DataDir::open(&restored).expect("lock")).await.expect("open");
    assert_eq!(store.get_session(first).await.expect("read").prompt, "first");
    let mut record = store.session_record(first).await.expect("read");
    record.session.workspace.mount_path = Some("/old/data/sessions/x".to_owned());
    store.update_session(record, Vec::new()).await.expect("save");
    add_workspace(&store, first).await;
    store.replace_workspace_path_prefix("/old/data", "/new").await.expect("move");
    let moved = store.get_session(first).await.expect("read").workspace.mount_path;
    assert_eq!(moved.as_deref(), Some("/new/sessions/x"));
}
