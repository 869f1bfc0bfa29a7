//! API keys: named secrets with which programs use the server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fields::{self, Fields};
use crate::id::ApiKeyId;
use crate::task::{NAME_RULE, is_name};
use crate::time::Time;
use crate::violation::FieldViolations;

/// The caller's name in records of requests with the server's own token. No API key can have this
/// name.
pub const RESERVED_API_KEY_NAME: &str = "admin";

/// An API key. Its secret is shown only when the key is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    pub id: ApiKeyId,
    /// The name of the key. Records of its actions contain this name.
    pub name: String,
    pub created_at: Time,
    /// When the key was revoked. Absent while the key is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Time>,
}

/// The answer to `POST /api/v1/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyCreatedResponse {
    #[serde(flatten)]
    pub api_key: ApiKey,
    /// The secret, for `Authorization: ApiKey SECRET` or `Bearer SECRET`. The server stores only
    /// its digest.
    pub secret: String,
}

/// The body of `POST /api/v1/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyRequest {
    /// 1 to 64 letters, digits, dots, hyphens or underscores.
    pub name: String,
}

impl ApiKeyRequest {
    /// Parses and checks the body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not such an object, or the name is missing, invalid or reserved.
    pub fn parse(body: &[u8]) -> Result<ApiKeyRequest, FieldViolations> {
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let name = body.required_text("name", &mut found).unwrap_or("-");
        if !is_name(name) {
            found.add_invalid("name", NAME_RULE);
        } else if name == RESERVED_API_KEY_NAME {
            found.add_invalid("name", "is reserved for the token of the server");
        }
        body.end(&mut found);
        found.into_result(ApiKeyRequest { name: name.to_owned() })
    }
}
