//! Settings of agents: which settings a task may set, and how each is passed to the agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::AgentCatalogEntry;

/// Default of the maximum length of a text setting in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// How a setting is passed to the agent, and which values are valid.
///
/// In a configuration file this is either the name of a variable or a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenSetting")]
pub struct AgentSettingRule {
    /// The environment variable of the agent that receives the value.
    pub variable: String,
    /// If set, the variable contains a JSON object, and the value becomes this member of it.
    pub member: Option<String>,
    /// What the setting does, in one sentence.
    pub description: String,
    pub kind: AgentSettingType,
    /// The valid values of a text setting. If empty, any text is valid.
    pub values: Vec<String>,
    /// Maximum length of a text setting in bytes.
    pub max_bytes: usize,
    /// The smallest and the largest valid number.
    pub min: u64,
    pub max: u64,
}

/// The type of a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentSettingType {
    #[default]
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Number,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a setting is the name of a variable, or a table with the keys variable, member, description, type, values, max-bytes, min, max"
)]
enum WrittenSetting {
    Variable(String),
    Table(SettingTable),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct SettingTable {
    variable: String,
    member: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default, rename = "type")]
    kind: AgentSettingType,
    #[serde(default)]
    values: Vec<String>,
    max_bytes: Option<usize>,
    min: Option<u64>,
    max: Option<u64>,
}

impl From<WrittenSetting> for AgentSettingRule {
    fn from(written: WrittenSetting) -> Self {
        let table = match written {
            WrittenSetting::Table(table) => table,
            WrittenSetting::Variable(variable) => SettingTable {
                variable,
                member: None,
                description: String::new(),
                kind: AgentSettingType::Text,
                values: Vec::new(),
                max_bytes: None,
                min: None,
                max: None,
            },
        };
        Self {
            variable: table.variable,
            member: table.member,
            description: table.description,
            kind: table.kind,
            values: table.values,
            max_bytes: table.max_bytes.unwrap_or(MAX_TEXT_BYTES),
            min: table.min.unwrap_or(0),
            max: table.max.unwrap_or(u64::from(u32::MAX)),
        }
    }
}

impl AgentCatalogEntry {
    /// Sets the agent's variables to the settings of a task. They replace settings of the operator.
    ///
    /// # Errors
    ///
    /// Fails if the agent has no such setting, if a value has no text form, or if a variable of the
    /// operator must be a JSON object and is not.
    pub fn apply_settings(&mut self, given: &Map<String, Value>) -> Result<(), String> {
        let mut variables = BTreeMap::new();
        for (name, value) in given {
            let Some(rule) = self.settings.get(name) else {
                return Err(format!("the agent has no setting {name:?}"));
            };
            let variable = &rule.variable;
            let before = variables.get(variable).or_else(|| self.env.get(variable));
            let text = match (&rule.member, value) {
                (Some(member), _) => {
                    let mut object: Map<String, Value> = match before {
                        Some(text) => serde_json::from_str(text).map_err(|error| {
                            format!("{variable} of the server is not a JSON object: {error}")
                        })?,
                        None => Map::new(),
                    };
                    object.insert(member.clone(), value.clone());
                    Value::Object(object).to_string()
                }
                (None, Value::String(text)) => text.clone(),
                (None, Value::Bool(_) | Value::Number(_)) => value.to_string(),
                (None, Value::Null | Value::Array(_) | Value::Object(_)) => {
                    return Err(format!("the setting {name:?} is not a text, a number or a flag"));
                }
            };
            variables.insert(variable.clone(), text);
        }
        self.env.extend(variables);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::AgentCatalog;
    use super::*;

    fn given(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn settings_become_variables_of_the_agent() {
        let catalog = AgentCatalog::default();
        let mut claude = catalog.find("claude").unwrap().clone();
        claude.env.insert("ANTHROPIC_MODEL".into(), "of the operator".into());
        claude.apply_settings(&given(json!({ "model": "m", "maxTokens": 8000 }))).unwrap();
        assert_eq!(claude.env["ANTHROPIC_MODEL"], "m");
        assert_eq!(claude.env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"], "8000");
        let error = claude.apply_settings(&given(json!({ "unknown": 1 }))).unwrap_err();
        assert!(error.contains("unknown"), "{error}");
    }

    #[test]
    fn member_is_added_to_the_object_of_the_operator() {
        let catalog = AgentCatalog::default();
        let mut codex = catalog.find("codex").unwrap().clone();
        codex.env.insert("CODEX_CONFIG".into(), r#"{"model":"a","model_provider":"own"}"#.into());
        codex.apply_settings(&given(json!({ "model": "b", "effort": "high" }))).unwrap();
        let config: Value = serde_json::from_str(&codex.env["CODEX_CONFIG"]).unwrap();
        let expect =
            json!({ "model": "b", "model_provider": "own", "model_reasoning_effort": "high" });
        assert_eq!(config, expect);
        let mut opencode = catalog.find("opencode").unwrap().clone();
        opencode.apply_settings(&given(json!({ "model": "p/m" }))).unwrap();
        assert_eq!(opencode.env["OPENCODE_CONFIG_CONTENT"], r#"{"model":"p/m"}"#);
        opencode.env.insert("OPENCODE_CONFIG_CONTENT".into(), "[".into());
        assert!(opencode.apply_settings(&given(json!({ "model": "m" }))).is_err());
    }

    #[test]
    fn settings_of_the_configuration_are_names_or_tables() {
        let text = "id = \"x\"\nargv = [\"x\"]\n[settings]\nmodel = \"X_MODEL\"\n\
                    fast = { variable = \"X_FAST\", type = \"flag\" }\n\
                    tokens = { variable = \"X_TOKENS\", type = \"number\", max = 10 }\n";
        let mut entry: AgentCatalogEntry = toml::from_str(text).unwrap();
        assert_eq!(entry.settings["model"].variable, "X_MODEL");
        assert_eq!((entry.settings["tokens"].min, entry.settings["tokens"].max), (0, 10));
        entry.apply_settings(&given(json!({ "fast": true, "model": "m" }))).unwrap();
        assert_eq!((entry.env["X_FAST"].as_str(), entry.env["X_MODEL"].as_str()), ("true", "m"));
        for wrong in
            ["model = 1", "model = { member = \"x\" }", "model = { variable = \"X\", a = 1 }"]
        {
            let text = format!("id = \"x\"\nargv = [\"x\"]\n[settings]\n{wrong}\n");
            assert!(toml::from_str::<AgentCatalogEntry>(&text).is_err(), "{wrong}");
        }
    }
}
