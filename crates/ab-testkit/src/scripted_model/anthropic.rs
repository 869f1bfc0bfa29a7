//! Anthropic's messages.

use serde_json::{Value, json};

use super::{LanguageModelStep, Reply, Step, Tool, halves, members, named, step};

pub(super) fn messages(body: &Value, steps: &[LanguageModelStep]) -> Reply {
    let tools = members(body, "tools").iter().filter_map(|tool| {
        Some(Tool { name: tool["name"].as_str()?, schema: &tool["input_schema"] })
    });
    let tools: Vec<Tool<'_>> = tools.collect();
    let blocks = members(body, "messages").iter().flat_map(|message| members(message, "content"));
    let results = blocks.filter(|block| block["type"] == "tool_result").count();
    let step = step(&tools, results, steps);
    let reason = match step {
        Step::Say(_) => "end_turn",
        Step::Run { .. } => "tool_use",
    };
    let id = format!("toolu_{results}");
    // The block at its start, at its end, and the deltas in between.
    let (empty, full, deltas) = match step {
        Step::Say(text) => {
            let delta = |text| json!({ "type": "text_delta", "text": text });
            let block = |text| json!({ "type": "text", "text": text });
            (block(""), block(text), halves(text).map(delta))
        }
        Step::Run { tool, arguments } => {
            let delta = |text| json!({ "type": "input_json_delta", "partial_json": text });
            let block = |input: &Value| json!({ "type": "tool_use", "id": id, "name": tool, "input": input });
            (block(&json!({})), block(&arguments), halves(&arguments.to_string()).map(delta))
        }
    };
    let message = |content: Value, reason: Value| {
        json!({
            "id": format!("msg_{results}"), "type": "message", "role": "assistant",
            "model": body["model"].as_str().unwrap_or("scripted"), "content": content,
            "stop_reason": reason, "stop_sequence": null,
            "usage": { "input_tokens": 1, "output_tokens": 1 },
        })
    };
    if body["stream"] != true {
        return Reply::json(&message(json!([full]), json!(reason)));
    }
    let started = json!({ "type": "message_start", "message": message(json!([]), Value::Null) });
    let block = json!({ "type": "content_block_start", "index": 0, "content_block": empty });
    let deltas =
        deltas.map(|delta| json!({ "type": "content_block_delta", "index": 0, "delta": delta }));
    let ended = [
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({
            "type": "message_delta", "usage": { "output_tokens": 1 },
            "delta": { "stop_reason": reason, "stop_sequence": null },
        }),
        json!({ "type": "message_stop" }),
    ];
    let events = [started, block].into_iter().chain(deltas).chain(ended);
    Reply::events(events.map(|event| named(&event)).collect())
}
