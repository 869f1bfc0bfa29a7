//! Uploads: files and archives that a caller sends before the task that uses them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fields::{self, Fields};
use crate::id::UploadId;
use crate::time::Time;
use crate::violation::FieldViolations;

/// Maximum length of a file name in bytes. Most file systems have the same limit.
const MAX_FILE_NAME_BYTES: usize = 255;
const DIGEST_PREFIX: &str = "sha256:";
const DIGEST_DIGITS: usize = 64;
const KINDS: &[(&str, UploadKind)] = &[("tar", UploadKind::Tar), ("file", UploadKind::File)];

/// What an upload contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UploadKind {
    /// An uncompressed tar archive, from which a workspace is made.
    Tar,
    /// A file that is attached to a task.
    File,
}

impl UploadKind {
    /// The name of the kind in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::File => "file",
        }
    }

    /// The kind with this name.
    pub fn parse(text: &str) -> Option<UploadKind> {
        fields::one_of(text, KINDS)
    }
}

/// The progress of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UploadStatus {
    /// Bytes are missing, or the content has not been checked yet.
    Open,
    /// All bytes have arrived and were checked. A task can use the upload.
    Complete,
    /// A task has used the upload.
    Used,
}

/// The body of `POST /api/v1/uploads`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UploadRequest {
    pub kind: UploadKind,
    /// The name of the file. An attachment has this name in the session.
    pub name: String,
    /// The exact number of bytes of the content.
    pub size: u64,
    /// `sha256:` and 64 hexadecimal digits. Content with a different digest is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl UploadRequest {
    /// Parses and checks the body.
    ///
    /// # Errors
    ///
    /// Returns every problem of the body. `max_bytes` is the server's limit on the size.
    pub fn parse(body: &[u8], max_bytes: u64) -> Result<UploadRequest, FieldViolations> {
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let kind = body.required_choice("kind", KINDS, &mut found).unwrap_or(UploadKind::File);
        let name = body.required_text("name", &mut found).unwrap_or("-");
        if !is_file_name(name) {
            let rule = format!(
                "must be a file name of 1 to {MAX_FILE_NAME_BYTES} bytes, without slashes and control characters"
            );
            found.add_invalid("name", rule);
        }
        let size = body.required_number("size", &mut found);
        let is_count = |size: f64| size.fract() == 0.0 && (0.0..=max_bytes as f64).contains(&size);
        if size.is_some_and(|size| !is_count(size)) {
            let rule = format!("must be a whole number of bytes, at most {max_bytes}");
            found.add_invalid("size", rule);
        }
        let digest = body.text("digest", &mut found).map(str::to_ascii_lowercase);
        if digest.as_deref().is_some_and(|digest| !is_digest(digest)) {
            found.add_invalid("digest", "must be sha256: and 64 hexadecimal digits");
        }
        body.end(&mut found);
        let size = size.unwrap_or_default() as u64;
        found.into_result(UploadRequest { kind, name: name.to_owned(), size, digest })
    }
}

/// An upload, as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upload {
    pub id: UploadId,
    #[serde(flatten)]
    pub request: UploadRequest,
    pub status: UploadStatus,
    /// The number of bytes that have arrived. The next piece starts at this offset.
    pub offset: u64,
    /// The URL for the content, as a path on this server. It is signed, so requests to it need no
    /// token until the signature expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_url: Option<String>,
    /// When the signature of `uploadUrl` expires. `GET` of the upload returns a new URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_url_expires_at: Option<Time>,
    pub created_at: Time,
    /// When the upload is removed if no task uses it.
    pub expires_at: Time,
}

/// A file that is attached to a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskAttachment {
    /// A complete upload of the kind `file`.
    pub upload_id: UploadId,
    /// The file name in the session. The server takes it from the upload.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(size: &u64) -> bool {
    *size == 0
}

fn is_file_name(name: &str) -> bool {
    (1..=MAX_FILE_NAME_BYTES).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains('/')
        && !name.chars().any(char::is_control)
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix(DIGEST_PREFIX).is_some_and(|hex| {
        hex.len() == DIGEST_DIGITS && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_fields_of_an_upload_are_named() {
        let digest = format!("SHA256:{}", "Ab".repeat(32));
        let good = format!(r#"{{"kind":"tar","name":"a b.tar","size":10,"digest":"{digest}"}}"#);
        let parsed = UploadRequest::parse(good.as_bytes(), 10).unwrap();
        assert_eq!((parsed.kind, parsed.size), (UploadKind::Tar, 10));
        assert_eq!(parsed.digest.as_deref(), Some(digest.to_ascii_lowercase().as_str()));
        let long = format!(r#"{{"kind":"file","name":"{}","size":1}}"#, "x".repeat(256));
        for (body, fields) in [
            ("{}", &["kind", "name", "size"][..]),
            (r#"{"kind":"zip","name":"a","size":1}"#, &["kind"]),
            (r#"{"kind":"file","name":"a/b","size":1}"#, &["name"]),
            (r#"{"kind":"file","name":"..","size":1}"#, &["name"]),
            (r#"{"kind":"file","name":"a\n","size":1}"#, &["name"]),
            (r#"{"kind":"file","name":"","size":1}"#, &["name"]),
            (&long, &["name"]),
            (r#"{"kind":"file","name":"a","size":-1}"#, &["size"]),
            (r#"{"kind":"file","name":"a","size":1.5}"#, &["size"]),
            (r#"{"kind":"file","name":"a","size":11}"#, &["size"]),
            (r#"{"kind":"file","name":"a","size":"1"}"#, &["size"]),
            (r#"{"kind":"file","name":"a","size":1,"digest":"md5:00"}"#, &["digest"]),
            (r#"{"kind":"file","name":"a","size":1,"extra":1}"#, &["extra"]),
            ("[]", &[""]),
        ] {
            let found = UploadRequest::parse(body.as_bytes(), 10).unwrap_err();
            let named: Vec<String> = found.messages_by_field().into_keys().collect();
            assert_eq!(named, fields, "{body}");
            assert_eq!(found.http_status(), 400, "{body}");
        }
    }
}
