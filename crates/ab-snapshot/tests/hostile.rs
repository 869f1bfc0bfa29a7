//! Hostile sources and hostile agents: nothing of theirs runs outside the sandbox.

use std::fs;
use std::os::unix::fs::symlink;

use ab_core::ErrorKind;
use ab_snapshot::{PreparedWorkspaceNote, SessionChanges};

use crate::fixture::{Fixture, Sandbox, canary, fingerprint};

#[tokio::test]
async fn nothing_of_a_hostile_source_runs() {
    let fixture = Fixture::new();
    let (program, mark) = canary(&fixture, "source");
    let program = program.to_str().unwrap();
    fixture.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
    fixture.write("filtered.txt", "text\n");
    fixture
        .write(".gitmodules", &format!("[submodule \"x\"]\n\tpath = x\n\turl = ext::{program}\n"));
    symlink("/etc/passwd", fixture.source.join("out")).unwrap();
    fixture.commit("attributes");
    fixture.git(&["config", "core.fsmonitor", program]);
    for (name, value) in [
        ("filter.evil.clean", program),
        ("filter.evil.smudge", program),
        ("filter.evil.process", program),
        ("filter.evil.required", "true"),
        ("diff.evil.textconv", program),
        ("diff.evil.command", program),
        ("core.sshCommand", program),
        ("core.gitProxy", program),
        ("core.alternateRefsCommand", program),
        ("uploadpack.packObjectsHook", program),
        ("credential.helper", program),
        ("submodule.recurse", "true"),
        ("protocol.ext.allow", "always"),
        ("remote.origin.url", "ssh://nowhere/x"),
        ("remote.origin.promisor", "true"),
        ("include.path", program),
    ] {
        let config = fixture.source.join(".git/config");
        fixture.git_in(
            &fixture.path("data"),
            &["config", "--file", config.to_str().unwrap(), name, value],
        );
    }
    let config = fixture.source.join(".git/config");
    let text = fs::read_to_string(&config).unwrap().replace(&format!("path = {program}\n"), "");
    fs::write(&config, text).unwrap();
    fs::create_dir_all(fixture.source.join(".git/hooks")).unwrap();
    for hook in ["post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"] {
        fs::copy(program, fixture.source.join(".git/hooks").join(hook)).unwrap();
    }
    // A file that must be compared by content.
    fixture.write("filtered.txt", "next\n");
    let _ = fs::remove_file(&mark);
    let workspace = fixture.prepare(fixture.request()).await;
    assert!(!mark.exists(), "something of the source ran");
    let uncommitted = PreparedWorkspaceNote::Uncommitted { changed: 1, untracked: 0 };
    assert_eq!(workspace.notes, [PreparedWorkspaceNote::Fetched, uncommitted]);
    assert_eq!(fs::read_to_string(workspace.tree.join("filtered.txt")).unwrap(), "text\n");
    assert!(fs::symlink_metadata(workspace.tree.join("out")).unwrap().is_symlink());
}

/// What an agent leaves behind, and what is collected from it.
async fn after(fixture: &Fixture, script: &str) -> Option<(Sandbox, Box<SessionChanges>)> {
    let workspace = fixture.prepare(fixture.request()).await;
    let sandbox = Sandbox::open(&workspace).await?;
    sandbox.shell(script).await;
    let before = fingerprint(&workspace.read_only_dirs[0]);
    let changes = fixture.changes(&sandbox).await;
    assert_eq!(fingerprint(&workspace.read_only_dirs[0]), before);
    Some((sandbox, changes))
}

#[tokio::test]
async fn programs_that_the_agent_configures_run_inside_only() {
    // The program exists at the same path inside and outside, and tells where it ran.
    let script = "echo work >work.txt; printf '#!/bin/sh\\nls / >>ran.here\\ncat\\n' >evil; chmod +x evil; \
        p=$PWD/evil; mkdir -p .git/hooks; \
        for h in pre-commit commit-msg post-commit post-index-change reference-transaction; do \
        cp evil .git/hooks/$h; done; \
        git config core.fsmonitor $p; git config filter.f.clean $p; git config filter.f.smudge $p; \
        git config diff.d.textconv $p; git config diff.d.command $p; git config diff.external $p; \
        git config core.sshCommand $p; git config gpg.program $p; git config commit.gpgSign true; \
        git config core.pager $p; git config core.editor $p; git config core.hooksPath $PWD/.git/hooks; \
        echo '* filter=f diff=d' >.gitattributes; echo filtered >filtered.txt";
    let fixture = Fixture::new();
    let Some((sandbox, changes)) = after(&fixture, script).await else { return };
    // Outside, the clean filter did not run again, and no driver hid the text.
    assert!(changes.diff.contains("+work\n") && changes.diff.contains("+filtered\n"));
    let tree = &sandbox.workspace.tree;
    // The filter ran, inside: its working directory is the tree, and the root is the sandbox's.
    let ran = fs::read_to_string(tree.join("ran.here")).unwrap_or_default();
    let outside: Vec<String> = fs::read_dir("/")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!ran.is_empty());
    assert!(outside.iter().any(|name| !ran.lines().any(|line| line == name)), "{ran}");
    let work = crate::fixture::branch("ah/work");
    let token = &sandbox.workspace.token;
    fixture.workspaces.deliver_branch(token, &changes, &fixture.repo(), &work).await.unwrap();
    assert_eq!(fixture.git(&["show", "ah/work:work.txt"]), "work");
}

#[tokio::test]
async fn attributes_of_the_agent_do_not_hide_its_changes() {
    let script = "echo '* -diff -text binary' >.gitattributes; echo hidden >hidden.txt";
    let Some((_, changes)) = after(&Fixture::new(), script).await else { return };
    assert!(changes.diff.contains("+hidden\n"), "{}", changes.diff);
    assert!(changes.files.iter().all(|file| file.line_counts.is_some()));
}

#[tokio::test]
async fn unusable_repositories_still_deliver_their_files() {
    let fixture = Fixture::new();
    for ruin in [
        "rm -rf .git",
        "rm -rf .git && echo 'gitdir: /etc' >.git",
        "rm -rf .git && ln -s /etc .git",
        "mv .git /tmp/git && ln -s /tmp/git .git && rm /tmp/git/HEAD",
        "echo garbage >.git/HEAD",
        "echo garbage >.git/config",
        "rm .git/objects/info/alternates",
        "touch .git/index.lock",
        "git checkout -q --orphan x && git rm -rqf . && echo first >README.md",
        "mkdir -p $HOME && printf '[core\\n' >$HOME/.gitconfig",
    ] {
        let script = format!("echo work >work.txt; {ruin}");
        let Some((_, changes)) = after(&fixture, &script).await else { return };
        assert!(changes.diff.contains("+work\n"), "{ruin}: {}", changes.diff);
    }
}

#[tokio::test]
async fn alternates_of_the_agent_lead_to_nothing_outside() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let secret = fixture.path("secret.git");
    fs::create_dir(&secret).unwrap();
    fixture.git_in(&secret, &["init", "-q", "."]);
    fs::write(secret.join("secret"), "secret\n").unwrap();
    fixture.git_in(&secret, &["add", "secret"]);
    fixture.git_in(&secret, &["commit", "-q", "-m", "secret"]);
    let commit = fixture.git_in(&secret, &["rev-parse", "HEAD"]);
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    // A bundle can only contain what git could read inside.
    let objects = secret.join(".git/objects");
    let script = format!(
        "echo {} >>.git/objects/info/alternates; echo {commit} >.git/refs/heads/ah/work; \
         echo work >work.txt",
        objects.display()
    );
    sandbox.shell(&script).await;
    let changes = fixture.changes(&sandbox).await;
    assert!(!changes.diff.contains("secret"), "{}", changes.diff);
    assert!(changes.history_lost_reason.is_some());
}

#[tokio::test]
async fn links_and_odd_names_are_delivered_as_data() {
    let script = "ln -s /etc/passwd link; ln -s / root; echo a >'-rf'; echo b >'$(touch x)'; \
                  printf 'c\\n' >'new\nline'; mkdir nested && cd nested && git init -q . && \
                  echo n >n && git add n && git -c user.name=x -c user.email=x@x commit -qm n";
    let fixture = Fixture::new();
    let Some((sandbox, changes)) = after(&fixture, script).await else { return };
    assert!(changes.diff.contains("+/etc/passwd"));
    assert!(!changes.diff.contains("root:x:0"), "a link was followed");
    assert!(changes.files.iter().any(|file| file.path == "nested/n"), "{:?}", changes.files);
    let work = crate::fixture::branch("ah/work");
    let token = &sandbox.workspace.token;
    fixture.workspaces.deliver_branch(token, &changes, &fixture.repo(), &work).await.unwrap();
    assert_eq!(fixture.git(&["fsck", "--full"]), "");
}

#[tokio::test]
async fn bundle_that_is_replaced_by_something_else_is_refused() {
    let fixture = Fixture::new();
    let workspace = fixture.prepare(fixture.request()).await;
    let Some(sandbox) = Sandbox::open(&workspace).await else { return };
    let outbox = workspace.bundle_dir.display().to_string();
    // The agent's git writes what the agent wants.
    for (bundle, kind) in [
        ("ln -s /etc/passwd", ErrorKind::SpecialFile),
        ("mkdir", ErrorKind::SpecialFile),
        ("mkfifo", ErrorKind::SpecialFile),
        ("echo garbage >", ErrorKind::Invalid),
        ("truncate -s 2G", ErrorKind::TooLarge),
    ] {
        let script = format!("echo $$ >work.txt; rm -rf {outbox}/*; {bundle} {outbox}/work.bundle");
        sandbox.shell(&script).await;
        let liar = Liar { sandbox: &sandbox };
        let author = ab_snapshot::GitAuthor::default();
        let collected = fixture.workspaces.collect_changes(&workspace, &liar, &author, "x").await;
        // The left-over is removed first, and the lie is that a bundle was written.
        let error = collected.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{bundle}: {error}");
        let forger = Forger { sandbox: &sandbox, script };
        let collected = fixture.workspaces.collect_changes(&workspace, &forger, &author, "x").await;
        let error = collected.unwrap_err();
        assert_eq!(error.kind(), kind, "{bundle}: {error}");
    }
}

/// A git that says that it wrote a bundle and did not.
struct Liar<'a> {
    sandbox: &'a Sandbox,
}

/// A git that writes something else than a bundle.
struct Forger<'a> {
    sandbox: &'a Sandbox,
    script: String,
}

#[async_trait::async_trait]
impl ab_snapshot::SandboxedGitRunner for Liar<'_> {
    async fn run(
        &self,
        command: ab_snapshot::SandboxedGitCommand,
    ) -> ab_core::Result<ab_snapshot::SandboxedGitOutput> {
        if command.argv.contains(&"bundle".to_owned()) {
            return Ok(ab_snapshot::SandboxedGitOutput { code: Some(0), ..Default::default() });
        }
        self.sandbox.run(command).await
    }
}

#[async_trait::async_trait]
impl ab_snapshot::SandboxedGitRunner for Forger<'_> {
    async fn run(
        &self,
        command: ab_snapshot::SandboxedGitCommand,
    ) -> ab_core::Result<ab_snapshot::SandboxedGitOutput> {
        if command.argv.contains(&"bundle".to_owned()) {
            self.sandbox.shell(&self.script).await;
            return Ok(ab_snapshot::SandboxedGitOutput { code: Some(0), ..Default::default() });
        }
        self.sandbox.run(command).await
    }
}
