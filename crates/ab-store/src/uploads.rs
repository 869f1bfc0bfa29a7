//! Uploads: content that callers send before the task that uses it.
//!
//! The row of an upload is stored before its file is made. Therefore a file without a row that
//! needs it is a leftover, and [`Store::remove_expired_uploads`] removes it. A task claims its
//! uploads in the transaction that creates its sessions. The files are kept until the workspace of
//! each of these sessions is made, or the session has ended.

mod files;
mod refusal;
mod writing;

use std::collections::HashSet;
use std::time::Duration;

use ab_api::{
    PageRequest, SessionId, Time, Upload, UploadId, UploadKind, UploadRequest, UploadStatus,
};
use aws_lc_rs::hmac;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite};
use tokio::sync::{Notify, OnceCell};

pub use refusal::UploadRefusal;
pub use writing::{UploadStart, UploadWriter};

use self::files::UploadFiles;
use self::writing::{BusyUploads, blocking};
use crate::data_dir::DataDir;
use crate::digest::hexadecimal;
use crate::error::StoreError;
use crate::record::{parse_id, signed, unsigned};
use crate::sessions::{IdempotencyRecord, claim_key};
use crate::store::Store;
use crate::writer::Writing;

/// The name of the stored key that signs upload URLs.
const KEY: &str = "uploads";
const KEY_BYTES: usize = 32;
const COLUMNS: &str =
    "SELECT id, owner, kind, name, size, digest, created, expires, complete, used FROM uploads";

/// Limits on uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadLimits {
    /// Maximum size of one upload in bytes.
    pub max_bytes: u64,
    /// Maximum total size in bytes of all uploads that wait for their tasks or workspaces.
    pub max_total_bytes: u64,
    /// Maximum number of uploads that wait for their tasks or workspaces.
    pub max_uploads: u64,
    /// How long an upload is kept after its last byte arrived.
    pub lifetime: Duration,
    /// How long a signed upload URL is valid.
    pub url_lifetime: Duration,
    /// How long a request may send no content. After that the request ends, and another request can
    /// continue the upload.
    pub idle_timeout: Duration,
}

impl Default for UploadLimits {
    fn default() -> Self {
        Self {
            max_bytes: 2 * 1024 * 1024 * 1024,
            max_total_bytes: 8 * 1024 * 1024 * 1024,
            max_uploads: 256,
            lifetime: Duration::from_secs(60 * 60),
            url_lifetime: Duration::from_secs(15 * 60),
            idle_timeout: Duration::from_secs(20),
        }
    }
}

/// An upload and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRecord {
    pub upload: Upload,
    /// The caller that the upload belongs to.
    pub owner: String,
}

/// The state of uploads outside the database.
#[derive(Debug)]
pub(crate) struct UploadState {
    files: UploadFiles,
    busy: BusyUploads,
    key: OnceCell<hmac::Key>,
    /// Notifies the task that removes old uploads (the sweep) that there may be something to
    /// remove.
    released: Notify,
}

impl UploadState {
    pub(crate) fn new(data_dir: &DataDir) -> Self {
        Self {
            files: UploadFiles::new(data_dir.path()),
            busy: BusyUploads::default(),
            key: OnceCell::new(),
            released: Notify::new(),
        }
    }
}

impl Store {
    /// Stores a new upload of `owner`, without content. A repeated request with the same key
    /// returns the upload of the first request.
    ///
    /// # Errors
    ///
    /// [`UploadRefusal::TooManyUploads`] or [`UploadRefusal::TotalTooLarge`] if a limit would be exceeded.
    /// [`StoreError::IdempotencyKeyReused`] if the key was used with another request.
    pub async fn create_upload(
        &self,
        owner: String,
        request: UploadRequest,
        limits: UploadLimits,
        key: Option<IdempotencyRecord>,
    ) -> Result<UploadRecord, StoreError> {
        let id = UploadId::generate();
        let key = key.map(|key| IdempotencyRecord { response: id.to_string(), ..key });
        let now = Time::now();
        let id = self
            .write(move |writing| {
                Box::pin(async move {
                    if let Some(answer) = claim_key(writing, key.as_ref()).await? {
                        return parse_id(&answer);
                    }
                    check_limits(writing, request.size, limits).await?;
                    sqlx::query(
                        "INSERT INTO uploads \
                         (id, owner, kind, name, size, digest, created, expires, complete, used) \
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0)",
                    )
                    .bind(id.to_string())
                    .bind(&owner)
                    .bind(request.kind.as_str())
                    .bind(&request.name)
                    .bind(signed(request.size))
                    .bind(&request.digest)
                    .bind(now.as_millis())
                    .bind(now.saturating_add(limits.lifetime).as_millis())
                    .execute(writing.connection().await?)
                    .await?;
                    Ok(id)
                })
            })
            .await?;
        // Wake the task that removes old uploads, because it waits for the earliest expiry that it
        // knows.
        self.wake_upload_sweep();
        self.get_upload(id).await
    }

    /// Returns an upload, unless it has expired.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such upload.
    pub async fn get_upload(&self, id: UploadId) -> Result<UploadRecord, StoreError> {
        let mut query = QueryBuilder::<Sqlite>::new(COLUMNS);
        query.push(" WHERE id = ").push_bind(id.to_string());
        query.push(" AND expires > ").push_bind(Time::now().as_millis());
        self.record_of(&query.build().fetch_one(self.pool()).await?)
    }

    /// A page of the uploads of `owner`, newest first, and their total number.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_uploads(
        &self,
        owner: &str,
        page: PageRequest,
    ) -> Result<(Vec<UploadRecord>, u64), StoreError> {
        let now = Time::now().as_millis();
        let sql = "SELECT COUNT(*) FROM uploads WHERE owner = $1 AND expires > $2";
        let total: i64 =
            sqlx::query_scalar(sql).bind(owner).bind(now).fetch_one(self.pool()).await?;
        let mut query = QueryBuilder::<Sqlite>::new(COLUMNS);
        query.push(" WHERE owner = ").push_bind(owner).push(" AND expires > ").push_bind(now);
        query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.per_page()));
        query.push(" OFFSET ").push_bind(signed(page.offset()));
        let rows = query.build().fetch_all(self.pool()).await?;
        let records = rows.iter().map(|row| self.record_of(row)).collect::<Result<_, _>>()?;
        Ok((records, unsigned(total)))
    }

    /// Opens an upload to write content.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such upload. [`UploadRefusal::BeingWritten`],
    /// [`UploadRefusal::Complete`], [`UploadRefusal::Used`] or [`UploadRefusal::WrongOffset`] if the
    /// state of the upload does not allow the content.
    pub async fn write_upload(
        &self,
        id: UploadId,
        start: UploadStart,
        limits: UploadLimits,
    ) -> Result<UploadWriter, StoreError> {
        let record = self.get_upload(id).await?;
        UploadWriter::begin(self.clone(), record, start, limits).await
    }

    /// Removes an upload that no task has used.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such upload. [`UploadRefusal::Used`] if a task has
    /// used it.
    pub async fn remove_upload(&self, id: UploadId) -> Result<(), StoreError> {
        let record = self.get_upload(id).await?;
        if record.upload.status == UploadStatus::Used {
            return Err(UploadRefusal::Used.into());
        }
        match self.remove_upload_row(id).await {
            // The disk is full. Remove the file first, so that the database has room for its
            // change. Until its row is removed, an upload without a file counts as open.
            Err(error) if error.is_disk_full() => {
                self.remove_upload_file(id).await?;
                self.remove_upload_row(id).await
            }
            removed => {
                removed?;
                self.remove_upload_file(id).await
            }
        }
    }

    async fn remove_upload_row(&self, id: UploadId) -> Result<(), StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let sql = "DELETE FROM uploads WHERE id = $1 AND used = 0";
                let query = sqlx::query(sql).bind(id.to_string());
                match query.execute(writing.connection().await?).await?.rows_affected() {
                    0 => Err(UploadRefusal::Used.into()),
                    _ => Ok(()),
                }
            })
        })
        .await
    }

    async fn remove_upload_file(&self, id: UploadId) -> Result<(), StoreError> {
        let files = self.uploads_state().files.clone();
        blocking(move || files.remove(&id.to_string())).await?.map_err(file_failed)
    }

    /// Records that the workspace of a session is made, so that the session no longer needs the
    /// files of its uploads.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn release_uploads(&self, session: SessionId) -> Result<(), StoreError> {
        self.write(move |writing| Box::pin(release(writing, session))).await?;
        self.wake_upload_sweep();
        Ok(())
    }

    /// Removes uploads that have expired, and files that no session needs any more. Returns the
    /// time of the next expiry.
    ///
    /// # Errors
    ///
    /// Fails if the database fails or a file cannot be removed.
    pub async fn remove_expired_uploads(&self, now: Time) -> Result<Option<Time>, StoreError> {
        let files = self.uploads_state().files.clone();
        // List the files before the rows are read. So the row of every file in the list existed
        // before the rows are read.
        let names = blocking(move || files.names()).await?.map_err(file_failed)?;
        let sql = "SELECT id FROM uploads WHERE (used = 0 AND expires > $1) OR id IN \
                   (SELECT upload FROM upload_uses \
                    WHERE session IN (SELECT id FROM sessions WHERE live = 1))";
        let needed = sqlx::query_scalar(sql).bind(now.as_millis());
        let needed: Vec<String> = needed.fetch_all(self.pool()).await?;
        let needed: HashSet<String> = needed.into_iter().collect();
        let left: Vec<String> = names.into_iter().filter(|name| !needed.contains(name)).collect();
        let files = self.uploads_state().files.clone();
        let removed = blocking(move || left.iter().try_for_each(|name| files.remove(name)));
        removed.await?.map_err(file_failed)?;
        // Remove the files first, because on a full disk this makes room for the change of the
        // database.
        self.write(move |writing| Box::pin(expire(writing, now))).await?;
        let sql =
            "SELECT MIN(expires) FROM uploads WHERE id NOT IN (SELECT upload FROM upload_uses)";
        let next: Option<i64> = sqlx::query_scalar(sql).fetch_one(self.pool()).await?;
        Ok(next.map(Time::from_millis))
    }

    /// Wakes the task that removes old uploads (the sweep), so that it runs now.
    pub(crate) fn wake_upload_sweep(&self) {
        self.uploads_state().released.notify_one();
    }

    /// Waits until [`remove_expired_uploads`](Store::remove_expired_uploads) may have something to
    /// remove.
    pub async fn wait_until_uploads_released(&self) {
        self.uploads_state().released.notified().await;
    }

    /// Signs the URL to which the content of an upload can be sent until `expires`.
    ///
    /// # Errors
    ///
    /// Fails if the database or the system's random number generator fails.
    pub async fn sign_upload(&self, id: UploadId, expires: i64) -> Result<String, StoreError> {
        let tag = hmac::sign(self.upload_key().await?, signed_text(id, expires).as_bytes());
        Ok(hexadecimal(tag.as_ref()))
    }

    /// Whether the signature was made by [`sign_upload`](Store::sign_upload) for this upload and
    /// expiry.
    ///
    /// # Errors
    ///
    /// Fails if the database or the system's random number generator fails.
    pub async fn is_valid_upload_signature(
        &self,
        id: UploadId,
        expires: i64,
        signature: &str,
    ) -> Result<bool, StoreError> {
        let key = self.upload_key().await?;
        let byte = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        };
        let bytes: Option<Vec<u8>> = signature.as_bytes().chunks(2).map(byte).collect();
        let Some(bytes) = bytes else { return Ok(false) };
        Ok(hmac::verify(key, signed_text(id, expires).as_bytes(), &bytes).is_ok())
    }

    async fn upload_key(&self) -> Result<&hmac::Key, StoreError> {
        self.uploads_state().key.get_or_try_init(|| self.stored_upload_key()).await
    }

    async fn stored_upload_key(&self) -> Result<hmac::Key, StoreError> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| StoreError::Corrupt {
            what: "random number",
            problem: error.to_string(),
        })?;
        let new = hexadecimal(&bytes);
        let key: String = self
            .write(move |writing| {
                Box::pin(async move {
                    let sql = "INSERT INTO signing_keys (name, key) VALUES ($1, $2) \
                               ON CONFLICT (name) DO NOTHING";
                    let query = sqlx::query(sql).bind(KEY).bind(&new);
                    query.execute(writing.connection().await?).await?;
                    let query = sqlx::query_scalar("SELECT key FROM signing_keys WHERE name = $1");
                    Ok(query.bind(KEY).fetch_one(writing.connection().await?).await?)
                })
            })
            .await?;
        Ok(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()))
    }

    fn record_of(&self, row: &SqliteRow) -> Result<UploadRecord, StoreError> {
        let id = parse_id(row.try_get("id")?)?;
        let size = unsigned(row.try_get("size")?);
        let (complete, used): (i64, i64) = (row.try_get("complete")?, row.try_get("used")?);
        let length = || self.uploads_state().files.length(id).map_err(file_failed);
        let (status, offset) = match (used, complete) {
            (0, 0) => (UploadStatus::Open, length()?),
            (0, _) => match length()? {
                length if length == size => (UploadStatus::Complete, size),
                // The process was killed on a full disk after it removed the file and before it
                // removed the row.
                length => (UploadStatus::Open, length),
            },
            _ => (UploadStatus::Used, size),
        };
        let kind: &str = row.try_get("kind")?;
        let kind = UploadKind::parse(kind).ok_or_else(|| StoreError::Corrupt {
            what: "upload",
            problem: format!("unknown kind {kind:?}"),
        })?;
        let (name, digest) = (row.try_get("name")?, row.try_get("digest")?);
        let upload = Upload {
            id,
            request: UploadRequest { kind, name, size, digest },
            status,
            offset,
            upload_url: None,
            upload_url_expires_at: None,
            created_at: Time::from_millis(row.try_get("created")?),
            expires_at: Time::from_millis(row.try_get("expires")?),
        };
        Ok(UploadRecord { upload, owner: row.try_get("owner")? })
    }
}

/// Reserves the uploads that a new session uses, so that no other task can use them. If a task has
/// several sessions, the first session reserves its uploads for all of them.
pub(crate) async fn claim(
    writing: &mut Writing,
    session: &ab_api::Session,
) -> Result<(), StoreError> {
    let attached = session.task.attachments.iter().map(|attachment| attachment.upload_id);
    let is_first = session.task_group.is_none_or(|group| group.number == 1);
    for id in session.repo.upload_id.into_iter().chain(attached) {
        if is_first {
            let sql = "UPDATE uploads SET used = 1 WHERE id = $1 AND used = 0 AND complete = 1";
            let query = sqlx::query(sql).bind(id.to_string());
            if query.execute(writing.connection().await?).await?.rows_affected() == 0 {
                return Err(UploadRefusal::NotUsable(id).into());
            }
        }
        let sql = "INSERT INTO upload_uses (upload, session) VALUES ($1, $2) \
                   ON CONFLICT (upload, session) DO NOTHING";
        let query = sqlx::query(sql).bind(id.to_string()).bind(session.id.to_string());
        query.execute(writing.connection().await?).await?;
    }
    Ok(())
}

async fn release(writing: &mut Writing, session: SessionId) -> Result<(), StoreError> {
    let query = sqlx::query("DELETE FROM upload_uses WHERE session = $1");
    query.bind(session.to_string()).execute(writing.connection().await?).await?;
    Ok(())
}

async fn expire(writing: &mut Writing, now: Time) -> Result<(), StoreError> {
    let sql = "DELETE FROM upload_uses \
               WHERE session NOT IN (SELECT id FROM sessions WHERE live = 1)";
    sqlx::query(sql).execute(writing.connection().await?).await?;
    let sql = "DELETE FROM uploads \
               WHERE expires <= $1 AND id NOT IN (SELECT upload FROM upload_uses)";
    sqlx::query(sql).bind(now.as_millis()).execute(writing.connection().await?).await?;
    Ok(())
}

async fn check_limits(
    writing: &mut Writing,
    size: u64,
    limits: UploadLimits,
) -> Result<(), StoreError> {
    let sql = "SELECT COUNT(*) AS number, COALESCE(SUM(size), 0) AS bytes FROM uploads \
               WHERE used = 0 OR id IN (SELECT upload FROM upload_uses)";
    let row = sqlx::query(sql).fetch_one(writing.connection().await?).await?;
    if unsigned(row.try_get("number")?) >= limits.max_uploads {
        return Err(UploadRefusal::TooManyUploads { limit: limits.max_uploads }.into());
    }
    let bytes = unsigned(row.try_get("bytes")?);
    if bytes.saturating_add(size) > limits.max_total_bytes {
        return Err(UploadRefusal::TotalTooLarge { limit: limits.max_total_bytes }.into());
    }
    Ok(())
}

/// Stores whether an upload is complete and when it expires. Called when a request that sends its
/// content has ended.
async fn finish(
    store: &Store,
    id: UploadId,
    is_complete: bool,
    expires: Time,
) -> Result<(), StoreError> {
    let done = store.write(move |writing| {
        Box::pin(async move {
            let sql = "UPDATE uploads SET complete = $2, expires = $3 WHERE id = $1 AND used = 0";
            let query = sqlx::query(sql).bind(id.to_string()).bind(i64::from(is_complete));
            let query = query.bind(expires.as_millis());
            match query.execute(writing.connection().await?).await?.rows_affected() {
                0 => Err(StoreError::NotFound),
                _ => Ok(()),
            }
        })
    });
    done.await
}

fn signed_text(id: UploadId, expires: i64) -> String {
    format!("send content to {id} until {expires}")
}

fn file_failed(error: std::io::Error) -> StoreError {
    UploadRefusal::from(error).into()
}

impl From<UploadRefusal> for StoreError {
    fn from(refusal: UploadRefusal) -> Self {
        Self::UploadRefused(refusal)
    }
}
