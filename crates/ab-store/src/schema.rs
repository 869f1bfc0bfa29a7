//! The schema and its migrations, which are compiled into the program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, SqlSafeStr, SqliteConnection, SqlitePool};

use crate::error::StoreError;

/// Maximum number of connections for readers.
const READERS: u32 = 4;
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a reader waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// After a checkpoint, the log file of the database is truncated to this many bytes.
const LOG_BYTES: &str = "16777216";

const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "sessions", include_str!("../migrations/0001_sessions.sql")),
    (2, "spaces", include_str!("../migrations/0002_spaces.sql")),
    (3, "inbox", include_str!("../migrations/0003_inbox.sql")),
    (4, "prompts", include_str!("../migrations/0004_prompts.sql")),
    (5, "task groups", include_str!("../migrations/0005_task_groups.sql")),
    (6, "session lists", include_str!("../migrations/0006_session_lists.sql")),
    (7, "api keys", include_str!("../migrations/0007_api_keys.sql")),
    (8, "drafts", include_str!("../migrations/0008_drafts.sql")),
    (9, "inventory", include_str!("../migrations/0009_inventory.sql")),
    (10, "uploads", include_str!("../migrations/0010_uploads.sql")),
    (11, "housekeeping", include_str!("../migrations/0011_housekeeping.sql")),
    (12, "program approvals", include_str!("../migrations/0012_program_approvals.sql")),
    (13, "space tokens", include_str!("../migrations/0013_space_tokens.sql")),
];

/// The schema version that this program creates.
pub(crate) fn latest_version() -> i64 {
    MIGRATIONS.iter().map(|(version, ..)| *version).max().unwrap_or_default()
}

/// Opens the database for writing and migrates its schema.
pub(crate) async fn open_writer(path: PathBuf) -> Result<SqliteConnection, StoreError> {
    let mut connection = options(&path).connect().await?;
    let migrations = MIGRATIONS.iter().map(|&(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let migrator = Migrator::with_migrations(migrations.collect());
    // `run` cannot be used here. It has a bound on the connection, and with this bound the compiler
    // cannot prove that the callers' futures are `Send`.
    let migrated = migrator.run_direct(None, &mut connection, false).await;
    migrated.map_err(|error| StoreError::Schema(error.to_string()))?;
    // Move everything from the log to the database file, so that the log can be emptied if the disk
    // gets full.
    let emptied = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await;
    match emptied.map_err(StoreError::from) {
        // On a full disk the log stays. The server must start, because people make room with it.
        Err(error) if !error.is_disk_full() => Err(error),
        _ => Ok(connection),
    }
}

/// Opens the connections for readers.
pub(crate) async fn open_readers(path: PathBuf) -> Result<SqlitePool, StoreError> {
    let pool = SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(options(&path).pragma("query_only", "on"))
        .await?;
    Ok(pool)
}

/// Uses WAL with `synchronous = NORMAL`: a commit survives the end of the process, but not always a
/// power loss.
fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(true)
        // Applies to new databases: pages of removed rows can be returned to the file system.
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .pragma("journal_size_limit", LOG_BYTES)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging()
}
