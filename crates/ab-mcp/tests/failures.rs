//! What a model reads when a call does not work. The texts are part of the product.

use std::sync::Arc;

use ab_core::guard::{GuardDecision, RefusedPath};
use ab_core::{
    Backend, BackendOptions, Call, CallOutcome, EffectivePolicyControl, Error, ErrorCode,
    ErrorKind, Guard, Guards, MemoryDriver, Verb,
};
use serde_json::{Value, json};

use crate::caller::{Caller, Place};

const FILES: [(&str, &str); 5] = [
    ("src/main.rs", "fn main() {}\nfn main() {}\n"),
    ("src/map.rs", "one\n"),
    ("docs/guide/intro.md", "hello\n"),
    ("data", "x"),
    ("full/x", "x"),
];

/// Every failure by name: the call, and the text on a local workspace.
fn golden() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let edit = |old: &str| json!([{ "oldText": old, "newText": "x" }]);
    vec![
        (
            "a missing file names those like it",
            "read_text_file",
            json!({ "path": "src/man.rs" }),
            "read 'src/man.rs': no such file or directory\nnearest: 'src/main.rs', 'src/map.rs'",
        ),
        (
            "a file in the wrong place is found elsewhere",
            "read_text_file",
            json!({ "path": "docs/intro.md" }),
            "read 'docs/intro.md': no such file or directory\nnearest: 'docs/guide/intro.md'",
        ),
        (
            "a missing directory is answered with what is there",
            "list_directory",
            json!({ "path": "docs/zebra/crossing" }),
            "list 'docs/zebra/crossing': no such file or directory\n'docs' has: 'guide'",
        ),
        (
            "an ambiguous edit names its count",
            "edit_file",
            json!({ "path": "src/main.rs", "edits": edit("fn main") }),
            "edit 'src/main.rs': the text to replace is found 2 times, at lines 1 and 2\n\
             include more lines until the text occurs only once, or set replaceAll: true",
        ),
        (
            "an edit of text that is not there",
            "edit_file",
            json!({ "path": "src/map.rs", "edits": edit("One") }),
            "edit 'src/map.rs': the text to replace was not found: 'One'\n\
             line 1 differs in upper and lower case: it is 'one'; copy it as it stands",
        ),
        (
            "a directory is no file",
            "read_text_file",
            json!({ "path": "src" }),
            "read 'src': is a directory\nlist_directory shows its content",
        ),
        (
            "a file is no directory",
            "list_directory",
            json!({ "path": "data" }),
            "list 'data': not a directory: the path or one of its parents is a file\n\
             a part of the path is a file: get_file_info shows which",
        ),
        (
            "a path that leaves",
            "read_text_file",
            json!({ "path": "../../etc/passwd" }),
            "read '../../etc/passwd': the path leaves the workspace\n\
             the path must be inside the workspace: see list_allowed_directories",
        ),
        (
            "a path with a NUL",
            "write_file",
            json!({ "path": "a\0b", "content": "" }),
            "write 'a\\u{0}b': contains a NUL byte\n\
             a path is UTF-8 text, relative to the root of the workspace",
        ),
        (
            "a destination that is taken",
            "move_file",
            json!({ "source": "data", "destination": "src/map.rs" }),
            "rename 'src/map.rs': the path already exists\n\
             choose another path, or delete the existing file first",
        ),
        (
            "a directory that is not empty",
            "delete",
            json!({ "path": "full" }),
            "delete 'full': the directory is not empty\n\
             to remove it with its content, pass recursive: true",
        ),
        (
            "a binary file is named, not shown",
            "read_text_file",
            json!({ "path": "logo.png" }),
            "read 'logo.png': a binary file (image/png, 4 B)\n\
             read_media_file returns its bytes in base64",
        ),
        (
            "a pattern that is none",
            "grep",
            json!({ "pattern": "(" }),
            "search '.': pattern '(': unclosed group\n\
             to search for the text as it is, pass literal: true",
        ),
        (
            "an argument that is missing",
            "write_file",
            json!({ "path": "a" }),
            "write_file needs 'content': a string",
        ),
        (
            "an argument of the wrong type",
            "read_text_file",
            json!({ "path": "a", "head": "ten" }),
            "'head' must be a whole number that is not negative, not \"ten\"",
        ),
        (
            "an argument that does not exist",
            "edit_file",
            json!({ "path": "a", "edits": [], "dry_run": true }),
            "edit_file has no argument 'dry_run'; it takes path, edits, dryRun",
        ),
        (
            "options that exclude each other",
            "read_text_file",
            json!({ "path": "a", "head": 1, "tail": 1 }),
            "give one of: head, tail, or offset and limit; they exclude each other",
        ),
        (
            "an edit without its text",
            "edit_file",
            json!({ "path": "data", "edits": [{ "newText": "x" }] }),
            "edit_file needs 'edits[0].oldText': a string",
        ),
        (
            "a choice that is none",
            "list_directory_with_sizes",
            json!({ "path": ".", "sortBy": "age" }),
            "'sortBy' must be \"name\" or \"size\", not \"age\"",
        ),
        (
            "a process that is not there",
            "process_output",
            json!({ "processId": "p-1" }),
            "process_output: no process p-1 in this workspace\n\
             there are none; exec with background: true starts one",
        ),
        (
            "a command that fails",
            "exec",
            json!({ "command": "echo out; echo err >&2; exit 3" }),
            "out\n[stderr]\nerr\n[exit code 3]",
        ),
        (
            "input for a process that is not there",
            "process_input",
            json!({ "processId": "p-1", "end": true }),
            "process_input: no process p-1 in this workspace\n\
             there are none; exec with background: true starts one",
        ),
        (
            "an edit of a file that is not there",
            "edit_file",
            json!({ "path": "src/mop.rs", "edits": edit("x") }),
            "edit 'src/mop.rs': no such file or directory\nnearest: 'src/map.rs'",
        ),
        (
            "an edit of what is no text",
            "edit_file",
            json!({ "path": "logo.png", "edits": edit("x") }),
            "edit 'logo.png': the file is not UTF-8 text: byte 0 is invalid\n\
             only text can be edited; write_file replaces the whole file",
        ),
        (
            "a tree of what is no directory",
            "directory_tree",
            json!({ "path": "zebra" }),
            "show the tree of 'zebra': no such file or directory\n\
             the workspace has: 'data', 'docs', 'full', 'logo.png', 'src'",
        ),
        (
            "a directory to run in that is not there",
            "exec",
            json!({ "command": "true", "cwd": "docs/zebra" }),
            "exec in cwd 'docs/zebra': no such file or directory\n'docs' has: 'guide'",
        ),
        (
            "a directory to run in that is outside",
            "exec",
            json!({ "command": "true", "cwd": "../x" }),
            "exec in cwd '../x': the path leaves the workspace\n\
             the path must be inside the workspace: see list_allowed_directories",
        ),
        (
            "no time at all",
            "exec",
            json!({ "command": "true", "timeout": 0 }),
            "'timeout' must be a number of seconds above 0 and up to 3,600, not the number 0",
        ),
        (
            "more time than there is",
            "exec",
            json!({ "command": "true", "timeout": 1e300, "background": true }),
            "'timeout' must be a number of seconds above 0 and up to 2,592,000, not the number 1e+300",
        ),
        ("an empty command", "exec", json!({ "command": " " }), "exec: the command is empty"),
        (
            "a command that takes too long",
            "exec",
            json!({ "command": "sleep 60", "timeout": 0.1 }),
            "[timed out after 100ms and was ended; pass timeout for up to 3600 s, or background: true \
             to let it run and read its output with process_output]",
        ),
        (
            "a program that is not there",
            "exec",
            json!({ "command": "no-such-program 2>/dev/null" }),
            "[exit code 127]\n\
             [command not found: there is no such program on the PATH of commands. Install it into the \
             workspace and call it by its path, or ask the user]",
        ),
        (
            "a terminal for a command that is waited for",
            "exec",
            json!({ "command": "true", "pty": true }),
            "pty needs background: true",
        ),
        (
            "the size of no terminal",
            "exec",
            json!({ "command": "true", "background": true, "rows": 5 }),
            "columns and rows need pty: true and background: true",
        ),
        (
            "a missing file outside the workspace",
            "delete",
            json!({ "path": "~/zebra" }),
            "delete 'zebra': no such file or directory\n\
             the workspace has: 'data', 'docs', 'full', 'logo.png', 'src'\n\
             ['~/zebra' was taken as 'zebra': ~ is the workspace root; commands find it at \
             '{root}/zebra']",
        ),
    ]
}

#[tokio::test]
async fn failures_have_their_texts() {
    let place = Place::local();
    place.fill(&FILES).await;
    place.backend.write("logo.png", &b"\x89P\0\0"[..]).await.unwrap();
    let caller = place.call().await;
    let mut wrong = Vec::new();
    for (name, tool, arguments, expect) in golden() {
        let root = place.keep.as_ref().unwrap().path().to_str().unwrap();
        let text = caller.refusal(tool, arguments).await.replace(root, "{root}");
        if text != expect {
            wrong.push(format!("{name}\n--- got\n{text}\n--- expected\n{expect}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test]
async fn programs_get_code_and_kind() {
    for place in Place::each(&FILES).await {
        let caller = place.call().await;
        for (tool, arguments, kind) in [
            ("read_text_file", json!({ "path": "no" }), "not_found"),
            ("read_text_file", json!({ "path": "../x" }), "escape"),
            ("read_text_file", json!({}), "invalid"),
            ("delete", json!({ "path": "full" }), "not_empty"),
            ("get_file_info", json!({ "path": "data/x" }), "not_a_directory"),
            (
                "edit_file",
                json!({ "path": "data", "edits": [{ "oldText": "y", "newText": "" }] }),
                "no_match",
            ),
        ] {
            let result = caller.result(tool, arguments.clone()).await;
            let meta = result.meta.unwrap();
            assert_eq!(meta.0["agent-backend/error"]["kind"], kind, "{tool} {arguments}");
            assert!(meta.0["agent-backend/error"]["code"].is_string());
        }
    }
}

#[tokio::test]
async fn no_host_path_outside_the_workspace_is_told() {
    let place = Place::local();
    let root = place.keep.as_ref().unwrap().path().to_path_buf();
    let outside = root.parent().unwrap().join("elsewhere");
    std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
    let caller = place.call().await;
    for path in ["link", "link/below", "../x", "/etc/passwd"] {
        for tool in ["read_text_file", "list_directory", "get_file_info", "read_media_file"] {
            let text = caller.refusal(tool, json!({ "path": path })).await;
            assert!(!text.contains("elsewhere"), "{tool} {path}: {text}");
        }
    }
}

/// Says no to everything but reading, with a rule and a suggestion.
#[derive(Debug)]
struct Strict;

impl Guard for Strict {
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a> {
        let refused = || {
            let message = "refused by rule 'read-only'";
            Error::new(ErrorCode::DangerousOperation, ErrorKind::DeniedByPolicy, message)
                .with_hint("write below 'scratch' instead")
        };
        match call.verb {
            Verb::Write => GuardDecision::Ready(Err(refused())),
            _ => GuardDecision::ALLOW,
        }
    }

    fn check_file_size(&self, _call: &Call<'_>, _size: u64) -> ab_core::Result<()> {
        Ok(())
    }

    fn on_refused_path(&self, _refusal: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<EffectivePolicyControl> {
        None
    }

    fn after_call(&self, _call: &Call<'_>, _outcome: &CallOutcome<'_>) {}
}

#[tokio::test]
async fn what_policy_refuses_names_its_rule_and_suggestion() {
    let guards = Guards { policy: vec![Arc::new(Strict)], ..Guards::default() };
    let assembly = BackendOptions { guards, ..BackendOptions::default() };
    let backend = Backend::with_options(Arc::new(MemoryDriver::new()), assembly);
    let caller = Caller::of(backend).await;
    let text = caller.refusal("write_file", json!({ "path": "a", "content": "x" })).await;
    assert!(text.contains("refused by rule 'read-only'\nwrite below 'scratch' instead"), "{text}");
}
