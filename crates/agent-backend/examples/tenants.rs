//! Two tenants in one workspace, each with a journal of its own.
//!
//! `cargo run -p agent-backend --example tenants`

use std::sync::Arc;

use agent_backend::ScopeOptions;
use agent_backend::journal::{ConsoleJournalWriter, JournalGuard, JournalVerbosity};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let backend = agent_backend::local(directory.path())?;
    for name in ["ada", "grace"] {
        let journal =
            JournalGuard::new(Arc::new(ConsoleJournalWriter::stderr()), JournalVerbosity::Verbose)
                .with_workspace_name(name);
        let options = ScopeOptions { journal: Some(Arc::new(journal)), ..ScopeOptions::default() };
        let tenant = backend.scope(&format!("tenants/{name}"), options)?;
        tenant.write("notes.txt", format!("{name} was here\n")).await?;
        // Neither a path nor a link leads to the other tenant.
        assert!(tenant.read("../grace/notes.txt").await.is_err());
        assert!(tenant.symlink("other", "../grace").await.is_err());
        tenant.destroy().await?;
    }
    assert_eq!(backend.readdir("tenants").await?, ["ada", "grace"]);
    backend.destroy().await?;
    Ok(())
}
