//! Drafts of tasks on a server.

use ab_api::{Draft, DraftContent, DraftCreatedResponse, DraftId, Page, TaskCreatedResponse};
use ab_core::Result;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{ServeClient, body};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl ServeClient {
    /// Saves a draft.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn create_draft(&self, content: &DraftContent) -> Result<DraftCreatedResponse> {
        self.json(Method::POST, "/api/v1/drafts", body(content)?).await
    }

    /// Returns one page of the caller's drafts, newest first.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn drafts(&self, page: u32) -> Result<Page<Draft>> {
        let path = format!("/api/v1/drafts?page={page}&perPage=200");
        self.json(Method::GET, &path, Bytes::new()).await
    }

    /// Returns the draft with this id.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if the caller has no such draft.
    pub async fn draft(&self, id: DraftId) -> Result<Draft> {
        self.json(Method::GET, &format!("/api/v1/drafts/{id}"), Bytes::new()).await
    }

    /// Replaces the content of a draft.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if the caller has no such draft.
    pub async fn update_draft(&self, id: DraftId, content: &DraftContent) -> Result<Draft> {
        self.json(Method::PUT, &format!("/api/v1/drafts/{id}"), body(content)?).await
    }

    /// Removes a draft.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if the caller has no such draft.
    pub async fn remove_draft(&self, id: DraftId) -> Result<()> {
        self.answer(Method::DELETE, &format!("/api/v1/drafts/{id}"), Bytes::new()).await.map(drop)
    }

    /// Creates the task of a draft, and then removes the draft. If the answer is lost, the call can
    /// be repeated without creating a second session.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ab_core::ErrorKind::Invalid) if the server does not accept the task.
    /// The error has a message for each wrong field.
    pub async fn start_draft(&self, id: DraftId) -> Result<TaskCreatedResponse> {
        let draft = self.draft(id).await?;
        let mut more = HeaderMap::new();
        if let Ok(key) = HeaderValue::from_str(&format!("start-{id}")) {
            more.insert(IDEMPOTENCY_KEY, key);
        }
        let task = body(&draft.content)?;
        let answer = self.answer_with(Method::POST, "/api/v1/tasks", task, more).await?;
        let created = self.parsed(&answer)?;
        self.remove_draft(id).await?;
        Ok(created)
    }
}
