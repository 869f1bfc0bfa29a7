//! Makes consistent copies of the database, even while a server uses it, and checks such copies.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::data_dir::DATABASE;
use crate::error::StoreError;
use crate::record::unsigned;
use crate::schema;
use crate::sessions;
use crate::store::Store;

/// The result of checking a copy that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupCheck {
    /// The schema version of the copy.
    pub schema_version: i64,
    pub sessions: u64,
}

/// Copies the database of a data directory into an empty file that the caller made. The copy is a
/// consistent snapshot, even if a server writes during the copy.
///
/// # Errors
///
/// Fails if there is no database or the copy cannot be written.
pub async fn copy_database(data_dir: &Path, to: &Path) -> Result<(), StoreError> {
    let mut source = connect(&data_dir.join(DATABASE)).await?;
    let Some(to) = to.to_str() else {
        let problem = "its path is not valid UTF-8".to_owned();
        return Err(StoreError::DataDir { path: to.to_owned(), problem });
    };
    let copied = sqlx::query("VACUUM INTO $1").bind(to).execute(&mut source).await;
    let closed = source.close().await;
    copied?;
    Ok(closed?)
}

/// Checks that the database in a file is intact and that this version can open it. The file is not
/// changed.
///
/// # Errors
///
/// [`StoreError::Corrupt`] for a damaged database, [`StoreError::Schema`] for a database of a newer
/// version.
pub async fn check_backup(database: &Path) -> Result<BackupCheck, StoreError> {
    let options = SqliteConnectOptions::new().filename(database).read_only(true).immutable(true);
    let mut connection = options.disable_statement_logging().connect().await?;
    let checked = check(&mut connection).await;
    let closed = connection.close().await;
    let check = checked?;
    closed?;
    Ok(check)
}

async fn check(connection: &mut SqliteConnection) -> Result<BackupCheck, StoreError> {
    let corrupt = |problem: String| StoreError::Corrupt { what: "database", problem };
    let integrity: Result<String, _> =
        sqlx::query_scalar("PRAGMA integrity_check(1)").fetch_one(&mut *connection).await;
    match integrity {
        Ok(answer) if answer == "ok" => {}
        Ok(problem) => return Err(corrupt(problem)),
        Err(error) => return Err(corrupt(error.to_string())),
    }
    let version: Result<Option<i64>, _> =
        sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations WHERE success")
            .fetch_one(&mut *connection)
            .await;
    let version = version.map_err(|error| corrupt(error.to_string()))?;
    let Some(schema_version) = version else { return Err(corrupt("it has no schema".to_owned())) };
    let known = schema::latest_version();
    if schema_version > known {
        return Err(StoreError::Schema(format!(
            "its schema has version {schema_version}, and this program knows versions up to {known}"
        )));
    }
    let sessions: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM sessions").fetch_one(connection).await?;
    Ok(BackupCheck { schema_version, sessions: unsigned(sessions) })
}

/// Opens a database that must exist.
async fn connect(path: &Path) -> Result<SqliteConnection, StoreError> {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(schema::BUSY_TIMEOUT);
    Ok(options.disable_statement_logging().connect().await?)
}

impl Store {
    /// Replaces the directory prefix `from` in the paths of all workspaces by `to`. This is used
    /// after the data directory was moved.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn replace_workspace_path_prefix(
        &self,
        from: &str,
        to: &str,
    ) -> Result<(), StoreError> {
        let ids: Vec<String> = sqlx::query_scalar("SELECT DISTINCT session FROM cleanups")
            .fetch_all(self.pool())
            .await?;
        for id in ids {
            let mut record = match self.session_record(crate::record::parse_id(&id)?).await {
                Ok(record) => record,
                Err(StoreError::NotFound) => continue,
                Err(error) => return Err(error),
            };
            let path = record.session.workspace.mount_path.as_deref();
            let Some(below) = path.and_then(|path| path.strip_prefix(from)) else { continue };
            record.session.workspace.mount_path = Some(format!("{to}{below}"));
            self.write(move |writing| {
                Box::pin(async move { sessions::update(writing, &record).await })
            })
            .await?;
        }
        Ok(())
    }
}
