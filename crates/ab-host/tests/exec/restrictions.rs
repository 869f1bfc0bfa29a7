//! Hidden and read-only paths, for commands in a sandbox and for files.

use ab_core::options::RemoveOptions;
use ab_core::process::PathRestrictions;
use ab_core::{Backend, ErrorKind, Isolation, PathParser, WsPath};
use ab_testkit::commands::exec_stdout_text;
use ab_testkit::expect::expect_error;

use super::Fixture;

fn path(text: &str) -> WsPath {
    PathParser::lenient().parse(text).unwrap()
}

async fn restricted() -> (Fixture, Backend) {
    let fixture = Fixture::behind(Isolation::Bwrap);
    for file in ["hidden-file", "hidden/deep/file", "kept/file", "way/to/kept/file", "free"] {
        fixture.backend.write(file, "content").await.unwrap();
    }
    let restrictions = PathRestrictions {
        hidden: vec![path("hidden-file"), path("hidden")],
        read_only: vec![path("kept"), path("way/to/kept"), path("missing"), path("no/such/path")],
        host_directories: Vec::new(),
    };
    let handle = fixture.backend.restrict(restrictions).unwrap();
    (fixture, handle)
}

#[tokio::test]
async fn commands_meet_them() {
    let (fixture, handle) = restricted().await;
    let root = fixture.workspace.path().display().to_string();
    for line in [
        "grep -q content hidden-file",
        "ls hidden/deep",
        "cat hidden/deep/file",
        "echo x > hidden/new",
        "echo x > kept/file",
        "echo x > kept/new",
        "rm kept/file",
        "chmod 777 kept",
        "mv kept elsewhere",
        "mv way elsewhere",
        "mv way/to elsewhere",
        "rm -r way/to/kept",
        "echo x > missing",
        "mkdir missing",
        "mv free missing",
        "mkdir -p no/such/path",
        "cat ROOT/hidden/deep/file",
        "grep -q content ROOT/hidden-file",
        "echo x > ROOT/kept/file",
        "mv ROOT/way ROOT/elsewhere",
    ] {
        let line = line.replace("ROOT", &root);
        expect_error(handle.exec(&line).await, ErrorKind::CommandFailed);
    }
    assert_eq!(
        exec_stdout_text(&handle, "cat kept/file way/to/kept/file free").await,
        "contentcontentcontent"
    );
    exec_stdout_text(&handle, "echo more >> free; touch way/to/beside").await;
    for file in ["hidden-file", "hidden/deep/file", "kept/file", "way/to/kept/file"] {
        assert_eq!(fixture.backend.read_text(file).await.unwrap(), "content");
    }
    fixture.leave().await;
}

#[tokio::test]
async fn restrictions_inside_each_other_hold() {
    let sets: [(&[&str], &[&str]); 7] = [
        (&["kept", "kept/in"], &[]),
        (&["kept/in", "kept", "kept"], &["kept", "kept/in/deep"]),
        (&["kept/in"], &["kept"]),
        (&["kept/in/deep"], &["kept"]),
        (&["kept/in/deep/file", "kept/in/missing", "kept/none/such"], &["kept", "kept/in"]),
        (&["kept/in/deep/file"], &["."]),
        (&["no/such", "no/other"], &["no", "no/such/path", "kept"]),
    ];
    let fixture = Fixture::behind(Isolation::Bwrap);
    fixture.backend.write("kept/in/deep/file", "content").await.unwrap();
    for (hidden, read_only) in sets {
        let of = |paths: &[&str]| paths.iter().map(|it| path(it)).collect();
        let (hidden, read_only) = (of(hidden), of(read_only));
        let restrictions = PathRestrictions { hidden, read_only, host_directories: Vec::new() };
        let said = format!("{restrictions:?}");
        let handle = fixture.backend.restrict(restrictions.clone()).unwrap();
        let there: Vec<bool> = ["kept", "kept/in", "kept/in/deep", "kept/in/deep/file"]
            .map(|it| !restrictions.hidden.iter().any(|hidden| path(it).starts_with(hidden)))
            .to_vec();
        let line = "for f in kept/in kept/in/deep kept/in/deep/file no/such; do \
                    [ -s $f ] && { [ -f $f ] || [ \"$(ls $f)\" ]; } && echo $f; done; \
                    for d in . kept kept/in kept/in/deep no/such no/other; do \
                    mkdir -p $d 2>/dev/null && echo x 2>/dev/null > $d/new; done; true";
        let seen = handle.exec(line).await.unwrap_or_else(|error| panic!("{said}: {error}"));
        let seen = seen.stdout_text();
        for (name, there) in
            ["kept/in", "kept/in/deep", "kept/in/deep/file"].iter().zip(&there[1..])
        {
            // A directory whose only entry is hidden is still there, with an empty file in it.
            let shown = seen.lines().any(|line| line == *name);
            assert!(*there || !shown, "{said}: {name} is seen in {seen}");
        }
        for kept in ["kept/new", "kept/in/new", "kept/in/deep/new", "no/such/new", "no/other/new"] {
            let mut covered = restrictions.read_only.iter().chain(&restrictions.hidden);
            let covered = covered.any(|it| path(kept).starts_with(it));
            let made = fixture.workspace.path().join(kept);
            assert!(!(covered && made.exists()), "{said}: {kept} was made");
            let _ = std::fs::remove_file(made);
        }
        let file = fixture.backend.read_text("kept/in/deep/file").await.unwrap();
        assert_eq!(file, "content", "{said}");
        let _ = std::fs::remove_dir_all(fixture.workspace.path().join("no"));
    }
    fixture.leave().await;
}

#[tokio::test]
async fn files_meet_them() {
    let (fixture, handle) = restricted().await;
    for hidden in ["hidden-file", "hidden", "hidden/deep/file"] {
        expect_error(handle.stat(hidden).await, ErrorKind::NotFound);
        expect_error(handle.read(hidden).await.map(drop), ErrorKind::NotFound);
        assert!(handle.write(hidden, "x").await.is_err());
    }
    expect_error(handle.write("kept/file", "x").await, ErrorKind::PermissionDenied);
    expect_error(handle.write("kept/new", "x").await, ErrorKind::PermissionDenied);
    expect_error(handle.write("missing", "x").await, ErrorKind::PermissionDenied);
    expect_error(handle.rename("way", "elsewhere").await, ErrorKind::PermissionDenied);
    expect_error(handle.rm("way", RemoveOptions::recursive()).await, ErrorKind::PermissionDenied);
    assert_eq!(handle.read_text("kept/file").await.unwrap(), "content");
    assert_eq!(handle.readdir(".").await.unwrap(), ["free", "kept", "way"]);
    fixture.leave().await;
}

#[tokio::test]
async fn nothing_is_left_where_nothing_was() {
    let (fixture, handle) = restricted().await;
    exec_stdout_text(&handle, "true").await;
    let mut names = fixture.backend.readdir(".").await.unwrap();
    names.sort();
    assert_eq!(names, ["free", "hidden", "hidden-file", "kept", "way"]);
    fixture.leave().await;
}
