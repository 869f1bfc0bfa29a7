//! Descriptions of the tools that run commands. When tools are listed, a text about how commands
//! are isolated is added to the description of `exec`. See [`briefing`](crate::briefing).

use serde_json::json;

use super::{Effect, Face, Name, choice, count, flag, seconds, text, text_with};

pub(super) fn face(name: Name) -> Face {
    let process = json!({ "type": "string", "description": "The id that exec gave" });
    match name {
        Name::ProcessOutput => Face {
            title: "Process Output",
            description: "Show what a background process has printed since a cursor, and whether it \
                still runs.",
            properties: json!({
                "processId": process,
                "cursor": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Where to go on: nextCursor of the call before; 0 is the start",
                },
                "wait": seconds("How long to wait for something new; up to 60"),
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
            description: "Write to the standard input of a background process, or end it. A process \
                with a terminal takes it as typed.",
            properties: json!({
                "processId": process,
                "input": { "type": "string", "description": "What to write, line ends included" },
                "end": flag("End its input after that", false),
            }),
            required: &["processId"],
            effect: Effect::Runs,
            output: text(),
        },
        Name::ProcessKill => Face {
            title: "Process Kill",
            description: "Send a signal to a background process and tell whether it ended.",
            properties: json!({
                "processId": process,
                "signal": choice("Which signal", &["TERM", "KILL", "INT", "HUP", "QUIT"]),
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
            empty. With background: true it keeps running: exec then answers the id that the process \
            tools take.",
        properties: json!({
            "command": { "type": "string", "description": "A line for the shell" },
            "timeout": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Seconds after which it is ended: 50 by default, at most 3600. In the \
                    background there is no default",
            },
            "cwd": {
                "type": "string",
                "description": "The directory that it starts in; the root of the workspace by default",
            },
            "env": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "Variables for its environment",
            },
            "background": flag("Start it and do not wait", false),
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
