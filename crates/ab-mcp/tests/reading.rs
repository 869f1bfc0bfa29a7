//! The tools that read files.

use ab_core::Backend;
use ab_mcp::{DEFAULT_MAX_READ_LINES, DEFAULT_MAX_RESULT_BYTES, MAX_RESULT_BYTES_ON_REQUEST};
use ab_testkit::RecordingDriver;
use serde_json::{Value, json};

use crate::caller::{Caller, Place};

#[tokio::test]
async fn text_is_read_whole_or_by_lines() {
    for place in Place::each(&[("a.txt", "one\ntwo\nthree\nfour\n"), ("empty", "")]).await {
        let caller = place.call().await;
        for (arguments, expect) in [
            (json!({ "path": "a.txt" }), "one\ntwo\nthree\nfour\n"),
            (json!({ "path": "./a.txt", "head": 2 }), "one\ntwo\n"),
            (json!({ "path": "a.txt", "tail": 1 }), "four\n"),
            (json!({ "path": "a.txt", "head": 99 }), "one\ntwo\nthree\nfour\n"),
            (
                json!({ "path": "a.txt", "offset": 2, "limit": 2 }),
                "two\nthree\n[lines 2-3 of 4 (19 B); go on with offset 4]",
            ),
            (json!({ "path": "a.txt", "offset": 4 }), "four\n[line 4 of 4 (19 B)]"),
            (
                json!({ "path": "a.txt", "offset": 9 }),
                "[offset 9 is past the end: the file has 4 lines]",
            ),
            (json!({ "path": "a.txt", "head": 1, "lineNumbers": true }), "     1\tone\n"),
            (json!({ "path": "empty" }), ""),
            (json!({ "path": "empty", "tail": null }), ""),
        ] {
            for tool in ["read_text_file", "read_file"] {
                assert_eq!(caller.text(tool, arguments.clone()).await, expect, "{arguments}");
            }
        }
        let mut value =
            caller.value("read_text_file", json!({ "path": "a.txt", "limit": 1 })).await;
        value.as_object_mut().unwrap().remove("commandPath");
        assert_eq!(
            value,
            json!({
                "content": "one\n",
                "note": "line 1 of 4 (19 B); go on with offset 2",
                "firstLine": 1,
                "lastLine": 1,
                "totalLines": 4,
                "nextOffset": 2,
                "path": "a.txt",
            })
        );
        let whole = caller.value("read_text_file", json!({ "path": "a.txt" })).await;
        assert_eq!(whole["content"], "one\ntwo\nthree\nfour\n");
        assert_eq!((&whole["note"], &whole["firstLine"]), (&Value::Null, &Value::Null));
        caller.leave().await;
    }
}

#[tokio::test]
async fn long_files_are_cut_and_can_be_read_on() {
    let lines: String = (1..=5000).map(|line| format!("line {line}\n")).collect();
    let wide: String = (1..=300).map(|_| format!("{}\n", "x".repeat(999))).collect();
    for place in Place::each(&[("long", &lines), ("wide", &wide)]).await {
        let caller = place.call().await;
        let mut read = String::new();
        let mut offset = 1;
        loop {
            let value =
                caller.value("read_text_file", json!({ "path": "long", "offset": offset })).await;
            read.push_str(value["content"].as_str().unwrap());
            match value["nextOffset"].as_u64() {
                Some(next) => offset = next,
                None => break,
            }
        }
        assert_eq!(read, lines);
        let text = caller.text("read_text_file", json!({ "path": "long" })).await;
        let note = "[lines 1-2,000 of 5,000 (47.75 KB); go on with offset 2001]";
        assert!(text.ends_with(note), "{}", &text[text.len() - 200..]);
        assert_eq!(DEFAULT_MAX_READ_LINES, 2000);
        let text = caller.text("read_text_file", json!({ "path": "wide" })).await;
        assert!(
            text.len() < DEFAULT_MAX_RESULT_BYTES + 200 && text.contains("go on with offset 103]")
        );
        let text = caller.text("read_text_file", json!({ "path": "wide", "head": 300 })).await;
        assert_eq!(text, wide, "who says how many gets more");
    }
}

#[tokio::test]
async fn large_files_are_read_from_both_ends() {
    let place = Place::local();
    let line = format!("{}\n", "y".repeat(99));
    let mut large = line.repeat(200_000);
    large.push_str("the end\n");
    place.fill(&[("large", &large)]).await;
    let caller = place.call().await;
    let tail = caller.text("read_text_file", json!({ "path": "large", "tail": 1 })).await;
    assert_eq!(tail, "the end\n");
    let tail = caller.text("read_text_file", json!({ "path": "large", "tail": 100_000 })).await;
    let note = "the end\n[only the last lines that fit, of a file of 19.07 MB]";
    assert!(
        tail.ends_with(note) && tail.len() > MAX_RESULT_BYTES_ON_REQUEST - 1000,
        "{}",
        tail.len()
    );
    let numbered = json!({ "path": "large", "tail": 1, "lineNumbers": true });
    let refusal = caller.refusal("read_text_file", numbered).await;
    assert!(refusal.starts_with("lineNumbers cannot be had with tail"), "{refusal}");
    let head = caller.text("read_text_file", json!({ "path": "large", "head": 2 })).await;
    assert_eq!(head, line.repeat(2));
    let value = caller.value("read_text_file", json!({ "path": "large", "offset": 200_001 })).await;
    assert_eq!(value["content"], "the end\n");
}

#[tokio::test]
async fn a_line_may_be_as_long_as_it_likes() {
    let place = Place::local();
    let large = format!("first\n{}\nlast\n", "z".repeat(20 << 20));
    place.fill(&[("large", &large), ("one", &large[6..large.len() - 6])]).await;
    let caller = place.call().await;
    let text = caller.text("read_text_file", json!({ "path": "large" })).await;
    assert!(text.starts_with("first\nzzz"), "{}", &text[..100]);
    let end = " [line cut: 20.00 MB in all]\nlast\n[long lines were cut; grep finds text in them]";
    assert!(text.ends_with(end), "{}", &text[text.len() - 200..]);
    let text = caller.text("read_text_file", json!({ "path": "large", "offset": 3 })).await;
    assert_eq!(text, "last\n[line 3 of 3 (20.00 MB)]");
    let text = caller.text("read_text_file", json!({ "path": "one" })).await;
    assert!(text.contains("zzz [line cut: 20.00 MB in all]"), "{}", &text[text.len() - 200..]);
    let found = caller.text("grep", json!({ "path": "large", "pattern": "^zz" })).await;
    assert!(found.starts_with("large:2:zz"), "{}", &found[..found.len().min(200)]);
    let edit = json!({ "path": "large", "edits": [{ "oldText": "last", "newText": "end" }] });
    caller.text("edit_file", edit).await;
    let tail = caller.text("read_text_file", json!({ "path": "large", "tail": 1 })).await;
    assert_eq!(tail, "end\n");
}

#[tokio::test]
async fn several_files_are_read_each_on_its_own() {
    for place in Place::each(&[("a", "A\n"), ("b/c", "C")]).await {
        let caller = place.call().await;
        let text = caller.text("read_multiple_files", json!({ "paths": ["a", "no", "b/c"] })).await;
        let parts: Vec<&str> = text.split("\n---\n").collect();
        assert_eq!((parts[0], parts[2]), ("a:\nA\n\n", "b/c:\nC\n"));
        assert!(parts[1].starts_with("no: Error - read 'no': "), "{}", parts[1]);
    }
}

#[tokio::test]
async fn many_files_stay_within_one_result() {
    let place = Place::memory();
    let big = "z".repeat(999) + "\n";
    let big = big.repeat(60);
    place.fill(&[("1", &big), ("2", &big), ("3", &big)]).await;
    let caller = place.call().await;
    let text = caller.text("read_multiple_files", json!({ "paths": ["1", "2", "3"] })).await;
    assert!(text.len() < DEFAULT_MAX_RESULT_BYTES + 1000, "{}", text.len());
    assert!(text.contains("go on with offset"), "the second is cut");
    assert!(text.ends_with("[no room for 3: read them in another call]"));
}

#[tokio::test]
async fn media_come_in_base64() {
    for place in Place::each(&[]).await {
        let bytes: &[u8] = &[0x89, 0x50, 0, 0xff];
        for path in ["i.png", "s.mp3", "d/x y.bin"] {
            place.backend.write(path, bytes).await.unwrap();
        }
        let caller = place.call().await;
        for (path, kind, mime) in
            [("i.png", "image", "image/png"), ("s.mp3", "audio", "audio/mpeg")]
        {
            let result = caller.result("read_media_file", json!({ "path": path })).await;
            let item = json!({ "type": kind, "data": "iVAA/w==", "mimeType": mime });
            assert_eq!(serde_json::to_value(&result.content[0]).unwrap(), item);
            assert_eq!(result.structured_content, None);
        }
        let result = caller.result("read_media_file", json!({ "path": "d/x y.bin" })).await;
        let resource = json!({
            "uri": "workspace:///d/x%20y.bin",
            "mimeType": "application/octet-stream",
            "blob": "iVAA/w==",
        });
        let item = json!({ "type": "resource", "resource": resource });
        assert_eq!(serde_json::to_value(&result.content[0]).unwrap(), item);
        assert_eq!(result.structured_content, None);
    }
}

#[tokio::test]
async fn ten_lines_of_a_large_file_do_not_cost_the_whole_file() {
    const MIB: u64 = 1024 * 1024;
    let driver = RecordingDriver::new();
    let backend = Backend::new(driver.clone());
    let line = format!("{}\n", "x".repeat(63));
    backend.write("large", line.repeat(32 * 1024 * 1024 / line.len())).await.unwrap();
    let caller = Caller::of(backend).await;
    for (arguments, most) in [
        (json!({ "path": "large", "head": 10 }), MIB),
        (json!({ "path": "large", "limit": 10 }), MIB),
        (json!({ "path": "large", "offset": 100, "limit": 10 }), MIB),
        // Its start says whether it is text.
        (json!({ "path": "large", "tail": 10 }), 3 * MIB),
    ] {
        let before = driver.bytes_read();
        let text = caller.text("read_text_file", arguments.clone()).await;
        assert!(text.starts_with(&line.repeat(10)), "{arguments}: {text}");
        let read = driver.bytes_read() - before;
        assert!((640..=most).contains(&read), "{arguments}: {read} bytes for ten lines");
    }
    caller.leave().await;
}
