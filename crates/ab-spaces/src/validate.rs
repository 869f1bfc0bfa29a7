//! Validation: finds all problems of a message, each with its JSON pointer.
//!
//! Unknown fields are dropped. Unknown types and other versions are refused.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use ab_core::PathParser;
use ab_core::error::escape_unprintable;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::operation::{
    ContentEncoding, DEFAULT_COMMAND_TIMEOUT_MS, Operation, OperationType, OperationsMessage,
    PROTOCOL_VERSION, TextEdit,
};

/// Maximum number of operations in one message.
pub const MAX_OPERATIONS: usize = 1000;
/// Maximum size of a file that an operation writes or reads, in bytes.
pub const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;
/// Maximum size of an operations message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
/// Maximum length of a path in characters.
pub const MAX_PATH_CHARS: usize = 255;
const MAX_ID_CHARS: usize = 128;
const MAX_MESSAGE_CHARS: usize = 100_000;
const MAX_COMMAND_CHARS: usize = 4096;
const MAX_EDITS: usize = 1000;
const MAX_VARIABLES: usize = 256;
/// The valid range of a timeout in milliseconds.
const TIMEOUTS: std::ops::RangeInclusive<u64> = 1000..=3_600_000;
/// Validation stops after this many issues.
const MAX_ISSUES: usize = 1000;

/// One problem of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ValidationIssue {
    /// The JSON pointer of the value, such as `/operations/3/path`. Empty for the whole message.
    pub pointer: String,
    /// What is wrong, such as `is required`.
    pub message: String,
}

/// All problems of a message. Contains at least one issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMessage {
    pub issues: Vec<ValidationIssue>,
}

impl fmt::Display for InvalidMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ValidationIssue { pointer, message }) in self.issues.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            let pointer = if pointer.is_empty() { "the message" } else { pointer };
            write!(f, "{separator}{pointer} {message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidMessage {}

/// The outcome of a validation. It contains the data if the validation succeeded, and otherwise the
/// error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationResult<T> {
    pub success: bool,
    pub data: Option<T>,
    pub error: Option<InvalidMessage>,
}

impl<T> From<Result<T, InvalidMessage>> for ValidationResult<T> {
    fn from(result: Result<T, InvalidMessage>) -> Self {
        match result {
            Ok(data) => Self { success: true, data: Some(data), error: None },
            Err(error) => Self { success: false, data: None, error: Some(error) },
        }
    }
}

/// Validates one operation.
pub fn validate_operation(input: &Value) -> ValidationResult<Operation> {
    parse_operation(input).into()
}

/// Validates an operations message.
pub fn validate_operations_message(input: &Value) -> ValidationResult<OperationsMessage> {
    parse_operations_message(input).into()
}

/// Parses one operation.
///
/// # Errors
///
/// Returns every issue of the operation.
pub fn parse_operation(input: &Value) -> Result<Operation, InvalidMessage> {
    let mut reader = Reader::default();
    let operation = reader.operation("", input);
    reader.end(operation)
}

/// Parses an operations message, and assigns an id to each operation without one.
///
/// # Errors
///
/// Returns every issue of the message.
pub fn parse_operations_message(input: &Value) -> Result<OperationsMessage, InvalidMessage> {
    let mut reader = Reader::default();
    let message = reader.message(input);
    reader.end(message)
}

/// Parses the bytes of an operations message.
///
/// # Errors
///
/// Returns a single issue if there are too many bytes or they are not JSON. Otherwise returns every
/// issue of the message.
pub fn parse_operations_bytes(bytes: &[u8]) -> Result<OperationsMessage, InvalidMessage> {
    let whole = |message: String| {
        let issue = ValidationIssue { pointer: String::new(), message };
        InvalidMessage { issues: vec![issue] }
    };
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(whole(format!("has more than {MAX_MESSAGE_BYTES} bytes")));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        whole(format!("is not valid JSON (line {line}, column {column})"))
    })?;
    parse_operations_message(&value)
}

#[derive(Default)]
struct Reader {
    issues: Vec<ValidationIssue>,
}

impl Reader {
    fn issue(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        if self.issues.len() < MAX_ISSUES {
            let issue = ValidationIssue { pointer: pointer.into(), message: message.into() };
            self.issues.push(issue);
        }
    }

    fn end<T>(self, value: Option<T>) -> Result<T, InvalidMessage> {
        match value {
            Some(value) if self.issues.is_empty() => Ok(value),
            Some(_) | None => Err(InvalidMessage { issues: self.issues }),
        }
    }

    fn message(&mut self, input: &Value) -> Option<OperationsMessage> {
        let Some(object) = input.as_object() else {
            self.issue("", "must be an object");
            return None;
        };
        match object.get("protocolVersion") {
            None => self.issue("/protocolVersion", "is required"),
            Some(Value::String(version)) if version == PROTOCOL_VERSION => {}
            Some(_) => self.issue("/protocolVersion", format!("must be \"{PROTOCOL_VERSION}\"")),
        }
        let items = match object.get("operations") {
            None => {
                self.issue("/operations", "is required");
                return None;
            }
            Some(Value::Array(items)) if items.len() <= MAX_OPERATIONS => items,
            Some(Value::Array(items)) => {
                let count = items.len();
                let message = format!("has {count} entries: at most {MAX_OPERATIONS} are allowed");
                self.issue("/operations", message);
                return None;
            }
            Some(_) => {
                self.issue("/operations", "must be a list");
                return None;
            }
        };
        let mut operations = Vec::with_capacity(items.len());
        let mut ids = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let at = format!("/operations/{index}");
            let Some(operation) = self.operation(&at, item) else { continue };
            if let Some(id) = operation.id()
                && !ids.insert(id.to_owned())
            {
                self.issue(format!("{at}/id"), "is the id of an earlier operation");
            }
            operations.push(operation);
        }
        for (index, operation) in operations.iter_mut().enumerate() {
            if operation.id().is_none() {
                let mut id = format!("op-{}", index + 1);
                while !ids.insert(id.clone()) {
                    id.push('x');
                }
                operation.set_id(id);
            }
        }
        Some(OperationsMessage { protocol_version: PROTOCOL_VERSION.to_owned(), operations })
    }

    fn operation(&mut self, at: &str, input: &Value) -> Option<Operation> {
        let Some(object) = input.as_object() else {
            self.issue(at, "must be an object");
            return None;
        };
        let name = match object.get("type") {
            None => {
                self.issue(format!("{at}/type"), "is required");
                return None;
            }
            Some(name) => name.as_str(),
        };
        let known = OperationType::ALL.into_iter().find(|known| Some(known.as_str()) == name);
        let Some(known) = known else {
            let names = OperationType::ALL.map(OperationType::as_str).join(", ");
            self.issue(format!("{at}/type"), format!("must be one of: {names}"));
            return None;
        };
        let fields = Fields { at, object };
        let id = self.id(&fields);
        match known {
            OperationType::Message => {
                let content = self.text(&fields, "content", MAX_MESSAGE_CHARS);
                Some(Operation::Message { id, content: content? })
            }
            OperationType::CreateFile => {
                let path = self.required_path(&fields, "path");
                let encoding = self.encoding(&fields);
                let content = self.content(&fields, encoding);
                let overwrite = self.flag(&fields, "overwrite");
                Some(Operation::CreateFile {
                    id,
                    path: path?,
                    content: content?,
                    encoding,
                    overwrite,
                })
            }
            OperationType::ReadFile => {
                let path = self.required_path(&fields, "path");
                let encoding = self.encoding(&fields);
                Some(Operation::ReadFile { id, path: path?, encoding })
            }
            OperationType::EditFile => {
                let path = self.required_path(&fields, "path");
                let edits = self.edits(&fields);
                Some(Operation::EditFile { id, path: path?, edits: edits? })
            }
            OperationType::DeleteFile => {
                let path = self.required_path(&fields, "path");
                Some(Operation::DeleteFile { id, path: path? })
            }
            OperationType::Shell => {
                let command = self.text(&fields, "command", MAX_COMMAND_CHARS);
                let command = command.filter(|command| {
                    let is_text = !command.trim().is_empty() && !command.contains('\0');
                    if !is_text {
                        let message = "must not be empty or contain a null byte";
                        self.issue(fields.pointer("command"), message);
                    }
                    is_text
                });
                let cwd = match fields.get("cwd") {
                    None => None,
                    Some(value) => self.path(fields.pointer("cwd"), value),
                };
                let timeout = self.timeout(&fields);
                let env = self.env(&fields);
                Some(Operation::Shell { id, command: command?, cwd, timeout, env })
            }
        }
    }

    fn id(&mut self, fields: &Fields<'_>) -> Option<String> {
        let value = fields.get("id")?;
        match value.as_str() {
            Some(id) if !id.is_empty() && id.chars().count() <= MAX_ID_CHARS => Some(id.to_owned()),
            _ => {
                let message = format!("must be a string of 1 to {MAX_ID_CHARS} characters");
                self.issue(fields.pointer("id"), message);
                None
            }
        }
    }

    fn text(&mut self, fields: &Fields<'_>, name: &str, most: usize) -> Option<String> {
        let Some(value) = fields.get(name) else {
            self.issue(fields.pointer(name), "is required");
            return None;
        };
        match value.as_str() {
            None => {
                self.issue(fields.pointer(name), "must be a string");
                None
            }
            Some(text) if text.len() > most && text.chars().count() > most => {
                self.issue(fields.pointer(name), format!("has more than {most} characters"));
                None
            }
            Some(text) => Some(text.to_owned()),
        }
    }

    fn flag(&mut self, fields: &Fields<'_>, name: &str) -> bool {
        match fields.get(name) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.issue(fields.pointer(name), "must be true or false");
                false
            }
        }
    }

    fn encoding(&mut self, fields: &Fields<'_>) -> ContentEncoding {
        match fields.get("encoding") {
            None => ContentEncoding::Utf8,
            Some(Value::String(name)) if name == "utf-8" => ContentEncoding::Utf8,
            Some(Value::String(name)) if name == "base64" => ContentEncoding::Base64,
            Some(_) => {
                self.issue(fields.pointer("encoding"), "must be one of: utf-8, base64");
                ContentEncoding::Utf8
            }
        }
    }

    fn content(&mut self, fields: &Fields<'_>, encoding: ContentEncoding) -> Option<String> {
        let content = self.text(fields, "content", usize::MAX)?;
        let size = match encoding {
            ContentEncoding::Utf8 => content.len(),
            ContentEncoding::Base64 => match STANDARD.decode(&content) {
                Ok(bytes) => bytes.len(),
                Err(_) => {
                    self.issue(fields.pointer("content"), "is not base64");
                    return None;
                }
            },
        };
        if size > MAX_FILE_BYTES {
            let message = format!("has {size} bytes: at most {MAX_FILE_BYTES} are allowed");
            self.issue(fields.pointer("content"), message);
            return None;
        }
        Some(content)
    }

    fn required_path(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        match fields.get(name) {
            None => {
                self.issue(fields.pointer(name), "is required");
                None
            }
            Some(value) => self.path(fields.pointer(name), value),
        }
    }

    fn path(&mut self, pointer: String, value: &Value) -> Option<String> {
        let Some(path) = value.as_str() else {
            self.issue(pointer, "must be a string");
            return None;
        };
        match path_problem(path) {
            None => Some(path.to_owned()),
            Some(problem) => {
                self.issue(pointer, problem);
                None
            }
        }
    }

    fn timeout(&mut self, fields: &Fields<'_>) -> u64 {
        let Some(value) = fields.get("timeout") else { return DEFAULT_COMMAND_TIMEOUT_MS };
        match value.as_u64().filter(|timeout| TIMEOUTS.contains(timeout)) {
            Some(timeout) => timeout,
            None => {
                let (least, most) = (TIMEOUTS.start(), TIMEOUTS.end());
                let message = format!("must be an integer, {least} to {most} (milliseconds)");
                self.issue(fields.pointer("timeout"), message);
                DEFAULT_COMMAND_TIMEOUT_MS
            }
        }
    }

    fn env(&mut self, fields: &Fields<'_>) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        let Some(value) = fields.get("env") else { return env };
        let Some(object) = value.as_object().filter(|object| object.len() <= MAX_VARIABLES) else {
            let message = format!("must be an object of at most {MAX_VARIABLES} strings");
            self.issue(fields.pointer("env"), message);
            return env;
        };
        for (name, value) in object {
            let pointer = format!("{}/{}", fields.pointer("env"), escaped(name));
            if name.is_empty() || name.contains(['=', '\0']) {
                self.issue(pointer, "is not the name of a variable");
                continue;
            }
            match value.as_str() {
                Some(text) if !text.contains('\0') => {
                    env.insert(name.clone(), text.to_owned());
                }
                _ => self.issue(pointer, "must be a string without null bytes"),
            }
        }
        env
    }

    fn edits(&mut self, fields: &Fields<'_>) -> Option<Vec<TextEdit>> {
        let pointer = fields.pointer("edits");
        let Some(value) = fields.get("edits") else {
            self.issue(pointer, "is required");
            return None;
        };
        let items = value.as_array().filter(|items| (1..=MAX_EDITS).contains(&items.len()));
        let Some(items) = items else {
            self.issue(pointer, format!("must be a list of 1 to {MAX_EDITS} edits"));
            return None;
        };
        let mut edits = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let at = format!("{pointer}/{index}");
            let Some(object) = item.as_object() else {
                self.issue(at, "must be an object");
                continue;
            };
            let edit = Fields { at: &at, object };
            let old = self.text(&edit, "oldContent", MAX_FILE_BYTES);
            let new = self.text(&edit, "newContent", MAX_FILE_BYTES);
            if old.as_deref() == Some("") {
                self.issue(edit.pointer("oldContent"), "must not be empty");
            }
            if let (Some(old_content), Some(new_content)) = (old, new) {
                edits.push(TextEdit { old_content, new_content });
            }
        }
        Some(edits)
    }
}

/// A JSON object and its JSON pointer in the message. A member that is `null` counts as absent.
struct Fields<'a> {
    at: &'a str,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.at)
    }
}

/// Returns what is wrong with a path according to the rules of the protocol. `None` if it is valid.
pub(crate) fn path_problem(path: &str) -> Option<String> {
    if path.starts_with('/') {
        return Some("must be relative, but starts with /".to_owned());
    }
    if path.contains("..") {
        return Some("must not contain ..".to_owned());
    }
    if path.contains('\0') {
        return Some("must not contain a null byte".to_owned());
    }
    if path.chars().count() > MAX_PATH_CHARS {
        return Some(format!("has more than {MAX_PATH_CHARS} characters"));
    }
    let parsed = PathParser::strict().parse(path);
    parsed.err().map(|error| format!("is not a path: {}", escape_unprintable(error.message())))
}

/// Escapes a member name for use as a segment of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
