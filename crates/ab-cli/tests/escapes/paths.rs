//! Paths that lead out, given to every argument of every tool that takes one. What counts is what
//! lies outside: nothing of it is told, and nothing of it changes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::mcp::Session;
use crate::stage::Stage;

/// Only in a file outside.
const SECRET: &str = "3f9c-outside";
/// Only the name of a file outside, which no path of ours holds.
const NAME: &str = "name-seen-outside";

/// Calls in which `{path}` is the path that leads out; for each tool at least one.
const CALLS: [(&str, &str); 23] = [
    ("read_file", r#"{"path":"{path}"}"#),
    ("read_text_file", r#"{"path":"{path}"}"#),
    ("read_text_file", r#"{"path":"{path}","tail":5}"#),
    ("read_media_file", r#"{"path":"{path}"}"#),
    ("read_multiple_files", r#"{"paths":["own.txt","{path}"]}"#),
    ("list_directory", r#"{"path":"{path}"}"#),
    ("list_directory_with_sizes", r#"{"path":"{path}"}"#),
    ("directory_tree", r#"{"path":"{path}"}"#),
    ("search_files", r#"{"path":"{path}","pattern":"**"}"#),
    ("search_files", r#"{"path":".","pattern":"{path}"}"#),
    ("grep", r#"{"pattern":"-","path":"{path}"}"#),
    ("grep", r#"{"pattern":"-","glob":"{path}"}"#),
    ("get_file_info", r#"{"path":"{path}"}"#),
    ("write_file", r#"{"path":"{path}","content":"changed"}"#),
    ("edit_file", r#"{"path":"{path}","edits":[{"oldText":"outside","newText":"changed"}]}"#),
    ("create_directory", r#"{"path":"{path}/made"}"#),
    ("create_directory", r#"{"path":"{path}"}"#),
    ("move_file", r#"{"source":"{path}","destination":"taken"}"#),
    ("move_file", r#"{"source":"own.txt","destination":"{path}"}"#),
    ("move_file", r#"{"source":"own.txt","destination":"{path}/put"}"#),
    ("delete", r#"{"path":"{path}","recursive":true}"#),
    ("exec", r#"{"command":"cat canary","cwd":"{path}"}"#),
    ("exec", r#"{"command":"echo changed > canary","cwd":"{path}"}"#),
];

/// The tools that take no path.
const PATHLESS: [&str; 5] =
    ["list_allowed_directories", "process_output", "process_input", "process_kill", "process_list"];

/// Ways out; `{out}` is the directory outside.
pub(crate) const WAYS: [&str; 22] = [
    "..",
    "../outside",
    "../outside/canary",
    "inner/../../outside/canary",
    "./../outside/canary",
    "inner/..//..//outside/canary",
    "{out}",
    "{out}/canary",
    "//{out}/canary",
    "/../outside/canary",
    "to-file",
    "to-directory",
    "to-directory/canary",
    "to-directory/kept/canary",
    "to-directory/../outside/canary",
    "to-links/canary",
    "absolute-link",
    "absolute-link/canary",
    "to-new",
    "inner\\u0000/../../outside/canary",
    "/proc/self/root{out}/canary",
    "/proc/self/cwd/../outside/canary",
];

fn testbed() -> Stage {
    let stage = Stage::new();
    plant_outside(&stage.outside("outside"));
    plant(&stage);
    stage
}

/// Something to steal and to change, in a directory outside.
pub(crate) fn plant_outside(out: &Path) {
    fs::create_dir_all(out.join("kept")).unwrap();
    for file in ["canary", "kept/canary"] {
        fs::write(out.join(file), format!("{SECRET}\n")).unwrap();
    }
    fs::write(out.join(NAME), "").unwrap();
}

/// The workspace as every call finds it.
fn plant(stage: &Stage) {
    plant_in(&stage.root(), &stage.outside("outside"));
}

/// A workspace with links to `out`, which lies beside it.
pub(crate) fn plant_in(root: &Path, out: &Path) {
    for entry in fs::read_dir(root).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    fs::create_dir(root.join("inner")).unwrap();
    for file in ["own.txt", "inner/own.txt"] {
        fs::write(root.join(file), "own\n").unwrap();
    }
    for (link, target) in [
        ("to-file", Path::new("../outside/canary")),
        ("to-directory", Path::new("../outside")),
        ("to-links", Path::new("to-directory")),
        ("to-new", Path::new("../outside/new")),
        ("absolute-link", out),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
}

/// Everything below a directory: content and mode by path.
fn walk(directory: &Path, found: &mut BTreeMap<String, (u32, String)>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let mode = entry.metadata().unwrap().permissions().mode();
        let content =
            if kind.is_dir() { String::new() } else { fs::read_to_string(&path).unwrap() };
        found.insert(path.to_str().unwrap().to_owned(), (mode, content));
        if kind.is_dir() {
            walk(&path, found);
        }
    }
}

/// Everything outside: content and mode by path.
fn outside(stage: &Stage) -> BTreeMap<String, (u32, String)> {
    found_at(&stage.outside("outside"))
}

/// Everything in the directory outside, and how much lies beside it.
pub(crate) fn found_at(out: &Path) -> BTreeMap<String, (u32, String)> {
    let mut found = BTreeMap::new();
    walk(out, &mut found);
    let beside = fs::read_dir(out.parent().unwrap()).unwrap().count();
    found.insert("beside".to_owned(), (beside as u32, String::new()));
    found
}

fn told(answer: &Value) -> bool {
    tells(&answer.to_string())
}

/// Whether a text has something of what lies outside.
pub(crate) fn tells(text: &str) -> bool {
    text.contains(SECRET) || text.contains(NAME) || text.contains("M2Y5Yy1vdXRzaWRl")
}

#[test]
fn no_path_leads_a_tool_outside() {
    let stage = testbed();
    let before = outside(&stage);
    let out = stage.outside("outside");
    let mut session = Session::start(&stage, &["--profile", "off"]);
    let listed = session.ask("tools/list", json!({}));
    for tool in listed["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let tried = CALLS.iter().any(|(tool, _)| *tool == name);
        assert!(tried != PATHLESS.contains(&name), "{name}: with a path, or without");
    }
    for way in WAYS {
        let way = way.replace("{out}", out.to_str().unwrap());
        for (tool, arguments) in CALLS {
            let arguments = arguments.replace("{path}", &way);
            let answer = session.call(tool, serde_json::from_str(&arguments).unwrap());
            assert!(!told(&answer), "{tool} {arguments}\ntold {answer}");
            assert_eq!(outside(&stage), before, "{tool} {arguments}\nchanged it: {answer}");
            // What a call did inside is its right.
            plant(&stage);
        }
    }
    assert_eq!(session.end(), "");
}

#[test]
fn a_directory_that_is_swapped_for_a_link_leads_no_tool_outside() {
    const ROUNDS: usize = 15;
    let stage = testbed();
    let before = outside(&stage);
    let (one, other) = (stage.path("swapped"), stage.path("to-directory"));
    fs::create_dir(&one).unwrap();
    for file in ["canary", "own"] {
        fs::write(one.join(file), "own\n").unwrap();
    }
    let mut session = Session::start(&stage, &["--profile", "off"]);
    let done = AtomicBool::new(false);
    let (mut went, mut refused) = (0, 0);
    std::thread::scope(|threads| {
        let _stop = Stop(&done);
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for _ in 0..ROUNDS {
            for (tool, arguments) in CALLS {
                // A removal would leave nothing to swap.
                if tool == "delete" || arguments.contains(r#""destination":"taken""#) {
                    continue;
                }
                for path in ["swapped/canary", "swapped"] {
                    let arguments = arguments.replace("{path}", path);
                    let answer = session.call(tool, serde_json::from_str(&arguments).unwrap());
                    assert!(!told(&answer), "{tool} {arguments}\ntold {answer}");
                    assert_eq!(outside(&stage), before, "{tool} {arguments}: {answer}");
                    if answer["isError"] == true {
                        refused += 1;
                    } else {
                        went += 1;
                    }
                    fs::write(stage.path("own.txt"), "own\n").unwrap();
                }
            }
        }
    });
    // It was a directory for some, and a link for others.
    assert!(went > ROUNDS && refused > ROUNDS, "{went} went through, {refused} did not");
    assert_eq!(session.end(), "");
}

/// Ends the swapping, whatever ends the test.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ways to what `--hide secret --read-only kept` restricts.
const RESTRICTED_WAYS: [&str; 20] = [
    "secret",
    "secret/canary",
    "secret/kept/canary",
    "here",
    "here/here",
    "here/secret",
    "here/secret/canary",
    "to-secret",
    "to-secret/canary",
    "chain/kept/canary",
    "to-canary",
    "inner/up",
    "inner/up/secret/canary",
    "root-link",
    "root-link/secret",
    "root-link/secret/canary",
    "kept/canary",
    "here/kept/canary",
    "to-kept/canary",
    "to-kept",
];

fn plant_restricted(stage: &Stage) {
    for name in stage.names(".") {
        let path = stage.path(&name);
        match name.as_str() {
            "secret" | "kept" => {}
            _ if path.is_dir() && !path.is_symlink() => fs::remove_dir_all(path).unwrap(),
            _ => fs::remove_file(path).unwrap(),
        }
    }
    fs::create_dir(stage.path("inner")).unwrap();
    for file in ["own.txt", "inner/own.txt"] {
        fs::write(stage.path(file), "own\n").unwrap();
    }
    let root = stage.path(".").canonicalize().unwrap();
    for (link, target) in [
        ("here", Path::new(".")),
        ("to-secret", Path::new("secret")),
        ("chain", Path::new("here/to-secret")),
        ("to-canary", Path::new("secret/canary")),
        ("inner/up", Path::new("..")),
        ("to-kept", Path::new("kept")),
        ("root-link", &root),
    ] {
        symlink(target, stage.path(link)).unwrap();
    }
}

#[test]
fn no_link_leads_a_tool_to_what_is_hidden_or_read_only() {
    let stage = Stage::new();
    for directory in ["secret/kept", "kept"] {
        fs::create_dir_all(stage.path(directory)).unwrap();
    }
    for file in ["secret/canary", "secret/kept/canary"] {
        fs::write(stage.path(file), format!("{SECRET}\n")).unwrap();
    }
    fs::write(stage.path("secret").join(NAME), "").unwrap();
    fs::write(stage.path("kept/canary"), "as it was\n").unwrap();
    plant_restricted(&stage);
    let restricted = || {
        let mut found = BTreeMap::new();
        walk(&stage.path("secret"), &mut found);
        walk(&stage.path("kept"), &mut found);
        found
    };
    let before = restricted();
    let flags = ["--profile", "off", "--hide", "secret", "--read-only", "kept"];
    let mut session = Session::start(&stage, &flags);
    for way in RESTRICTED_WAYS {
        for (tool, arguments) in CALLS.iter().filter(|(tool, _)| *tool != "exec") {
            let arguments = arguments.replace("{path}", way);
            let answer = session.call(tool, serde_json::from_str(&arguments).unwrap());
            assert!(!told(&answer), "{tool} {arguments}\ntold {answer}");
            assert_eq!(restricted(), before, "{tool} {arguments}\nchanged it: {answer}");
            plant_restricted(&stage);
        }
    }
    session.end();
}
