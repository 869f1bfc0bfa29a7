//! The text about a tool call that a person reads before allowing it.

use std::path::Path;

use ab_core::edit::unified_diff;
use serde_json::Value;

use super::{ToolCall, ToolCallContent, ToolCallLocation};
use crate::session_update::ContentBlock;

impl ToolCall {
    /// Everything that the agent sent about the call except its title: the command, the content,
    /// the changes of files, the paths, and the raw input. Nothing is truncated. Paths below `tree`
    /// are shown relative to it.
    pub fn description(&self, tree: &Path) -> String {
        let input = self.raw_input.as_ref();
        let command = self.command();
        let mut parts: Vec<String> = command.into_iter().map(str::to_owned).collect();
        parts.extend(self.content.iter().map(|part| content_text(part, tree)));
        let paths: Vec<String> = self.locations.iter().map(|it| location_text(it, tree)).collect();
        parts.push(paths.join("\n"));
        let members = input.and_then(Value::as_object).map(serde_json::Map::len);
        let is_told = command.is_some() && members == Some(1) || members == Some(0);
        parts.extend(input.filter(|_| !is_told).map(|input| match input.as_str() {
            Some(text) => text.to_owned(),
            None => format!("{input:#}"),
        }));
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }

    /// The command that the call runs, if the agent sent it as a string.
    pub fn command(&self) -> Option<&str> {
        self.raw_input.as_ref()?["command"].as_str()
    }
}

fn content_text(part: &ToolCallContent, tree: &Path) -> String {
    match part {
        ToolCallContent::Diff(diff) => {
            let path = path_relative_to(tree, &diff.path);
            let old = diff.old_text.as_deref().unwrap_or_default();
            let shown = unified_diff(path, old, &diff.new_text);
            match shown.line_counts {
                Some(_) => shown.text,
                // Too large for a diff, so both texts are shown completely.
                None => {
                    let new = &diff.new_text;
                    format!("{path} contains:\n{old}\n{path} will contain:\n{new}")
                }
            }
        }
        ToolCallContent::Content(ContentBlock::Text(text)) => text.clone(),
        ToolCallContent::Content(ContentBlock::Link { name, uri }) => format!("{name} {uri}"),
        ToolCallContent::Content(ContentBlock::Other { body, .. }) => body.to_string(),
        ToolCallContent::Other(value) => value.to_string(),
    }
}

fn location_text(location: &ToolCallLocation, tree: &Path) -> String {
    let path = path_relative_to(tree, &location.path);
    match location.line {
        Some(line) => format!("{path}:{line}"),
        None => path.to_owned(),
    }
}

/// If the path is inside the workspace, returns the path relative to the workspace. Otherwise
/// returns the path unchanged.
pub fn path_relative_to<'p>(tree: &Path, path: &'p str) -> &'p str {
    Path::new(path).strip_prefix(tree).ok().and_then(Path::to_str).unwrap_or(path)
}
