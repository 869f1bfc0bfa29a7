//! Skills: instructions with additional files, which a model reads when it needs them.
//!
//! A skill is a directory with a `SKILL.md` file in the Agent Skills format. The model is told the
//! names and descriptions of the skills. The tool `use_skill` returns the instructions of one
//! skill. The shell toolset can run the scripts of a skill in the same backend.

mod discovery;
mod frontmatter;

use std::fmt::Write;
use std::sync::Arc;

use ab_core::options::{ByteRange, ListOptions, ReadOptions};
use ab_core::{Backend, Result, WsPath};
use ab_mcp::DEFAULT_MAX_RESULT_BYTES;
use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::places::ToolPlaces;
use super::session::AgentSession;
use super::tool::{AgentTool, ToolResult};
use super::toolset::{SessionToolset, Toolset};
use discovery::{Missing, SKILL_FILE};

pub use discovery::{DiscoveredSkills, MAX_SKILL_BYTES, Skill, SkillProblem};

pub(super) const USE_SKILL: &str = "use_skill";
/// The directory of skills that is used by default.
const DEFAULT_DIRECTORY: &str = "skills";
/// Maximum number of problems that a model is told about.
const MAX_TOLD_PROBLEMS: usize = 20;
/// Maximum number of files of a skill that are listed.
const MAX_NAMED_FILES: usize = 50;
/// How many levels of directories below a skill are searched for its files.
const FILE_DEPTH: usize = 3;

/// A toolset for the skills in some directories of the session's backend. The directories are
/// searched whenever the tools of a session are listed.
#[derive(Clone, Debug, Default)]
pub struct SkillsToolset {
    directories: Vec<String>,
}

impl SkillsToolset {
    /// Uses the skills in the directory `skills`, if it exists.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses the skills in these directories, which must exist. If two skills have the same name,
    /// the skill in the later directory is used. Paths are relative to the root of the backend:
    /// `./skills` in a backend at `/foo` is `/foo/skills`.
    pub fn in_directories<T: Into<String>>(directories: impl IntoIterator<Item = T>) -> Self {
        Self { directories: directories.into_iter().map(Into::into).collect() }
    }

    /// Finds the skills in a session's backend, and all problems with them.
    pub async fn discover(&self, backend: &Backend) -> DiscoveredSkills {
        if self.directories.is_empty() {
            return DiscoveredSkills::find_in(backend, &[(DEFAULT_DIRECTORY, Missing::Fine)]).await;
        }
        DiscoveredSkills::discover(backend, &self.directories).await
    }
}

#[async_trait]
impl Toolset for SkillsToolset {
    async fn open(&self, session: &AgentSession) -> Result<SessionToolset> {
        let backend = session.require_backend()?;
        let discovery = self.discover(&backend).await;
        let instructions = instructions(&discovery);
        let tools = if discovery.skills.is_empty() {
            Vec::new()
        } else {
            vec![use_skill(backend, session.places(), discovery.skills)]
        };
        Ok(SessionToolset { tools, instructions })
    }
}

/// The instructions for a model: the skills that it can use, and the problems with other skills.
fn instructions(discovery: &DiscoveredSkills) -> Option<String> {
    let DiscoveredSkills { skills, problems } = discovery;
    let mut text = String::new();
    if !skills.is_empty() {
        text.push_str(
            "Skills. Call use_skill with a name before you do what its description says:",
        );
        for skill in skills {
            let _ = write!(text, "\n- {}: {}", skill.name, skill.description);
        }
    }
    if !problems.is_empty() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str("Problems with skills:");
        for problem in problems.iter().take(MAX_TOLD_PROBLEMS) {
            let _ = write!(text, "\n- {problem}");
        }
        if let Some(more) = problems.len().checked_sub(MAX_TOLD_PROBLEMS).filter(|more| *more > 0) {
            let _ = write!(text, "\n- and {more} more");
        }
    }
    (!text.is_empty()).then_some(text)
}

fn use_skill(backend: Backend, places: Arc<ToolPlaces>, skills: Vec<Skill>) -> AgentTool {
    let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "skillName": { "type": "string", "enum": names, "description": "The name of the skill" },
        },
        "required": ["skillName"],
    });
    let description = "Get the instructions of a skill and the paths of its files.";
    AgentTool::new(USE_SKILL, description, schema, move |arguments| {
        let (backend, places, skills) = (backend.clone(), places.clone(), skills.clone());
        async move { used(&backend, &places, &skills, &arguments).await }
    })
}

async fn used(
    backend: &Backend,
    places: &ToolPlaces,
    skills: &[Skill],
    arguments: &Map<String, Value>,
) -> ToolResult {
    let names = || skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = arguments.keys().find(|name| *name != "skillName") {
        return ToolResult::error(format!(
            "use_skill has no argument '{name}'; it takes skillName"
        ));
    }
    let Some(name) = arguments.get("skillName").and_then(Value::as_str) else {
        return ToolResult::error(format!("use_skill needs 'skillName', one of {}", names()));
    };
    let Some(skill) = skills.iter().find(|skill| skill.name == name) else {
        return ToolResult::error(format!(
            "there is no skill '{name}'; the skills are {}",
            names()
        ));
    };
    match body(backend, places, skill).await {
        Ok(body) => answer(backend, places, skill, body).await,
        Err(error) => error.into(),
    }
}

/// The instructions of a skill. If they are too long, they are truncated and a note about the rest
/// is added.
async fn body(backend: &Backend, places: &ToolPlaces, skill: &Skill) -> Result<String> {
    let file = skill.directory.child(SKILL_FILE)?;
    let range = Some(ByteRange { start: 0, length: DEFAULT_MAX_RESULT_BYTES as u64 });
    let options = ReadOptions { range, ..ReadOptions::default() };
    let content = backend.read_with(&file, options).await?;
    let text = String::from_utf8_lossy(&content.bytes);
    let body = frontmatter::split(&text).map_or(&*text, |parts| parts.body);
    if content.stat.size <= content.bytes.len() as u64 {
        return Ok(body.to_owned());
    }
    // Cut at the end of a line, so that the model can continue to read at the next line.
    let whole = &body[..body.rfind('\n').map_or(body.len(), |at| at + 1)];
    let line = text[..text.len() - (body.len() - whole.len())].lines().count() + 1;
    let rest = match (places.reader(&file), places.command_path(&file)) {
        (Some((tool, path)), _) => {
            format!("{tool} with path '{path}' and offset {line} shows the rest")
        }
        (None, Some(path)) => format!("commands find the rest in '{path}', from line {line}"),
        (None, None) => "no tool of this session shows the rest".to_owned(),
    };
    Ok(format!("{whole}[the skill has {} bytes; {rest}]", content.stat.size))
}

async fn answer(backend: &Backend, places: &ToolPlaces, skill: &Skill, body: String) -> ToolResult {
    let options = ListOptions {
        max_depth: FILE_DEPTH,
        max_entries: MAX_NAMED_FILES + 1,
        ..ListOptions::default()
    };
    // Ignore an error: the instructions are useful without the list of files.
    let listed = backend.list(&skill.directory, options).await;
    let files: Vec<WsPath> = listed
        .map(|listing| listing.entries)
        .unwrap_or_default()
        .into_iter()
        .filter(|entry| entry.kind.is_file() && entry.path.name() != Some(SKILL_FILE))
        .map(|entry| entry.path)
        .take(MAX_NAMED_FILES)
        .collect();
    let mut text = body;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let reader = places.reader(&skill.directory);
    let commands = places.command_path(&skill.directory);
    let _ = match (&reader, &commands) {
        (Some((_, path)), None) => write!(text, "[files of this skill are in '{path}'"),
        (Some((_, path)), Some(command)) => {
            write!(text, "[files of this skill are in '{path}', which commands find at '{command}'")
        }
        (None, Some(command)) => {
            write!(text, "[commands find the files of this skill in '{command}'")
        }
        (None, None) => {
            let path = &skill.directory;
            write!(text, "[the files of this skill, in '{path}', cannot be read by other tools")
        }
    };
    // Show paths in the form that the reading tool accepts. If there is no such tool, show them
    // relative to the skill.
    let shown = |file: &WsPath| match places.reader(file) {
        Some((_, path)) => path.to_string(),
        None => file.strip_prefix(&skill.directory).unwrap_or_default().to_string(),
    };
    if !files.is_empty() {
        let _ = write!(text, ": {}", files.iter().map(shown).collect::<Vec<_>>().join(", "));
    }
    text.push(']');
    let files: Vec<String> = files.iter().map(WsPath::to_string).collect();
    let data = json!({
        "name": skill.name, "directory": skill.directory.to_string(), "files": files,
    });
    ToolResult { data: Some(data), ..ToolResult::text(text) }
}
