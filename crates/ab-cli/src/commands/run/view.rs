//! Formats a run as lines for a person. Control characters are escaped, so that no text can move
//! the cursor or change colours.

use std::collections::HashMap;

use ab_core::error::escape_unprintable;
use ab_core::process::OutputChannel;
use ab_spaces::{Operation, OperationType, ProtocolEvent};

use crate::count::counted;

/// Longer lines of output are shown in parts.
const MAX_PARTIAL_LINE: usize = 8 * 1024;

/// Where the output of commands comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputSource {
    /// The run is in this process. All of the output arrives while the command runs.
    Process,
    /// The run is on a server. Parts of the output may arrive while the command runs. The event at
    /// the end of the command contains all of the output.
    Server,
}

/// Converts operations, output and events to lines of text.
pub(super) struct RunView {
    source: OutputSource,
    operations: HashMap<String, Operation>,
    /// The id of the operation whose introductory lines were shown last.
    begun: Option<String>,
    stdout: ShownOutput,
    stderr: ShownOutput,
}

/// How much of one output channel was shown.
#[derive(Default)]
struct ShownOutput {
    /// The beginning of a line whose end has not arrived yet.
    partial: Vec<u8>,
    bytes: usize,
}

impl RunView {
    pub(super) fn new(source: OutputSource, operations: Vec<Operation>) -> Self {
        let operations = operations
            .into_iter()
            .filter_map(|operation| Some((operation.id()?.to_owned(), operation)))
            .collect();
        let (stdout, stderr) = Default::default();
        Self { source, operations, begun: None, stdout, stderr }
    }

    /// The lines that are shown before an operation. Empty if they were already returned.
    pub(super) fn begin(&mut self, id: &str) -> Vec<String> {
        if self.begun.as_deref() == Some(id) {
            return Vec::new();
        }
        self.begun = Some(id.to_owned());
        self.stdout = ShownOutput::default();
        self.stderr = ShownOutput::default();
        self.operations.get(id).map(begun).unwrap_or_default()
    }

    /// Adds output and returns the lines that it completes.
    pub(super) fn output(&mut self, id: &str, channel: OutputChannel, bytes: &[u8]) -> Vec<String> {
        let mut lines = self.begin(id);
        let shown = match channel {
            OutputChannel::Stdout => &mut self.stdout,
            OutputChannel::Stderr => &mut self.stderr,
        };
        shown.add(bytes, &mut lines);
        lines
    }

    /// The lines that are shown for an event.
    pub(super) fn event(&mut self, event: &ProtocolEvent) -> Vec<String> {
        let id = event.operation_id().unwrap_or_default().to_owned();
        let is_known = self.operations.contains_key(&id);
        let mut lines = Vec::new();
        match event {
            // The lines before the operation are shown after the decision.
            ProtocolEvent::ApprovalRequired { .. } => {}
            ProtocolEvent::Shell { command, stdout, stderr, .. } => {
                if !is_known && self.begun.as_deref() != Some(&id) {
                    lines.push(command_line(command));
                }
                lines.extend(self.begin(&id));
                if self.source == OutputSource::Server {
                    self.stdout.rest(stdout.as_deref().unwrap_or_default(), &mut lines);
                    self.stderr.rest(stderr.as_deref().unwrap_or_default(), &mut lines);
                }
                self.stdout.end(&mut lines);
                self.stderr.end(&mut lines);
            }
            ProtocolEvent::EditFile { path, success: true, edits_applied, .. } if !is_known => {
                let count = edits_applied.unwrap_or_default();
                let edits = counted(count, "edit", "edits");
                lines.push(format!("~ {} ({edits})", escape_unprintable(path)));
            }
            _ => lines.extend(self.begin(&id)),
        }
        lines.extend(ended(event, self.operations.get(&id)));
        lines
    }
}

impl ShownOutput {
    fn add(&mut self, bytes: &[u8], lines: &mut Vec<String>) {
        self.bytes += bytes.len();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= MAX_PARTIAL_LINE {
                self.end(lines);
            }
        }
    }

    /// Shows the part of the whole output that has not been shown live.
    fn rest(&mut self, whole: &str, lines: &mut Vec<String>) {
        if let Some(rest) = whole.as_bytes().get(self.bytes..) {
            self.add(rest, lines);
        }
    }

    /// Shows the last line even if it does not end with a newline.
    fn end(&mut self, lines: &mut Vec<String>) {
        let line = std::mem::take(&mut self.partial);
        if !line.is_empty() {
            let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line));
            lines.push(format!("  {}", escape_unprintable(&text)).trim_end().to_owned());
        }
    }
}

fn command_line(command: &str) -> String {
    format!("$ {}", escape_unprintable(command))
}

/// The lines that are shown before an operation.
fn begun(operation: &Operation) -> Vec<String> {
    match operation {
        Operation::Message { content, .. } => {
            content.lines().map(|line| format!("# {}", escape_unprintable(line))).collect()
        }
        Operation::Shell { command, .. } => vec![command_line(command)],
        Operation::EditFile { path, edits, .. } => {
            let mut lines = vec![format!("~ {}", escape_unprintable(path))];
            for edit in edits {
                for (mark, text) in [("-", &edit.old_content), ("+", &edit.new_content)] {
                    let changed = text.lines().map(|line| {
                        format!("  {mark} {}", escape_unprintable(line)).trim_end().to_owned()
                    });
                    lines.extend(changed);
                }
            }
            lines
        }
        Operation::CreateFile { .. }
        | Operation::ReadFile { .. }
        | Operation::DeleteFile { .. } => Vec::new(),
    }
}

/// What an operation was about. Used in a result line if no line above it shows the operation.
fn subject(operation_type: OperationType, id: &str, operation: Option<&Operation>) -> String {
    let path = match operation {
        // The line above already shows what the operation was about.
        Some(Operation::Message { .. } | Operation::EditFile { .. } | Operation::Shell { .. }) => {
            return String::new();
        }
        Some(
            Operation::CreateFile { path, .. }
            | Operation::ReadFile { path, .. }
            | Operation::DeleteFile { path, .. },
        ) => path,
        None => id,
    };
    format!("{} {}: ", operation_type.as_str(), escape_unprintable(path))
}

/// The line that is shown after an operation.
fn ended(event: &ProtocolEvent, operation: Option<&Operation>) -> Option<String> {
    let failed = |what: String, error: &Option<String>| {
        let why = error.as_deref().unwrap_or("failed");
        Some(format!("{what}: {}", escape_unprintable(why)))
    };
    match event {
        ProtocolEvent::Message { .. } => None,
        ProtocolEvent::CreateFile { path, bytes_written: Some(bytes), .. } => {
            Some(format!("+ {} ({})", escape_unprintable(path), counted(*bytes, "byte", "bytes")))
        }
        ProtocolEvent::ReadFile { path, size: Some(bytes), .. } => {
            Some(format!("= {} ({})", escape_unprintable(path), counted(*bytes, "byte", "bytes")))
        }
        ProtocolEvent::EditFile { success: true, .. } => None,
        ProtocolEvent::DeleteFile { path, success: true, .. } => {
            Some(format!("- {}", escape_unprintable(path)))
        }
        ProtocolEvent::CreateFile { path, error, .. }
        | ProtocolEvent::ReadFile { path, error, .. }
        | ProtocolEvent::EditFile { path, error, .. }
        | ProtocolEvent::DeleteFile { path, error, .. } => {
            failed(format!("! {}", escape_unprintable(path)), error)
        }
        ProtocolEvent::Shell { success: true, .. } => None,
        ProtocolEvent::Shell { timed_out: Some(true), duration_ms, .. } => {
            Some(format!("! timed out after {} ms", duration_ms.unwrap_or_default()))
        }
        ProtocolEvent::Shell { error: Some(error), .. } => {
            Some(format!("! {}", escape_unprintable(error)))
        }
        ProtocolEvent::Shell { exit_code: Some(code), .. } => Some(format!("! exit code {code}")),
        ProtocolEvent::Shell { .. } => Some("! failed".to_owned()),
        ProtocolEvent::ApprovalRequired { reason, details, .. } => {
            let command = escape_unprintable(details.command.as_deref().unwrap_or_default());
            Some(format!("? waits for approval: {command}: {}", escape_unprintable(reason)))
        }
        ProtocolEvent::PolicyDenied {
            operation_type, operation_id, reason, suggestion, ..
        } => {
            let subject = subject(*operation_type, operation_id, operation);
            let hint = suggestion.as_deref().map(|it| format!("; {it}")).unwrap_or_default();
            let reason = escape_unprintable(&format!("{reason}{hint}"));
            Some(format!("! {subject}denied: {reason}"))
        }
        ProtocolEvent::Error { message, .. } => {
            Some(format!("! error: {}", escape_unprintable(message)))
        }
    }
}

/// A line for each operation that a run did not perform although it has ended.
pub(super) fn unperformed(operations: &[Operation], events: &[ProtocolEvent]) -> Vec<String> {
    let is_told = |operation: &&Operation| {
        events.iter().any(|event| {
            let is_question = matches!(event, ProtocolEvent::ApprovalRequired { .. });
            !is_question && event.operation_id() == operation.id()
        })
    };
    let line = |operation: &Operation| {
        let about = match operation {
            Operation::Message { content, .. } => content,
            Operation::Shell { command, .. } => command,
            Operation::CreateFile { path, .. }
            | Operation::ReadFile { path, .. }
            | Operation::EditFile { path, .. }
            | Operation::DeleteFile { path, .. } => path,
        };
        let kind = operation.operation_type().as_str();
        format!("! {kind} {}: not performed", escape_unprintable(about))
    };
    operations.iter().filter(|it| !is_told(it)).map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(mut value: Value) -> ProtocolEvent {
        value["timestamp"] = json!("2026-01-31T12:00:00Z");
        serde_json::from_value(value).unwrap()
    }

    fn operations(value: Value) -> Vec<Operation> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn output_is_shown_once_however_it_comes() {
        let shell = operations(json!([{ "type": "shell", "id": "s", "command": "make" }]));
        let mut view = RunView::new(OutputSource::Server, shell);
        assert_eq!(view.begin("s"), ["$ make"]);
        assert_eq!(view.output("s", OutputChannel::Stdout, "one\ntw".as_bytes()), ["  one"]);
        let told = event(json!({
            "type": "shell", "operationId": "s", "command": "make", "success": false, "exitCode": 2,
            "stdout": "one\ntwo\n", "stderr": "bad\u{1b}[2J",
        }));
        assert_eq!(view.event(&told), ["  two", "  bad\\u{1b}[2J", "! exit code 2"]);
        // If a run is shown after it has ended, only its events are known.
        let mut view = RunView::new(OutputSource::Server, Vec::new());
        let expect = ["$ make", "  one", "  two", "  bad\\u{1b}[2J", "! exit code 2"];
        assert_eq!(view.event(&told), expect);
    }

    #[test]
    fn operations_that_were_not_performed_are_named() {
        let known = operations(json!([
            { "type": "shell", "id": "s", "command": "rm -rf data" },
            { "type": "createFile", "id": "c", "path": "a", "content": "" },
            { "type": "shell", "id": "t", "command": "ls\nrm" },
        ]));
        let done = event(json!({
            "type": "createFile", "operationId": "c", "path": "a", "success": true, "bytesWritten": 0
        }));
        let asked = event(json!({
            "type": "approvalRequired", "operationId": "s", "operationType": "shell", "reason": "no",
            "details": {},
        }));
        let cancelled = event(json!({
            "type": "error", "category": "execution", "message": "the run was cancelled"
        }));
        let expect = ["! shell rm -rf data: not performed", "! shell ls\\nrm: not performed"];
        assert_eq!(unperformed(&known, &[asked, done, cancelled]), expect);
    }

    #[test]
    fn edits_and_refused_operations_are_shown() {
        let known = operations(json!([
            { "type": "editFile", "id": "e", "path": "a", "edits": [{ "oldContent": "x\ny", "newContent": "z" }] },
            { "type": "shell", "id": "s", "command": "sudo ls" },
            { "type": "createFile", "id": "c", "path": ".env", "content": "" },
        ]));
        let edited = event(json!({
            "type": "editFile", "operationId": "e", "path": "a", "success": true, "editsApplied": 1
        }));
        let denied = |id: &str, of: &str| {
            event(json!({
                "type": "policyDenied", "operationId": id, "operationType": of, "reason": "no",
                "suggestion": "ask",
            }))
        };
        let mut view = RunView::new(OutputSource::Server, known);
        assert_eq!(view.event(&edited), ["~ a", "  - x", "  - y", "  + z"]);
        assert_eq!(view.event(&denied("s", "shell")), ["$ sudo ls", "! denied: no; ask"]);
        let file = denied("c", "createFile");
        assert_eq!(view.event(&file), ["! createFile .env: denied: no; ask"]);
        let read = event(json!({
            "type": "readFile", "operationId": "r", "path": "a", "success": true, "size": 1
        }));
        let mut view = RunView::new(OutputSource::Server, Vec::new());
        assert_eq!(view.event(&read), ["= a (1 byte)"]);
        assert_eq!(view.event(&edited), ["~ a (1 edit)"]);
        assert_eq!(view.event(&denied("s", "shell")), ["! shell s: denied: no; ask"]);
    }
}
