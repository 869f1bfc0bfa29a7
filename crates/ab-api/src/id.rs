//! Identifiers: ULIDs, one type per kind of object.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use ulid::Ulid;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// A ULID that identifies one object of kind `K`. Ids sort by the time of their creation.
pub struct Id<K>(Ulid, PhantomData<fn() -> K>);

/// The kind of object that an [`Id`] identifies.
pub trait IdKind: 'static {
    /// The name of the kind in error messages.
    const NAME: &'static str;
    /// The text before the ULID, such as `run_`.
    const PREFIX: &'static str = "";
}

/// The kind of [`SessionId`].
#[derive(Debug)]
pub enum SessionIdKind {}

/// The kind of [`ApprovalId`].
#[derive(Debug)]
pub enum ApprovalIdKind {}

/// The kind of [`SpaceId`].
#[derive(Debug)]
pub enum SpaceIdKind {}

/// The kind of [`SpaceTokenId`].
#[derive(Debug)]
pub enum SpaceTokenIdKind {}

/// The kind of [`RunId`].
#[derive(Debug)]
pub enum RunIdKind {}

/// The kind of [`ApiKeyId`].
#[derive(Debug)]
pub enum ApiKeyIdKind {}

/// The kind of [`DraftId`].
#[derive(Debug)]
pub enum DraftIdKind {}

/// The kind of [`UploadId`].
#[derive(Debug)]
pub enum UploadIdKind {}

impl IdKind for UploadIdKind {
    const NAME: &'static str = "upload";
    const PREFIX: &'static str = "upload-";
}

impl IdKind for ApiKeyIdKind {
    const NAME: &'static str = "key";
    const PREFIX: &'static str = "key_";
}

impl IdKind for DraftIdKind {
    const NAME: &'static str = "draft";
    const PREFIX: &'static str = "draft-";
}

impl IdKind for SpaceIdKind {
    const NAME: &'static str = "space";
    const PREFIX: &'static str = "spc_";
}

impl IdKind for SpaceTokenIdKind {
    const NAME: &'static str = "token";
    const PREFIX: &'static str = "tok_";
}

impl IdKind for RunIdKind {
    const NAME: &'static str = "run";
    const PREFIX: &'static str = "run_";
}

impl IdKind for SessionIdKind {
    const NAME: &'static str = "session";
}

impl IdKind for ApprovalIdKind {
    const NAME: &'static str = "approval";
}

/// The id of a session.
pub type SessionId = Id<SessionIdKind>;

/// The id of an approval.
pub type ApprovalId = Id<ApprovalIdKind>;

/// The id of a space: `spc_` and a ULID.
pub type SpaceId = Id<SpaceIdKind>;

/// Names a token of a space: `tok_` and a ULID.
pub type SpaceTokenId = Id<SpaceTokenIdKind>;

/// The id of an API key: `key_` and a ULID.
pub type ApiKeyId = Id<ApiKeyIdKind>;

/// The id of a draft: `draft-` and a ULID.
pub type DraftId = Id<DraftIdKind>;

/// The id of an upload: `upload-` and a ULID.
pub type UploadId = Id<UploadIdKind>;

/// The id of a run: `run_` and a ULID.
pub type RunId = Id<RunIdKind>;

/// The error for a text that is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdError {
    text: String,
    kind: &'static str,
    prefix: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, kind, prefix } = self;
        let article = if kind.starts_with(['a', 'u']) { "an" } else { "a" };
        write!(f, "{text:?} is not the ID of {article} {kind}, such as {prefix}01JZ7Q…")
    }
}

impl IdError {
    /// What the identifier should name, such as `space`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }
}

impl std::error::Error for IdError {}

impl<K> Id<K> {
    /// Creates an identifier with the current time.
    pub fn generate() -> Self {
        Self(Ulid::generate(), PhantomData)
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Id<K> {}

impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K> Eq for Id<K> {}

impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<K: IdKind> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(K::PREFIX)?;
        self.0.fmt(f)
    }
}

impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl<K: IdKind> FromStr for Id<K> {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let ulid = text.strip_prefix(K::PREFIX).and_then(|ulid| Ulid::from_string(ulid).ok());
        ulid.map(|ulid| Self(ulid, PhantomData)).ok_or_else(|| IdError {
            // Keep only the beginning, so that a long invalid text does not fill a log.
            text: text.chars().take(64).collect(),
            kind: K::NAME,
            prefix: K::PREFIX,
        })
    }
}

impl<K: IdKind> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, K: IdKind> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl<K: IdKind> PartialSchema for Id<K> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(K::PREFIX.is_empty().then(|| SchemaFormat::Custom("ulid".to_owned())))
            .into()
    }
}

impl<K: IdKind> ToSchema for Id<K> {
    fn name() -> std::borrow::Cow<'static, str> {
        if K::PREFIX.is_empty() { "Ulid".into() } else { "PrefixedUlid".into() }
    }
}
