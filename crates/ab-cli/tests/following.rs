//! `task` with and without `--follow`: questions at the terminal, Ctrl-C, patches, and branches of a chosen name.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::serve::{Server, client, git, repository};
use crate::stage::{BINARY, Ran, Stage, run};

/// The command after "to follow it again: " with further arguments.
fn come_back(stage: &Stage, said: &str, further: &[&str]) -> Ran {
    let (_, rest) = said.split_once("to follow it again: agent-backend ").unwrap();
    let words = rest.lines().next().unwrap().split_whitespace();
    let mut command = stage.command(BINARY);
    command.args(words).args(further);
    run(command, b"")
}

#[test]
fn person_at_the_terminal_answers_the_questions_of_a_task() {
    let stage = repository();
    let _server = Server::start(&stage);
    let data = stage.outside("data");
    let task = ["task", "Note it", "--follow", "--data-dir", data.to_str().unwrap()];

    let shown = stage.answered(&task, &[("[y/n/l]", "what\n"), ("[y/n/l]", "y\n")]);
    for expect in [
        "· The agent runs in a sandbox. It shares the network of this machine.\n",
        "? the agent asks: Write NOTES.md\n  NOTES.md\n  (as the agent describes it)\nallow it? [y/n/l] ",
        "answer y, n or l for later",
        "✓ approved by admin via cli\n",
        "✓ delivered branch ah/note-it-",
        "✓ completed\n",
    ] {
        assert!(shown.contains(expect), "no {expect:?} in\n{shown}");
    }

    let shown = stage.answered(&task, &[("[y/n/l]", "n\n")]);
    assert!(shown.contains("✗ denied by admin via cli\n"), "{shown}");
    assert!(!shown.contains("delivered branch"), "{shown}");

    // Later: the question stays open, and Ctrl-C leaves the session as it is.
    let shown = stage.answered(&task, &[("[y/n/l]", "l\n"), ("stays open", "\u{3}")]);
    let (_, rest) = shown.split_once("detached: session ").unwrap();
    let id = rest.split_whitespace().next().unwrap();
    let session = client(&stage, &["session", "get", id, "--json"]).value();
    assert_eq!((&session["status"], &session["openApprovals"]), (&"running".into(), &1.into()));
    let followed = come_back(&stage, &shown, &["--approve", "always"]);
    assert_eq!(followed.code, 0, "{}\n{}", followed.text(), followed.err);
}

#[test]
fn question_that_cannot_be_shown_in_full_is_denied() {
    let stage = repository();
    let scenario = format!(
        "[[turn]]\nsteps = [{{ ask = {{ title = \"Write data\", command = \"{}\", denied = [{{ say = \"Then \
         not.\\n\" }}] }} }}, {{ say = \"Allowed.\\n\" }}]\n",
        "x".repeat(1_100_000)
    );
    fs::create_dir(stage.path(".agent-backend")).unwrap();
    fs::write(stage.path(".agent-backend/scenario.toml"), scenario).unwrap();
    git(&stage.root(), &["add", "."]);
    git(&stage.root(), &["commit", "-q", "-m", "Scenario"]);
    let _server = Server::start(&stage);

    let followed = client(&stage, &["task", "Write it", "--follow", "--approve", "always"]);
    let said = &followed.err;
    assert!(said.contains("in spite of --approve always: it cannot be shown in full"), "{said}");
    let shown = followed.text();
    assert!(shown.contains("✗ denied by ") && shown.contains("Then not."), "{shown}");
    assert!(shown.contains("✓ completed") && !shown.contains("Allowed"), "{shown}");
    assert_eq!(followed.code, 0, "{said}");

    let data = stage.outside("data");
    let task = ["task", "Write it", "--follow", "--data-dir", data.to_str().unwrap()];
    let shown = stage.answered(&task, &[("[n/l] ", "y\n"), ("[n/l] ", "n\n")]);
    let rest = shown.replace(&"x".repeat(100), "");
    for expect in [
        "  this is not everything; it can only be denied\nallow it? [n/l] y\n",
        "note: it cannot be shown in full, so it can only be denied\nallow it? [n/l] n\n",
        "✗ denied by admin via cli\n",
        "Then not.",
        "✓ completed\n",
    ] {
        assert!(rest.contains(expect), "no {expect:?} in\n{rest}");
    }
}

#[test]
fn task_uses_the_repository_around_the_current_directory() {
    let stage = repository();
    let _server = Server::start(&stage);
    let task_in = |directory: &Path| {
        let mut command = stage.command(BINARY);
        command.args(["task", "Note it", "--delivery", "patch", "--follow", "--approve", "always"]);
        command.arg("--data-dir").arg(stage.outside("data")).current_dir(directory);
        run(command, b"")
    };
    let below = stage.path("src/deep");
    fs::create_dir_all(&below).unwrap();
    let done = task_in(&below);
    assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
    let diff = client(&stage, &["session", "diff"]).text();
    assert!(diff.contains("+++ b/NOTES.md\n"), "{diff}");

    let elsewhere = stage.outside("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let refused = task_in(&elsewhere);
    assert_eq!(refused.code, 2, "{}", refused.err);
    let err = &refused.err;
    assert!(
        err.contains("elsewhere is not in a git repository") && err.contains("--upload ."),
        "{err}"
    );
}

#[test]
fn result_of_a_directory_without_git_is_a_patch() {
    let stage = repository();
    let _server = Server::start(&stage);
    let plain = stage.outside("plain");
    fs::create_dir(&plain).unwrap();
    fs::write(plain.join("README.md"), "hello\n").unwrap();
    let plain = plain.to_str().unwrap();
    let arguments = ["task", "Note it", "--repo", plain, "--follow", "--approve", "always"];
    let done = client(&stage, &arguments);
    assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
    let note = format!("note: {plain} is not in a git repository: the result is a patch\n");
    assert!(done.err.contains(&note), "{}", done.err);
    let diff = client(&stage, &["session", "diff"]).text();
    assert!(diff.contains("+++ b/NOTES.md\n"), "{diff}");

    let refused = client(&stage, &["task", "Note it", "--repo", plain, "--delivery", "branch"]);
    let why = format!(
        "--delivery must be \"patch\": {plain} is not in a git repository, so it has no branches"
    );
    assert!(refused.code != 0 && refused.err.contains(&why), "{}", refused.err);
}

#[test]
fn interrupted_follower_says_how_to_come_back() {
    let stage = repository();
    let _server = Server::start(&stage);
    let mut command = stage.command(BINARY);
    command.args(["task", "Note it", "--follow", "--data-dir"]).arg(stage.outside("data"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut following = command.spawn().unwrap();
    let mut shown = BufReader::new(following.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("the agent asks") {
        line.clear();
        assert_ne!(shown.read_line(&mut line).unwrap(), 0, "it ended before the question");
    }
    kill_process(Pid::from_child(&following), Signal::INT).unwrap();
    let mut said = String::new();
    following.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(following.wait().unwrap().code(), Some(130), "{said}");
    let (_, rest) = said.split_once("detached: session ").unwrap();
    let id = rest.split_whitespace().next().unwrap();
    let session = client(&stage, &["session", "get", id, "--json"]).value();
    assert_eq!(session["status"], "running", "{session}");
    let followed = come_back(&stage, &said, &["--approve", "always"]);
    assert_eq!(followed.code, 0, "{}\n{}", followed.text(), followed.err);
    assert!(followed.text().contains("✓ completed"), "{}", followed.text());
}

#[test]
fn patch_of_a_repository_applies_and_makes_no_branch() {
    let stage = repository();
    let _server = Server::start(&stage);
    let root = stage.root();
    let task = ["task", "Note it", "--delivery", "patch", "--follow", "--approve", "always"];
    let done = client(&stage, &task);
    assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
    assert!(done.text().contains("✓ patch ready\n"), "{}", done.text());
    assert_eq!(git(&root, &["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
    let patch = stage.outside("work.patch");
    std::fs::write(&patch, client(&stage, &["session", "diff"]).out).unwrap();
    git(&root, &["apply", patch.to_str().unwrap()]);
    assert_eq!(git(&root, &["status", "--porcelain"]), "?? NOTES.md\n");
    assert!(stage.text("NOTES.md").contains("Note it"));
}

#[test]
fn branch_of_a_task_has_the_name_that_was_asked_for() {
    let stage = repository();
    let _server = Server::start(&stage);
    let root = stage.root();
    let task = |prompt: &str| {
        let follow = ["--branch", "my/topic", "--follow", "--approve", "always"];
        client(&stage, &[&["task", prompt], &follow[..]].concat())
    };
    let done = task("Note it");
    assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
    assert!(done.text().contains("✓ delivered branch my/topic at "), "{}", done.text());
    let delivered = git(&root, &["rev-parse", "my/topic"]);
    assert!(git(&root, &["show", "my/topic:NOTES.md"]).contains("Note it"));
    // Now it exists, so it is where a second task begins, and is left as it is.
    let again = task("Note more");
    assert_eq!(again.code, 0, "{}\n{}", again.text(), again.err);
    assert!(again.text().contains("✓ delivered branch ah/note-more-"), "{}", again.text());
    assert_eq!(git(&root, &["rev-parse", "my/topic"]), delivered);
    // A name that git refuses, and one below a branch that exists.
    for name in ["a..b", "main/below"] {
        let refused = client(&stage, &["task", "x", "--branch", name]);
        let is_named = refused.code != 0 && refused.err.contains("error: --branch ");
        assert!(is_named, "{name}: {}", refused.err);
    }
}
