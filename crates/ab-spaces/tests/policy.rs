//! Policy documents on operations.

use ab_policy::PolicyDocument;
use ab_spaces::MessageStatus;
use serde_json::{Value, json};

use crate::stage::{Stage, document};

fn preset(name: &str) -> Stage {
    Stage::new(PolicyDocument::preset(name).expect("a preset"))
}

/// What became of one operation: `done`, `failed`, `ask`, or the rule that denied it.
async fn verdict(stage: &Stage, operation: Value) -> String {
    let message = stage.run(json!([operation])).await;
    let event = json!(message.events[0]);
    if message.status == MessageStatus::AwaitingApproval {
        return "ask".to_owned();
    }
    match event["type"].as_str() {
        Some("policyDenied") => {
            let reason = event["reason"].as_str().expect("a reason");
            assert!(event["suggestion"].is_string(), "{event}");
            let (_, rule) = reason.rsplit_once("(rule ").expect("a rule");
            rule.trim_end_matches(')').to_owned()
        }
        _ if event["success"] == true => "done".to_owned(),
        _ => "failed".to_owned(),
    }
}

fn shell(command: &str) -> Value {
    json!({ "type": "shell", "command": command })
}

#[tokio::test]
async fn every_command_of_a_line_is_judged_by_its_program() {
    let standard = preset("standard");
    for (command, expect) in [
        ("echo a", "done"),
        ("FOO=1 echo a", "done"),
        ("echo \"the word sudo\"", "done"),
        ("echo a && python3 -c 'print(1)'", "shell.allowedCommands"),
        ("ls | sort", "shell.allowedCommands"),
        // Allowed programs: what they start is for the sandbox, not for the rules.
        ("node -e 'process.exit()' || echo none", "done"),
        ("find . -name '*.none' -delete", "done"),
        ("npm run sshd-check || echo none", "done"),
        ("sudo ls", "shell.blockedPatterns"),
        ("echo a; chmod 777 x", "shell.blockedPatterns"),
        ("rm -rf data", "ask"),
        ("rm -fr data", "ask"),
        ("rm -r data", "ask"),
        ("rm --recursive data", "ask"),
        ("rm --rec --for data", "ask"),
        ("rm --r data", "ask"),
        ("rm --dir data", "shell.allowedCommands"),
        ("rm -rf data && curl x", "shell.blockedPatterns"),
        ("rm file", "shell.allowedCommands"),
    ] {
        assert_eq!(verdict(&standard, shell(command)).await, expect, "{command}");
    }
    let own = json!({ "shell": { "blockedPatterns": ["sort --reverse"], "allowedCommands": ["*"], "approvalRequired": [] } });
    let own = Stage::new(document(json!("standard"), own));
    for (command, expect) in [
        ("echo b | sort", "done"),
        ("sort --rev a", "shell.blockedPatterns"),
        ("sort -- a", "failed"),
    ] {
        assert_eq!(verdict(&own, shell(command)).await, expect, "{command}");
    }
    let restrictive = preset("restrictive");
    assert_eq!(verdict(&restrictive, shell("echo a")).await, "shell.enabled");
}

#[tokio::test]
async fn permissive_still_denies_what_the_command_policy_denies() {
    let permissive = Stage::permissive();
    assert_eq!(verdict(&permissive, shell("printf a | sort")).await, "done");
    assert_eq!(verdict(&permissive, shell("rm -rf x")).await, "ask");
    let denied = verdict(&permissive, shell("mkfs.ext4 /dev/sda")).await;
    assert!(!["done", "failed", "ask"].contains(&denied.as_str()), "{denied}");
}

#[tokio::test]
async fn file_rules_know_segments_sizes_and_read_only() {
    let write = |path: &str| json!({ "type": "createFile", "path": path, "content": "x" });
    let read = |path: &str| json!({ "type": "readFile", "path": path });
    let standard = preset("standard");
    for (operation, expect) in [
        (write("src/a.ts"), "done"),
        (write(".env"), "filesystem.blockedPaths"),
        (write("src/.ssh/id"), "filesystem.blockedPaths"),
        (read("node_modules/x/y.js"), "filesystem.blockedPaths"),
        (read("web/node_modules/x"), "filesystem.blockedPaths"),
        (write("keys/site.pem"), "filesystem.blockedPaths"),
        (json!({ "type": "deleteFile", "path": "prod.env" }), "filesystem.blockedPaths"),
        (write("node_modules2"), "done"),
    ] {
        assert_eq!(verdict(&standard, operation.clone()).await, expect, "{operation}");
    }
    let restrictive = preset("restrictive");
    assert_eq!(verdict(&restrictive, write("a")).await, "filesystem.readOnly");
    assert_eq!(verdict(&restrictive, read("a")).await, "failed");
    // A change is judged before its file is looked for.
    let delete = |path: &str| json!({ "type": "deleteFile", "path": path });
    let edit = |path: &str| json!({ "type": "editFile", "path": path, "edits": [{ "oldContent": "x", "newContent": "y" }] });
    for operation in [delete("a"), edit("a")] {
        assert_eq!(
            verdict(&restrictive, operation.clone()).await,
            "filesystem.readOnly",
            "{operation}"
        );
    }
    let small = document(json!("standard"), json!({ "filesystem": { "maxFileSize": 4 } }));
    let small = Stage::new(small);
    assert_eq!(verdict(&small, write("a")).await, "done");
    let large =
        json!({ "type": "createFile", "path": "b", "content": "AAAAAAAA", "encoding": "base64" });
    assert_eq!(verdict(&small, large).await, "filesystem.maxFileSize");
    let grow = json!({ "type": "editFile", "path": "a", "edits": [{ "oldContent": "x", "newContent": "xxxxx" }] });
    assert_eq!(verdict(&small, grow).await, "filesystem.maxFileSize");
    let listed =
        document(json!("standard"), json!({ "filesystem": { "allowedPaths": ["src/**"] } }));
    let listed = Stage::new(listed);
    assert_eq!(verdict(&listed, write("src/a")).await, "done");
    for operation in [write("lib/a"), delete("lib/a"), edit("lib/none")] {
        assert_eq!(
            verdict(&listed, operation.clone()).await,
            "filesystem.allowedPaths",
            "{operation}"
        );
    }
    let off = document(json!("standard"), json!({ "filesystem": { "enabled": false } }));
    assert_eq!(verdict(&Stage::new(off), read("a")).await, "filesystem.enabled");
}

#[tokio::test]
async fn concrete_blocked_paths_are_hidden_from_commands_too() {
    let policy = document(
        json!("permissive"),
        json!({ "network": { "enabled": false }, "filesystem": { "blockedPaths": ["conf/secret"] } }),
    );
    let stage = Stage::new(policy);
    std::fs::create_dir(stage.path("conf")).expect("a directory");
    std::fs::write(stage.path("conf/secret"), "hunter2").expect("a file");
    let events = stage.events(json!([shell("cat conf/secret")])).await;
    assert_eq!(events[0]["success"], false, "{}", events[0]);
    assert!(!events[0].to_string().contains("hunter2"), "{}", events[0]);
}

#[test]
fn documents_that_nothing_enforces_are_refused_with_every_issue() {
    let overrides = json!({
        "filesystem": { "maxFileSize": 0, "blockedPaths": ["a[b]", ""], "quota": 1 },
        "shell": { "timeout": 5, "allowedCommands": ["ls -l"], "approvalRequired": [7] },
        "network": { "allowedDomains": ["*.example.com"], "blockedDomains": ["x"] },
        "secrets": {},
    });
    let issues = PolicyDocument::resolve(Some(&json!("standard")), Some(&overrides));
    let issues = issues.expect_err("it is not valid");
    let mut pointers: Vec<&str> = issues.iter().map(|issue| issue.pointer.as_str()).collect();
    pointers.sort_unstable();
    let expect = [
        "/policyOverrides/filesystem/blockedPaths/0",
        "/policyOverrides/filesystem/blockedPaths/1",
        "/policyOverrides/filesystem/maxFileSize",
        "/policyOverrides/filesystem/quota",
        "/policyOverrides/network/allowedDomains/0",
        "/policyOverrides/network/blockedDomains/0",
        "/policyOverrides/secrets",
        "/policyOverrides/shell/allowedCommands/0",
        "/policyOverrides/shell/approvalRequired/0",
        "/policyOverrides/shell/timeout",
    ];
    assert_eq!(pointers, expect);
    let unknown = PolicyDocument::resolve(Some(&json!("lenient")), None).expect_err("no preset");
    assert_eq!(unknown[0].pointer, "/policy");
    assert_eq!(PolicyDocument::resolve(None, None).expect("the default").name, "standard");
}

#[tokio::test]
async fn commands_cannot_write_to_read_only_spaces_or_exceed_the_file_size() {
    let limited = |files: Value| {
        let overrides = json!({ "network": { "enabled": false }, "filesystem": files });
        Stage::new(document(json!("permissive"), overrides))
    };
    let read_only = limited(json!({ "readOnly": true }));
    std::fs::write(read_only.path("kept"), "kept").expect("a file");
    let events = read_only
        .events(json!([shell("echo x > new"), shell("echo x > kept"), shell("cat kept")]))
        .await;
    for event in &events[..2] {
        let said = event["stderr"].as_str().expect("an output");
        assert!(event["success"] == false && said.contains("Read-only"), "{event}");
    }
    assert_eq!(events[2]["stdout"], "kept", "{}", events[2]);
    assert!(!read_only.path("new").exists());
    let small = limited(json!({ "maxFileSize": 10_000 }));
    let events = small
        .events(json!([
            shell("head -c 9000 /dev/zero > small"),
            shell("head -c 20000 /dev/zero > large"),
        ]))
        .await;
    assert_eq!((&events[0]["success"], &events[1]["success"]), (&json!(true), &json!(false)));
    let size = std::fs::metadata(small.path("large")).expect("the file").len();
    assert!(size <= 10_000, "{size}");
    // The sandbox writes files of its own; below their size, every command says why it does not run.
    let events = limited(json!({ "maxFileSize": 1000 })).events(json!([shell("true")])).await;
    let why = events[0]["error"].as_str().expect("a reason");
    assert!(why.contains("at least 4096"), "{why}");
}

#[test]
fn an_empty_allow_list_is_refused() {
    let overrides = json!({
        "filesystem": { "allowedPaths": [] },
        "shell": { "allowedCommands": [] },
        "network": { "enabled": true, "allowedDomains": [] },
    });
    let issues = PolicyDocument::resolve(Some(&json!("standard")), Some(&overrides));
    let issues = issues.expect_err("it could mean everything or nothing");
    let found: Vec<String> =
        issues.iter().map(|issue| format!("{} {}", issue.pointer, issue.message)).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("/policyOverrides/filesystem/allowedPaths must not be empty"));
    assert!(found[1].starts_with("/policyOverrides/shell/allowedCommands must not be empty"));
    assert!(found[2].starts_with("/policyOverrides/network/allowedDomains must not be empty"));
}

#[tokio::test]
async fn blocked_paths_are_left_out_of_lists_and_searches() {
    let stage = preset("standard");
    std::fs::create_dir(stage.path("src")).expect("a directory");
    std::fs::write(stage.path("src/.env"), "needle").expect("a file");
    std::fs::write(stage.path("src/a.txt"), "needle").expect("a file");
    let backend = stage.space.backend();
    let names = backend.readdir("src").await.expect("a list");
    assert_eq!(names, ["a.txt"]);
    let found = backend.grep("needle", ab_core::backend::GrepOptions::default()).await;
    let found = format!("{:?}", found.expect("a search").matches);
    assert!(found.contains("a.txt") && !found.contains(".env"), "{found}");
    let removed = backend.rm("src", ab_core::options::RemoveOptions::recursive()).await;
    assert!(removed.is_err(), "a directory with blocked paths stays");
}

#[tokio::test]
async fn no_link_leads_to_a_blocked_path() {
    let overrides = json!({
        "network": { "enabled": false },
        "filesystem": { "blockedPaths": [".env", ".ssh/", "conf.d/*.key", "lit/secret"] },
    });
    let stage = Stage::new(document(json!("permissive"), overrides));
    for directory in [".ssh", "conf.d", "lit", "plain"] {
        std::fs::create_dir(stage.path(directory)).expect("a directory");
    }
    for file in [".env", ".ssh/id", "conf.d/a.key", "lit/secret"] {
        std::fs::write(stage.path(file), "hunter2").expect("a file");
    }
    std::fs::write(stage.path("plain/a.txt"), "fine").expect("a file");
    for (link, target) in [
        ("conf", ".env"),
        ("twice", "conf"),
        ("d", ".ssh"),
        ("up", "."),
        ("c", "conf.d"),
        ("l", "lit"),
        ("p", "plain"),
        ("absent", ".ssh/absent"),
    ] {
        std::os::unix::fs::symlink(target, stage.path(link)).expect("a link");
    }
    let read = |path: &str| json!({ "type": "readFile", "path": path });
    let write = |path: &str| json!({ "type": "createFile", "path": path, "content": "x", "overwrite": true });
    let edit = |path: &str| json!({ "type": "editFile", "path": path, "edits": [{ "oldContent": "hunter", "newContent": "x" }] });
    let delete = |path: &str| json!({ "type": "deleteFile", "path": path });
    let mut operations = vec![
        write("d/new"),
        write("d/sub/new"),
        write("absent"),
        write("c/new.key"),
        write("up/.ssh/new"),
    ];
    for path in ["conf", "twice", "d/id", "up/.env", "up/d/id", "c/a.key", "up/c/a.key", "l/secret"]
    {
        operations.extend([read(path), write(path), edit(path)]);
    }
    operations.extend(["d/id", "up/.env", "c/a.key", "l/secret"].map(delete));
    for operation in operations {
        let event = stage.events(json!([operation.clone()])).await.remove(0);
        let refused = event["success"] == false || event["type"] == "policyDenied";
        assert!(refused && !event.to_string().contains("hunter2"), "{operation}: {event}");
    }
    for file in [".env", ".ssh/id", "conf.d/a.key", "lit/secret"] {
        assert_eq!(std::fs::read_to_string(stage.path(file)).expect("a file"), "hunter2", "{file}");
    }
    let ssh = std::fs::read_dir(stage.path(".ssh")).expect("a directory");
    assert_eq!(ssh.count(), 1, "nothing was created");
    assert!(!stage.path("conf.d/new.key").exists());
    // Listings and searches that begin behind a link.
    let backend = stage.space.backend();
    assert!(backend.readdir("d").await.is_err());
    assert_eq!(backend.readdir("c").await.expect("a list"), [""; 0]);
    for root in ["d", "c", "up", "l", "conf", "."] {
        let options = ab_core::backend::GrepOptions { root: root.to_owned(), ..Default::default() };
        let found = backend.grep("hunter2", options).await.map(|found| found.matches);
        assert!(found.as_ref().is_ok_and(Vec::is_empty) || found.is_err(), "{root}: {found:?}");
    }
    // Other links work, a link itself can be removed, and its target stays.
    for operation in [read("p/a.txt"), write("p/b.txt"), delete("p/b.txt"), delete("conf")] {
        assert_eq!(verdict(&stage, operation.clone()).await, "done", "{operation}");
    }
    assert!(stage.path(".env").exists());
}
