//! From an agent's changes to a branch and a patch.

use std::fs;

use ab_core::ErrorKind;
use ab_snapshot::{CollectChangesOutcome, GitWorkspaceRequest, RepoSource};

use crate::fixture::{Fixture, Sandbox, branch, canary, fingerprint};

#[tokio::test]
async fn changes_become_a_branch_and_a_patch_that_applies() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let script = "echo third >>README.md && git commit -qam 'By the agent' && \
                  printf 'a\\nb\\n' >'new file.txt' && rm src/main.rs && printf '\\0\\1' >data.bin && \
                  mkdir node_modules && echo litter >node_modules/x";
    sandbox.shell(script).await;
    let changes = fixture.changes(&sandbox).await;
    assert_eq!((changes.files_changed, changes.lines_added, changes.lines_removed), (4, 3, 1));
    let paths: Vec<&str> = changes.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["README.md", "data.bin", "new file.txt", "src/main.rs"]);
    assert!(changes.diff.contains("+third\n") && !changes.diff_truncated);
    assert_eq!(changes.left_out_paths, ["node_modules/"]);
    assert_eq!((&changes.history_lost_reason, changes.files_truncated), (&None, false));
    let before = fingerprint(&fixture.source.join("src"));
    let index =
        fingerprint(&fixture.source.join(".git"))[&fixture.source.join(".git/index")].clone();
    let to = fixture.repo();
    let deliver = || {
        fixture.workspaces.deliver_branch(
            &workspace.token,
            &changes,
            &to,
            workspace.branch.as_ref().unwrap(),
        )
    };
    let delivered = deliver().await.unwrap();
    assert_eq!((delivered.branch, delivered.was_already_delivered), (branch("ah/work"), false));
    assert_eq!(fixture.git(&["rev-parse", "ah/work"]), changes.head.as_str());
    let log = fixture.git(&["log", "--format=%an: %s", "main..ah/work"]);
    assert_eq!(log, "Agent: Do the task\nagent-backend: By the agent");
    assert_eq!(fixture.git(&["for-each-ref", "refs/agent-backend"]), "");
    assert_eq!(fixture.git(&["fsck", "--full", "--strict"]), "");
    assert_eq!(fingerprint(&fixture.source.join("src")), before);
    assert_eq!(
        fingerprint(&fixture.source.join(".git"))[&fixture.source.join(".git/index")],
        index
    );
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    // A delivery that was interrupted can be repeated.
    assert!(deliver().await.unwrap().was_already_delivered);
    // The patch says the same.
    let patch = fixture.path("work.patch");
    fs::write(&patch, changes.patch.as_ref().unwrap()).unwrap();
    fixture.git(&["apply", "--index", patch.to_str().unwrap()]);
    assert_eq!(fixture.git(&["write-tree"]), fixture.git(&["rev-parse", "ah/work^{tree}"]));
}

#[tokio::test]
async fn files_of_nested_repositories_are_delivered() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let script = "git init -q new && echo n >new/n && \
                  git init -q 'a b/done' && cd 'a b/done' && echo d >d && echo '*.o' >.gitignore && \
                  echo o >x.o && git add . && git commit -qm Done && \
                  git init -q deep && echo e >deep/e && cd ../.. && \
                  git init -q linked && cd linked && echo l >l && git add . && git commit -qm Linked && \
                  cd .. && git add linked && git commit -qm 'A link' && \
                  mkdir node_modules && git init -q node_modules/p && echo p >node_modules/p/p";
    sandbox.shell(script).await;
    let changes = fixture.changes(&sandbox).await;
    let paths: Vec<&str> = changes.files.iter().map(|file| file.path.as_str()).collect();
    let expect = ["a b/done/.gitignore", "a b/done/d", "a b/done/deep/e", "linked/l", "new/n"];
    assert_eq!(paths, expect);
    let histories = ["a b/done/.git", "a b/done/deep/.git", "linked/.git", "new/.git"];
    for left_out in histories {
        assert!(
            changes.left_out_paths.iter().any(|it| it == left_out),
            "{:?}",
            changes.left_out_paths
        );
    }
    // Later work of a session that goes on.
    sandbox.shell("rm new/n && echo m >new/m").await;
    let changes = fixture.changes(&sandbox).await;
    let paths: Vec<&str> = changes.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths.last(), Some(&"new/m"));
    assert!(!paths.contains(&"new/n"), "{paths:?}");
}

#[tokio::test]
async fn files_that_the_agent_made_unreadable_are_delivered() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let script = "mkdir -p closed/deep node_modules/p && echo a >closed/deep/a && echo b >b && \
                  chmod 000 b closed/deep closed node_modules";
    sandbox.shell(script).await;
    let changes = fixture.changes(&sandbox).await;
    let paths: Vec<&str> = changes.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["b", "closed/deep/a"]);
    assert_eq!(changes.history_lost_reason, None);
}

#[tokio::test]
async fn a_patch_of_lines_that_are_no_utf_8_applies_too() {
    let fixture = Fixture::new();
    fs::write(fixture.source.join("latin.txt"), b"caf\xe9\nsecond\n").unwrap();
    fixture.git(&["add", "latin.txt"]);
    fixture.git(&["commit", "-qm", "latin"]);
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let script = "printf 'caf\\351 uno\\nsecond\\n' >latin.txt && cp latin.txt 'new [*] \"one\".txt' && \
                  echo plain >>README.md && rm -rf node_modules";
    sandbox.shell(script).await;
    let changes = fixture.changes(&sandbox).await;
    let text = changes.patch.as_deref().unwrap();
    assert!(text.contains("+plain\n") && text.contains("GIT binary patch"), "{text}");
    let patch = fixture.path("work.patch");
    fs::write(&patch, text).unwrap();
    fixture.git(&["apply", "--index", patch.to_str().unwrap()]);
    assert_eq!(fs::read(fixture.source.join("latin.txt")).unwrap(), b"caf\xe9 uno\nsecond\n");
    let copied = fs::read(fixture.source.join("new [*] \"one\".txt")).unwrap();
    assert_eq!(copied, b"caf\xe9 uno\nsecond\n");
    assert_eq!(changes.left_out_paths, Vec::<String>::new());
}

#[tokio::test]
async fn more_work_after_a_delivery_is_collected_again() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    sandbox.shell("echo 1 >one").await;
    let first = fixture.changes(&sandbox).await;
    sandbox.shell("test -z \"$(git status --porcelain)\" && echo 2 >two").await;
    let second = fixture.changes(&sandbox).await;
    assert_eq!((first.files_changed, second.files_changed), (1, 2));
    assert_ne!(first.head, second.head);
}

/// A server may be killed at any point of a delivery and then repeats all of it.
#[tokio::test]
async fn repeated_delivery_makes_one_branch_and_leaves_no_other_reference() {
    let fixture = Fixture::new();
    // The second one has no usable repository, so that its files are rescued.
    for (name, script) in [("ah/one", "echo 1 >one"), ("ah/two", "echo 2 >two; rm -rf .git")] {
        let refs = fixture.git(&["for-each-ref", "--format=%(refname)"]);
        let name = branch(name);
        let workspace =
            fixture.prepare(GitWorkspaceRequest::new(fixture.repo(), name.clone())).await;
        let Some(sandbox) = Sandbox::open(&workspace).await else { return };
        sandbox.shell(script).await;
        let changes = fixture.changes(&sandbox).await;
        let to = fixture.repo();
        let first = fixture.workspaces.deliver_branch(&workspace.token, &changes, &to, &name);
        assert!(!first.await.unwrap().was_already_delivered);
        // Killed between the branch and the removal of the reference that kept its objects.
        let temporary = format!("refs/agent-backend/{}", workspace.token);
        fixture.git(&["update-ref", &temporary, changes.head.as_str()]);
        let again = fixture.changes(&sandbox).await;
        assert_eq!(again.head, changes.head, "{name}");
        let second = fixture.workspaces.deliver_branch(&workspace.token, &again, &to, &name);
        assert!(second.await.unwrap().was_already_delivered);
        let after = fixture.git(&["for-each-ref", "--format=%(refname)"]);
        let mut expect: Vec<String> = refs.lines().map(str::to_owned).collect();
        expect.push(format!("refs/heads/{name}"));
        expect.sort();
        assert_eq!(after.lines().collect::<Vec<_>>(), expect);
    }
}

#[tokio::test]
async fn nothing_changed_is_said() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    assert!(matches!(fixture.collect(&sandbox).await, CollectChangesOutcome::Unchanged { .. }));
    let script = "echo x >x && git add x && git commit -qm x && git rm -q x && git commit -qm back";
    sandbox.shell(script).await;
    assert!(matches!(fixture.collect(&sandbox).await, CollectChangesOutcome::Unchanged { .. }));
}

#[tokio::test]
async fn existing_branches_are_never_changed() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    sandbox.shell("echo x >x").await;
    let changes = fixture.changes(&sandbox).await;
    let refs = fixture.git(&["for-each-ref"]);
    // `main` could be fast-forwarded; `dev` is another history; `main/x` cannot be beside `main`.
    for (name, kind) in [
        ("main", ErrorKind::AlreadyExists),
        ("dev", ErrorKind::AlreadyExists),
        ("main/x", ErrorKind::CommandFailed),
    ] {
        let (to, name) = (fixture.repo(), branch(name));
        let delivered = fixture.workspaces.deliver_branch(&workspace.token, &changes, &to, &name);
        assert_eq!(delivered.await.unwrap_err().kind(), kind, "{name}");
        assert_eq!(fixture.git(&["for-each-ref"]), refs);
    }
}

#[tokio::test]
async fn delivery_runs_nothing_of_the_target_repository() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    sandbox.shell("echo x >x").await;
    let changes = fixture.changes(&sandbox).await;
    let (program, mark) = canary(&fixture, "target");
    let program = program.to_str().unwrap();
    for hook in ["reference-transaction", "post-checkout", "update", "post-update", "pre-receive"] {
        fs::create_dir_all(fixture.source.join(".git/hooks")).unwrap();
        fs::copy(program, fixture.source.join(".git/hooks").join(hook)).unwrap();
    }
    let lender = fixture.path("lender.git");
    fs::create_dir_all(lender.join("objects")).unwrap();
    fs::write(
        fixture.source.join(".git/objects/info/alternates"),
        format!("{}\n", lender.join("objects").display()),
    )
    .unwrap();
    let rewrite = format!("url.ext::{program} %S.insteadOf");
    let data = fixture.path("data");
    for (name, value) in [
        ("core.fsmonitor", program),
        ("core.alternateRefsCommand", program),
        ("core.sshCommand", program),
        ("gc.auto", "1"),
        ("fetch.prune", "true"),
        ("credential.helper", program),
        ("protocol.ext.allow", "always"),
        (rewrite.as_str(), "nothing-like-it"),
    ] {
        let config = fixture.source.join(".git/config");
        fixture.git_in(&data, &["config", "--file", config.to_str().unwrap(), name, value]);
    }
    let to = fixture.repo();
    fixture
        .workspaces
        .deliver_branch(&workspace.token, &changes, &to, &branch("ah/work"))
        .await
        .unwrap();
    assert!(!mark.exists(), "something of the target ran");
    let head = fs::read_to_string(fixture.source.join(".git/refs/heads/ah/work")).unwrap();
    assert_eq!(head.trim(), changes.head.as_str());
}

#[tokio::test]
async fn target_that_redirects_our_path_gets_an_error() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    sandbox.shell("echo x >x").await;
    let changes = fixture.changes(&sandbox).await;
    let (program, mark) = canary(&fixture, "redirect");
    let rewrite = format!("url.ext::{} %S .insteadOf", program.display());
    fixture.git(&["config", &rewrite, fixture.path("data").to_str().unwrap()]);
    fixture.git(&["config", "protocol.ext.allow", "always"]);
    let to = RepoSource::parse(fixture.source.to_str().unwrap()).unwrap();
    let work = branch("ah/work");
    let delivered = fixture.workspaces.deliver_branch(&workspace.token, &changes, &to, &work);
    assert!(delivered.await.is_err());
    assert!(!mark.exists(), "the redirection ran");
}
