//! OpenSSH's own programs, unchanged.

mod shell;
mod transfer;

use std::sync::Arc;

use ab_core::journal::{JournalGuard, JournalVerbosity, MemoryJournalWriter};

use crate::stage::Stage;

#[tokio::test]
async fn the_journal_names_the_user_who_logged_in() {
    let writer = Arc::new(MemoryJournalWriter::default());
    let journal = Arc::new(JournalGuard::new(writer.clone(), JournalVerbosity::Standard));
    let stage =
        Stage::with(|config| config.backend_options.guards.journal = Some(journal), |_| {}).await;
    assert!(stage.ssh("true").await.status.success());
    stage.sftp("mkdir made").await;
    let actors: Vec<String> = writer.records().into_iter().map(|record| record.actor).collect();
    assert_eq!(actors, ["person:agent", "person:agent"]);
    stage.end().await;
}
