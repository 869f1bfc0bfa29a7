//! Settings of agents: which settings an agent has, their JSON Schema, and the check of the
//! settings in a task.

use serde_json::{Map, Value, json};

use crate::violation::FieldViolations;

const MAX_SHOWN_NAME: usize = 64;

/// A setting of an agent that tasks can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSetting {
    pub name: String,
    /// What the setting does, in one sentence.
    pub description: String,
    pub kind: AgentSettingKind,
}

/// The values of an [`AgentSetting`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentSettingKind {
    /// A text of 1 to `max_bytes` bytes, without NUL.
    Text {
        max_bytes: usize,
    },
    /// One of these texts.
    Choice {
        values: Vec<String>,
    },
    Flag,
    /// A whole number.
    Number {
        min: u64,
        max: u64,
    },
}

impl AgentSetting {
    fn schema(&self) -> Value {
        let mut schema = match &self.kind {
            AgentSettingKind::Text { max_bytes } => {
                json!({ "type": "string", "minLength": 1, "maxLength": max_bytes })
            }
            AgentSettingKind::Choice { values } => json!({ "type": "string", "enum": values }),
            AgentSettingKind::Flag => json!({ "type": "boolean" }),
            AgentSettingKind::Number { min, max } => {
                json!({ "type": "integer", "minimum": min, "maximum": max })
            }
        };
        if !self.description.is_empty() {
            schema["description"] = Value::String(self.description.clone());
        }
        schema
    }

    /// Returns what is wrong with `value`. `None` if it is valid.
    fn refuse(&self, value: &Value) -> Option<String> {
        match &self.kind {
            AgentSettingKind::Text { max_bytes } => {
                let is_text =
                    |text: &str| (1..=*max_bytes).contains(&text.len()) && !text.contains('\0');
                let rule = || format!("must be a string of 1 to {max_bytes} bytes without NUL");
                (!value.as_str().is_some_and(is_text)).then(rule)
            }
            AgentSettingKind::Choice { values } => {
                let is_known = |text: &str| values.iter().any(|known| known == text);
                let rule = || format!("must be one of: {}", values.join(", "));
                (!value.as_str().is_some_and(is_known)).then(rule)
            }
            AgentSettingKind::Flag => {
                (!value.is_boolean()).then(|| "must be true or false".to_owned())
            }
            AgentSettingKind::Number { min, max } => {
                let is_in = |number: u64| (*min..=*max).contains(&number);
                let rule = || format!("must be a whole number from {min} to {max}");
                (!value.as_u64().is_some_and(is_in)).then(rule)
            }
        }
    }
}

/// The JSON Schema of the settings of the agent type `kind`. `id` is the URL of the schema.
pub fn agent_settings_schema(
    kind: &str,
    title: &str,
    id: &str,
    settings: &[AgentSetting],
) -> Value {
    let properties: Map<String, Value> =
        settings.iter().map(|setting| (setting.name.clone(), setting.schema())).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": id,
        "title": format!("Settings of {title}"),
        "description": format!("The values of agent.settings of a task with the agent {kind}."),
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

/// Checks the settings in the field `path`, such as `agent.settings`. JSON `null` counts as absent.
pub(crate) fn check_settings(
    path: &str,
    given: &Map<String, Value>,
    known: &[AgentSetting],
    found: &mut FieldViolations,
) -> Map<String, Value> {
    let mut accepted = Map::new();
    for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
        let setting = known.iter().find(|setting| setting.name == *name);
        let problem = match setting {
            Some(setting) => setting.refuse(value),
            None if known.is_empty() => Some("is unknown: this agent has no settings".to_owned()),
            None => {
                let names: Vec<&str> = known.iter().map(|known| known.name.as_str()).collect();
                Some(format!("is unknown: the settings of this agent are {}", names.join(", ")))
            }
        };
        let Some(problem) = problem else {
            accepted.insert(name.clone(), value.clone());
            continue;
        };
        let shown: String = name.chars().take(MAX_SHOWN_NAME).collect();
        let escaped = shown.replace('~', "~0").replace('/', "~1");
        let pointer = format!("/{}/{escaped}", path.replace('.', "/"));
        found.add_unavailable(format!("{path}.{shown}"), format!("{problem} (at {pointer})"));
    }
    accepted
}
