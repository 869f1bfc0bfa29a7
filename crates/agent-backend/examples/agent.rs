//! A complete agent: a loop over any OpenAI-compatible model, which works on a project with files, commands and skills,
//! and asks before it runs a command.
//!
//! ```sh
//! export OPENAI_BASE_URL=https://api.openai.com/v1 OPENAI_MODEL=gpt-5 OPENAI_API_KEY=…
//! cargo run -p agent-backend --example agent -- DIRECTORY "TASK"
//! ```

#![allow(clippy::print_stdout, reason = "the person at the terminal is told")]

use std::io::Write;

use agent_backend::agent::{
    AgentDefinition, FilesystemToolset, ModelEndpoint, SessionOptions, ShellToolset, SkillsToolset,
    ToolApproval, ToolApprovalDecision, ToolApprovalQuestion,
};
use serde_json::{Value, json};

/// Messages of the model after which the example gives up.
const MAX_TURNS: usize = 50;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(task)) = (arguments.next(), arguments.next()) else {
        return Err("usage: agent DIRECTORY TASK".into());
    };
    let variable = |name: &str| std::env::var(name).ok();
    let url = variable("OPENAI_BASE_URL").ok_or("OPENAI_BASE_URL is not set")?;
    let name = variable("OPENAI_MODEL").ok_or("OPENAI_MODEL is not set")?;
    let model = ModelEndpoint::new(&url, &name, variable("OPENAI_API_KEY").as_deref())?;
    work(&model, &directory, &task).await
}

async fn work(model: &ModelEndpoint, directory: &str, task: &str) -> Result<(), Failure> {
    let definition = AgentDefinition::builder()
        .backend(agent_backend::local(directory)?)
        .instructions("You work on a project. Run its tests when you have changed something.")
        .toolset(FilesystemToolset::new().allow_writes())
        .toolset(ShellToolset::new())
        .toolset(SkillsToolset::new())
        .approval(ToolApproval::by_callback(ask).require(["exec", "delete"]))
        .build();
    let session = definition.start(SessionOptions::default()).await?;
    let tools = session.tools().await?;
    let mut messages = vec![
        json!({ "role": "system", "content": tools.instructions() }),
        json!({ "role": "user", "content": task }),
    ];
    for _ in 0..MAX_TURNS {
        let message = model.next_message(&messages, &tools).await?;
        let answers = tools.answer_openai_tool_calls(&message).await;
        show(&message, &answers);
        if answers.is_empty() {
            return Ok(());
        }
        messages.push(message);
        messages.extend(answers);
    }
    Err(format!("the model was not done after {MAX_TURNS} messages").into())
}

/// Asks the person at the terminal.
async fn ask(question: ToolApprovalQuestion) -> ToolApprovalDecision {
    let ToolApprovalQuestion { tool, arguments, .. } = question;
    print!("? {tool} {} [y/N] ", Value::Object(arguments));
    let asked = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        std::io::stdout().flush()?;
        std::io::stdin().read_line(&mut answer)?;
        std::io::Result::Ok(answer)
    });
    match asked.await {
        Ok(Ok(answer)) if answer.trim() == "y" => ToolApprovalDecision::Approve,
        _ => ToolApprovalDecision::Refuse("the person at the terminal said no".to_owned()),
    }
}

/// What the model said and did.
fn show(message: &Value, answers: &[Value]) {
    if let Some(text) = message["content"].as_str().filter(|text| !text.is_empty()) {
        println!("{text}");
    }
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (call, answer) in calls.iter().zip(answers) {
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default();
        println!("> {name} {}", function["arguments"].as_str().unwrap_or_default());
        for line in answer["content"].as_str().unwrap_or_default().lines().take(20) {
            println!("  {line}");
        }
    }
}
