//! Policy documents: what is allowed for the files, the commands and the network of one space.
//!
//! A document is a preset or a JSON object. It may have overrides. It has three sections of plain
//! values. Each verdict names the rule that decided. Commands are also judged by the command
//! policy, and the stricter of the two verdicts applies.

mod commands;
mod guard;
mod paths;
mod read;

pub use guard::PolicyDocumentGuard;
pub use read::PolicyIssue;

use std::fmt;
use std::time::Duration;

use ab_core::Verdict;
use serde::{Deserialize, Serialize};

use crate::analysis::CommandAnalysis;
use paths::PathPattern;

/// The rules of one space. Created by [`PolicyDocument::resolve`], which ensures that every value
/// is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyDocument {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub filesystem: FilesystemPolicy,
    pub shell: ShellPolicy,
    pub network: NetworkPolicy,
}

/// Rules for the files of a space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FilesystemPolicy {
    pub enabled: bool,
    pub read_only: bool,
    /// Maximum size in bytes of a file that is written.
    pub max_file_size: u64,
    /// Paths that may be used. If the list is absent or contains `**`, all paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_paths: Vec<PathPattern>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_paths: Vec<PathPattern>,
}

/// Rules for the commands of a space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShellPolicy {
    pub enabled: bool,
    /// Programs that may be run if no other rule decides. If the list is absent or contains `*`,
    /// all programs may be run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_commands: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_patterns: Vec<String>,
    /// Maximum duration of a command in milliseconds.
    pub timeout: u64,
    /// Commands that require the approval of a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approval_required: Vec<String>,
}

/// Whether commands can use the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPolicy {
    pub enabled: bool,
    /// The allowed domains. Only `*` is supported, because nothing enforces a list of domains yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_domains: Vec<String>,
}

/// How a call accesses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyDocumentFileAccess {
    /// The call reads only names and sizes.
    ReadMetadata,
    Read,
    Write,
}

/// A verdict other than `Allow`, and the rule that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDocumentMatch {
    pub verdict: Verdict,
    /// The section and field, such as `shell.blockedPatterns`.
    pub rule: &'static str,
    pub reason: String,
    /// What the caller can do instead.
    pub suggestion: String,
}

/// How well a rule is enforced for commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyDocumentEnforcement {
    /// The kernel enforces it.
    Enforced,
    /// For commands the rule is only checked against their text, or it applies only to file
    /// operations.
    Advisory,
}

/// How one rule of a document is enforced for commands. For file operations every rule is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyDocumentRuleEnforcement {
    pub rule: &'static str,
    pub commands: PolicyDocumentEnforcement,
}

impl PolicyDocument {
    /// The names of the presets, the strictest first.
    pub const PRESETS: [&'static str; 3] = ["restrictive", "standard", "permissive"];

    /// The preset with this name. `None` if the name is unknown.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "restrictive" => Some(restrictive()),
            "standard" => Some(standard()),
            "permissive" => Some(permissive()),
            _ => None,
        }
    }

    /// Builds the document of a request. `policy` is the name of a preset or an object, and
    /// `overrides` replaces single fields. Without both, the document is the preset `standard`.
    ///
    /// # Errors
    ///
    /// Returns every problem with its JSON pointer.
    pub fn resolve(
        policy: Option<&serde_json::Value>,
        overrides: Option<&serde_json::Value>,
    ) -> Result<Self, Vec<PolicyIssue>> {
        read::resolve(policy, overrides)
    }

    /// Judges a file operation. `None` if it is allowed.
    pub fn judge_file(
        &self,
        access: PolicyDocumentFileAccess,
        path: &str,
        size: Option<u64>,
    ) -> Option<PolicyDocumentMatch> {
        let files = &self.filesystem;
        let deny = |rule, reason: String, suggestion: &str| {
            let suggestion = suggestion.to_owned();
            Some(PolicyDocumentMatch { verdict: Verdict::Deny, rule, reason, suggestion })
        };
        if !files.enabled {
            let reason = "file operations are disabled".to_owned();
            return deny("filesystem.enabled", reason, "enable filesystem in the policy");
        }
        if files.read_only && access == PolicyDocumentFileAccess::Write {
            let reason = "the files are read-only".to_owned();
            return deny("filesystem.readOnly", reason, "read files without changing them");
        }
        if let Some(pattern) = files.blocked_paths.iter().find(|pattern| pattern.covers(path)) {
            let reason = format!("path '{path}' is blocked by '{pattern}'");
            return deny("filesystem.blockedPaths", reason, "use another path");
        }
        let is_listed = files.allowed_paths.iter().any(|pattern| pattern.covers(path));
        if !files.allowed_paths.is_empty()
            && !is_listed
            && access != PolicyDocumentFileAccess::ReadMetadata
        {
            let listed = join(files.allowed_paths.iter());
            let reason = format!("path '{path}' is not among the allowed paths");
            return deny("filesystem.allowedPaths", reason, &format!("use a path below {listed}"));
        }
        match size {
            Some(size) if access == PolicyDocumentFileAccess::Write => self.judge_size(size),
            Some(_) | None => None,
        }
    }

    /// Judges the size of a file that is written.
    pub fn judge_size(&self, size: u64) -> Option<PolicyDocumentMatch> {
        let limit = self.filesystem.max_file_size;
        (size > limit).then(|| PolicyDocumentMatch {
            verdict: Verdict::Deny,
            rule: "filesystem.maxFileSize",
            // While a file is written, `size` is only the number of bytes so far.
            reason: format!("the file has more than the allowed {limit} bytes"),
            suggestion: "write a smaller file".to_owned(),
        })
    }

    /// Judges an analysed command line. `None` if it is allowed.
    pub fn judge_command(&self, analysis: &CommandAnalysis) -> Option<PolicyDocumentMatch> {
        commands::judge(&self.shell, analysis)
    }

    /// The maximum duration of a command.
    pub fn command_timeout(&self) -> Duration {
        Duration::from_millis(self.shell.timeout)
    }

    /// The blocked paths that name a single place without wildcards. A sandbox can hide these paths
    /// from commands.
    pub fn hidden_paths(&self) -> Vec<&str> {
        self.filesystem.blocked_paths.iter().filter_map(PathPattern::as_place).collect()
    }

    /// Whether a path is omitted from listings and search results.
    pub fn is_path_hidden(&self, path: &str) -> bool {
        self.judge_file(PolicyDocumentFileAccess::Read, path, None).is_some()
    }

    /// Whether a path is blocked. The temporary name of a running write is not judged. The file
    /// gets its final name by a rename, and the rename is judged.
    pub fn is_path_blocked(&self, path: &str) -> bool {
        let path = guard::without_temporary_name(path);
        self.filesystem.blocked_paths.iter().any(|pattern| pattern.covers(path))
    }

    /// Whether a directory that is removed as a whole may contain blocked paths.
    pub fn may_block_descendants(&self, path: &str) -> bool {
        self.filesystem.blocked_paths.iter().any(|pattern| pattern.may_cover_below(path))
    }

    /// Whether moving the path could move a blocked path so that its pattern no longer matches.
    pub fn may_unblock_by_move(&self, path: &str) -> bool {
        let anchored = self.filesystem.blocked_paths.iter().filter(|it| it.is_anchored());
        anchored.into_iter().any(|pattern| pattern.may_cover_below(path))
    }

    /// How each rule that is set is enforced for commands.
    pub fn rule_enforcement(&self) -> Vec<PolicyDocumentRuleEnforcement> {
        let Self { filesystem: files, shell, network, .. } = self;
        let control = |rule, commands| PolicyDocumentRuleEnforcement { rule, commands };
        let mut controls = Vec::new();
        if !files.enabled {
            controls.push(control("filesystem.enabled", PolicyDocumentEnforcement::Advisory));
        }
        if files.read_only {
            controls.push(control("filesystem.readOnly", PolicyDocumentEnforcement::Enforced));
        }
        controls.push(control("filesystem.maxFileSize", PolicyDocumentEnforcement::Enforced));
        if !files.allowed_paths.is_empty() {
            controls.push(control("filesystem.allowedPaths", PolicyDocumentEnforcement::Advisory));
        }
        if !files.blocked_paths.is_empty() {
            let is_concrete = files.blocked_paths.iter().all(|it| it.as_place().is_some());
            let reach = if is_concrete {
                PolicyDocumentEnforcement::Enforced
            } else {
                PolicyDocumentEnforcement::Advisory
            };
            controls.push(control("filesystem.blockedPaths", reach));
        }
        if !shell.enabled {
            controls.push(control("shell.enabled", PolicyDocumentEnforcement::Enforced));
        }
        controls.push(control("shell.timeout", PolicyDocumentEnforcement::Enforced));
        for (rule, list) in [
            ("shell.allowedCommands", &shell.allowed_commands),
            ("shell.blockedPatterns", &shell.blocked_patterns),
            ("shell.approvalRequired", &shell.approval_required),
        ] {
            let allows_all = rule == "shell.allowedCommands" && list.iter().any(|it| it == "*");
            if !list.is_empty() && !allows_all {
                controls.push(control(rule, PolicyDocumentEnforcement::Advisory));
            }
        }
        if !network.enabled {
            controls.push(control("network.enabled", PolicyDocumentEnforcement::Enforced));
        }
        controls
    }
}

fn join<T: fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| format!("'{item}'")).collect::<Vec<_>>().join(", ")
}

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

fn patterns(items: &[&str]) -> Vec<PathPattern> {
    items.iter().map(|item| PathPattern::new(item)).collect()
}

fn restrictive() -> PolicyDocument {
    PolicyDocument {
        name: "restrictive".to_owned(),
        description: Some("Files can be read; nothing is changed or run".to_owned()),
        filesystem: FilesystemPolicy {
            enabled: true,
            read_only: true,
            max_file_size: 1_000_000,
            allowed_paths: Vec::new(),
            blocked_paths: patterns(&[".*", "*.env", "*.key", "*.pem"]),
        },
        shell: ShellPolicy {
            enabled: false,
            allowed_commands: Vec::new(),
            blocked_patterns: Vec::new(),
            timeout: 10_000,
            approval_required: Vec::new(),
        },
        network: NetworkPolicy { enabled: false, allowed_domains: Vec::new() },
    }
}

fn standard() -> PolicyDocument {
    PolicyDocument {
        name: "standard".to_owned(),
        description: Some("Common commands run without network; removals are asked".to_owned()),
        filesystem: FilesystemPolicy {
            enabled: true,
            read_only: false,
            max_file_size: 10_000_000,
            allowed_paths: Vec::new(),
            blocked_paths: patterns(&[".*", "*.env", "*.key", "*.pem", "node_modules"]),
        },
        shell: ShellPolicy {
            enabled: true,
            allowed_commands: texts(&[
                "bun", "node", "npm", "npx", "cat", "echo", "ls", "pwd", "head", "tail", "grep",
                "find", "wc",
            ]),
            blocked_patterns: texts(&[
                "rm -rf /", "rm -rf ~", "sudo", "chmod", "chown", "curl", "wget", "ssh",
            ]),
            timeout: 30_000,
            approval_required: texts(&["rm -rf", "rm -r"]),
        },
        network: NetworkPolicy { enabled: false, allowed_domains: Vec::new() },
    }
}

fn permissive() -> PolicyDocument {
    PolicyDocument {
        name: "permissive".to_owned(),
        description: Some("Every command runs, with network; removals are asked".to_owned()),
        filesystem: FilesystemPolicy {
            enabled: true,
            read_only: false,
            max_file_size: 100_000_000,
            allowed_paths: Vec::new(),
            blocked_paths: patterns(&["*.key", "*.pem"]),
        },
        shell: ShellPolicy {
            enabled: true,
            allowed_commands: texts(&["*"]),
            blocked_patterns: texts(&["rm -rf /", "rm -rf ~", "sudo"]),
            timeout: 300_000,
            approval_required: texts(&["rm -rf", "rm -r", "chmod", "chown"]),
        },
        network: NetworkPolicy { enabled: true, allowed_domains: texts(&["*"]) },
    }
}
