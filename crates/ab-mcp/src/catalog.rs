//! The list of tools, with the name, the schemas, the hints and the function of each.

mod commands;
mod family;
mod prefix;

use std::sync::Arc;

use ab_core::Backend;
use ab_core::driver::BackendInfo;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::briefing::InForce;
use crate::files_read_tracker::LedgerView;
use crate::outgoing::Outgoing;
use crate::output_file_store::OutputFileStore;
use crate::progress::Progress;
use crate::tools::{
    Outcome, boundary, delete, directories, edit, exec, grep, info, media, processes, read,
    relocate, search, several, tree, write,
};
use crate::used::UsedPaths;

pub use family::ToolFamily;
pub(crate) use prefix::{prefix_texts, prefixed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    ReadFile,
    ReadTextFile,
    ReadMediaFile,
    ReadMultipleFiles,
    WriteFile,
    EditFile,
    CreateDirectory,
    ListDirectory,
    ListDirectoryWithSizes,
    DirectoryTree,
    MoveFile,
    SearchFiles,
    GetFileInfo,
    ListAllowedDirectories,
    Grep,
    Delete,
    Exec,
    ProcessOutput,
    ProcessInput,
    ProcessKill,
    ProcessList,
}

const ALL: [Name; 21] = [
    Name::ReadFile,
    Name::ReadTextFile,
    Name::ReadMediaFile,
    Name::ReadMultipleFiles,
    Name::WriteFile,
    Name::EditFile,
    Name::CreateDirectory,
    Name::ListDirectory,
    Name::ListDirectoryWithSizes,
    Name::DirectoryTree,
    Name::MoveFile,
    Name::SearchFiles,
    Name::GetFileInfo,
    Name::ListAllowedDirectories,
    Name::Grep,
    Name::Delete,
    Name::Exec,
    Name::ProcessOutput,
    Name::ProcessInput,
    Name::ProcessKill,
    Name::ProcessList,
];

/// The tool whose description depends on the effective policy.
pub(crate) const EXEC: &str = "exec";
/// The tool whose answers can be much larger than the answers of other tools.
pub(crate) const MEDIA: &str = "read_media_file";

pub(crate) fn is_name(name: &str) -> bool {
    ALL.iter().any(|known| known.as_str() == name)
}

/// The tools that a workspace with these capabilities supports.
pub(crate) fn offered(info: &BackendInfo) -> Arc<[(Name, Tool)]> {
    let has = |name: &Name| match name.needs() {
        Needs::Files => true,
        Needs::Search => info.capabilities.search,
        Needs::Commands => info.capabilities.exec,
    };
    ALL.into_iter().filter(has).map(|name| (name, name.tool())).collect()
}

/// What a tool requires from the workspace.
enum Needs {
    Files,
    Search,
    Commands,
}

/// What a call may change.
enum Effect {
    Reads,
    /// Adds something. Repeating the call changes nothing more. No content is lost.
    Adds,
    /// Replaces something. Repeating the call changes nothing more. Previous content may be lost.
    Replaces,
    Changes,
    /// May change anything, even outside the workspace.
    Runs,
}

/// What a tool's function receives in addition to the arguments.
pub(crate) struct With<'a> {
    /// The target of progress notifications, if the caller wants them.
    pub(crate) progress: Option<Progress>,
    pub(crate) outgoing: &'a Outgoing,
    /// The effective policy for commands.
    pub(crate) in_force: &'a InForce,
    /// The record of the files that the caller has read. `Some` if the caller must read a file
    /// before it changes the file.
    pub(crate) ledger: Option<&'a LedgerView>,
    /// The directory in which long output of commands is stored. `None` if long output is not
    /// stored.
    pub(crate) saved_output: Option<&'a OutputFileStore>,
    /// Maximum number of bytes of text in a result, if the caller requested a number of lines.
    pub(crate) max_requested_bytes: usize,
    /// The prefix that the caller has added to the names of the tools.
    pub(crate) name_prefix: &'a str,
}

/// What clients see of a tool.
struct Face {
    title: &'static str,
    description: &'static str,
    properties: Value,
    required: &'static [&'static str],
    effect: Effect,
    /// The schema of the structured value in the answers. `None` if the answers have no structured
    /// value.
    output: Option<Value>,
}

impl Name {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Name::ReadFile => "read_file",
            Name::ReadTextFile => "read_text_file",
            Name::ReadMediaFile => MEDIA,
            Name::ReadMultipleFiles => "read_multiple_files",
            Name::WriteFile => "write_file",
            Name::EditFile => "edit_file",
            Name::CreateDirectory => "create_directory",
            Name::ListDirectory => "list_directory",
            Name::ListDirectoryWithSizes => "list_directory_with_sizes",
            Name::DirectoryTree => "directory_tree",
            Name::MoveFile => "move_file",
            Name::SearchFiles => "search_files",
            Name::GetFileInfo => "get_file_info",
            Name::ListAllowedDirectories => "list_allowed_directories",
            Name::Grep => "grep",
            Name::Delete => "delete",
            Name::Exec => EXEC,
            Name::ProcessOutput => "process_output",
            Name::ProcessInput => "process_input",
            Name::ProcessKill => "process_kill",
            Name::ProcessList => "process_list",
        }
    }

    /// Whether a call of this tool may wait for something that another call of the caller does.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Name::Exec | Name::ProcessOutput | Name::ProcessInput | Name::ProcessKill)
    }

    pub(crate) async fn call(
        self,
        backend: &Backend,
        mut arguments: Arguments,
        with: With<'_>,
    ) -> Outcome {
        let used = UsedPaths::of(backend, self.paths(), &mut arguments);
        let done = match self {
            Name::ReadFile | Name::ReadTextFile => read::call(backend, arguments, &with).await,
            Name::ReadMediaFile => {
                media::call(backend, arguments, with.outgoing, with.ledger).await
            }
            Name::ReadMultipleFiles => several::call(backend, arguments, &with).await,
            Name::WriteFile => write::file(backend, arguments, with.ledger).await,
            Name::EditFile => edit::call(backend, arguments, with.ledger).await,
            Name::CreateDirectory => write::directory(backend, arguments).await,
            Name::ListDirectory => directories::names(backend, arguments).await,
            Name::ListDirectoryWithSizes => directories::sizes(backend, arguments).await,
            Name::DirectoryTree => tree::call(backend, arguments).await,
            Name::MoveFile => relocate::call(backend, arguments, with.ledger).await,
            Name::SearchFiles => search::call(backend, arguments).await,
            Name::GetFileInfo => info::call(backend, arguments).await,
            Name::ListAllowedDirectories => boundary::call(backend),
            Name::Grep => grep::call(backend, arguments).await,
            Name::Delete => delete::call(backend, arguments, with.ledger).await,
            Name::Exec => exec::call(backend, arguments, with).await,
            Name::ProcessOutput => processes::output(backend, arguments).await,
            Name::ProcessInput => processes::input(backend, arguments).await,
            Name::ProcessKill => processes::kill(backend, arguments).await,
            Name::ProcessList => processes::list(backend).await,
        };
        used.told(done.map_err(|failure| failure.of(self.act())))
    }

    /// The names of the arguments that are paths.
    fn paths(self) -> &'static [&'static str] {
        match self {
            Name::ReadMultipleFiles => &["paths"],
            Name::MoveFile => &["source", "destination"],
            Name::Exec => &["cwd"],
            Name::ReadFile
            | Name::ReadTextFile
            | Name::ReadMediaFile
            | Name::WriteFile
            | Name::EditFile
            | Name::CreateDirectory
            | Name::ListDirectory
            | Name::ListDirectoryWithSizes
            | Name::DirectoryTree
            | Name::SearchFiles
            | Name::GetFileInfo
            | Name::Grep
            | Name::Delete => &["path"],
            Name::ListAllowedDirectories
            | Name::ProcessOutput
            | Name::ProcessInput
            | Name::ProcessKill
            | Name::ProcessList => &[],
        }
    }

    /// The name of the action in error messages. `None` for the verb of the backend's error.
    fn act(self) -> Option<&'static str> {
        match self {
            Name::EditFile => Some("edit"),
            Name::DirectoryTree => Some("show the tree of"),
            Name::Exec => Some("exec in cwd"),
            Name::ProcessOutput | Name::ProcessInput | Name::ProcessKill | Name::ProcessList => {
                Some(self.as_str())
            }
            Name::ReadFile
            | Name::ReadTextFile
            | Name::ReadMediaFile
            | Name::ReadMultipleFiles
            | Name::WriteFile
            | Name::CreateDirectory
            | Name::ListDirectory
            | Name::ListDirectoryWithSizes
            | Name::MoveFile
            | Name::SearchFiles
            | Name::GetFileInfo
            | Name::ListAllowedDirectories
            | Name::Grep
            | Name::Delete => None,
        }
    }

    fn needs(self) -> Needs {
        match self {
            Name::Exec
            | Name::ProcessOutput
            | Name::ProcessInput
            | Name::ProcessKill
            | Name::ProcessList => Needs::Commands,
            Name::Grep | Name::SearchFiles | Name::DirectoryTree => Needs::Search,
            _ => Needs::Files,
        }
    }

    /// The names of the tool's arguments.
    pub(crate) fn properties(self) -> &'static [&'static str] {
        match self {
            Name::ReadFile | Name::ReadTextFile => {
                &["path", "head", "tail", "offset", "limit", "lineNumbers"]
            }
            Name::ReadMediaFile => &["path", "force"],
            Name::ReadMultipleFiles => &["paths"],
            Name::WriteFile => &["path", "content"],
            Name::EditFile => &["path", "edits", "dryRun"],
            Name::CreateDirectory | Name::GetFileInfo => &["path"],
            Name::ListDirectory => &["path", "offset", "limit"],
            Name::ListDirectoryWithSizes => &["path", "sortBy", "offset", "limit"],
            Name::DirectoryTree => &["path", "excludePatterns", "includeDefaultExcludes", "depth"],
            Name::MoveFile => &["source", "destination"],
            Name::SearchFiles => &[
                "path",
                "pattern",
                "excludePatterns",
                "includeIgnored",
                "sortBy",
                "offset",
                "limit",
            ],
            Name::ListAllowedDirectories | Name::ProcessList => &[],
            Name::Grep => &[
                "pattern",
                "path",
                "glob",
                "type",
                "excludePatterns",
                "includeIgnored",
                "outputMode",
                "caseInsensitive",
                "literal",
                "multiline",
                "contextBefore",
                "contextAfter",
                "contextAround",
                "lineNumbers",
                "headLimit",
            ],
            Name::Delete => &["path", "recursive"],
            Name::Exec => {
                &["command", "timeout", "cwd", "env", "background", "pty", "columns", "rows"]
            }
            Name::ProcessOutput => &["processId", "cursor", "wait"],
            Name::ProcessInput => &["processId", "input", "end"],
            Name::ProcessKill => &["processId", "signal"],
        }
    }

    fn tool(self) -> Tool {
        let Face { title, description, properties, required, effect, output } = self.face();
        let mut input = object(json!({ "type": "object", "properties": properties }));
        if !required.is_empty() {
            input.insert("required".to_owned(), json!(required));
        }
        let tool = Tool::new(self.as_str(), description, Arc::new(input))
            .with_title(title)
            .with_annotations(hints(&effect));
        match output {
            Some(output) => tool.with_raw_output_schema(Arc::new(object(output))),
            None => tool,
        }
    }

    fn face(self) -> Face {
        match self {
            Name::ReadFile => Face {
                title: "Read File (Deprecated)",
                description: "The same as read_text_file, under its old name.",
                ..Name::ReadTextFile.face()
            },
            Name::ReadTextFile => Face {
                title: "Read Text File",
                description: "Read a text file. By default, returns its first 2,000 lines, or fewer \
                    if they are long. Choose lines with head, with tail, or with offset and \
                    limit.",
                properties: json!({
                    "path": path(),
                    "head": count("Return only this many lines from the start"),
                    "tail": count("Return only this many lines from the end"),
                    "offset": count("Number of the first line to return, counted from 1"),
                    "limit": count("Maximum number of lines"),
                    "lineNumbers": flag("Begin each line with its number", false),
                }),
                required: &["path"],
                effect: Effect::Reads,
                output: text_with(json!({
                    "firstLine": { "type": "integer" },
                    "lastLine": { "type": "integer" },
                    "totalLines": { "type": "integer" },
                    "nextOffset": { "type": "integer" },
                })),
            },
            Name::ReadMediaFile => Face {
                title: "Read Media File",
                description: "Return the bytes of a file in base64: images and audio as image and \
                    audio content, all other files as an embedded resource.",
                properties: json!({
                    "path": path(),
                    "force": flag("Has no effect; accepted for older callers", false),
                }),
                required: &["path"],
                effect: Effect::Reads,
                output: None,
            },
            Name::ReadMultipleFiles => Face {
                title: "Read Multiple Files",
                description: "Read several text files in one call. For a file that cannot be read, \
                    returns the error; the other files are still returned.",
                properties: json!({ "paths": {
                    "type": "array",
                    "items": { "type": "string" },
                    "minItems": 1,
                    "description": "The paths of the files in the workspace",
                } }),
                required: &["paths"],
                effect: Effect::Reads,
                output: text(),
            },
            Name::WriteFile => Face {
                title: "Write File",
                description: "Write a whole file. Creates missing directories; replaces an existing \
                    file.",
                properties: json!({
                    "path": path(),
                    "content": { "type": "string", "description": "The complete new content of the file" },
                }),
                required: &["path", "content"],
                effect: Effect::Replaces,
                output: text(),
            },
            Name::EditFile => edit_face(),
            Name::CreateDirectory => Face {
                title: "Create Directory",
                description: "Create a directory and its missing parents. Succeeds if the directory \
                    exists.",
                properties: json!({ "path": path() }),
                required: &["path"],
                effect: Effect::Adds,
                output: text(),
            },
            Name::ListDirectory => Face {
                title: "List Directory",
                description: "List the content of a directory, one name on each line, after [FILE] or \
                    [DIR].",
                properties: json!({
                    "path": path(),
                    "offset": count("Number of the first entry to return, counted from 1"),
                    "limit": count("Maximum number of entries; 1,000 by default"),
                }),
                required: &["path"],
                effect: Effect::Reads,
                output: text(),
            },
            Name::ListDirectoryWithSizes => Face {
                title: "List Directory with Sizes",
                description: "List the content of a directory with the size of each file, and the \
                    totals.",
                properties: json!({
                    "path": path(),
                    "sortBy": choice("Sort by name, or by size with the largest first", &["name", "size"]),
                    "offset": count("Number of the first entry to return, counted from 1"),
                    "limit": count("Maximum number of entries; 1,000 by default"),
                }),
                required: &["path"],
                effect: Effect::Reads,
                output: text(),
            },
            Name::DirectoryTree => Face {
                title: "Directory Tree",
                description: "Show everything below a directory as nested JSON: name, type, and \
                    children for directories. By default, leaves out build output, caches and \
                    version control directories.",
                properties: json!({
                    "path": path(),
                    "excludePatterns": patterns("Globs of files and directories to leave out"),
                    "includeDefaultExcludes": flag(
                        "Leave out directories such as .git and node_modules",
                        true,
                    ),
                    "depth": count("Maximum number of levels; all by default"),
                }),
                required: &["path"],
                effect: Effect::Reads,
                output: text(),
            },
            Name::MoveFile => Face {
                title: "Move File",
                description: "Move or rename a file or a directory. Fails if the destination \
                    exists.",
                properties: json!({
                    "source": { "type": "string", "description": "The current path" },
                    "destination": { "type": "string", "description": "The new path" },
                }),
                required: &["source", "destination"],
                effect: Effect::Changes,
                output: text(),
            },
            Name::SearchFiles => Face {
                title: "Search Files",
                description: "Find files and directories by name. '*.rs' finds them at any depth, \
                    'src/*.rs' directly in src. Returns paths that the other tools accept. Leaves \
                    out files that .gitignore names, build output and caches such as \
                    node_modules.",
                properties: json!({
                    "path": path(),
                    "pattern": { "type": "string", "description": "A glob, relative to path" },
                    "excludePatterns": patterns("Globs of files and directories to leave out"),
                    "includeIgnored": include_ignored(),
                    "sortBy": choice("Sort by path, or by modification time with the newest first", &["path", "mtime"]),
                    "offset": count("Number of the first match to return, counted from 1"),
                    "limit": count("Maximum number of matches; 1,000 by default"),
                }),
                required: &["path", "pattern"],
                effect: Effect::Reads,
                output: text(),
            },
            Name::GetFileInfo => Face {
                title: "Get File Info",
                description: "Return the size, times, type and permissions of a file or a directory.",
                properties: json!({ "path": path() }),
                required: &["path"],
                effect: Effect::Reads,
                output: text(),
            },
            Name::ListAllowedDirectories => Face {
                title: "List Allowed Directories",
                description: "Return the directory of the workspace. Only paths below it can be \
                    used.",
                properties: json!({}),
                required: &[],
                effect: Effect::Reads,
                output: text(),
            },
            Name::Grep => grep_face(),
            Name::Delete => Face {
                title: "Delete",
                description: "Remove a file, a link or an empty directory; with recursive, a \
                    directory and its content. Removed files cannot be restored.",
                properties: json!({
                    "path": path(),
                    "recursive": flag("Also remove the content of a directory", false),
                }),
                required: &["path"],
                effect: Effect::Changes,
                output: text_with(json!({ "removed": { "type": "integer" } })),
            },
            Name::Exec
            | Name::ProcessOutput
            | Name::ProcessInput
            | Name::ProcessKill
            | Name::ProcessList => commands::face(self),
        }
    }
}

fn edit_face() -> Face {
    Face {
        title: "Edit File",
        description: "Replace exact text in a file. The edits are made in order, all of them or none. \
            oldText must occur exactly once unless replaceAll is true. Returns a diff.",
        properties: json!({
            "path": path(),
            "edits": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "oldText": { "type": "string", "description": "The exact text to replace" },
                        "newText": { "type": "string", "description": "The new text" },
                        "replaceAll": flag("Replace every occurrence", false),
                    },
                    "required": ["oldText", "newText"],
                },
            },
            "dryRun": flag("Show the diff and write nothing", false),
        }),
        required: &["path", "edits"],
        effect: Effect::Changes,
        output: text_with(json!({ "replaced": { "type": "integer" } })),
    }
}

fn grep_face() -> Face {
    Face {
        title: "Search Text",
        description: "Find lines that match a regular expression in the files below a path. Does not \
            search binary files, files whose names begin with a dot, files that .gitignore names, \
            build output, and caches such as node_modules.",
        properties: json!({
            "pattern": { "type": "string", "description": "A regular expression" },
            "path": { "type": "string", "description": "A directory or a file; by default the root of the workspace" },
            "glob": { "type": "string", "description": "Only files whose paths match this" },
            "type": { "type": "string", "description": "Only files of this type, such as rust or py" },
            "excludePatterns": patterns("Globs of files and directories to leave out"),
            "includeIgnored": include_ignored(),
            "outputMode": choice(
                "Return lines, or only the names of files, or the number of matching lines of each file",
                &["content", "files_with_matches", "count"],
            ),
            "caseInsensitive": flag("Ignore case", false),
            "literal": flag("The pattern is plain text, not a regular expression", false),
            "multiline": flag("Let a match span several lines; a dot matches line ends too", false),
            "contextBefore": whole("Lines to show before each match"),
            "contextAfter": whole("Lines to show after each match"),
            "contextAround": whole("Lines to show before and after each match"),
            "lineNumbers": flag("Show the number of each line", true),
            "headLimit": count("Maximum number of matches; 200 by default"),
        }),
        required: &["pattern"],
        effect: Effect::Reads,
        output: text(),
    }
}

fn hints(effect: &Effect) -> ToolAnnotations {
    let hints = ToolAnnotations::new().open_world(matches!(effect, Effect::Runs));
    match effect {
        Effect::Reads => hints.read_only(true),
        Effect::Adds => hints.read_only(false).idempotent(true).destructive(false),
        Effect::Replaces => hints.read_only(false).idempotent(true).destructive(true),
        Effect::Changes | Effect::Runs => {
            hints.read_only(false).idempotent(false).destructive(true)
        }
    }
}

fn path() -> Value {
    json!({ "type": "string", "description": "A path in the workspace" })
}

fn count(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 1, "description": description })
}

fn include_ignored() -> Value {
    flag("Include files that .gitignore names, build output, caches and version control", false)
}

fn whole(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

fn seconds(description: &str) -> Value {
    json!({ "type": "number", "minimum": 0, "description": format!("Seconds. {description}") })
}

fn flag(description: &str, default: bool) -> Value {
    json!({ "type": "boolean", "default": default, "description": description })
}

fn choice(description: &str, words: &[&str]) -> Value {
    let default = words.first().copied().unwrap_or_default();
    json!({ "type": "string", "enum": words, "default": default, "description": description })
}

fn patterns(description: &str) -> Value {
    json!({
        "type": "array",
        "items": { "type": "string" },
        "default": [],
        "description": description,
    })
}

/// The schema of the structured value of a text answer: the text, and a note if the text is
/// incomplete.
fn text() -> Option<Value> {
    text_with(json!({}))
}

fn text_with(more: Value) -> Option<Value> {
    let mut properties = object(json!({
        "content": { "type": "string" },
        "note": { "type": "string" },
        "path": { "type": "string", "description": "The path that was used, from the root" },
        "commandPath": { "type": "string", "description": "The same as commands name it" },
    }));
    properties.extend(object(more));
    Some(json!({ "type": "object", "properties": properties, "required": ["content"] }))
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(fields) => fields,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_what_the_schema_says() {
        for name in ALL {
            let tool = name.tool();
            let properties = tool.input_schema["properties"].as_object().unwrap();
            let mut described: Vec<&str> = properties.keys().map(String::as_str).collect();
            let mut taken = name.properties().to_vec();
            described.sort_unstable();
            taken.sort_unstable();
            assert_eq!(described, taken, "{name:?}");
            let required = tool.input_schema.get("required").and_then(Value::as_array);
            for field in required.into_iter().flatten() {
                assert!(taken.contains(&field.as_str().unwrap()), "{name:?} {field}");
            }
            for (field, schema) in properties {
                let told = schema.get("description").is_some() || field == "edits";
                assert!(told && schema.get("type").is_some(), "{name:?} {field}");
            }
        }
    }
}
