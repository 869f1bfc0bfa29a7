//! Reads documents and overrides from JSON, and reports every problem in them.

use serde_json::{Map, Value};

use super::paths::PathPattern;
use super::{FilesystemPolicy, NetworkPolicy, PolicyDocument, ShellPolicy};

/// Maximum number of entries of a list.
const MAX_ENTRIES: usize = 256;
/// Maximum number of characters of an entry, name or description.
const MAX_TEXT: usize = 255;
/// Maximum value of the file size limit, in bytes.
const MAX_FILE_SIZE: u64 = 1 << 40;
/// The valid range of the duration of a command, in milliseconds.
const TIMEOUTS: std::ops::RangeInclusive<u64> = 1000..=3_600_000;

/// A problem in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyIssue {
    /// The JSON pointer of the field, relative to `policy` or `policyOverrides`.
    pub pointer: String,
    pub message: String,
}

pub(super) fn resolve(
    policy: Option<&Value>,
    overrides: Option<&Value>,
) -> Result<PolicyDocument, Vec<PolicyIssue>> {
    let mut issues = Vec::new();
    let mut document = match policy {
        None | Some(Value::Null) => super::standard(),
        Some(Value::String(name)) => PolicyDocument::preset(name).unwrap_or_else(|| {
            let names = PolicyDocument::PRESETS.join(", ");
            let message = format!("is no preset: use one of {names}, or an object");
            issues.push(PolicyIssue { pointer: "/policy".to_owned(), message });
            super::standard()
        }),
        Some(object) => {
            let base = PolicyDocument {
                name: "custom".to_owned(),
                description: None,
                ..super::standard()
            };
            let mut reader = Reader { issues: &mut issues };
            reader.document("/policy", object, base)
        }
    };
    if let Some(overrides) = overrides.filter(|value| !value.is_null()) {
        let mut reader = Reader { issues: &mut issues };
        document = reader.document("/policyOverrides", overrides, document);
    }
    if issues.is_empty() { Ok(document) } else { Err(issues) }
}

/// Reads objects on top of base values. An absent field keeps its base value. A list replaces the
/// whole base list.
struct Reader<'a> {
    issues: &'a mut Vec<PolicyIssue>,
}

impl Reader<'_> {
    fn issue(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.issues.push(PolicyIssue { pointer: pointer.into(), message: message.into() });
    }

    fn document(&mut self, at: &str, value: &Value, base: PolicyDocument) -> PolicyDocument {
        let fields = ["name", "description", "filesystem", "shell", "network"];
        let Some(object) = self.object(at, value, &fields) else { return base };
        let mut document = base;
        if let Some(name) = self.text(at, object, "name") {
            document.name = name;
        }
        if let Some(description) = self.text(at, object, "description") {
            document.description = Some(description);
        }
        if let Some(value) = object.get("filesystem") {
            self.filesystem(&format!("{at}/filesystem"), value, &mut document.filesystem);
        }
        if let Some(value) = object.get("shell") {
            self.shell(&format!("{at}/shell"), value, &mut document.shell);
        }
        if let Some(value) = object.get("network") {
            self.network(&format!("{at}/network"), value, &mut document.network);
        }
        document
    }

    fn filesystem(&mut self, at: &str, value: &Value, files: &mut FilesystemPolicy) {
        let fields = ["enabled", "readOnly", "maxFileSize", "allowedPaths", "blockedPaths"];
        let Some(object) = self.object(at, value, &fields) else { return };
        self.flag(at, object, "enabled", &mut files.enabled);
        self.flag(at, object, "readOnly", &mut files.read_only);
        self.number(at, object, "maxFileSize", 1..=MAX_FILE_SIZE, &mut files.max_file_size);
        for (name, list) in
            [("allowedPaths", &mut files.allowed_paths), ("blockedPaths", &mut files.blocked_paths)]
        {
            if let Some(texts) = self.list(at, object, name, PathPattern::problem) {
                if name == "allowedPaths" && is_empty_list(object, name) {
                    let message = "must not be empty: use [\"**\"] to allow every path, or \"enabled\": false to allow none";
                    self.issue(format!("{at}/{name}"), message);
                }
                *list = texts.iter().map(|text| PathPattern::new(text)).collect();
            }
        }
    }

    fn shell(&mut self, at: &str, value: &Value, shell: &mut ShellPolicy) {
        let fields =
            ["enabled", "allowedCommands", "blockedPatterns", "timeout", "approvalRequired"];
        let Some(object) = self.object(at, value, &fields) else { return };
        self.flag(at, object, "enabled", &mut shell.enabled);
        self.number(at, object, "timeout", TIMEOUTS, &mut shell.timeout);
        let blank = |text: &str| text.trim().is_empty().then_some("must not be empty");
        let program = |text: &str| {
            let is_name =
                !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '/');
            (!is_name).then_some("must be the name of a program, without directory and arguments")
        };
        if let Some(texts) = self.list(at, object, "allowedCommands", program) {
            if is_empty_list(object, "allowedCommands") {
                let message = "must not be empty: use [\"*\"] to allow every program, or \"enabled\": false to allow none";
                self.issue(format!("{at}/allowedCommands"), message);
            }
            shell.allowed_commands = texts;
        }
        if let Some(texts) = self.list(at, object, "blockedPatterns", blank) {
            shell.blocked_patterns = texts;
        }
        if let Some(texts) = self.list(at, object, "approvalRequired", blank) {
            shell.approval_required = texts;
        }
    }

    fn network(&mut self, at: &str, value: &Value, network: &mut NetworkPolicy) {
        let fields = ["enabled", "allowedDomains", "blockedDomains"];
        let Some(object) = self.object(at, value, &fields) else { return };
        self.flag(at, object, "enabled", &mut network.enabled);
        let domain = |text: &str| {
            (text != "*").then_some("is not available yet: this server cannot enforce domains")
        };
        if let Some(texts) = self.list(at, object, "allowedDomains", domain) {
            if is_empty_list(object, "allowedDomains") {
                let message = "must not be empty: use [\"*\"] to allow every domain, or \"enabled\": false to allow none";
                self.issue(format!("{at}/allowedDomains"), message);
            }
            network.allowed_domains = texts;
        }
        let any = |_: &str| Some("is not available yet: this server cannot enforce domains");
        self.list(at, object, "blockedDomains", any);
    }

    fn object<'v>(
        &mut self,
        at: &str,
        value: &'v Value,
        fields: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Some(object) = value.as_object() else {
            self.issue(at, "must be an object");
            return None;
        };
        for name in object.keys().filter(|name| !fields.contains(&name.as_str())) {
            let name = name.replace('~', "~0").replace('/', "~1");
            self.issue(format!("{at}/{name}"), "is not a known field: nothing enforces it");
        }
        Some(object)
    }

    fn text(&mut self, at: &str, object: &Map<String, Value>, name: &str) -> Option<String> {
        let value = object.get(name).filter(|value| !value.is_null())?;
        match value.as_str() {
            Some(text) if !text.is_empty() && text.chars().count() <= MAX_TEXT => {
                Some(text.to_owned())
            }
            _ => {
                let message = format!("must be a string of 1 to {MAX_TEXT} characters");
                self.issue(format!("{at}/{name}"), message);
                None
            }
        }
    }

    fn flag(&mut self, at: &str, object: &Map<String, Value>, name: &str, into: &mut bool) {
        match object.get(name) {
            None => {}
            Some(Value::Bool(flag)) => *into = *flag,
            Some(_) => self.issue(format!("{at}/{name}"), "must be true or false"),
        }
    }

    fn number(
        &mut self,
        at: &str,
        object: &Map<String, Value>,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
        into: &mut u64,
    ) {
        let Some(value) = object.get(name) else { return };
        match value.as_u64().filter(|number| range.contains(number)) {
            Some(number) => *into = number,
            None => {
                let message = format!("must be an integer, {} to {}", range.start(), range.end());
                self.issue(format!("{at}/{name}"), message);
            }
        }
    }

    fn list(
        &mut self,
        at: &str,
        object: &Map<String, Value>,
        name: &str,
        problem: impl Fn(&str) -> Option<&'static str>,
    ) -> Option<Vec<String>> {
        let value = object.get(name)?;
        let at = format!("{at}/{name}");
        let Some(items) = value.as_array().filter(|items| items.len() <= MAX_ENTRIES) else {
            self.issue(at, format!("must be a list of at most {MAX_ENTRIES} strings"));
            return None;
        };
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let found = match item.as_str().filter(|text| text.chars().count() <= MAX_TEXT) {
                None => Some("must be a string of at most 255 characters"),
                Some(text) => problem(text),
            };
            match (found, item.as_str()) {
                (None, Some(text)) => texts.push(text.to_owned()),
                (found, _) => {
                    self.issue(format!("{at}/{index}"), found.unwrap_or("must be a string"));
                }
            }
        }
        Some(texts)
    }
}

fn is_empty_list(object: &Map<String, Value>, name: &str) -> bool {
    object.get(name).and_then(Value::as_array).is_some_and(Vec::is_empty)
}
