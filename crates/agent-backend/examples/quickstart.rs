//! The smallest program: write, edit, list, and be refused outside.
//!
//! `cargo run -p agent-backend --example quickstart`

use agent_backend::{Edit, EditOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let backend = agent_backend::local(directory.path())?;

    backend.write("src/app.py", "print('hello')\n").await?;
    let edits = [Edit::new("hello", "goodbye")];
    let edited = backend.edit("src/app.py", &edits, EditOptions::default()).await?;
    show(&edited.diff);
    show(&format!("children of src: {:?}", backend.readdir("src").await?));

    if let Err(refused) = backend.read("../../etc/passwd").await {
        show(&format!("{}: {refused}", refused.code()));
    }
    backend.destroy().await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn show(text: &str) {
    println!("{text}");
}
