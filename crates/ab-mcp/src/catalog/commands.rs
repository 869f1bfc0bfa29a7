//! Descriptions of the tools that run commands. The list of tools shows the description of `exec`
//! together with a text about the isolation of commands. See [`briefing`](crate::briefing).

use serde_json::json;

use super::{Effect, Face, Name, choice, count, flag, seconds, text, text_with};

pub(super) fn face(name: Name) -> Face {
    let process = json!({ "type": "string", "description": "The id that exec returned" });
    match name {
        Name::ProcessOutput => Face {
            title: "Process Output",
            description: "Return the new output of a background process, and whether the process \
                still runs.",
            properties: json!({
                "processId": process,
                "cursor": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Where the output begins: nextCursor of the previous call; 0 is the start",
                },
                "wait": seconds("How long to wait for new output; at most 60"),
            }),
            required: &["processId"],
            effect: Effect::Reads,
            output: text_with(json!({
                "nextCursor": { "type": "integer" },
                "lost": { "type": "integer" },
                "running": { "type": "boolean" },
                "exitCode": { "type": "integer" },
                "signal": { "type": "integer" },
            })),
        },
        Name::ProcessInput => Face {
            title: "Process Input",
            description: "Write to the standard input of a background process, or close it. A \
                process with a terminal receives the text as typed input.",
            properties: json!({
                "processId": process,
                "input": { "type": "string", "description": "The text to write, with its line ends" },
                "end": flag("Close the standard input after that", false),
            }),
            required: &["processId"],
            effect: Effect::Runs,
            output: text(),
        },
        Name::ProcessKill => Face {
            title: "Process Kill",
            description: "Send a signal to a background process and report whether it ended.",
            properties: json!({
                "processId": process,
                "signal": choice("The signal to send", &["TERM", "KILL", "INT", "HUP", "QUIT"]),
            }),
            required: &["processId"],
            effect: Effect::Runs,
            output: text_with(json!({ "running": { "type": "boolean" } })),
        },
        Name::ProcessList => Face {
            title: "Process List",
            description: "List the background processes of this workspace, running or ended.",
            properties: json!({}),
            required: &[],
            effect: Effect::Reads,
            output: text_with(
                json!({ "processes": { "type": "array", "items": { "type": "object" } } }),
            ),
        },
        _ => exec(),
    }
}

fn exec() -> Face {
    Face {
        title: "Execute Command",
        description: "Run a shell command in the workspace and wait for it. Its standard input is \
            empty. With background: true it keeps running: exec then returns the id that the process \
            tools need.",
        properties: json!({
            "command": { "type": "string", "description": "A command line for the shell" },
            "timeout": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Seconds after which the command is ended: 50 by default, at most 3600. \
                    A background command has no default limit",
            },
            "cwd": {
                "type": "string",
                "description": "The working directory; by default the root of the workspace",
            },
            "env": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "Environment variables to set",
            },
            "background": flag("Start the command and do not wait for it", false),
            "pty": flag("Give a background process a terminal", false),
            "columns": count("Width of the terminal; 80 by default"),
            "rows": count("Height of the terminal; 24 by default"),
        }),
        required: &["command"],
        effect: Effect::Runs,
        output: Some(json!({
            "type": "object",
            "properties": {
                "stdout": { "type": "string" },
                "stderr": { "type": "string" },
                "exitCode": { "type": "integer" },
                "signal": { "type": "integer" },
                "timedOut": { "type": "boolean" },
                "truncated": { "type": "boolean" },
                "endedLeftovers": { "type": "boolean" },
                "outputPath": { "type": "string" },
                "processId": { "type": "string" },
            },
        })),
    }
}
