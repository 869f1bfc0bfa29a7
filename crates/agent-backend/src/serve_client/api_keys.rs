//! API keys of a server.

use ab_api::{ApiKey, ApiKeyCreatedResponse, ApiKeyId, ApiKeyRequest, Page};
use ab_core::Result;
use bytes::Bytes;
use http::Method;

use super::{ServeClient, body};

impl ServeClient {
    /// Creates an API key. Only this answer contains the secret of the key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](ab_core::ErrorKind::Conflict) if a key that is not revoked has this
    /// name.
    pub async fn create_api_key(&self, name: &str) -> Result<ApiKeyCreatedResponse> {
        let request = ApiKeyRequest { name: name.to_owned() };
        self.json(Method::POST, "/api/v1/keys", body(&request)?).await
    }

    /// Returns one page of all API keys, newest first. Revoked keys are included.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn api_keys(&self, page: u32) -> Result<Page<ApiKey>> {
        let path = format!("/api/v1/keys?page={page}&perPage=200");
        self.json(Method::GET, &path, Bytes::new()).await
    }

    /// Revokes an API key. Takes effect immediately.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if there is no such key.
    pub async fn revoke_api_key(&self, id: ApiKeyId) -> Result<ApiKey> {
        self.json(Method::DELETE, &format!("/api/v1/keys/{id}"), Bytes::new()).await
    }
}
