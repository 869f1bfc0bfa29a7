//! A workspace behind a daemon that was started with
//! `agent-backend daemon --rootDir project --port 3001 --auth-token-file token.txt`.

#![allow(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use agent_backend::RemoteConfig;

#[tokio::main]
async fn main() -> agent_backend::Result<()> {
    let config = RemoteConfig::parse("ws://127.0.0.1:3001/ssh")?.token("correct-horse")?;
    let backend = agent_backend::remote_with(config)?;
    backend.write("notes/plan.md", "look around\n").await?;
    print!("{}", backend.exec("cat notes/plan.md").await?.stdout_text());
    backend.destroy().await
}
