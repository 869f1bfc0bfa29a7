//! Journals as they are written: console lines and JSON lines.

use std::io::Write;
use std::sync::{Arc, Mutex};

use agent_backend::journal::{
    ConsoleJournalWriter, JournalGuard, JournalVerbosity, JournalWriter, JsonLinesJournalWriter,
};
use agent_backend::options::RemoveOptions;
use agent_backend::{Actor, Backend, BackendOptions, Guards, MemoryDriverOptions};
use serde_json::Value;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn backend(writer: Arc<dyn JournalWriter>, mode: JournalVerbosity) -> Backend {
    let journal = JournalGuard::new(writer, mode).with_workspace_name("demo");
    let guards = Guards { journal: Some(Arc::new(journal)), ..Guards::default() };
    let assembly =
        BackendOptions { actor: Actor::for_process("ada"), guards, ..BackendOptions::default() };
    agent_backend::memory_with(MemoryDriverOptions::default(), assembly).unwrap()
}

#[tokio::test]
async fn json_lines_have_the_fields() {
    let buffer = Buffer::default();
    let backend =
        backend(Arc::new(JsonLinesJournalWriter::new(buffer.clone())), JournalVerbosity::Verbose);
    backend.write("a\nb.txt", "hello").await.unwrap();
    backend.read("missing").await.unwrap_err();
    backend.rename("a\nb.txt", "c").await.unwrap();
    let lines: Vec<Value> =
        buffer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    let without_times = |value: &Value| {
        let mut value = value.as_object().unwrap().clone();
        let at = value.remove("timestamp").unwrap();
        at.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(value.remove("durationMs").unwrap().as_f64().unwrap() >= 0.0);
        Value::Object(value)
    };
    assert_eq!(
        without_times(&lines[0]),
        serde_json::json!({
            "operation": "write", "actor": "ada", "workspace": "demo", "path": "a\nb.txt",
            "success": true, "bytes": 5,
        })
    );
    assert_eq!(
        without_times(&lines[1]),
        serde_json::json!({
            "operation": "read", "actor": "ada", "workspace": "demo", "path": "missing",
            "success": false, "bytes": 0,
            "error": { "code": "KEY_NOT_FOUND", "message": "read 'missing': no such key" },
        })
    );
    assert_eq!(without_times(&lines[2])["to"], "c");
}

#[tokio::test]
async fn console_lines_are_single_lines() {
    let buffer = Buffer::default();
    let backend =
        backend(Arc::new(ConsoleJournalWriter::new(buffer.clone())), JournalVerbosity::Standard);
    backend.write("a\nb.txt", "hello").await.unwrap();
    backend.read("a\nb.txt").await.unwrap();
    backend.rm("missing", RemoveOptions::default()).await.unwrap_err();
    let text = buffer.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "reads are not in the standard journal: {text}");
    assert!(lines[0].contains(" ada write [demo] a\\nb.txt ok 5 B "), "{}", lines[0]);
    assert!(lines[1].contains(" ada delete [demo] missing KEY_NOT_FOUND: "), "{}", lines[1]);
}

#[tokio::test]
async fn a_journal_that_cannot_write_fails_no_call_and_counts() {
    let journal = Arc::new(JsonLinesJournalWriter::new(Full));
    let backend = backend(journal.clone(), JournalVerbosity::Standard);
    backend.write("a", "x").await.unwrap();
    backend.write("b", "x").await.unwrap();
    assert_eq!(journal.lost_line_count(), 2);
}

#[test]
fn appending_makes_and_keeps_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.jsonl");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..2 {
        let backend = backend(
            Arc::new(JsonLinesJournalWriter::open_append(&path).unwrap()),
            JournalVerbosity::Standard,
        );
        runtime.block_on(backend.touch("f")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    let error =
        JsonLinesJournalWriter::open_append(directory.path().join("no/such/dir")).unwrap_err();
    assert_eq!(error.code(), agent_backend::ErrorCode::InvalidConfiguration);
}
