//! Scenarios: TOML files that define what the scripted agent does. `docs/scripted-agent.md`
//! describes the format.

use std::fmt;

use serde::Deserialize;
use toml::{Table, Value};

/// The scenario that is played by default.
const DEFAULT: &str = include_str!("default.toml");

/// The parsed scenario: a description of the agent, and the steps of each turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentScenario {
    pub(crate) agent: AgentDescription,
    pub(crate) faults: Faults,
    /// The steps of each turn. After the last turn in the list, that turn is repeated.
    pub(crate) turns: Vec<Vec<Step>>,
}

/// What the agent tells the client about itself: its name, the features that it supports, and the
/// protocol version.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentDescription {
    pub(crate) name: String,
    /// Whether the agent offers `session/load`.
    pub(crate) load: bool,
    /// Whether the agent offers `session/resume`.
    pub(crate) resume: bool,
    /// Whether the agent supports MCP servers over HTTP.
    pub(crate) mcp_http: bool,
    /// Whether the agent works through the MCP servers that the client offers. If not, it works
    /// directly in its own working directory.
    pub(crate) uses_mcp: bool,
    /// The login method that the agent requires, if any.
    pub(crate) login: Option<String>,
    /// The protocol version with which the agent answers `initialize`. The fields of the answer are
    /// those of that version.
    pub(crate) protocol: u64,
}

impl Default for AgentDescription {
    fn default() -> Self {
        AgentDescription {
            name: "scripted".to_owned(),
            load: true,
            resume: false,
            mcp_http: true,
            uses_mcp: true,
            login: None,
            protocol: 1,
        }
    }
}

/// Faults of the agent that do not belong to a turn.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Faults {
    /// Lines that are printed at the start and are not messages.
    pub(crate) noise: Vec<String>,
    /// The agent exits as soon as it has written this many lines.
    pub(crate) exit_after_lines: Option<u64>,
    /// The exit code for `exit_after_lines`. Default: 1.
    pub(crate) exit_code: Option<u8>,
    /// The name of a method that the agent never answers.
    pub(crate) hang_at: Option<String>,
    /// The name of a method that the agent answers with an error.
    pub(crate) fail_at: Option<String>,
}

/// One action of the agent. The variants are the keys in the scenario file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Sends a piece of the answer.
    Say(String),
    /// Sends a piece of a thought.
    Think(String),
    /// Sends a plan whose entries are all pending.
    Plan(Vec<String>),
    /// Sends the plan again, with this many of its entries completed.
    Done(usize),
    /// Asks for permission. If it is refused, the steps in `denied` follow, and the turn ends.
    Ask(Ask),
    /// Writes a file.
    Write(WriteFile),
    /// Replaces text in a file.
    Edit(EditFile),
    /// Reads a file.
    Read(String),
    /// Runs a shell command.
    Run(String),
    /// Calls a tool of the MCP server.
    Call(CallTool),
    /// Reports a tool call that does nothing.
    Tool(ReportTool),
    Usage(ReportUsage),
    /// Reports tokens with the end of the turn.
    Tokens(ReportTokens),
    /// Sends an update unchanged.
    Update(Table),
    /// Sends any notification.
    Notify(Notification),
    /// Sends a request that the client does not know and uses its response as output.
    Request(Notification),
    /// Prints a line that is not a message.
    Garbage(String),
    /// Prints a line of this many bytes.
    LongLine(usize),
    /// Sends pieces of the answer as fast as the client reads them.
    Flood(Flood),
    /// Waits this many milliseconds.
    Delay(u64),
    Hang(Hang),
    /// Ends the turn with a stop reason.
    Stop(String),
    /// Ends the turn with an error.
    Error(TurnError),
    /// Ends the process.
    Exit(u8),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask {
    pub(crate) title: String,
    #[serde(default = "edit_kind")]
    pub(crate) kind: String,
    pub(crate) path: Option<String>,
    /// The command that the permission is requested for.
    pub(crate) command: Option<String>,
    /// The answers that the client can choose from.
    #[serde(default = "AskOption::all")]
    pub(crate) options: Vec<AskOption>,
    #[serde(default, deserialize_with = "steps_of")]
    pub(crate) denied: Vec<Step>,
}

/// An answer to a permission request, with the name of its kind in ACP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AskOption {
    AllowOnce,
    AllowAlways,
    RejectOnce,
}

impl AskOption {
    fn all() -> Vec<AskOption> {
        vec![AskOption::AllowOnce, AskOption::AllowAlways, AskOption::RejectOnce]
    }
}

fn edit_kind() -> String {
    "edit".to_owned()
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    pub(crate) path: String,
    pub(crate) old: String,
    pub(crate) new: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallTool {
    pub(crate) tool: String,
    /// The name of the MCP server that has the tool. Default: the server of the workspace.
    #[serde(default)]
    pub(crate) server: Option<String>,
    #[serde(default)]
    pub(crate) arguments: Table,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportTool {
    pub(crate) title: String,
    #[serde(default = "other_kind")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) output: String,
    /// Whether the call is reported as failed.
    #[serde(default)]
    pub(crate) fails: bool,
}

fn other_kind() -> String {
    "other".to_owned()
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportUsage {
    pub(crate) used: u64,
    pub(crate) size: u64,
    pub(crate) cost: Option<f64>,
    #[serde(default = "dollars")]
    pub(crate) currency: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportTokens {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

fn dollars() -> String {
    "USD".to_owned()
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Notification {
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) params: Table,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flood {
    /// The number of pieces.
    pub(crate) pieces: u64,
    /// The number of bytes of each piece.
    #[serde(default = "flood_bytes")]
    pub(crate) bytes: usize,
}

fn flood_bytes() -> usize {
    64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hang {
    /// Hangs until the turn is cancelled.
    UntilCancelled,
    /// Hangs forever. Cancelling has no effect.
    Forever,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnError {
    #[serde(default = "internal_error")]
    pub(crate) code: i64,
    pub(crate) message: String,
}

fn internal_error() -> i64 {
    crate::rpc::INTERNAL_ERROR
}

/// The error for a text that is not a valid scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentScenarioError(String);

impl fmt::Display for AgentScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AgentScenarioError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    agent: AgentDescription,
    #[serde(default)]
    faults: Faults,
    #[serde(default)]
    turn: Vec<TurnTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnTable {
    steps: Vec<Value>,
}

impl AgentScenario {
    /// Parses a scenario. The error for an unknown key names the key and its position.
    pub fn parse(text: &str) -> Result<AgentScenario, AgentScenarioError> {
        let document: Document = toml::from_str(text).map_err(|error| {
            // The error text contains the line and marks the position with a caret.
            AgentScenarioError(error.to_string().trim_end().to_owned())
        })?;
        let mut turns = Vec::new();
        for (index, turn) in document.turn.into_iter().enumerate() {
            let steps = steps(turn.steps);
            turns.push(
                steps.map_err(|why| AgentScenarioError(format!("turn {}, {why}", index + 1)))?,
            );
        }
        if turns.is_empty() {
            return Err(AgentScenarioError("the scenario has no [[turn]]".to_owned()));
        }
        Ok(AgentScenario { agent: document.agent, faults: document.faults, turns })
    }

    /// The default scenario: the agent sends thoughts, asks for permission, writes `NOTES.md`, runs
    /// `ls` and reports.
    pub fn built_in() -> Result<AgentScenario, AgentScenarioError> {
        AgentScenario::parse(DEFAULT)
    }
}

fn steps(values: Vec<Value>) -> Result<Vec<Step>, String> {
    let numbered = values.into_iter().enumerate();
    let read = |(index, value)| step(value).map_err(|why| format!("step {}: {why}", index + 1));
    numbered.map(read).collect()
}

/// Parses a step, which is a table with one key.
fn step(value: Value) -> Result<Step, String> {
    let Value::Table(table) = value else {
        return Err(format!(
            "must be a table like {{ say = \"hello\" }}, not {}",
            value.type_str()
        ));
    };
    let keys: Vec<&str> = table.keys().map(String::as_str).collect();
    let [key] = keys[..] else {
        return Err(format!("must have one key, not {}: {}", keys.len(), keys.join(", ")));
    };
    let key = key.to_owned();
    let step = Step::deserialize(Value::Table(table));
    step.map_err(|error| format!("{key}: {}", error.message()))
}

fn steps_of<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Vec<Step>, D::Error> {
    steps(Vec::deserialize(input)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_scenario_is_one() {
        assert_eq!(AgentScenario::built_in().unwrap().turns.len(), 1);
    }

    #[test]
    fn documented_scenario_is_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scripted-agent.md");
        let page = std::fs::read_to_string(path).unwrap();
        let examples: Vec<&str> =
            page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(!examples.is_empty());
        for example in examples {
            AgentScenario::parse(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        }
    }

    #[track_caller]
    fn check(text: &str, says: &[&str]) {
        let error = AgentScenario::parse(text).unwrap_err().to_string();
        for part in says {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
    }

    #[test]
    fn unknown_keys_are_named() {
        check("[[turn]]\nsteps = []\nname = 1", &["name"]);
        check("colour = 1", &["colour"]);
        check("[agent]\ncolour = 1", &["colour"]);
        check("[faults]\ncrash = 1", &["crash"]);
        check(
            "[[turn]]\nsteps = [{ say = \"a\" }, { shout = \"a\" }]",
            &["turn 1, step 2", "shout"],
        );
        check(
            "[[turn]]\nsteps = []\n[[turn]]\nsteps = [{ write = { path = \"a\", txt = \"b\" } }]",
            &["turn 2, step 1", "write", "txt"],
        );
        check(
            "[[turn]]\nsteps = [{ ask = { title = \"a\", denied = [{ shout = \"a\" }] } }]",
            &["turn 1, step 1", "ask", "step 1", "shout"],
        );
    }

    #[test]
    fn steps_that_make_no_sense_are_refused() {
        check("", &["no [[turn]]"]);
        check("[[turn]]\nsteps = [\"say\"]", &["turn 1, step 1", "table"]);
        check("[[turn]]\nsteps = [{}]", &["one key, not 0"]);
        check(
            "[[turn]]\nsteps = [{ say = \"a\", think = \"b\" }]",
            &["one key, not 2: say, think"],
        );
        check("[[turn]]\nsteps = [{ exit = 300 }]", &["step 1", "exit"]);
        check("[[turn]]\nsteps = [{ hang = \"maybe\" }]", &["step 1", "maybe"]);
        check("[[turn]]\nsteps = [{ write = { path = \"a\" } }]", &["text"]);
    }
}
