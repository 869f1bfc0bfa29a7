//! The header `Idempotency-Key`. A client uses it to make a request repeatable.

use ab_control::SessionIdempotencyKey;
use ab_core::Principal;
use axum::http::{HeaderMap, HeaderName};

use crate::problem::{Problem, ProblemKind};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MAX_KEY_BYTES: usize = 255;

/// The key of a request, if it has one. `request` must contain everything that distinguishes two
/// requests, because a key that is used again with a different request is refused.
///
/// # Errors
///
/// Fails if the key is empty, too long, or not ASCII.
pub(super) fn request_key(
    headers: &HeaderMap,
    principal: &Principal,
    request: &[&[u8]],
) -> Result<Option<SessionIdempotencyKey>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=MAX_KEY_BYTES).contains(&key.len()));
    let Some(key) = key else {
        let detail = "invalid Idempotency-Key: must be 1 to 255 visible ASCII characters";
        return Err(Problem::new(ProblemKind::Invalid, detail));
    };
    let scope = format!("{}:{}", principal.kind().as_str(), principal.id());
    Ok(Some(SessionIdempotencyKey { scope, key: key.to_owned(), request: request.concat() }))
}
