//! Paths that lead out of the served directory, given to every endpoint that takes one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::{Gateway, ask};
use crate::escapes::paths::{WAYS, found_at, plant_in, plant_outside, tells};
use crate::stage::Stage;

/// Requests in which `{path}` is the path that leads out, as part of a query: method, target, body.
const QUERIES: [(&str, &str, &str); 14] = [
    ("GET", "/v1/fs/entries?path={path}", ""),
    ("GET", "/v1/fs/file?path={path}", ""),
    ("GET", "/v1/fs/stat?path={path}", ""),
    ("PUT", "/v1/fs/file?path={path}", "changed"),
    ("PUT", "/v1/fs/file?path={path}/put", "changed"),
    ("DELETE", "/v1/fs/entry?path={path}", ""),
    ("DELETE", "/v1/fs/entry?path={path}&recursive=true", ""),
    ("POST", "/v1/fs/mkdir?path={path}", ""),
    ("POST", "/v1/fs/mkdir?path={path}/made", ""),
    ("GET", "/v1/config/mcp?directory={path}&mcpName=one", ""),
    ("PUT", "/v1/config/mcp?directory={path}&mcpName=one", ENTRY),
    ("DELETE", "/v1/config/mcp?directory={path}&mcpName=one", ""),
    ("PUT", "/v1/config/skills?directory={path}&skillName=one", SKILL),
    ("GET", "/v1/config/skills/entries?directory={path}", ""),
];
const ENTRY: &str = r#"{"type":"local","command":"npx"}"#;
const SKILL: &str = r#"{"sources":[{"type":"local","source":"./s"}]}"#;

/// Moves in which `{path}` is the path that leads out.
const MOVES: [(&str, &str); 4] = [
    ("{path}", "taken"),
    ("own.txt", "{path}"),
    ("own.txt", "{path}/put"),
    ("{path}/kept", "taken"),
];

/// A server on a directory, beside which lies another that no path may reach.
struct Scene {
    gateway: Gateway,
    root: PathBuf,
    out: PathBuf,
    _stage: Stage,
}

impl Scene {
    fn new() -> Scene {
        let stage = Stage::new();
        let (root, out) = (stage.root(), stage.outside("outside"));
        plant_outside(&out);
        plant_in(&root, &out);
        Scene { gateway: Gateway::start(&stage), root, out, _stage: stage }
    }

    /// The status and the whole body of a response.
    fn send(&self, method: &str, target: &str, body: &str) -> (u16, String) {
        let (status, body) = ask(&self.gateway.address, "", method, target, body);
        (status, body.to_string())
    }

    fn move_file(&self, from: &str, to: &str) -> (u16, String) {
        let body = json!({ "from": from, "to": to, "overwrite": true }).to_string();
        self.send("POST", "/v1/fs/move", &body)
    }

    fn upload(&self, target: &str, archive: &str) -> (u16, String) {
        let target = format!("/v1/fs/upload-batch?path={}", encoded(target));
        let tar = "content-type: application/x-tar\r\n";
        let (status, body) = ask(&self.gateway.address, tar, "POST", &target, archive);
        (status, body.to_string())
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

/// An archive with one entry: name, type, link and content.
fn archive(name: &str, kind: u8, link: &str, content: &str) -> String {
    let mut block = vec![0_u8; 512];
    let fits = name.len().min(100);
    block[..fits].copy_from_slice(&name.as_bytes()[..fits]);
    block[100..107].copy_from_slice(b"0000644");
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[148..156].fill(b' ');
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..263].copy_from_slice(b"ustar\0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block.extend_from_slice(content.as_bytes());
    block.resize(block.len().next_multiple_of(512) + 1024, 0);
    String::from_utf8(block).unwrap()
}

#[test]
fn slow_no_path_leads_an_endpoint_outside() {
    let scene = Scene::new();
    let before = found_at(&scene.out);
    let check = |what: &str, (status, body): (u16, String)| {
        assert!(!tells(&body), "{what}\ntold {status} {body}");
        assert_eq!(found_at(&scene.out), before, "{what}\nchanged it: {status} {body}");
        // What a request did inside is its right.
        plant_in(&scene.root, &scene.out);
    };
    for way in WAYS {
        let way = way.replace("{out}", scene.out.to_str().unwrap());
        let plain = way.replace("\\u0000", "\0");
        for (method, target, body) in QUERIES {
            for path in [encoded(&plain), plain.replace('\0', "%00")] {
                let target = target.replace("{path}", &path);
                check(&format!("{method} {target}"), scene.send(method, &target, body));
            }
        }
        for (from, to) in MOVES {
            let (from, to) = (from.replace("{path}", &plain), to.replace("{path}", &plain));
            check(&format!("move {from:?} to {to:?}"), scene.move_file(&from, &to));
        }
        // As the target of an archive, as the name of an entry, and as what its links name.
        for (target, archive) in [
            (plain.as_str(), archive("put", b'0', "", "changed")),
            (".", archive(&plain, b'0', "", "changed")),
            (".", archive(&format!("{plain}/put"), b'0', "", "changed")),
            (".", archive(&plain, b'5', "", "")),
            ("inner", archive("hard", b'1', &plain, "")),
            ("inner", archive("soft", b'2', &plain, "")),
        ] {
            check(&format!("upload to {target:?}, {plain:?}"), scene.upload(target, &archive));
            // A link that was made leads nowhere.
            for name in ["hard", "soft"] {
                let target = format!("/v1/fs/file?path=inner%2F{name}");
                check(&format!("{name} link to {plain:?}"), scene.send("GET", &target, ""));
            }
        }
    }
    // The endpoints work where they should.
    assert_eq!(scene.send("GET", "/v1/fs/stat?path=inner%2Fown.txt", "").0, 200);
    assert_eq!(scene.move_file("own.txt", "inner/moved.txt").0, 200);
    assert_eq!(scene.upload("inner", &archive("put", b'0', "", "1")).0, 200);
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
fn slow_a_directory_that_is_swapped_for_a_link_leads_no_endpoint_outside() {
    const ROUNDS: usize = 30;
    let scene = Scene::new();
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
        let mut count = |what: &str, (status, body): (u16, String)| {
            assert!(!tells(&body), "{what}\ntold {body}");
            assert_eq!(found_at(&scene.out), before, "{what}: {status} {body}");
            if status / 100 == 2 {
                went += 1;
            } else {
                refused += 1;
            }
        };
        for _ in 0..ROUNDS {
            for path in ["swapped%2Fcanary", "swapped"] {
                // A removal would leave nothing to swap.
                for (method, target, body) in
                    QUERIES.iter().filter(|(method, ..)| *method != "DELETE")
                {
                    let target = target.replace("{path}", path);
                    count(&format!("{method} {target}"), scene.send(method, &target, body));
                }
            }
            count("upload", scene.upload("swapped", &archive("put", b'0', "", "changed")));
            count("move", scene.move_file("inner/own.txt", "swapped/own"));
            count("move back", scene.move_file("swapped/own", "inner/own.txt"));
        }
    });
    // It was a directory for some, and a link for others.
    assert!(went > ROUNDS && refused > ROUNDS, "{went} went through, {refused} did not");
}
