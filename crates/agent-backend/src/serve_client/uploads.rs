//! Uploads to a server: files and archives that a task uses.

use ab_api::{Upload, UploadId, UploadRequest};
use ab_core::{Error, ErrorCode, ErrorKind, Result};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{ServeClient, body};

const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

impl ServeClient {
    /// Creates an upload. The content is sent afterwards.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the server does not accept the request. The error has a message
    /// for each wrong field. [`ErrorKind::NoSpace`] if too many uploads are waiting for their
    /// tasks.
    pub async fn create_upload(&self, request: &UploadRequest) -> Result<Upload> {
        self.json(Method::POST, "/api/v1/uploads", body(request)?).await
    }

    /// Returns an upload with its offset. If it is not complete, it has a new signed URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the caller has no such upload.
    pub async fn upload(&self, id: UploadId) -> Result<Upload> {
        self.json(Method::GET, &format!("/api/v1/uploads/{id}"), Bytes::new()).await
    }

    /// Sends the piece of an upload that begins at its offset. Returns the upload with the new
    /// offset. The last piece, or an empty piece after it, completes the upload.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the content must continue at a different offset, or if an earlier
    /// request is still being written. After a lost connection a part of the piece may have
    /// arrived. [`upload`](ServeClient::upload) returns the current offset.
    pub async fn send_upload_piece(&self, upload: &Upload, piece: Bytes) -> Result<Upload> {
        let Some(url) = &upload.upload_url else {
            let message = format!("the upload {} takes no content", upload.id);
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Conflict, message));
        };
        let mut more = HeaderMap::new();
        more.insert(CONTENT_TYPE, OCTETS);
        more.insert(OFFSET, HeaderValue::from(upload.offset));
        let answer = self.answer_with(Method::PATCH, url, piece, more).await?;
        let sent: Upload = self.parsed(&answer)?;
        // Keep the URL, because the next piece is sent to it too.
        let upload_url = upload.upload_url.clone();
        Ok(Upload { upload_url, upload_url_expires_at: upload.upload_url_expires_at, ..sent })
    }

    /// Removes an upload that no task has used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if a task has used the upload. [`ErrorKind::NotFound`] if there is
    /// no such upload.
    pub async fn remove_upload(&self, id: UploadId) -> Result<()> {
        self.answer(Method::DELETE, &format!("/api/v1/uploads/{id}"), Bytes::new()).await.map(drop)
    }
}
