//! Serves a scripted model on loopback until it is killed, to try agents without a key: runs the first argument with the
//! agent's shell, then ends the turn. Every request is printed.

#![allow(clippy::print_stdout, reason = "the person who tries an agent is told")]

use ab_testkit::scripted_model::{LanguageModelStep, ScriptedLanguageModel};

#[tokio::main]
async fn main() {
    let command = std::env::args().nth(1).unwrap_or_else(|| "echo scripted > MADE.md".to_owned());
    let steps =
        vec![LanguageModelStep::Run(command), LanguageModelStep::Say("It is made.".to_owned())];
    let model = ScriptedLanguageModel::start(steps).await;
    println!("{}", model.url());
    let mut printed = 0;
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        for path in model.requests().into_iter().skip(printed) {
            println!("{path}");
            printed += 1;
        }
    }
}
