//! What an overlay says that it has changed.

use ab_core::options::{AttributeChanges, RemoveOptions};
use ab_core::overlay::MAX_OVERLAY_DIFF_FILE_BYTES;
use ab_core::{FileKind, OverlayChange, OverlayChangeKind, Verb};

use super::{Layers, layers, memory, over, recorded, rm};

/// Path and kind of each change.
fn shown(changes: &[OverlayChange]) -> Vec<(&str, &'static str)> {
    changes.iter().map(|change| (change.path.as_str(), change.kind.as_str())).collect()
}

#[tokio::test]
async fn golden() {
    let lower = memory();
    for (path, text) in [
        ("a.txt", "one\ntwo\nthree\n"),
        ("dir/gone.txt", "old\n"),
        ("dir/kept.txt", "kept\n"),
        ("old/one", "1\n"),
        ("old/two", "2\n"),
        ("same.txt", "same\n"),
        ("was-dir/x", "x\n"),
        ("was-file", "f\n"),
    ] {
        lower.write(path, text).await.unwrap();
    }
    lower.write("binary", b"\0\x01").await.unwrap();
    let Layers { overlaid, view, .. } = over(lower, memory());
    view.write("a.txt", "one\n2\nthree\n").await.unwrap();
    view.write("binary", b"\0\x02").await.unwrap();
    rm(&view, "dir/gone.txt").await;
    view.write("dir/new/file.txt", "new\n").await.unwrap();
    view.mkdir("empty").await.unwrap();
    rm(&view, "old").await;
    view.write("same.txt", "same\n").await.unwrap();
    rm(&view, "was-dir").await;
    view.write("was-dir", "now\n").await.unwrap();
    rm(&view, "was-file").await;
    view.write("was-file/now", "deep\n").await.unwrap();

    let changes = overlaid.diff().await.unwrap();
    let mut text = String::new();
    for change in &changes {
        let kind = |stat: &Option<ab_core::Stat>| match stat {
            Some(stat) => stat.kind.as_str(),
            None => "nothing",
        };
        let (before, after) = (kind(&change.before), kind(&change.after));
        text += &format!("{} {}: {before} to {after}\n", change.kind.as_str(), change.path);
        text += change.diff.as_deref().unwrap_or_default();
    }
    assert_eq!(
        text,
        "\
changed a.txt: file to file
--- a.txt
+++ a.txt
@@ -1,3 +1,3 @@
 one
-two
+2
 three
changed binary: file to file
removed dir/gone.txt: file to nothing
--- dir/gone.txt
+++ dir/gone.txt
@@ -1 +0,0 @@
-old
added dir/new: nothing to directory
added dir/new/file.txt: nothing to file
--- dir/new/file.txt
+++ dir/new/file.txt
@@ -0,0 +1 @@
+new
added empty: nothing to directory
removed old: directory to nothing
changed was-dir: directory to file
changed was-file: file to directory
added was-file/now: nothing to file
--- was-file/now
+++ was-file/now
@@ -0,0 +1 @@
+deep
"
    );
    assert_eq!(overlaid.diff().await.unwrap(), changes, "asking changes nothing");
}

#[tokio::test]
async fn what_is_as_it_was_is_no_change() {
    let Layers { overlaid, view, .. } = layers(&["a", "dir/b", "dir/in/c"]).await;
    assert_eq!(overlaid.diff().await.unwrap(), []);
    view.write("a", "other").await.unwrap();
    view.write("a", "a").await.unwrap();
    view.write("new", "x").await.unwrap();
    rm(&view, "new").await;
    view.rename("dir", "moved").await.unwrap();
    view.rename("moved", "dir").await.unwrap();
    rm(&view, "dir/in").await;
    view.write("dir/in/c", "dir/in/c").await.unwrap();
    assert_eq!(shown(&overlaid.diff().await.unwrap()), []);
}

#[tokio::test]
async fn a_directory_made_again_is_compared_with_the_old_one() {
    let Layers { overlaid, view, .. } =
        layers(&["dir/a", "dir/b", "dir/in/c", "dir/in/deep/d", "dir/old/e"]).await;
    rm(&view, "dir").await;
    view.write("dir/a", "dir/a").await.unwrap();
    view.write("dir/b", "other").await.unwrap();
    view.write("dir/in/new", "new").await.unwrap();
    let expect = [
        ("dir/b", "changed"),
        ("dir/in/c", "removed"),
        ("dir/in/deep", "removed"),
        ("dir/in/new", "added"),
        ("dir/old", "removed"),
    ];
    assert_eq!(shown(&overlaid.diff().await.unwrap()), expect);
}

#[tokio::test]
async fn another_mode_is_a_change() {
    let Layers { overlaid, view, .. } = layers(&["dir/tool", "dir/x"]).await;
    let mode = |bits| AttributeChanges { mode: Some(bits), ..AttributeChanges::default() };
    view.set_attributes("dir/tool", mode(0o755)).await.unwrap();
    view.set_attributes("dir", mode(0o700)).await.unwrap();
    let changes = overlaid.diff().await.unwrap();
    assert_eq!(shown(&changes), [("dir", "changed"), ("dir/tool", "changed")]);
    let modes = |change: &OverlayChange| {
        let mode = |stat: &Option<ab_core::Stat>| stat.as_ref().and_then(|stat| stat.mode);
        (mode(&change.before), mode(&change.after), change.diff.clone())
    };
    assert_eq!(modes(&changes[1]), (Some(0o644), Some(0o755), None));
    view.set_attributes("dir/tool", mode(0o644)).await.unwrap();
    view.set_attributes("dir", mode(0o755)).await.unwrap();
    assert_eq!(shown(&overlaid.diff().await.unwrap()), []);
}

#[tokio::test]
async fn only_texts_of_some_length_are_shown_as_text() {
    let lower = memory();
    let long = "x\n".repeat(MAX_OVERLAY_DIFF_FILE_BYTES as usize);
    lower.write("long", long.as_str()).await.unwrap();
    lower.write("noise", b"\xff\xfe").await.unwrap();
    lower.write("text", "old\n").await.unwrap();
    let Layers { overlaid, view, .. } = over(lower, memory());
    view.write("long", format!("{long}more\n")).await.unwrap();
    view.write("noise", "text now\n").await.unwrap();
    view.write("text", b"\xff no text now").await.unwrap();
    let changes = overlaid.diff().await.unwrap();
    for change in &changes {
        assert_eq!(
            (change.kind, &change.diff),
            (OverlayChangeKind::Changed, &None),
            "{}",
            change.path
        );
        assert_eq!(change.after.as_ref().unwrap().kind, FileKind::File);
    }
    assert_eq!(changes.len(), 3);
    // The same length, and one byte other at the end.
    let mut other = long.clone().into_bytes();
    if let Some(last) = other.last_mut() {
        *last = b'!';
    }
    view.write("long", other).await.unwrap();
    assert_eq!(overlaid.diff().await.unwrap().len(), 3);
    view.write("long", long).await.unwrap();
    assert_eq!(overlaid.diff().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_diff_costs_what_was_changed() {
    let (below, lower) = recorded();
    for number in 0..200 {
        lower.write(&format!("dir/{number:03}"), "x").await.unwrap();
        lower.write(&format!("other/{number:03}/x"), "x").await.unwrap();
    }
    let overlaid = lower.overlay(&memory()).unwrap();
    let view = overlaid.backend();
    view.write("dir/007", "changed").await.unwrap();
    view.rm("dir/008", RemoveOptions::default()).await.unwrap();
    let start = below.recorded_calls().len();
    assert_eq!(overlaid.diff().await.unwrap().len(), 2);
    let calls = &below.verbs_and_paths()[start..];
    assert!(calls.len() < 10, "{calls:?}");
    assert!(calls.iter().all(|(verb, _)| *verb != Verb::List), "{calls:?}");
}
