//! OpenAI's chat completions and responses.

use serde_json::{Value, json};

use super::{LanguageModelStep, Reply, Step, Tool, halves, members, named, step, unnamed};

pub(super) fn chat(body: &Value, steps: &[LanguageModelStep]) -> Reply {
    let tools = members(body, "tools").iter().filter_map(|tool| {
        let function = &tool["function"];
        Some(Tool { name: function["name"].as_str()?, schema: &function["parameters"] })
    });
    let tools: Vec<Tool<'_>> = tools.collect();
    let results = members(body, "messages").iter().filter(|message| message["role"] == "tool");
    let results = results.count();
    let (delta, finish) = match step(&tools, results, steps) {
        Step::Say(text) => (json!({ "role": "assistant", "content": text }), "stop"),
        Step::Run { tool, arguments } => {
            let function = json!({ "name": tool, "arguments": arguments.to_string() });
            let call = json!({
                "index": 0, "id": format!("call_{results}"), "type": "function", "function": function,
            });
            (json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
        }
    };
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    if body["stream"] != true {
        let choice = json!({ "index": 0, "message": delta, "finish_reason": finish });
        return Reply::json(&json!({
            "id": "scripted", "object": "chat.completion", "created": 1, "model": "scripted",
            "choices": [choice], "usage": usage,
        }));
    }
    let chunk = |choices: Value| {
        json!({
            "id": "scripted", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": choices,
        })
    };
    let said = chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]));
    let end = chunk(json!([{ "index": 0, "delta": {}, "finish_reason": finish }]));
    let mut counts = chunk(json!([]));
    counts["usage"] = usage;
    let chunks = [said, end, counts].map(|chunk| unnamed(&chunk)).into_iter();
    Reply::events(chunks.chain(["data: [DONE]\n\n".to_owned()]).collect())
}

pub(super) fn responses(body: &Value, steps: &[LanguageModelStep]) -> Reply {
    let tools = members(body, "tools").iter().filter_map(|tool| {
        Some(Tool { name: tool["name"].as_str()?, schema: &tool["parameters"] })
    });
    let tools: Vec<Tool<'_>> = tools.collect();
    let results = members(body, "input").iter();
    let results = results.filter(|item| item["type"] == "function_call_output").count();
    let item_id = format!("item_{results}");
    // The item at its start, at its end, and the events in between.
    let (added, done, between) = match step(&tools, results, steps) {
        Step::Say(text) => {
            let item = |status: &str, content: Value| {
                json!({
                    "id": item_id, "type": "message", "role": "assistant", "status": status,
                    "content": content,
                })
            };
            let part = json!({ "type": "output_text", "text": text, "annotations": [] });
            let event = |kind: &str| json!({ "type": kind, "item_id": item_id, "output_index": 0, "content_index": 0 });
            let mut begun = event("response.content_part.added");
            begun["part"] = json!({ "type": "output_text", "text": "", "annotations": [] });
            let deltas = halves(text).map(|half| {
                let mut delta = event("response.output_text.delta");
                delta["delta"] = json!(half);
                delta
            });
            let mut ended = event("response.output_text.done");
            ended["text"] = json!(text);
            let between: Vec<Value> = [begun].into_iter().chain(deltas).chain([ended]).collect();
            (item("in_progress", json!([])), item("completed", json!([part])), between)
        }
        Step::Run { tool, arguments } => {
            let arguments = arguments.to_string();
            let item = |status: &str, arguments: &str| {
                json!({
                    "id": item_id, "type": "function_call", "status": status, "name": tool,
                    "call_id": format!("call_{results}"), "arguments": arguments,
                })
            };
            let kind = "response.function_call_arguments";
            let event = |end: &str, name: &str, text: &str| {
                json!({
                    "type": format!("{kind}.{end}"), "item_id": item_id, "output_index": 0,
                    name: text,
                })
            };
            let deltas = halves(&arguments).map(|half| event("delta", "delta", half));
            let ended = event("done", "arguments", &arguments);
            let between = deltas.into_iter().chain([ended]).collect();
            (item("in_progress", ""), item("completed", &arguments), between)
        }
    };
    let response = |status: &str, output: Value, usage: Value| {
        json!({
            "id": format!("resp_{results}"), "object": "response", "created_at": 1,
            "model": body["model"].as_str().unwrap_or("scripted"), "status": status,
            "output": output, "usage": usage,
        })
    };
    let usage = json!({
        "input_tokens": 1, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 1, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": 2,
    });
    let whole = response("completed", json!([done]), usage);
    if body["stream"] != true {
        return Reply::json(&whole);
    }
    let begun = response("in_progress", json!([]), Value::Null);
    let item = |end: &str, item: Value| json!({ "type": format!("response.output_item.{end}"), "output_index": 0, "item": item });
    let begin = [json!({ "type": "response.created", "response": begun }), item("added", added)];
    let end = [item("done", done), json!({ "type": "response.completed", "response": whole })];
    let events = begin.into_iter().chain(between).chain(end).enumerate();
    let numbered = events.map(|(number, mut event)| {
        event["sequence_number"] = json!(number);
        named(&event)
    });
    Reply::events(numbered.collect())
}
