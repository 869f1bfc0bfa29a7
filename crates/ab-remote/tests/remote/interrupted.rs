//! Calls that a plain server does by halves: what is said of them, and what is left.

mod fake_sftp;

use std::sync::atomic::{AtomicUsize, Ordering};

use ab_core::options::{
    AttributeChanges, ListOptions, OverwriteMode, RemoveDepth, RemoveOptions, RenameOptions,
};
use ab_core::{Error, ErrorKind, LostCallEffect};
use ab_remote::sftp::packet::SftpRequest;

use self::fake_sftp::{FakeSftpServer, Verdict, string};
use crate::stage::within;

/// Cuts the connection at a request of some kind, the so-manieth of them.
fn cut_at(number: usize, is_meant: fn(&SftpRequest) -> bool) -> FakeSftpServer {
    let met = AtomicUsize::new(0);
    FakeSftpServer::new(move |request| {
        if is_meant(request) && met.fetch_add(1, Ordering::SeqCst) + 1 == number {
            Verdict::Cut
        } else {
            Verdict::Serve
        }
    })
}

fn is_lost(error: &Error, effect: LostCallEffect) {
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error:?}");
    assert_eq!((error.lost_call_effect(), error.lost_call_id()), (Some(effect), None), "{error:?}");
}

#[tokio::test]
async fn a_removal_that_is_cut_between_two_directories_may_have_removed() {
    // The first directory is opened before anything is removed, the second after.
    let everything = RemoveOptions { depth: RemoveDepth::Recursive, ..RemoveOptions::default() };
    for (number, effect) in [(1, LostCallEffect::NotApplied), (2, LostCallEffect::Unknown)] {
        let server = cut_at(number, |request| matches!(request, SftpRequest::OpenDir { .. }))
            .with("/top", None)
            .with("/top/file", Some("x"))
            .with("/top/inner", None);
        let backend = server.backend(|_| {}).await;
        is_lost(&within(backend.rm("top", everything)).await.unwrap_err(), effect);
        assert_eq!(server.files().is_empty(), effect == LostCallEffect::Unknown);
        within(backend.destroy()).await.unwrap();
    }
}

#[tokio::test]
async fn attributes_whose_look_afterwards_is_cut_may_be_set() {
    for (number, effect) in [(1, LostCallEffect::NotApplied), (2, LostCallEffect::Unknown)] {
        let server = cut_at(number, |request| matches!(request, SftpRequest::Lstat { .. }))
            .with("/file", Some("x"));
        let backend = server.backend(|_| {}).await;
        let attributes = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
        let set = within(backend.set_attributes("file", attributes)).await;
        is_lost(&set.unwrap_err(), effect);
        within(backend.destroy()).await.unwrap();
    }
}

#[tokio::test]
async fn a_draft_that_is_cut_changed_nothing_but_its_parents() {
    let filling = |request: &SftpRequest| matches!(request, SftpRequest::Write { .. });
    for (path, effect) in
        [("file", LostCallEffect::NotApplied), ("new/file", LostCallEffect::Unknown)]
    {
        let server = cut_at(1, filling).with("/file", Some("old"));
        let backend = server.backend(|_| {}).await;
        is_lost(&within(backend.write(path, "new")).await.unwrap_err(), effect);
        within(backend.destroy()).await.unwrap();
    }
}

/// A server that does not do its renames from one to another, counted from one.
fn refuses_renames(from: usize, to: usize) -> FakeSftpServer {
    let met = AtomicUsize::new(0);
    let fake_sftp = FakeSftpServer::new(move |request| match request {
        SftpRequest::Rename { .. } => match met.fetch_add(1, Ordering::SeqCst) + 1 {
            number if (from..=to).contains(&number) => Verdict::Refuse,
            _ => Verdict::Serve,
        },
        _ => Verdict::Serve,
    });
    fake_sftp.with("/file", Some("old")).with("/other", Some("new"))
}

/// What the files hold, in some order.
fn contents(server: &FakeSftpServer) -> Vec<String> {
    let mut contents: Vec<String> =
        server.files().into_iter().map(|(_, content)| content).collect();
    contents.sort();
    contents
}

fn file(path: &str, content: &str) -> (String, String) {
    (path.to_owned(), content.to_owned())
}

const OVER: RenameOptions = RenameOptions { overwrite: OverwriteMode::Replace };

#[tokio::test]
async fn a_file_is_replaced_without_a_rename_onto_it() {
    let server = refuses_renames(0, 0);
    let backend = server.backend(|_| {}).await;
    within(backend.write("file", "newer")).await.unwrap();
    assert_eq!(server.files(), [file("/file", "newer"), file("/other", "new")]);
    within(backend.rename_with("other", "file", OVER)).await.unwrap();
    assert_eq!(server.files(), [file("/file", "new")]);
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn a_file_whose_replacement_is_refused_is_put_back() {
    for refused in [1, 2] {
        let server = refuses_renames(refused, refused);
        let backend = server.backend(|_| {}).await;
        let error = within(backend.write("file", "newer")).await.unwrap_err();
        assert_eq!((error.kind(), error.lost_call_effect()), (ErrorKind::Io, None), "{error:?}");
        assert_eq!(server.files(), [file("/file", "old"), file("/other", "new")]);
        within(backend.destroy()).await.unwrap();

        let server = refuses_renames(refused, refused);
        let backend = server.backend(|_| {}).await;
        within(backend.rename_with("other", "file", OVER)).await.unwrap_err();
        assert_eq!(server.files(), [file("/file", "old"), file("/other", "new")]);
        within(backend.destroy()).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_put_back_is_named_with_its_replacement() {
    let renaming = |request: &SftpRequest| matches!(request, SftpRequest::Rename { .. });
    let cut = cut_at(2, renaming).with("/file", Some("old")).with("/other", Some("new"));
    for server in [refuses_renames(2, 9), cut] {
        let backend = server.backend(|_| {}).await;
        let error = within(backend.write("file", "newer")).await.unwrap_err();
        assert_eq!(error.lost_call_effect(), Some(LostCallEffect::Unknown), "{error:?}");
        let files = server.files();
        assert_eq!(contents(&server), ["new", "newer", "old"], "{files:?}");
        for (path, _) in files.iter().filter(|(path, _)| path != "/other") {
            assert!(error.message().contains(&format!("'{path}'")), "{path}: {error}");
        }
        within(backend.destroy()).await.unwrap();
    }
}

/// Time is paused: it passes at once while everybody waits.
#[tokio::test(start_paused = true)]
async fn a_replacement_that_is_not_answered_is_kept() {
    let ignores = |number, is_meant: fn(&SftpRequest) -> bool| {
        let met = AtomicUsize::new(0);
        let fake_sftp = FakeSftpServer::new(move |request| {
            if is_meant(request) && met.fetch_add(1, Ordering::SeqCst) + 1 == number {
                Verdict::Ignore
            } else {
                Verdict::Serve
            }
        });
        fake_sftp.with("/file", Some("old"))
    };
    // What is not filled is no replacement, and is removed.
    let filling = ignores(1, |request| matches!(request, SftpRequest::Write { .. }));
    let placing = ignores(2, |request| matches!(request, SftpRequest::Rename { .. }));
    for (server, effect, left) in [
        (filling, LostCallEffect::NotApplied, &["old"][..]),
        (placing, LostCallEffect::Unknown, &["new", "old"][..]),
    ] {
        let backend = server.backend(|_| {}).await;
        let error = backend.write("file", "new").await.unwrap_err();
        assert_eq!(
            (error.kind(), error.lost_call_effect()),
            (ErrorKind::Timeout, Some(effect)),
            "{error:?}"
        );
        assert_eq!(contents(&server), left);
        backend.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_write_that_failed() {
    let server = FakeSftpServer::new(|request| match request {
        SftpRequest::Write { .. } => Verdict::Refuse,
        _ => Verdict::Serve,
    });
    let server = server.with("/file", Some("old"));
    let backend = server.backend(|_| {}).await;
    within(backend.write("file", "new")).await.unwrap_err();
    // Whoever is told may leave at once.
    assert_eq!(server.files(), [file("/file", "old")]);
    within(backend.destroy()).await.unwrap();
}

#[tokio::test]
async fn data_that_nobody_asked_for_is_not_taken() {
    // Longer than what one request asks for, and nothing at all.
    for (length, said) in [(64 * 1024, "with more bytes than"), (0, "with no bytes")] {
        let server = FakeSftpServer::new(move |request| match request {
            SftpRequest::Read { .. } => Verdict::Say(103, string(&vec![b'x'; length])),
            _ => Verdict::Serve,
        });
        let server = server.with("/small", Some("x")).with("/large", Some(&"x".repeat(100_000)));
        let backend = server.backend(|_| {}).await;
        for path in ["small", "large"] {
            let error = within(backend.read(path)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.message().contains(said), "{path}: {error}");
        }
        within(backend.destroy()).await.unwrap();
    }
}

#[tokio::test]
async fn a_listing_without_end_is_not_taken() {
    // A name, no long name, and a mode.
    let name = [&string(b"x")[..], &[0; 4], &[0, 0, 0, 4], &0o100_644u32.to_be_bytes()].concat();
    let many = [&30_000u32.to_be_bytes()[..], &name.repeat(30_000)].concat();
    for (answer, said) in [(many, "with more names than"), (vec![0; 4], "with no names")] {
        let server = FakeSftpServer::new(move |request| match request {
            SftpRequest::ReadDir { .. } => Verdict::Say(104, answer.clone()),
            _ => Verdict::Serve,
        });
        let backend = server.backend(|_| {}).await;
        let error = within(backend.list(".", ListOptions::default())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.message().contains(said), "{error}");
        within(backend.destroy()).await.unwrap();
    }
}

#[tokio::test]
async fn a_limit_cuts_in_path_order_however_deep() {
    let server = FakeSftpServer::new(|_| Verdict::Serve)
        .with("/a", None)
        .with("/a/b", None)
        .with("/a/b/c", Some("x"))
        .with("/a/d", Some("x"))
        .with("/e", Some("x"));
    let backend = server.backend(|_| {}).await;
    let all = ["a", "a/b", "a/b/c", "a/d", "e"];
    for limit in 0..=all.len() {
        let options =
            ListOptions { max_depth: usize::MAX, max_entries: limit, ..ListOptions::default() };
        let listing = within(backend.list(".", options)).await.unwrap();
        let paths: Vec<String> = listing.entries.iter().map(|each| each.path.to_string()).collect();
        assert_eq!(paths, all[..limit]);
        assert_eq!(listing.truncated.is_some(), limit < all.len(), "{limit}");
    }
    within(backend.destroy()).await.unwrap();
}
