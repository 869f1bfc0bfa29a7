//! The data directory, tokens, cleanups and artifacts.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ab_api::{ApiKey, ApiKeyId, PageRequest, SessionId, SpaceId, SpaceToken, SpaceTokenId, Time};
use ab_store::{AccessTokenOwner, DataDir, PendingCleanup, StoreError};

use crate::fixture::{scratch, stored, stored_space};
use crate::spaces::removed;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode() & 0o777
}

#[tokio::test]
async fn the_directory_and_its_files_are_private() {
    let scratch = scratch().await;
    stored(&scratch.store, "a").await;
    let data = scratch.dir.path().join("data");
    assert_eq!(mode(&data), 0o700);
    for entry in fs::read_dir(&data).expect("list") {
        let path = entry.expect("an entry").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[tokio::test]
async fn a_closed_store_leaves_one_file() {
    let scratch = scratch().await;
    stored(&scratch.store, "a").await;
    scratch.store.close().await;
    let names = fs::read_dir(scratch.dir.path().join("data"))
        .expect("list")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let names: Vec<String> = names.filter(|name| name.starts_with("state.db")).collect();
    assert_eq!(names, ["state.db"]);
}

#[test]
fn an_open_directory_is_closed_only_if_it_is_ours() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let open = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).expect("make");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("chmod");
        path
    };
    let empty = open("empty");
    drop(DataDir::open(&empty).expect("an empty directory"));
    assert_eq!(mode(&empty), 0o700);
    let used = open("used");
    fs::write(used.join("letter.txt"), "x").expect("write");
    let error = DataDir::open(&used).expect_err("a directory of others");
    assert!(matches!(error, StoreError::DataDirNotPrivate { .. }), "{error}");
    assert_eq!(mode(&used), 0o755);
}

#[tokio::test]
async fn a_second_store_on_the_directory_is_refused() {
    let scratch = scratch().await;
    let path = scratch.dir.path().join("data");
    let error = DataDir::open(&path).expect_err("in use");
    let StoreError::Locked { pid, .. } = &error else { panic!("{error}") };
    assert_eq!(*pid, Some(std::process::id()));
    assert!(error.to_string().contains("is in use by process"), "{error}");
    scratch.store.close().await;
    drop(scratch.store);
    DataDir::open(&path).expect("free again");
}

#[tokio::test]
async fn session_tokens_are_stored_as_digests() {
    let scratch = scratch().await;
    let session = stored(&scratch.store, "a").await;
    let token = "a-very-secret-token";
    scratch.store.add_session_token(session, token).await.expect("add");
    let found = |token: &'static str| scratch.store.session_by_access_token(token);
    assert_eq!(found(token).await.expect("look"), Some(session));
    assert_eq!(found("another").await.expect("look"), None);
    for entry in fs::read_dir(scratch.dir.path().join("data")).expect("list") {
        let bytes = fs::read(entry.expect("an entry").path()).expect("read");
        let is_there = bytes.windows(token.len()).any(|window| window == token.as_bytes());
        assert!(!is_there, "the token is in a file");
    }
    scratch.store.remove_session_tokens(session).await.expect("remove");
    assert_eq!(found(token).await.expect("look"), None);
}

#[tokio::test]
async fn api_keys_are_stored_as_digests_and_revoked_once() {
    let scratch = scratch().await;
    let secret = "a-very-secret-key";
    let key = |name: &str| ApiKey {
        id: ApiKeyId::generate(),
        name: name.to_owned(),
        created_at: Time::now(),
        revoked_at: None,
    };
    let first = key("ci");
    scratch.store.create_api_key(first.clone(), secret).await.expect("create");
    let error = scratch.store.create_api_key(key("ci"), "other").await.expect_err("taken");
    assert!(matches!(error, StoreError::AlreadyExists), "{error}");
    let scratch = scratch.reopen().await;
    let owner = |secret: &'static str| scratch.store.token_owner(secret);
    let known = Some(AccessTokenOwner::ApiKey("ci".to_owned()));
    assert_eq!(owner(secret).await.expect("look"), known);
    assert_eq!(owner("other").await.expect("look"), None);
    for entry in fs::read_dir(scratch.dir.path().join("data")).expect("list") {
        let bytes = fs::read(entry.expect("an entry").path()).expect("read");
        let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_there, "the secret is in a file");
    }
    let revoked = scratch.store.revoke_api_key(first.id).await.expect("revoke");
    assert!(revoked.revoked_at.is_some());
    assert_eq!(owner(secret).await.expect("look"), None);
    assert_eq!(scratch.store.revoke_api_key(first.id).await.expect("again"), revoked);
    let error = scratch.store.revoke_api_key(ApiKeyId::generate()).await.expect_err("unknown");
    assert!(matches!(error, StoreError::NotFound), "{error}");
    scratch.store.create_api_key(key("ci"), "other").await.expect("the name is free");
    assert_eq!(owner("other").await.expect("look"), known);
    let (keys, total) = scratch.store.list_api_keys(PageRequest::default()).await.expect("list");
    assert_eq!((keys.len(), total, &keys[1]), (2, 2, &revoked));
}

#[tokio::test]
async fn tokens_of_a_space_are_bounded_and_end_with_it() {
    let scratch = scratch().await;
    let space = stored_space(&scratch.store).await;
    let token =
        || SpaceToken { id: SpaceTokenId::generate(), space_id: space.id, created_at: Time::now() };
    let first = token();
    scratch.store.add_space_token(first.clone(), "a-secret-of-a-space").await.expect("add");
    let scratch = scratch.reopen().await;
    let owner = |secret: &'static str| scratch.store.token_owner(secret);
    let known = Some(AccessTokenOwner::Space(space.id));
    assert_eq!(owner("a-secret-of-a-space").await.expect("look"), known);
    let listed = scratch.store.list_space_tokens(space.id).await.expect("list");
    assert_eq!(listed, std::slice::from_ref(&first));
    for number in 1..100 {
        scratch.store.add_space_token(token(), &format!("s{number}")).await.expect("add");
    }
    let error = scratch.store.add_space_token(token(), "more").await.expect_err("too many");
    assert!(matches!(error, StoreError::TooManyTokens { limit: 100 }), "{error}");
    let other = scratch.store.remove_space_token(SpaceId::generate(), first.id).await;
    assert!(matches!(other, Err(StoreError::NotFound)), "{other:?}");
    scratch.store.remove_space_token(space.id, first.id).await.expect("revoke");
    assert_eq!(owner("a-secret-of-a-space").await.expect("look"), None);
    assert_eq!(owner("s99").await.expect("look"), known);
    scratch.store.destroy_space(space.clone(), removed()).await.expect("destroy");
    assert_eq!(owner("s99").await.expect("look"), None);
    let error = scratch.store.add_space_token(token(), "late").await.expect_err("no space");
    assert!(matches!(error, StoreError::NotFound), "{error}");
}

#[tokio::test]
async fn cleanup_tokens_stay_until_they_are_removed() {
    let scratch = scratch().await;
    let cleanup = |token: &str| PendingCleanup {
        token: token.to_owned(),
        session: SessionId::generate(),
        executor: "local".to_owned(),
    };
    let (a, b) = (cleanup("a"), cleanup("b"));
    for it in [&a, &b, &a] {
        scratch.store.add_pending_cleanup(it.clone()).await.expect("add");
    }
    let scratch = scratch.reopen().await;
    assert_eq!(scratch.store.pending_cleanups(None).await.expect("list"), [a.clone(), b.clone()]);
    for _ in 0..2 {
        scratch.store.remove_pending_cleanup("a".to_owned()).await.expect("remove");
    }
    assert_eq!(scratch.store.pending_cleanups(None).await.expect("list"), [b]);
    assert_eq!(scratch.store.pending_cleanups(Some(a.session)).await.expect("list"), []);
}

#[tokio::test]
async fn artifacts_are_replaced_by_name() {
    let scratch = scratch().await;
    let session = stored(&scratch.store, "a").await;
    for text in ["one", "two"] {
        scratch.store.put_session_artifact(session, "diff", text.to_owned()).await.expect("put");
    }
    assert_eq!(scratch.store.get_session_artifact(session, "diff").await.expect("read"), "two");
    let error = scratch.store.get_session_artifact(session, "patch").await.expect_err("none");
    assert!(matches!(error, StoreError::NotFound), "{error}");
}
