//! Gemini's `generateContent` and `streamGenerateContent`.

use serde_json::{Value, json};

use super::{LanguageModelStep, Reply, Step, Tool, members, step, unnamed};

pub(super) fn generate(path: &str, body: &Value, steps: &[LanguageModelStep]) -> Reply {
    let declared =
        members(body, "tools").iter().flat_map(|tool| members(tool, "functionDeclarations"));
    let tools = declared.filter_map(|tool| {
        let schema = tool.get("parametersJsonSchema").unwrap_or(&tool["parameters"]);
        Some(Tool { name: tool["name"].as_str()?, schema })
    });
    let tools: Vec<Tool<'_>> = tools.collect();
    let parts = members(body, "contents").iter().flat_map(|content| members(content, "parts"));
    let results = parts.filter(|part| part.get("functionResponse").is_some()).count();
    let part = match step(&tools, results, steps) {
        Step::Say(text) => json!({ "text": text }),
        Step::Run { tool, arguments } => {
            json!({ "functionCall": { "name": tool, "args": arguments } })
        }
    };
    let whole = json!({
        "candidates": [{
            "content": { "role": "model", "parts": [part] }, "finishReason": "STOP", "index": 0,
        }],
        "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 },
    });
    if path.contains(":stream") {
        Reply::events(vec![unnamed(&whole)])
    } else {
        Reply::json(&whole)
    }
}
