//! Prints the prompts of a session.

use ab_api::{SessionId, SessionPrompt, Time};
use agent_backend::ServeClient;
use serde_json::json;

use super::{age, shortened};
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

/// Prints all prompts of a session. The sent prompts come first, followed by the queued prompts in
/// their order.
pub(super) async fn list(
    client: &ServeClient,
    id: SessionId,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut prompts = Vec::new();
    let mut next = Some(1);
    while let Some(page) = next {
        let part = client.session_prompts(id, page).await?;
        prompts.extend(part.items);
        next = part.next_page;
    }
    show(&prompts, terminal)
}

/// Prints prompts as a table. As JSON, each prompt is on its own line.
pub(super) fn show(prompts: &[SessionPrompt], terminal: &mut Terminal) -> Result<(), Failure> {
    match terminal.format() {
        Format::Json => {
            for prompt in prompts {
                terminal.value(&json!(prompt))?;
            }
            Ok(())
        }
        Format::Text => {
            for line in table(prompts, Time::now()).lines() {
                let line = terminal.shown(line).into_owned();
                terminal.line(&line)?;
            }
            Ok(())
        }
    }
}

fn table(prompts: &[SessionPrompt], now: Time) -> String {
    let mut text = format!("{:>6}  {:<11}  {:<4}  PROMPT\n", "NUMBER", "STATUS", "AGE");
    for SessionPrompt { number, status, prompt, created_at, .. } in prompts {
        let (status, age) = (status.as_str(), age(*created_at, now));
        text.push_str(&format!("{number:>6}  {status:<11}  {age:<4}  {}\n", shortened(prompt)));
    }
    text
}

#[cfg(test)]
mod tests {
    use ab_api::PromptStatus;

    use super::*;

    #[test]
    fn prompts_are_a_table() {
        let created_at: Time = "2026-01-31T12:00:00Z".parse().unwrap();
        let prompt = |number, status, prompt: &str| SessionPrompt {
            number,
            status,
            prompt: prompt.to_owned(),
            created_at,
            sent_at: None,
            ended_at: None,
        };
        let prompts = [
            prompt(1, PromptStatus::Interrupted, "Fix\nit"),
            prompt(12, PromptStatus::Queued, "Go on"),
        ];
        let expect = "\
NUMBER  STATUS       AGE   PROMPT
     1  interrupted  2m    Fix it
    12  queued       2m    Go on
";
        assert_eq!(table(&prompts, "2026-01-31T12:02:00Z".parse().unwrap()), expect);
    }
}
