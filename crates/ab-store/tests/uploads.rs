//! Uploads: offsets, checks, limits, and what removes their files.

use std::fs;
use std::time::Duration;

use ab_api::{
    PageRequest, SessionStatus, TaskAttachment, Time, UploadId, UploadKind, UploadRequest,
    UploadStatus,
};
use ab_store::{
    SessionRecord, Store, StoreError, UploadLimits, UploadRecord, UploadRefusal, UploadStart,
};

use crate::fixture::{Scratch, new_session, scratch, session};

const LIMITS: UploadLimits = UploadLimits {
    max_bytes: 1000,
    max_total_bytes: 1500,
    max_uploads: 3,
    lifetime: Duration::from_secs(60),
    url_lifetime: Duration::from_secs(60),
    idle_timeout: Duration::from_secs(60),
};

fn request(size: u64) -> UploadRequest {
    UploadRequest { kind: UploadKind::File, name: "a.txt".to_owned(), size, digest: None }
}

async fn made(store: &Store, request: UploadRequest) -> UploadRecord {
    store.create_upload("ada".to_owned(), request, LIMITS, None).await.expect("create")
}

async fn send(
    store: &Store,
    id: UploadId,
    start: UploadStart,
    content: &[u8],
) -> Result<UploadRecord, StoreError> {
    let mut writer = store.write_upload(id, start, LIMITS).await?;
    for piece in content.chunks(7) {
        writer.write(piece).await?;
    }
    writer.finish().await
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> UploadRefusal {
    match outcome.expect_err("refused") {
        StoreError::UploadRefused(refusal) => refusal,
        error => panic!("{error}"),
    }
}

fn files(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.dir.path().join("data/uploads"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.map(|name| name.into_string().expect("UTF-8")).collect()
}

#[tokio::test]
async fn content_arrives_in_pieces_over_a_restart() {
    let mut scratch = scratch().await;
    let id = made(&scratch.store, request(10)).await.upload.id;
    let part = send(&scratch.store, id, UploadStart::At(0), b"0123").await.expect("a part");
    assert_eq!((part.upload.status, part.upload.offset), (UploadStatus::Open, 4));
    // What a writer has not finished is lost, and nothing else.
    let mut lost = scratch.store.write_upload(id, UploadStart::At(4), LIMITS).await.expect("open");
    lost.write(b"45").await.expect("collected");
    let busy = scratch.store.write_upload(id, UploadStart::At(4), LIMITS).await;
    assert_eq!(refusal(busy), UploadRefusal::BeingWritten);
    drop(lost);
    scratch = scratch.reopen().await;
    scratch.store.remove_expired_uploads(Time::now()).await.expect("sweep");
    let store = &scratch.store;
    assert_eq!(store.get_upload(id).await.expect("kept").upload.offset, 4);
    let wrong = send(store, id, UploadStart::At(5), b"x").await;
    assert_eq!(refusal(wrong), UploadRefusal::WrongOffset { expected: 4 });
    let long = send(store, id, UploadStart::At(4), b"456789+").await;
    assert_eq!(refusal(long), UploadRefusal::TooLong { size: 10 });
    let whole = send(store, id, UploadStart::At(4), b"456789").await.expect("the rest");
    assert_eq!(whole.upload.status, UploadStatus::Complete);
    let file = scratch.dir.path().join("data/uploads").join(id.to_string());
    assert_eq!(fs::read(file).expect("the file"), b"0123456789");
    // A repeated last request is harmless; other content is refused.
    let again = send(store, id, UploadStart::At(10), b"").await.expect("nothing more");
    assert_eq!(again.upload.status, UploadStatus::Complete);
    let replaced = send(store, id, UploadStart::FromBeginning, b"x").await;
    assert_eq!(refusal(replaced), UploadRefusal::Complete);
    // What a kill on a full disk may leave: the row without its file.
    fs::remove_file(scratch.dir.path().join("data/uploads").join(id.to_string())).expect("remove");
    let found = store.get_upload(id).await.expect("kept").upload;
    assert_eq!((found.status, found.offset), (UploadStatus::Open, 0));
    send(store, id, UploadStart::At(0), b"0123456789").await.expect("again");
    assert_eq!(store.get_upload(id).await.expect("kept").upload.status, UploadStatus::Complete);
    let (listed, total) = store.list_uploads("ada", PageRequest::default()).await.expect("list");
    assert_eq!((listed.len(), total), (1, 1));
    assert_eq!(store.list_uploads("bob", PageRequest::default()).await.expect("list").1, 0);
}

#[tokio::test]
async fn content_with_a_wrong_digest_and_broken_archives_are_dropped() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let checked = UploadRequest { digest: Some(digest.to_owned()), ..request(5) };
    let id = made(store, checked).await.upload.id;
    let wrong = send(store, id, UploadStart::FromBeginning, b"hallo").await;
    assert!(matches!(refusal(wrong), UploadRefusal::DigestMismatch { .. }));
    assert_eq!(store.get_upload(id).await.expect("kept").upload.offset, 0);
    let right =
        send(store, id, UploadStart::FromBeginning, b"hello").await.expect("the digest fits");
    assert_eq!(right.upload.status, UploadStatus::Complete);

    let archive = UploadRequest { kind: UploadKind::Tar, ..request(600) };
    let id = made(store, archive).await.upload.id;
    let wrong = send(store, id, UploadStart::FromBeginning, &[b'x'; 600]).await;
    assert!(matches!(refusal(wrong), UploadRefusal::InvalidArchive { .. }));
    assert_eq!(store.get_upload(id).await.expect("kept").upload.offset, 0);
    let empty = UploadRequest { kind: UploadKind::File, ..request(0) };
    let id = made(store, empty).await.upload.id;
    assert_eq!(store.get_upload(id).await.expect("open").upload.status, UploadStatus::Open);
    let sent = send(store, id, UploadStart::FromBeginning, b"").await.expect("an empty file");
    assert_eq!(sent.upload.status, UploadStatus::Complete);
}

#[tokio::test]
async fn uploads_are_bounded_in_number_and_size() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let create =
        async |size| store.create_upload("ada".to_owned(), request(size), LIMITS, None).await;
    let first = create(1000).await.expect("the first").upload.id;
    let large = create(501).await;
    assert_eq!(refusal(large), UploadRefusal::TotalTooLarge { limit: 1500 });
    create(1).await.expect("the second");
    create(1).await.expect("the third");
    assert_eq!(refusal(create(1).await), UploadRefusal::TooManyUploads { limit: 3 });
    store.remove_upload(first).await.expect("remove");
    assert!(matches!(store.remove_upload(first).await, Err(StoreError::NotFound)));
    create(1000).await.expect("there is room again");
}

#[tokio::test]
async fn expired_uploads_and_leftover_files_are_removed() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let id = made(store, request(2)).await.upload.id;
    send(store, id, UploadStart::FromBeginning, b"ab").await.expect("complete");
    let expires = store.get_upload(id).await.expect("kept").upload.expires_at;
    let stray = scratch.dir.path().join("data/uploads/upload-stray");
    fs::write(&stray, "left by a kill").expect("write");
    let next = store.remove_expired_uploads(Time::now()).await.expect("sweep");
    assert_eq!(next, Some(expires));
    assert_eq!(files(&scratch), [id.to_string()]);
    let later = expires.saturating_add(Duration::from_secs(1));
    assert_eq!(store.remove_expired_uploads(later).await.expect("sweep"), None);
    assert_eq!(files(&scratch), [""; 0]);
    assert!(matches!(store.get_upload(id).await, Err(StoreError::NotFound)));
}

#[tokio::test]
async fn file_of_a_used_upload_is_kept_until_its_sessions_have_their_workspaces() {
    let scratch = scratch().await;
    let store = &scratch.store;
    let id = made(store, request(2)).await.upload.id;
    let attachment = TaskAttachment { upload_id: id, name: "a.txt".to_owned(), size: 2 };
    let with_upload = |prompt| {
        let mut session = session(prompt);
        session.task.attachments = vec![attachment.clone()];
        session
    };
    let early = store.create_session(new_session(with_upload("early"))).await;
    assert_eq!(refusal(early), UploadRefusal::NotUsable(id));
    send(store, id, UploadStart::FromBeginning, b"ab").await.expect("complete");
    let mut group = [with_upload("one"), with_upload("two")];
    let first = group[0].id;
    for (number, session) in (1..).zip(&mut group) {
        session.task_group = Some(ab_api::TaskGroup { id: first, number, size: 2 });
    }
    let [one, two] = group;
    let both = vec![new_session(one.clone()), new_session(two.clone())];
    store.create_sessions(both).await.expect("both use it");
    let second = store.create_session(new_session(with_upload("second"))).await;
    assert_eq!(refusal(second), UploadRefusal::NotUsable(id));
    assert_eq!(refusal(store.remove_upload(id).await), UploadRefusal::Used);
    let later = Time::now().saturating_add(Duration::from_secs(3600));
    store.remove_expired_uploads(later).await.expect("sweep");
    assert_eq!(files(&scratch), [id.to_string()], "an expired upload that is in use stays");
    store.release_uploads(one.id).await.expect("the first workspace is made");
    store.remove_expired_uploads(Time::now()).await.expect("sweep");
    assert_eq!(files(&scratch), [id.to_string()]);
    // The other session ends before it has a workspace.
    let mut over = new_session(two).record;
    over.session.status = SessionStatus::Cancelled;
    let SessionRecord { session, progress } = over;
    store.update_session(SessionRecord { session, progress }, Vec::new()).await.expect("end");
    store.remove_expired_uploads(Time::now()).await.expect("sweep");
    assert_eq!(files(&scratch), [""; 0]);
}

#[tokio::test]
async fn signatures_are_for_one_upload_and_time_and_survive_a_restart() {
    let scratch = scratch().await;
    let (one, other) = (UploadId::generate(), UploadId::generate());
    let signature = scratch.store.sign_upload(one, 1000).await.expect("sign");
    let scratch = scratch.reopen().await;
    let is = async |id, expires, shown: &str| {
        scratch.store.is_valid_upload_signature(id, expires, shown).await.expect("check")
    };
    assert!(is(one, 1000, &signature).await);
    assert!(!is(other, 1000, &signature).await);
    assert!(!is(one, 1001, &signature).await);
    for wrong in ["", "00", "zz", "ä", &signature[2..], &signature.replace(&signature[..2], "zz")]
    {
        assert!(!is(one, 1000, wrong).await, "{wrong}");
    }
}
