//! Paths that lead out of a space, given to every file route and every operation that takes one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use super::fixture::{Fixture, Server};
use super::http::Answer;
use super::spaces::{fixture, operations, space};
use crate::escapes::paths::{WAYS, found_at, plant_in, plant_outside, tells};

/// Requests for files: method, what follows the path, body.
const ROUTES: [(&str, &str, &str); 6] = [
    ("GET", "", ""),
    ("GET", "/", ""),
    ("GET", "/?recursive=true", ""),
    ("PUT", "", "changed"),
    ("PUT", "/put", "changed"),
    ("DELETE", "", ""),
];

/// Operations in which `{path}` is the path that leads out.
const OPERATIONS: [&str; 9] = [
    r#"{"type":"readFile","path":"{path}"}"#,
    r#"{"type":"readFile","path":"{path}","encoding":"base64"}"#,
    r#"{"type":"createFile","path":"{path}","content":"changed"}"#,
    r#"{"type":"createFile","path":"{path}","content":"changed","overwrite":true}"#,
    r#"{"type":"createFile","path":"{path}/put","content":"changed","overwrite":true}"#,
    r#"{"type":"editFile","path":"{path}","edits":[{"oldContent":"outside","newContent":"changed"}]}"#,
    r#"{"type":"deleteFile","path":"{path}"}"#,
    r#"{"type":"shell","command":"cat canary","cwd":"{path}"}"#,
    r#"{"type":"shell","command":"echo changed > canary","cwd":"{path}"}"#,
];

/// A space with a directory beside its files that no path may reach.
struct Scene {
    server: Server,
    space: String,
    root: PathBuf,
    out: PathBuf,
}

impl Scene {
    fn new(fixture: &Fixture) -> Scene {
        let server = fixture.start(&[]);
        let no_network = json!({ "network": { "enabled": false } });
        let space =
            space(&server, &json!({ "policy": "permissive", "policyOverrides": no_network }));
        let own = fixture.data().canonicalize().unwrap().join("spaces").join(&space);
        let (root, out) = (own.join("files"), own.join("outside"));
        plant_outside(&out);
        plant_in(&root, &out);
        Scene { server, space, root, out }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Answer {
        self.server.ask(method, &format!("/v1/spaces/{}/files/{path}", self.space), body)
    }

    fn operation(&self, json: &str) -> Answer {
        let operation: Value = serde_json::from_str(json).unwrap();
        let body = operations(json!([operation]));
        self.server.ask("POST", &format!("/v1/spaces/{}/runs", self.space), &body)
    }
}

/// Every byte of a path that is no letter or digit, encoded.
fn encoded(path: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}

#[test]
fn slow_no_path_leads_a_file_route_or_operation_outside() {
    let fixture = fixture();
    let scene = Scene::new(&fixture);
    let before = found_at(&scene.out);
    let check = |what: &str, answer: &Answer| {
        assert!(!tells(&answer.body), "{what}\ntold {answer:?}");
        assert_eq!(found_at(&scene.out), before, "{what}\nchanged it: {answer:?}");
        // What a request did inside is its right.
        plant_in(&scene.root, &scene.out);
    };
    for way in WAYS {
        let way = way.replace("{out}", scene.out.to_str().unwrap());
        let plain = way.replace("\\u0000", "\0");
        let raw = plain.replace('\0', "%00");
        for (method, rest, body) in ROUTES {
            for path in [&encoded(&plain), &raw] {
                let path = format!("{path}{rest}");
                check(&format!("{method} {path}"), &scene.request(method, &path, body));
            }
        }
        for operation in OPERATIONS {
            let operation = operation.replace("{path}", &way);
            check(&operation, &scene.operation(&operation));
        }
    }
    // The routes and operations work where they should.
    assert_eq!(scene.request("GET", "inner%2Fown.txt", "").body, "own\n");
    let read = scene.operation(r#"{"type":"readFile","path":"inner/own.txt"}"#);
    assert_eq!(read.json()["data"]["events"][0]["content"], "own\n", "{read:?}");
    let Scene { server, .. } = scene;
    server.end();
}

/// Ends the swapping, whatever ends the test.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn swap(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn slow_a_directory_that_is_swapped_for_a_link_leads_no_route_or_operation_outside() {
    const ROUNDS: usize = 15;
    let fixture = fixture();
    let scene = Scene::new(&fixture);
    let before = found_at(&scene.out);
    let (one, other) = (scene.root.join("swapped"), scene.root.join("to-directory"));
    fs::create_dir(&one).unwrap();
    for file in ["canary", "own"] {
        fs::write(one.join(file), "own\n").unwrap();
    }
    let done = AtomicBool::new(false);
    let (mut went, mut refused) = (0, 0);
    std::thread::scope(|threads| {
        let _stop = Stop(&done);
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                swap(&one, &other);
            }
        });
        let mut count = |what: &str, answer: &Answer, is_done: bool| {
            assert!(!tells(&answer.body), "{what}\ntold {answer:?}");
            assert_eq!(found_at(&scene.out), before, "{what}: {answer:?}");
            if is_done {
                went += 1;
            } else {
                refused += 1;
            }
        };
        for _ in 0..ROUNDS {
            for path in ["swapped/canary", "swapped"] {
                // A removal would leave nothing to swap.
                for (method, rest, body) in ROUTES.iter().filter(|(method, ..)| *method != "DELETE")
                {
                    let answer = scene.request(method, &format!("{path}{rest}"), body);
                    count(&format!("{method} {path}{rest}"), &answer, answer.status == 200);
                }
                for operation in OPERATIONS.iter().filter(|it| !it.contains("deleteFile")) {
                    let operation = operation.replace("{path}", path);
                    let answer = scene.operation(&operation);
                    let is_done = answer.json()["data"]["events"][0]["success"] == true;
                    count(&operation, &answer, is_done);
                }
            }
        }
    });
    // It was a directory for some, and a link for others.
    assert!(went > ROUNDS && refused > ROUNDS, "{went} went through, {refused} did not");
    let Scene { server, .. } = scene;
    server.end();
}
