//! All tools of a session, by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use ab_core::error::escape_unprintable;
use ab_core::{Error, ErrorCode, ErrorKind, Result};
use serde_json::{Map, Value};

use super::tool::{AgentTool, ToolResult};

/// Maximum length of a tool name in bytes. Model APIs refuse longer names.
const MAX_NAME_BYTES: usize = 64;

/// The tools of a session. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AgentTools {
    tools: Arc<[AgentTool]>,
    instructions: Arc<str>,
}

impl AgentTools {
    pub(super) fn assemble(tools: Vec<AgentTool>, instructions: Vec<String>) -> Result<AgentTools> {
        let instructions = Arc::from(instructions.join("\n\n"));
        let tools: Arc<[AgentTool]> = tools.into();
        let mut names = BTreeSet::new();
        for tool in tools.iter() {
            check_name(tool.name())?;
            check_schema(tool)?;
            if !names.insert(tool.name()) {
                let message = format!("two tools of the session are called {}", tool.name());
                return Err(Error::new(ErrorCode::Conflict, ErrorKind::Conflict, message)
                    .with_hint("give one of the toolsets a prefix for its names"));
            }
        }
        Ok(AgentTools { tools, instructions })
    }

    pub fn all_tools(&self) -> &[AgentTool] {
        &self.tools
    }

    pub fn find_tool(&self, name: &str) -> Option<&AgentTool> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    /// What a model must know before it uses the tools. This belongs into its system prompt. May be
    /// empty.
    pub fn instructions(&self) -> &str {
        &self.instructions
    }

    /// Calls a tool. `arguments` must be an object. Every problem with the call becomes a result
    /// that a model can read.
    pub async fn call_tool(&self, name: &str, arguments: Value) -> ToolResult {
        let Some(tool) = self.find_tool(name) else {
            let called: String = name.chars().take(100).collect();
            let names: Vec<&str> = self.tools.iter().map(AgentTool::name).collect();
            return ToolResult::error(format!(
                "there is no tool '{}'; the tools are {}",
                escape_unprintable(&called),
                names.join(", ")
            ));
        };
        match arguments {
            Value::Object(arguments) => tool.run(arguments).await,
            Value::Null => tool.run(Map::new()).await,
            _ => ToolResult::error(format!("the arguments of {name} must be a JSON object")),
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(plain) {
        let message = format!(
            "invalid tool name \"{}\": must be 1 to {MAX_NAME_BYTES} ASCII letters, digits, '_' or '-'",
            escape_unprintable(name)
        );
        return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
    }
    Ok(())
}

/// Checks a schema against the requirements of model APIs, which refuse a whole request because of
/// one invalid tool.
fn check_schema(tool: &AgentTool) -> Result<()> {
    let Err(problem) = schema_problem(tool.input_schema()) else { return Ok(()) };
    let message = format!("invalid schema of the tool {}: {problem}", tool.name());
    Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message))
}

fn schema_problem(schema: &Value) -> Result<(), String> {
    let Value::Object(fields) = schema else {
        return Err("it must be a JSON object".to_owned());
    };
    if fields.get("type") != Some(&Value::from("object")) {
        return Err("its type must be \"object\"".to_owned());
    }
    if let Some(name) =
        ["oneOf", "anyOf", "allOf", "enum", "not"].iter().find(|it| fields.contains_key(**it))
    {
        return Err(format!("models do not accept '{name}' at its top level"));
    }
    let properties = match fields.get("properties") {
        None => &Map::new(),
        Some(Value::Object(properties)) => properties,
        Some(_) => return Err("'properties' must be an object".to_owned()),
    };
    if let Some((name, _)) = properties.iter().find(|(_, it)| !it.is_object() && !it.is_boolean()) {
        return Err(format!("the property '{name}' must be a schema"));
    }
    let required = match fields.get("required") {
        None => return Ok(()),
        Some(Value::Array(required)) => required,
        Some(_) => return Err("'required' must be an array".to_owned()),
    };
    let is_property =
        |name: &Value| name.as_str().is_some_and(|name| properties.contains_key(name));
    match required.iter().find(|name| !is_property(name)) {
        Some(name) => Err(format!("'required' names {name}, which is not a property")),
        None => Ok(()),
    }
}
