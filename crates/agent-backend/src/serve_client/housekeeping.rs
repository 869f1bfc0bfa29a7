//! Cleanup of a server's data directory, and the audit of its sessions.

use ab_api::{AuditEntry, CleanupReport, Page, SessionId};
use ab_core::Result;
use bytes::Bytes;
use http::Method;

use super::{ServeClient, session_path, with_query};

impl ServeClient {
    /// Removes everything that the retention settings of the server allow to remove.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn clean_up(&self) -> Result<CleanupReport> {
        self.json(Method::POST, "/api/v1/cleanup", Bytes::new()).await
    }

    /// Reports what [`clean_up`](ServeClient::clean_up) would remove.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn preview_clean_up(&self) -> Result<CleanupReport> {
        let path = with_query("/api/v1/cleanup", &[("dryRun", Some("true".to_owned()))]);
        self.json(Method::POST, &path, Bytes::new()).await
    }

    /// Returns one page of the audit of a session, oldest first. It records which caller made which
    /// call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if there is no such session.
    pub async fn audit(&self, id: SessionId, page: u32) -> Result<Page<AuditEntry>> {
        let path = session_path(id, &format!("/audit?page={page}&perPage=200"));
        self.json(Method::GET, &path, Bytes::new()).await
    }
}
