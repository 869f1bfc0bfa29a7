//! The body of a request for a space.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ab_api::SpaceBackend;
use ab_policy::PolicyDocument;
use serde_json::{Map, Value};

use crate::validate::{InvalidMessage, ValidationIssue};

/// Maximum lifetime of a space in seconds: one year.
const MAX_TTL_SECONDS: u64 = 366 * 24 * 60 * 60;
const MAX_TEXT_CHARS: usize = 255;
const MAX_VARIABLES: usize = 256;
/// Maximum size of all metadata as JSON, in bytes.
const MAX_METADATA_BYTES: usize = 64 * 1024;
const FIELDS: [&str; 11] = [
    "name",
    "description",
    "policy",
    "policyOverrides",
    "backend",
    "copyOf",
    "env",
    "metadata",
    "ttlSeconds",
    "capabilities",
    "secrets",
];

/// A space to create.
#[derive(Clone, Debug, PartialEq)]
pub struct SpaceRequest {
    pub name: Option<String>,
    pub description: Option<String>,
    pub policy: PolicyDocument,
    pub backend: SpaceBackend,
    /// A directory of the host. The space starts with a copy of it.
    pub copy_from: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    pub metadata: Map<String, Value>,
    pub lifetime: Option<Duration>,
}

impl SpaceRequest {
    /// Parses the body of a request. An empty body means a space with default settings.
    ///
    /// # Errors
    ///
    /// Returns all problems of the body, each with its JSON pointer.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidMessage> {
        let mut issues = Vec::new();
        let mut issue = |pointer: &str, message: &str| {
            let (pointer, message) = (pointer.to_owned(), message.to_owned());
            issues.push(ValidationIssue { pointer, message });
        };
        let empty = Map::new();
        let value: Value = match body {
            [] => Value::Object(empty.clone()),
            body => serde_json::from_slice(body).unwrap_or_default(),
        };
        let object = value.as_object().unwrap_or(&empty);
        if !value.is_object() {
            issue("", "must be a JSON object");
        }
        for name in object.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
            let name = name.replace('~', "~0").replace('/', "~1");
            issue(&format!("/{name}"), "is not a known field");
        }
        let get = |name: &str| object.get(name).filter(|value| !value.is_null());
        let mut text = |name: &str| match get(name)?.as_str() {
            Some(text) if !text.is_empty() && text.chars().count() <= MAX_TEXT_CHARS => {
                Some(text.to_owned())
            }
            _ => {
                issue(&format!("/{name}"), "must be a string of 1 to 255 characters");
                None
            }
        };
        let (name, description) = (text("name"), text("description"));
        let backend = match get("backend").map(|value| value.as_str()) {
            None | Some(Some("directory")) => SpaceBackend::Directory,
            Some(Some("memory")) => SpaceBackend::Memory,
            Some(_) => {
                issue("/backend", "must be one of: directory, memory");
                SpaceBackend::Directory
            }
        };
        let copy_of = match get("copyOf").map(|value| value.as_str()) {
            None => None,
            Some(Some(path)) if path.starts_with('/') && backend == SpaceBackend::Directory => {
                Some(PathBuf::from(path))
            }
            Some(_) => {
                issue(
                    "/copyOf",
                    "must be the absolute path of a directory, for the backend directory",
                );
                None
            }
        };
        let mut env = BTreeMap::new();
        match get("env").map(Value::as_object) {
            None => {}
            Some(Some(members)) if members.len() <= MAX_VARIABLES => {
                for (name, value) in members {
                    let is_name = !name.is_empty() && !name.contains(['=', '\0']);
                    match value.as_str().filter(|text| is_name && !text.contains('\0')) {
                        Some(text) => drop(env.insert(name.clone(), text.to_owned())),
                        None => issue("/env", "must have names and strings of variables"),
                    }
                }
            }
            Some(_) => issue("/env", "must be an object of at most 256 strings"),
        }
        let metadata = match get("metadata") {
            None => Map::new(),
            Some(Value::Object(members))
                if Value::Object(members.clone()).to_string().len() <= MAX_METADATA_BYTES =>
            {
                members.clone()
            }
            Some(_) => {
                issue("/metadata", "must be an object of at most 64 KiB");
                Map::new()
            }
        };
        let lifetime = match get("ttlSeconds") {
            None => None,
            Some(value) => match value.as_u64().filter(|it| (1..=MAX_TTL_SECONDS).contains(it)) {
                Some(seconds) => Some(Duration::from_secs(seconds)),
                None => {
                    issue("/ttlSeconds", "must be an integer, 1 to 31622400");
                    None
                }
            },
        };
        for name in ["capabilities", "secrets"] {
            let is_asked = get(name).is_some_and(|value| value.as_array() != Some(&Vec::new()));
            if is_asked {
                issue(&format!("/{name}"), "is not available yet");
            }
        }
        let document = match PolicyDocument::resolve(get("policy"), get("policyOverrides")) {
            Ok(document) => Some(document),
            Err(found) => {
                for found in found {
                    issue(&found.pointer, &found.message);
                }
                None
            }
        };
        match document {
            Some(document) if issues.is_empty() => Ok(Self {
                name,
                description,
                policy: document,
                backend,
                copy_from: copy_of,
                env,
                metadata,
                lifetime,
            }),
            _ => Err(InvalidMessage { issues }),
        }
    }
}
