//! The end of changes: into the lower layer, or away.

use std::sync::{Arc, Mutex};

use ab_core::guard::{GuardDecision, RefusedPath};
use ab_core::options::{AttributeChanges, RemoveOptions};
use ab_core::{
    Backend, BackendOptions, Call, CallOutcome, Error, ErrorCode, ErrorKind, Guard, Guards,
    MemoryDriver, OverlayWorkspace, Result, Verb,
};
use ab_testkit::expect::{assert_content, assert_missing, expect_error};

use super::{Layers, content, layers, memory, names, over, recorded, rm};

/// Something of every kind of change, over a lower layer that has what is changed.
const FILES: [&str; 9] = [
    "changed",
    "dir/changed",
    "dir/gone",
    "dir/kept",
    "made-again/old",
    "moved/deep/file",
    "removed/x",
    "was-dir/x",
    "was-file",
];

async fn change(view: &Backend) {
    for path in ["changed", "dir/changed", "dir/new", "new/deep/file"] {
        view.write(path, "by the view").await.unwrap();
    }
    rm(view, "dir/gone").await;
    rm(view, "removed").await;
    rm(view, "made-again").await;
    view.write("made-again/new", "by the view").await.unwrap();
    rm(view, "was-dir").await;
    view.write("was-dir", "by the view").await.unwrap();
    rm(view, "was-file").await;
    view.write("was-file/x", "by the view").await.unwrap();
    view.rename("moved", "to/moved").await.unwrap();
    let mode = AttributeChanges { mode: Some(0o700), ..AttributeChanges::default() };
    view.set_attributes("dir/kept", mode).await.unwrap();
}

/// Fails one call: the one after so many others of its verb.
#[derive(Debug, Default)]
struct Failing(Mutex<Option<(Verb, usize)>>);

impl Failing {
    fn backend() -> (Arc<Self>, Backend) {
        let failing = Arc::<Self>::default();
        let guards = Guards { policy: vec![failing.clone()], ..Guards::default() };
        let assembly = BackendOptions { guards, ..BackendOptions::default() };
        (failing, Backend::with_options(Arc::new(MemoryDriver::new()), assembly))
    }

    fn arm(&self, verb: Verb, after: usize) {
        *self.0.lock().unwrap() = Some((verb, after));
    }
}

impl Guard for Failing {
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a> {
        let mut armed = self.0.lock().unwrap();
        match &mut *armed {
            Some((verb, 0)) if *verb == call.verb => {
                *armed = None;
                GuardDecision::Ready(Err(Error::new(
                    ErrorCode::WriteFailed,
                    ErrorKind::Io,
                    "broken",
                )))
            }
            Some((verb, left)) if *verb == call.verb => {
                *left -= 1;
                GuardDecision::ALLOW
            }
            Some(_) | None => GuardDecision::ALLOW,
        }
    }

    fn check_file_size(&self, _: &Call<'_>, _: u64) -> Result<()> {
        Ok(())
    }

    fn on_refused_path(&self, _: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<ab_core::EffectivePolicyControl> {
        None
    }

    fn after_call(&self, _: &Call<'_>, _: &CallOutcome<'_>) {}
}

async fn is_committed(overlaid: &OverlayWorkspace, lower: &Backend, upper: &Backend) {
    assert_eq!(content(lower).await, content(overlaid.backend()).await);
    assert_eq!(content(upper).await, []);
    assert_eq!(overlaid.diff().await.unwrap(), []);
    assert_eq!(lower.stat("dir/kept").await.unwrap().mode, Some(0o700));
}

#[tokio::test]
async fn the_lower_layer_becomes_what_the_view_shows() {
    let Layers { lower, upper, overlaid, view } = layers(&FILES).await;
    change(&view).await;
    let before = content(&view).await;
    assert_ne!(content(&lower).await, before);
    overlaid.commit().await.unwrap();
    assert_eq!(content(&view).await, before);
    is_committed(&overlaid, &lower, &upper).await;
    overlaid.commit().await.unwrap();
    is_committed(&overlaid, &lower, &upper).await;
    view.write("changed", "once more").await.unwrap();
    overlaid.commit().await.unwrap();
    assert_content(&lower, "changed", "once more").await;
}

#[tokio::test]
async fn what_is_as_it_was_is_not_written() {
    let (below, lower) = recorded();
    let before = lower.write("dir/same", "same").await.unwrap();
    let Layers { overlaid, view, upper, .. } = over(lower, memory());
    view.write("dir/same", "same").await.unwrap();
    view.write("dir/new", "new").await.unwrap();
    overlaid.commit().await.unwrap();
    assert_eq!(below.call_count(Verb::Write, "dir/same"), 1, "when it was made");
    assert_eq!(view.stat("dir/same").await.unwrap(), before);
    assert_eq!(names(&upper).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_commit_that_fails_shows_the_same_and_can_go_on() {
    let calls = [
        Verb::Stat,
        Verb::List,
        Verb::Read,
        Verb::Open,
        Verb::Write,
        Verb::Mkdir,
        Verb::Delete,
        Verb::SetAttributes,
        Verb::Rename,
    ];
    let mut failed = 0;
    for verb in calls {
        for at_lower in [true, false] {
            for nth in 0..12 {
                let ((below, lower), (above, upper)) = (Failing::backend(), Failing::backend());
                for path in FILES {
                    lower.write(path, path).await.unwrap();
                }
                let overlaid = lower.overlay(&upper).unwrap();
                change(overlaid.backend()).await;
                overlaid.backend().write("large", vec![b'x'; 1024 * 1024]).await.unwrap();
                let before = content(overlaid.backend()).await;
                let driver = if at_lower { below } else { above };
                driver.arm(verb, nth);
                if overlaid.commit().await.is_ok() {
                    break;
                }
                failed += 1;
                let at = format!("{verb} number {nth}, at the lower layer: {at_lower}");
                assert_eq!(content(overlaid.backend()).await, before, "{at}");
                overlaid.commit().await.unwrap();
                assert_eq!(content(overlaid.backend()).await, before, "{at}");
                is_committed(&overlaid, &lower, &upper).await;
            }
        }
    }
    assert!(failed > 40, "{failed} of the calls were made");
}

#[tokio::test]
async fn large_files_are_committed_whole() {
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(1024 * 1024 + 17).collect();
    let Layers { lower, upper, overlaid, view } = layers(&["dir/large"]).await;
    view.write("dir/large", large.as_slice()).await.unwrap();
    view.write("dir/new", large.as_slice()).await.unwrap();
    overlaid.commit().await.unwrap();
    for path in ["dir/large", "dir/new"] {
        assert!(lower.read(path).await.unwrap() == large, "{path} changed on the way");
    }
    assert_eq!(names(&lower).await, ["dir", "dir/large", "dir/new"]);
    assert_eq!(names(&upper).await, Vec::<String>::new());
}

#[tokio::test]
async fn large_files_go_through_every_overlay() {
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(1024 * 1024 + 17).collect();
    let Layers { lower, overlaid: first, .. } = layers(&["dir/large"]).await;
    let second = first.backend().overlay(&memory()).unwrap();
    second.backend().write("dir/large", large.as_slice()).await.unwrap();
    second.backend().write("dir/new", large.as_slice()).await.unwrap();
    second.commit().await.unwrap();
    assert_eq!(first.backend().readdir("dir").await.unwrap(), ["large", "new"]);
    first.commit().await.unwrap();
    assert!(lower.read("dir/large").await.unwrap() == large, "it changed on the way");
    assert_eq!(names(&lower).await, ["dir", "dir/large", "dir/new"]);
    let other = memory();
    other.write("file", large.as_slice()).await.unwrap();
    let view = other.mount("mnt", first.backend()).unwrap();
    view.rename("file", "mnt/dir/third").await.unwrap();
    assert!(view.read("mnt/dir/third").await.unwrap() == large, "it changed on the way");
    assert_eq!(view.readdir("mnt/dir").await.unwrap(), ["large", "new", "third"]);
}

#[tokio::test]
async fn a_lower_layer_without_room_is_told() {
    let options =
        ab_core::MemoryDriverOptions { max_bytes: 100, ..ab_core::MemoryDriverOptions::default() };
    let lower = Backend::new(ab_core::MemoryDriver::with_options(options).unwrap());
    let Layers { lower, overlaid, view, .. } = over(lower, memory());
    view.write("a", "fits").await.unwrap();
    view.write("b", vec![7; 200]).await.unwrap();
    expect_error(overlaid.commit().await, ErrorKind::NoSpace);
    assert_content(&lower, "a", "fits").await;
    assert_missing(&lower, "b").await;
    assert_eq!(view.read("b").await.unwrap().len(), 200);
    view.write("b", "fits now").await.unwrap();
    overlaid.commit().await.unwrap();
    assert_content(&lower, "b", "fits now").await;
}

#[tokio::test]
async fn discarded_changes_are_gone() {
    let Layers { lower, upper, overlaid, view } = layers(&FILES).await;
    let before = content(&lower).await;
    change(&view).await;
    overlaid.discard().await.unwrap();
    assert_eq!(content(&view).await, before);
    assert_eq!(content(&lower).await, before);
    assert_eq!(content(&upper).await, []);
    overlaid.discard().await.unwrap();
    view.rm("removed", RemoveOptions::recursive()).await.unwrap();
    overlaid.discard().await.unwrap();
    assert_eq!(content(&view).await, before);
}

/// Fails one change of the lower layer, whichever it is: the one after so many others.
#[derive(Debug, Default)]
struct FailingChange(Mutex<Option<usize>>);

impl Guard for FailingChange {
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a> {
        let mut left = self.0.lock().unwrap();
        if !call.modifies_workspace {
            return GuardDecision::ALLOW;
        }
        match &mut *left {
            None => GuardDecision::ALLOW,
            Some(0) => {
                *left = None;
                let error = Error::new(ErrorCode::WriteFailed, ErrorKind::NoSpace, "on purpose");
                GuardDecision::Ready(Err(error))
            }
            Some(more) => {
                *more -= 1;
                GuardDecision::ALLOW
            }
        }
    }

    fn check_file_size(&self, _: &Call<'_>, _: u64) -> Result<()> {
        Ok(())
    }

    fn on_refused_path(&self, _: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<ab_core::EffectivePolicyControl> {
        None
    }

    fn after_call(&self, _: &Call<'_>, _: &CallOutcome<'_>) {}
}

/// Whatever step of a commit fails, each place of the lower layer has what it had or what the view
/// shows, and the next commit completes it.
#[tokio::test]
async fn a_failing_commit_loses_nothing_of_the_lower_layer() {
    for step in 0.. {
        let failing = Arc::<FailingChange>::default();
        let guards = Guards { policy: vec![failing.clone()], ..Guards::default() };
        let assembly = BackendOptions { guards, ..BackendOptions::default() };
        let lower = Backend::with_options(Arc::new(MemoryDriver::new()), assembly);
        let upper = memory();
        for path in FILES {
            lower.write(path, "of the lower layer").await.unwrap();
        }
        let Layers { lower, upper, overlaid, view } = over(lower, upper);
        change(&view).await;
        *failing.0.lock().unwrap() = Some(step);
        let committed = overlaid.commit().await;
        // What was there before, and what is there after, where a change takes its place.
        for (old, new) in [
            ("was-dir/x", "was-dir"),
            ("was-file", "was-file/x"),
            ("made-again/old", "made-again/new"),
            ("changed", "changed"),
            ("dir/changed", "dir/changed"),
        ] {
            let is = |path, text| {
                let lower = &lower;
                async move { lower.read_text(path).await.is_ok_and(|there| there == text) }
            };
            let kept = is(old, "of the lower layer").await;
            let brought = is(new, "by the view").await;
            assert!(kept || brought, "step {step}: neither {old} nor {new}");
            assert!(!(kept && brought), "step {step}: both {old} and {new}");
        }
        if committed.is_ok() {
            assert!(step > 5, "a commit of {step} steps tries too little");
            *failing.0.lock().unwrap() = None;
            is_committed(&overlaid, &lower, &upper).await;
            return;
        }
        overlaid.commit().await.unwrap();
        is_committed(&overlaid, &lower, &upper).await;
    }
}
