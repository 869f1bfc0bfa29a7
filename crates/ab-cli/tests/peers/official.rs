//! The same calls to the official filesystem server and to ours, each on a fresh tree of its own:
//! the same results and the same files afterwards, but for the differences that a case names.
//!
//! A difference that no case names fails, and so does one that is named and no longer there.

mod calls;
mod differences;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ab_testkit::peers::ThirdPartyPrograms;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::calls::CALLS;
use self::differences::{Difference, USED_PATHS};
use self::server::Server;

/// One call, and how its outcome differs on purpose.
struct Call {
    tool: &'static str,
    /// JSON; `{root}` stands for the workspace.
    arguments: &'static str,
    differences: &'static [&'static Difference],
}

impl Call {
    const fn new(
        tool: &'static str,
        arguments: &'static str,
        differences: &'static [&'static Difference],
    ) -> Call {
        Call { tool, arguments, differences }
    }
}

type Files = BTreeMap<String, String>;

/// All that can be seen of a call; the workspace is called `{root}` in it.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    failed: bool,
    /// The blocks that a model sees.
    content: Value,
    /// What a program sees.
    value: Value,
    /// What is in the workspace afterwards.
    files: Files,
}

/// A server, and the tree that is its own.
struct Side {
    server: Server,
    root: PathBuf,
    _keep: TempDir,
}

impl Side {
    fn ours() -> Side {
        let (keep, root) = fixture();
        Side { server: Server::ours(&root), root, _keep: keep }
    }

    fn theirs(peers: &ThirdPartyPrograms) -> Side {
        let (keep, root) = fixture();
        Side { server: Server::official(peers, &root), root, _keep: keep }
    }

    fn make(&mut self, call: &Call) -> Outcome {
        plant(&self.root);
        let root = self.root.to_str().unwrap().to_owned();
        let arguments = serde_json::from_str(&call.arguments.replace("{root}", &root)).unwrap();
        let answer = self.server.call(call.tool, arguments).to_string().replace(&root, "{root}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(outside(&self.root), [("secret".to_owned(), "outside\n".to_owned())]);
        Outcome {
            failed: answer["isError"] == true || answer.get("code").is_some(),
            content: answer["content"].clone(),
            value: answer["structuredContent"].clone(),
            files: found(&self.root),
        }
    }
}

/// An empty workspace; what lies beside it is outside.
fn fixture() -> (TempDir, PathBuf) {
    let keep = tempfile::tempdir().unwrap();
    let root = keep.path().join("workspace");
    fs::create_dir(&root).unwrap();
    fs::write(keep.path().join("secret"), "outside\n").unwrap();
    // The official server answers with paths that have no links.
    let root = fs::canonicalize(root).unwrap();
    (keep, root)
}

/// Puts the tree as every call finds it.
fn plant(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }
    let files: [(&str, &[u8]); 15] = [
        ("README.md", b"# Title\n\nSome `words` and ```more```.\n"),
        ("src/main.rs", b"fn main() {\n    println!(\"hi\");\n    println!(\"hi\");\n}\n"),
        ("src/deep/er/a.rs", b"mod a;\n"),
        ("src/b.txt", b"b\n"),
        ("notes/five.txt", b"one\ntwo\nthree\nfour\nfive\n"),
        ("notes/unended.txt", b"one\ntwo"),
        ("notes/crlf.txt", b"one\r\ntwo\r\n"),
        ("notes/empty.txt", b""),
        ("node_modules/pkg/index.js", b"x\n"),
        (".hidden/a.txt", b"hidden\n"),
        ("data/pixel.png", b"\x89PNG\r\n\x1a\n"),
        ("data/tone.wav", b"RIFF"),
        ("data/doc.pdf", b"%PDF"),
        ("data/blob.bin", b"a\0b"),
        ("data/latin.txt", b"caf\xe9\n"),
    ];
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("big.bin"), vec![b'x'; 2_500_000]).unwrap();
    fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    for (link, target) in [
        ("to-readme", "README.md"),
        ("to-src", "src"),
        ("to-outside", "../secret"),
        ("to-nowhere", "nowhere"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
}

/// Everything below a directory, as one would tell it apart.
fn found(root: &Path) -> Files {
    let mut found = Files::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let kind = fs::symlink_metadata(&path).unwrap();
            let told = if kind.is_symlink() {
                format!("link to {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_dir() {
                left.push(path);
                "directory".to_owned()
            } else {
                let mode = kind.permissions().mode() & 0o777;
                let content = fs::read(&path).unwrap();
                let shown: String = String::from_utf8_lossy(&content).chars().take(200).collect();
                format!("{mode:o} {} {shown:?}", content.len())
            };
            found.insert(name, told);
        }
    }
    found
}

/// What lies beside the workspace, which nothing may touch.
fn outside(root: &Path) -> Vec<(String, String)> {
    let beside = fs::read_dir(root.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    beside
        .filter(|entry| entry.path() != root)
        .map(|entry| {
            let content = fs::read_to_string(entry.path()).unwrap_or_default();
            (entry.file_name().into_string().unwrap(), content)
        })
        .collect()
}

/// What is not as the table says; nothing when all is.
fn judge(call: &Call, ours: &Outcome, theirs: &Outcome) -> Option<String> {
    let without = |left_out: Option<usize>| {
        let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
        (USED_PATHS.even)(&mut ours, &mut theirs);
        for (index, difference) in call.differences.iter().enumerate() {
            if Some(index) != left_out {
                (difference.even)(&mut ours, &mut theirs);
            }
        }
        (ours, theirs)
    };
    let told = format!("{} {}", call.tool, call.arguments);
    let (ours, theirs) = without(None);
    if ours != theirs {
        return Some(format!("{told}: not the same\n  ours   {ours:?}\n  theirs {theirs:?}"));
    }
    let mut named = call.differences.iter().enumerate();
    let stale = named.find(|(index, _)| {
        let (ours, theirs) = without(Some(*index));
        ours == theirs
    })?;
    Some(format!("{told}: no longer different: {}", stale.1.why))
}

#[test]
fn the_same_calls_have_the_same_results() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the official filesystem server") else {
        return;
    };
    let (mut ours, mut theirs) = (Side::ours(), Side::theirs(&peers));
    let told = ours.make(&Call::new("list_directory", r#"{"path":"src"}"#, &[])).value;
    assert_eq!((&told["path"], &told["commandPath"]), (&json!("src"), &json!("{root}/src")));
    let wrong: Vec<String> =
        CALLS.iter().filter_map(|call| judge(call, &ours.make(call), &theirs.make(call))).collect();
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), CALLS.len(), wrong.join("\n"));
}

#[test]
fn every_official_tool_is_called_and_offered() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the official filesystem server") else {
        return;
    };
    let (mut ours, mut theirs) = (Side::ours(), Side::theirs(&peers));
    let (ours, theirs) = (ours.server.tools(), theirs.server.tools());
    assert!(!theirs.is_empty());
    for (name, theirs) in &theirs {
        assert!(CALLS.iter().any(|call| call.tool == name), "{name} is never called");
        let ours = ours.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(ours["title"], theirs["title"], "{name}");
        assert_eq!(ours["annotations"], theirs["annotations"], "{name}");
        assert_eq!(ours["inputSchema"]["required"], theirs["inputSchema"]["required"], "{name}");
        // Bytes have no value beside them.
        let schemas: &[&str] = match name.as_str() {
            "read_media_file" => &["inputSchema"],
            _ => &["inputSchema", "outputSchema"],
        };
        for schema in schemas {
            let fields = theirs[schema]["properties"].as_object().unwrap();
            for (field, expected) in fields {
                let given = &ours[schema]["properties"][field];
                // Lines are counted in whole numbers.
                let counts = (&given["type"], &expected["type"]);
                let counts = counts == (&Value::from("integer"), &Value::from("number"));
                assert!(counts || given["type"] == expected["type"], "{name} {field}: {given}");
                assert_eq!(given["default"], expected["default"], "{name} {field}");
                assert_eq!(given["enum"], expected["enum"], "{name} {field}");
            }
        }
    }
}

#[test]
fn a_new_difference_and_one_that_is_gone_are_told() {
    let outcome = |text: &str| Outcome {
        failed: false,
        content: json!([{ "type": "text", "text": text }]),
        value: json!({ "content": text }),
        files: Files::new(),
    };
    let judged = |differences: &'static [&'static Difference], ours: &str, theirs: &str| {
        judge(&Call::new("a", "{}", differences), &outcome(ours), &outcome(theirs))
    };
    const NAMED: &[&Difference] = &[&differences::WORKSPACE_PATHS];
    assert_eq!(judged(&[], "x", "x"), None);
    assert_eq!(judged(NAMED, "x", "{root}/x"), None);
    assert!(judged(&[], "x", "{root}/x").unwrap().contains("not the same"));
    assert!(judged(NAMED, "y", "{root}/x").unwrap().contains("not the same"));
    assert!(judged(NAMED, "x", "x").unwrap().contains("no longer different: paths"));
}
