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

/// A ULID that names one object of kind `K`. It sorts by its time of creation.
pub struct Id<K>(Ulid, PhantomData<fn() -> K>);

/// The kind of object that an [`Id`] names.
pub trait IdKind: 'static {
    /// The name of the kind in error messages.
    const NAME: &'static str;
}

/// The kind of [`SessionId`].
#[derive(Debug)]
pub enum SessionIdKind {}

/// The kind of [`ApprovalId`].
#[derive(Debug)]
pub enum ApprovalIdKind {}

impl IdKind for SessionIdKind {
    const NAME: &'static str = "session";
}

impl IdKind for ApprovalIdKind {
    const NAME: &'static str = "approval";
}

/// Names a session.
pub type SessionId = Id<SessionIdKind>;

/// Names an approval.
pub type ApprovalId = Id<ApprovalIdKind>;

/// A text that is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdError {
    text: String,
    kind: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {} id {:?}: must be a ULID of 26 characters", self.kind, self.text)
    }
}

impl std::error::Error for IdError {}

impl<K> Id<K> {
    /// A new identifier for the current time.
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

impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        match Ulid::from_string(text) {
            Ok(ulid) => Ok(Self(ulid, PhantomData)),
            // Long garbage must not fill a log.
            Err(_) => Err(IdError { text: text.chars().take(64).collect(), kind: K::NAME }),
        }
    }
}

impl<K> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, K: IdKind> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl<K> PartialSchema for Id<K> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::Custom("ulid".to_owned())))
            .into()
    }
}

impl<K> ToSchema for Id<K> {
    fn name() -> std::borrow::Cow<'static, str> {
        "Ulid".into()
    }
}
