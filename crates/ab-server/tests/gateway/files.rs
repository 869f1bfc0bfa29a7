//! `/v1/fs` and `/v1/config`.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::fixture::Fixture;
use crate::caller::{Got, get, head, send};

async fn put(fixture: &Fixture, path: &str, body: &str) -> Got {
    let path = format!("/v1/fs/file?path={path}");
    send(fixture.address(), &head("PUT", &path, &[]), body).await
}

/// A tar archive of one entry: name, type, link and content.
pub(super) fn tar(name: &str, kind: u8, link: &str, content: &str) -> String {
    let mut block = vec![0_u8; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[148..156].fill(b' ');
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..263].copy_from_slice(b"ustar\0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block.extend_from_slice(content.as_bytes());
    block.resize(block.len().next_multiple_of(512), 0);
    String::from_utf8(block).unwrap()
}

/// The end marker of an archive.
pub(super) fn end() -> String {
    "\0".repeat(1024)
}

pub(super) async fn upload(fixture: &Fixture, path: &str, archive: &str) -> Got {
    let path = format!("/v1/fs/upload-batch?path={path}");
    let headers = [("content-type", "application/x-tar")];
    send(fixture.address(), &head("POST", &path, &headers), archive).await
}

#[tokio::test]
async fn files_are_written_listed_moved_and_removed() {
    let fixture = Fixture::start().await;
    let root = fixture.root.to_str().unwrap();
    let got = put(&fixture, "a/b.txt", "hello").await;
    assert_eq!(got.json(), json!({ "path": format!("{root}/a/b.txt"), "bytesWritten": 5 }));
    assert_eq!(fs::read_to_string(fixture.root.join("a/b.txt")).unwrap(), "hello");
    symlink("nowhere", fixture.root.join("a/dangling")).unwrap();
    let listed = fixture.ask("GET", &format!("/v1/fs/entries?path={root}/a"), "").await.json();
    let shown: Vec<_> = listed.as_array().unwrap().iter().collect();
    assert_eq!(
        (&shown[0]["name"], &shown[0]["entryType"], &shown[0]["size"]),
        (&"b.txt".into(), &"file".into(), &5.into())
    );
    assert_eq!((&shown[1]["name"], &shown[1]["entryType"]), (&"dangling".into(), &"file".into()));
    assert!(shown[0]["modified"].as_str().unwrap().starts_with("20"), "{listed}");
    let stat = fixture.ask("GET", "/v1/fs/stat?path=a", "").await.json();
    assert_eq!(
        (&stat["path"], &stat["entryType"]),
        (&format!("{root}/a").into(), &"directory".into())
    );
    assert_eq!(
        fixture.ask("POST", "/v1/fs/mkdir?path=d/e", "").await.json(),
        json!({ "path": format!("{root}/d/e") })
    );
    assert_eq!(fixture.ask("POST", "/v1/fs/mkdir?path=d/e", "").await.status, 200);

    let movement = json!({ "from": "a/b.txt", "to": "new/place/c.txt" }).to_string();
    let got = fixture.ask("POST", "/v1/fs/move", &movement).await;
    assert_eq!(
        got.json(),
        json!({ "from": format!("{root}/a/b.txt"), "to": format!("{root}/new/place/c.txt") })
    );
    put(&fixture, "x", "x").await;
    let movement =
        |overwrite: bool| json!({ "from": "x", "to": "new", "overwrite": overwrite }).to_string();
    assert_eq!(fixture.ask("POST", "/v1/fs/move", &movement(false)).await.status, 400);
    assert_eq!(fixture.ask("POST", "/v1/fs/move", &movement(true)).await.status, 200);
    assert_eq!(fs::read_to_string(fixture.root.join("new")).unwrap(), "x");
    let swallow = json!({ "from": "d/e", "to": "d", "overwrite": true }).to_string();
    assert_eq!(fixture.ask("POST", "/v1/fs/move", &swallow).await.status, 400);
    assert!(fixture.root.join("d/e").is_dir());

    assert_eq!(fixture.ask("DELETE", "/v1/fs/entry?path=d", "").await.status, 409);
    assert_eq!(fixture.ask("DELETE", "/v1/fs/entry?path=d&recursive=true", "").await.status, 200);
    assert_eq!(fixture.ask("DELETE", "/v1/fs/entry?path=a/dangling", "").await.status, 200);
    let got = fixture.ask("GET", "/v1/fs/stat?path=d", "").await;
    assert_eq!(
        (got.status, got.json()["type"].as_str()),
        (400, Some("urn:sandbox-agent:error:invalid_request"))
    );
    assert!(got.json()["detail"].as_str().unwrap().contains("path not found"), "{got:?}");
    assert_eq!(fixture.ask("GET", "/v1/fs/stat", "").await.status, 400);
    assert_eq!(fixture.ask("GET", "/v1/fs/file?path=a", "").await.status, 400);
}

/// What a move would replace stays if the move is impossible.
#[tokio::test]
async fn a_move_that_is_impossible_changes_nothing() {
    let fixture = Fixture::start().await;
    put(&fixture, "a/b/kept", "kept").await;
    symlink("a", fixture.root.join("link")).unwrap();
    for (from, to) in [
        ("a", "a/b"),
        ("a", "a/b/"),
        ("a", "a/new/x"),
        ("a/b", "a"),
        ("a/b/kept", "a/b/kept/x"),
        (".", "new/x"),
        ("a", "."),
        // The paths do not show that one contains the other.
        ("a", "link/b"),
        ("link/b", "a"),
    ] {
        for overwrite in [true, false] {
            let movement = json!({ "from": from, "to": to, "overwrite": overwrite }).to_string();
            let got = fixture.ask("POST", "/v1/fs/move", &movement).await;
            assert_eq!(got.status, 400, "{movement}: {got:?}");
            let names = |path: &str| {
                let entries = fs::read_dir(fixture.root.join(path)).unwrap();
                let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
                names.sort();
                names
            };
            assert_eq!(
                (names("."), names("a")),
                (vec!["a".into(), "link".into()], vec!["b".into()]),
                "{movement}"
            );
            assert_eq!(fs::read_to_string(fixture.root.join("a/b/kept")).unwrap(), "kept");
        }
    }
    put(&fixture, "new/more", "more").await;
    for (from, to) in [("new", "a"), ("a", "link")] {
        let movement = json!({ "from": from, "to": to, "overwrite": true }).to_string();
        assert_eq!(fixture.ask("POST", "/v1/fs/move", &movement).await.status, 200, "{movement}");
    }
    let names = fs::read_dir(&fixture.root).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["link"]);
    assert_eq!(fs::read_to_string(fixture.root.join("link/more")).unwrap(), "more");
}

#[tokio::test]
async fn content_has_ranges_versions_and_preconditions() {
    let fixture = Fixture::start().await;
    put(&fixture, "f", "0123456789").await;
    let file = "/v1/fs/file?path=f";
    let whole = get(fixture.address(), file, &[]).await;
    assert_eq!((whole.status, whole.body.as_str()), (200, "0123456789"));
    assert_eq!(whole.header("content-length"), Some("10"));
    assert_eq!(whole.header("content-type"), Some("application/octet-stream"));
    let etag = whole.header("etag").unwrap().to_owned();
    let part = get(fixture.address(), file, &[("range", "bytes=2-4")]).await;
    assert_eq!(
        (part.status, part.body.as_str(), part.header("content-range")),
        (206, "234", Some("bytes 2-4/10"))
    );
    let beyond = get(fixture.address(), file, &[("range", "bytes=10-")]).await;
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */10")));
    let same = get(fixture.address(), file, &[("if-none-match", &etag)]).await;
    assert_eq!((same.status, same.body.as_str()), (304, ""));
    let other =
        get(fixture.address(), file, &[("range", "bytes=2-4"), ("if-range", "\"other\"")]).await;
    assert_eq!(other.status, 200);

    for path in ["/v1/fs/file?path=new/", "/v1/fs/file?path=f/"] {
        let got = send(fixture.address(), &head("PUT", path, &[]), "x").await;
        assert!(got.status == 400 && got.body.contains("ends with a slash"), "{got:?}");
    }
    assert!(!fixture.root.join("new").exists());
    let other_file = head("PUT", "/v1/fs/file?path=missing", &[("if-match", "*")]);
    assert_eq!(send(fixture.address(), &other_file, "x").await.status, 412);
    let put_if = async |header: (&str, &str), body: &str| {
        send(fixture.address(), &head("PUT", file, &[header]), body).await.status
    };
    assert_eq!(put_if(("if-none-match", "*"), "new").await, 412);
    assert_eq!(put_if(("if-match", &etag), "second").await, 200);
    assert_eq!(put_if(("if-match", &etag), "third").await, 412);
    for (tag, status) in [
        ("nonsense", 400),
        ("\"1\", \"2\"", 400),
        ("\"nonsense\"", 412),
        (&format!("W/{etag}"), 412),
    ] {
        assert_eq!(put_if(("if-match", tag), "third").await, status, "{tag}");
    }
    assert_eq!(fs::read_to_string(fixture.root.join("f")).unwrap(), "second");
}

#[tokio::test]
async fn large_files_stream_and_an_upload_that_is_cut_off_changes_nothing() {
    use tokio::io::AsyncWriteExt;
    let fixture = Fixture::start().await;
    let large = "x".repeat(9 * 1024 * 1024);
    assert_eq!(put(&fixture, "large", &large).await.json()["bytesWritten"], large.len());
    assert_eq!(get(fixture.address(), "/v1/fs/file?path=large", &[]).await.body.len(), large.len());
    let mut stream = tokio::net::TcpStream::connect(fixture.address()).await.unwrap();
    let head = head("PUT", "/v1/fs/file?path=large", &[("content-length", "99000000")]);
    stream.write_all(format!("{head}\r\n\r\n{large}").as_bytes()).await.unwrap();
    drop(stream);
    // Closing the port waits for the write.
    let Fixture { port, root, keep } = fixture;
    port.shutdown().await;
    assert_eq!(fs::metadata(root.join("large")).unwrap().len(), large.len() as u64);
    let names: Vec<_> = fs::read_dir(&root).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["large"]);
    drop(keep);
}

#[tokio::test]
async fn no_path_leaves_the_root() {
    let fixture = Fixture::start().await;
    let outside = fixture.keep.path().join("secret");
    fs::write(&outside, "secret").unwrap();
    symlink(&outside, fixture.root.join("link")).unwrap();
    symlink(fixture.keep.path(), fixture.root.join("up")).unwrap();
    symlink("..", fixture.root.join("dots")).unwrap();
    put(&fixture, "inside", "1").await;
    let absolute = outside.to_str().unwrap().to_owned();
    for path in [
        "../secret",
        "%2e%2e/secret",
        "a/../../secret",
        "link",
        "up/secret",
        "dots/secret",
        &absolute,
        "/etc/passwd",
        "/",
        "inside/../../secret",
        "up",
        "dots",
    ] {
        for (method, route) in [
            ("GET", "/v1/fs/file?path="),
            ("GET", "/v1/fs/stat?path="),
            ("GET", "/v1/fs/entries?path="),
            ("PUT", "/v1/fs/file?path="),
            ("POST", "/v1/fs/mkdir?path="),
        ] {
            let got = fixture.ask(method, &format!("{route}{path}"), "taken over").await;
            assert!(matches!(got.status, 400 | 403), "{method} {route}{path}: {got:?}");
            assert!(!got.body.contains("\"secret\"") && got.body != "secret", "{got:?}");
        }
        let path = &path.replace("%2e", ".");
        let movement = json!({ "from": "inside", "to": format!("{path}/x"), "overwrite": true });
        let got = fixture.ask("POST", "/v1/fs/move", &movement.to_string()).await;
        assert!(matches!(got.status, 400 | 403), "{path}: {got:?}");
        let got = upload(&fixture, path, &tar("x", b'0', "", "1")).await;
        assert!(matches!(got.status, 400 | 403), "{path}: {got:?}");
    }
    for path in ["../secret", "up/secret", "dots/secret", &absolute] {
        let got =
            fixture.ask("DELETE", &format!("/v1/fs/entry?path={path}&recursive=true"), "").await;
        assert!(matches!(got.status, 400 | 403), "{path}: {got:?}");
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "secret");
    let mut names: Vec<_> =
        fs::read_dir(fixture.keep.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["root", "secret"]);
}

#[tokio::test]
async fn archives_are_unpacked_inside_their_target() {
    let fixture = Fixture::start().await;
    let root = fixture.root.to_str().unwrap();
    let archive = [
        tar("d/", b'5', "", ""),
        tar("d/a.txt", b'0', "", "hello"),
        tar("d/link", b'2', "a.txt", ""),
        tar("copy", b'1', "d/a.txt", ""),
    ];
    let got = upload(&fixture, "in", &(archive.concat() + &end())).await;
    assert_eq!(got.status, 200, "{got:?}");
    let expect: Vec<_> =
        ["d", "d/a.txt", "d/link", "copy"].map(|path| format!("{root}/in/{path}")).to_vec();
    assert_eq!(got.json(), json!({ "paths": expect, "truncated": false }));
    assert_eq!(fs::read_to_string(fixture.root.join("in/d/link")).unwrap(), "hello");
    assert_eq!(fs::read_to_string(fixture.root.join("in/copy")).unwrap(), "hello");
    let many: Vec<_> = (0..1030).map(|number| tar(&format!("f{number}"), b'0', "", "")).collect();
    let got = upload(&fixture, "many", &(many.concat() + &end())).await.json();
    assert_eq!((got["paths"].as_array().unwrap().len(), &got["truncated"]), (1024, &true.into()));

    fs::write(fixture.keep.path().join("outside"), "kept").unwrap();
    symlink(fixture.keep.path(), fixture.root.join("in/up")).unwrap();
    for archive in [
        tar("../outside", b'0', "", "x"),
        tar("/outside", b'0', "", "x"),
        tar("up/outside", b'0', "", "x"),
        tar("l", b'2', "../../outside", ""),
        tar("h", b'1', "up/outside", ""),
        tar("dev", b'3', "", ""),
        tar("cut", b'0', "", &"x".repeat(600))[..700].to_owned(),
        "garbage".repeat(100),
    ] {
        let got = upload(&fixture, "in", &archive).await;
        assert!(matches!(got.status, 400 | 403), "{got:?}");
        assert_eq!(got.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(fs::read_to_string(fixture.keep.path().join("outside")).unwrap(), "kept");
    assert!(!fixture.root.join("in/l").is_symlink() && !fixture.root.join("in/cut").exists());
    let plain = send(fixture.address(), &head("POST", "/v1/fs/upload-batch", &[]), "x").await;
    assert_eq!(plain.status, 400);
}

#[tokio::test]
async fn archive_with_a_symbolic_link_can_be_uploaded_again() {
    let fixture = Fixture::start().await;
    let archive = |target: &str| tar("f", b'0', "", "hello") + &tar("l", b'2', target, "") + &end();
    let target = || fs::read_link(fixture.root.join("in/l")).unwrap();
    for link in ["f", "f", "g"] {
        let got = upload(&fixture, "in", &archive(link)).await;
        assert_eq!((got.status, target()), (200, link.into()), "{got:?}");
    }
    // The link replaces a file as well, but not a directory.
    fs::remove_file(fixture.root.join("in/l")).unwrap();
    fs::write(fixture.root.join("in/l"), "a file").unwrap();
    let got = upload(&fixture, "in", &archive("f")).await;
    assert_eq!((got.status, target()), (200, "f".into()), "{got:?}");
    fs::remove_file(fixture.root.join("in/l")).unwrap();
    fs::create_dir(fixture.root.join("in/l")).unwrap();
    let got = upload(&fixture, "in", &archive("f")).await;
    assert!(got.status == 400 || got.status == 409, "{got:?}");
    assert!(fixture.root.join("in/l").is_dir());
    let names = fs::read_dir(fixture.root.join("in")).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["f", "l"], "no temporary link stays");
}

#[tokio::test]
async fn bodies_that_are_no_whole_archive_are_refused_with_the_reason() {
    let fixture = Fixture::start().await;
    let whole = tar("f", b'0', "", "hello");
    for (body, says) in [
        (String::new(), "it is empty"),
        ("BZh91AY&SY".to_owned(), "it is compressed with bzip2: send the archive uncompressed"),
        ("hello".to_owned(), "this is not a tar archive"),
        (whole[..512 + 5].to_owned(), "is not padded to a whole block"),
        (whole.clone(), "it has no end marker"),
    ] {
        let got = upload(&fixture, "new", &body).await;
        let problem = got.json();
        assert_eq!(
            (got.status, &problem["type"]),
            (400, &"urn:sandbox-agent:error:invalid_request".into()),
            "{problem}"
        );
        assert!(problem["detail"].as_str().unwrap().contains(says), "{says}: {problem}");
        assert_eq!(fixture.root.join("new").exists(), body.len() > 512, "{says}");
    }
    let got = upload(&fixture, "none", &end()).await;
    assert_eq!((got.status, got.json()["paths"].clone()), (200, json!([])));
}

#[tokio::test]
async fn parameters_that_are_not_utf8_are_refused_by_name() {
    let fixture = Fixture::start().await;
    for path in ["%FF", "a%FE", "%C3", "ok/%80"] {
        let got = put(&fixture, path, "1").await;
        assert_eq!(got.status, 400, "{got:?}");
        let detail = got.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!(detail, "invalid query: path: must be UTF-8");
    }
    assert_eq!(fs::read_dir(&fixture.root).unwrap().count(), 0);
    assert_eq!(put(&fixture, "%C3%BC%EF%BF%BD", "1").await.status, 200);
    assert!(fixture.root.join("ü\u{fffd}").is_file());
}

#[tokio::test]
async fn file_of_entries_that_cannot_be_used_is_named() {
    let fixture = Fixture::start().await;
    fs::create_dir_all(fixture.root.join(".sandbox-agent/config")).unwrap();
    let path = "/v1/config/mcp?directory=.&mcpName=one";
    let entry = json!({ "type": "local", "command": "npx" }).to_string();
    for (text, says, methods) in [
        ("{", "it is not JSON", &["GET", "PUT", "DELETE"][..]),
        ("[1]", "it is not a JSON object of entries", &["GET", "PUT", "DELETE"]),
        ("{\"one\":7}", "the entry \"one\" is not valid", &["GET"]),
    ] {
        let file = fixture.root.join(".sandbox-agent/config/mcp.json");
        fs::write(&file, text).unwrap();
        for method in methods {
            let got = fixture.ask(method, path, &entry).await;
            let problem = got.json();
            let kind = "urn:sandbox-agent:error:invalid_config";
            assert_eq!((got.status, &problem["type"]), (422, &kind.into()), "{problem}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(says) && detail.contains("mcp.json"), "{detail}");
            assert!(!detail.contains("enum") && !detail.contains("McpServer"), "{detail}");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }
}

#[tokio::test]
async fn entries_of_a_directory_are_stored_by_name() {
    let fixture = Fixture::start().await;
    let directory = fixture.root.to_str().unwrap();
    for (kind, name, alias, entry) in [
        ("mcp", "mcpName", "mcp_name", json!({ "type": "local", "command": "npx", "args": [] })),
        (
            "skills",
            "skillName",
            "skill_name",
            json!({ "sources": [{ "type": "local", "source": "./s" }] }),
        ),
    ] {
        let path = format!("/v1/config/{kind}?directory={directory}&{name}=one");
        assert_eq!(fixture.ask("DELETE", &path, "").await.status, 204);
        let missing = fixture.ask("GET", &path, "").await;
        assert_eq!(
            (missing.status, &missing.json()["sessionId"]),
            (404, &format!("{kind}:one").into())
        );
        assert_eq!(fixture.ask("PUT", &path, &entry.to_string()).await.status, 204);
        assert_eq!(fixture.ask("GET", &path, "").await.json(), entry);
        let aliased = format!("/v1/config/{kind}?directory=.&{alias}=one");
        assert_eq!(fixture.ask("GET", &aliased, "").await.json(), entry);
        let stored = fixture.root.join(format!(".sandbox-agent/config/{kind}.json"));
        let stored: Value = serde_json::from_slice(&fs::read(stored).unwrap()).unwrap();
        assert_eq!(stored, json!({ "one": entry }));
        let listed =
            fixture.ask("GET", &format!("/v1/config/{kind}/entries?directory=."), "").await;
        assert_eq!(listed.json(), json!({ "entries": { "one": entry } }));
        assert_eq!(fixture.ask("DELETE", &path, "").await.status, 204);
        assert_eq!(fixture.ask("GET", &path, "").await.status, 404);
        for query in [
            "",
            "?directory=.",
            &format!("?{name}=one"),
            &format!("?directory=%20&{name}=one"),
            &format!("?directory=.&{name}=%20"),
            &format!("?directory=nowhere&{name}=one"),
        ] {
            for method in ["GET", "PUT", "DELETE"] {
                let got = fixture
                    .ask(method, &format!("/v1/config/{kind}{query}"), &entry.to_string())
                    .await;
                assert_eq!(got.status, 400, "{method} {query}: {got:?}");
            }
        }
        let outside = format!("/v1/config/{kind}?directory=/etc&{name}=one");
        assert_eq!(fixture.ask("PUT", &outside, &entry.to_string()).await.status, 403);
        for body in ["{", "[]", "{}", r#"{"type":"sse","url":"u"}"#] {
            assert_eq!(fixture.ask("PUT", &path, body).await.status, 400, "{body}");
        }
    }
}

#[tokio::test]
async fn fifty_parallel_entries_are_all_stored() {
    let fixture = Fixture::start().await;
    let entry = json!({ "type": "remote", "url": "https://example.com" }).to_string();
    let write = async |number: usize| {
        let path = format!("/v1/config/mcp?directory=.&mcpName=n{number}");
        fixture.ask("PUT", &path, &entry).await.status
    };
    let statuses = futures_util::future::join_all((0..50).map(write)).await;
    assert!(statuses.iter().all(|status| *status == 204), "{statuses:?}");
    let listed = fixture.ask("GET", "/v1/config/mcp/entries?directory=.", "").await.json();
    assert_eq!(listed["entries"].as_object().unwrap().len(), 50);
}
