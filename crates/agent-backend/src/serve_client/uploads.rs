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
    /// Announces an upload.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] with a message for each field that the server does not accept; [`ErrorKind::NoSpace`] if too
    /// many uploads wait for their tasks.
    pub async fn create_upload(&self, request: &UploadRequest) -> Result<Upload> {
        self.json(Method::POST, "/api/v1/uploads", body(request)?).await
    }

    /// An upload, with its offset and, until it is complete, a new signed address.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the caller has no such upload.
    pub async fn upload(&self, id: UploadId) -> Result<Upload> {
        self.json(Method::GET, &format!("/api/v1/uploads/{id}"), Bytes::new()).await
    }

    /// Sends the piece of an upload that begins at its offset. The answer has the new offset. The last piece, or an
    /// empty one after it, completes the upload.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the content continues elsewhere, or the earlier request is still being written. After a
    /// lost connection a part of the piece may have arrived: [`upload`](ServeClient::upload) tells the offset.
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
        // The same address takes the next piece.
        let upload_url = upload.upload_url.clone();
        Ok(Upload { upload_url, upload_url_expires_at: upload.upload_url_expires_at, ..sent })
    }

    /// Removes an upload that no task has used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if a task has used it; [`ErrorKind::NotFound`] if there is none.
    pub async fn remove_upload(&self, id: UploadId) -> Result<()> {
        self.answer(Method::DELETE, &format!("/api/v1/uploads/{id}"), Bytes::new()).await.map(drop)
    }
}
