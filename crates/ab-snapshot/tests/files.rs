//! Files of repositories, read without a workspace.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use ab_core::ErrorKind;
use ab_snapshot::{RepoFilesRequest, RepoSource};

use crate::fixture::{Fixture, canary};

fn request(fixture: &Fixture) -> RepoFilesRequest {
    RepoFilesRequest {
        source: fixture.repo(),
        reference: None,
        directory: String::new(),
        timeout: Duration::from_secs(60),
    }
}

/// The paths and contents of all files of a request.
async fn all(fixture: &Fixture, request: &RepoFilesRequest) -> Vec<(String, String)> {
    let repository = fixture.workspaces.repo_files(request).await.unwrap();
    let files: Vec<_> = repository.files().iter().collect();
    let contents = repository.read(&files).await.unwrap();
    let text = |content| String::from_utf8(content).unwrap();
    files.iter().zip(contents).map(|(file, it)| (file.path.clone(), text(it))).collect()
}

fn listed(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn files_of_branches_tags_and_commits_are_read() {
    let fixture = Fixture::new();
    let first = fixture.git(&["rev-parse", "main~1"]);
    fixture.git(&["tag", "light", "main~1"]);
    fixture.git(&["tag", "-a", "-m", "with a message", "heavy", "main~1"]);
    let old = listed(&[("README.md", "first\n"), ("src/main.rs", "fn main() {}\n")]);
    let new = listed(&[("README.md", "first\nsecond\n"), ("src/main.rs", "fn main() {}\n")]);
    // Each comes from the source, and then from the cache.
    for _ in 0..2 {
        for (reference, expect) in [
            (None, &new),
            (Some("main"), &new),
            (Some("light"), &old),
            (Some("heavy"), &old),
            (Some(first.as_str()), &old),
        ] {
            let reference = reference.map(str::to_owned);
            let request = RepoFilesRequest { reference, ..request(&fixture) };
            assert_eq!(&all(&fixture, &request).await, expect, "{request:?}");
        }
    }
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "third"]);
    let request = RepoFilesRequest { directory: "./src/".to_owned(), ..request(&fixture) };
    assert_eq!(all(&fixture, &request).await, listed(&[("main.rs", "fn main() {}\n")]));
}

#[tokio::test]
async fn links_are_left_out_and_nothing_of_the_source_runs() {
    let fixture = Fixture::new();
    let (program, mark) = canary(&fixture, "files");
    fixture.write("dir/run", "#!/bin/sh\n");
    fs::set_permissions(fixture.source.join("dir/run"), fs::Permissions::from_mode(0o755)).unwrap();
    fixture.write("dir/empty", "");
    symlink("/etc/passwd", fixture.source.join("dir/link")).unwrap();
    symlink("dir", fixture.source.join("other")).unwrap();
    fixture.write(".gitattributes", "* filter=evil\n");
    fixture.commit("links");
    fixture.git(&["config", "filter.evil.smudge", program.to_str().unwrap()]);
    fixture.git(&["config", "uploadpack.packObjectsHook", program.to_str().unwrap()]);
    let _ = fs::remove_file(&mark);
    let inside = RepoFilesRequest { directory: "dir".to_owned(), ..request(&fixture) };
    let expect = listed(&[("empty", ""), ("run", "#!/bin/sh\n")]);
    assert_eq!(all(&fixture, &inside).await, expect);
    let repository = fixture.workspaces.repo_files(&inside).await.unwrap();
    let executable: Vec<_> = repository.files().iter().map(|file| file.is_executable).collect();
    assert_eq!(executable, [false, true]);
    drop(repository);
    assert!(!mark.exists(), "something of the source ran");
    for directory in ["other", "dir/link", "README.md", "missing"] {
        let directory = directory.to_owned();
        let through = RepoFilesRequest { directory, ..request(&fixture) };
        let error = fixture.workspaces.repo_files(&through).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_told() {
    let fixture = Fixture::new();
    let commit = "0123456789012345678901234567890123456789";
    for (reference, says) in [
        ("no-such", "has no branch or tag no-such"),
        ("--upload-pack=x", "invalid branch name"),
        ("ma*", "invalid branch name"),
        (commit, "cannot fetch"),
    ] {
        let reference = Some(reference.to_owned());
        let request = RepoFilesRequest { reference, ..request(&fixture) };
        let error = fixture.workspaces.repo_files(&request).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    // Other sessions are in the data directory.
    let data = RepoSource::parse(fixture.path("data").to_str().unwrap()).unwrap();
    let own = RepoFilesRequest { source: data, ..request(&fixture) };
    let error = fixture.workspaces.repo_files(&own).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeniedByPolicy, "{error}");
    // A source that does not answer.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.git", silent.local_addr().unwrap());
    let source = RepoSource::parse(&url).unwrap();
    let timeout = Duration::from_millis(500);
    let silent = RepoFilesRequest { source, timeout, ..request(&fixture) };
    let error = fixture.workspaces.repo_files(&silent).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
