//! The problems of a request, field by field.

use std::collections::BTreeMap;
use std::fmt;

/// One thing that is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldViolation {
    /// The path of the field, such as `repo.url`. Empty for the body as a whole.
    pub field: String,
    /// What is wrong, such as `is required`.
    pub message: String,
    /// Whether the request is malformed or asks for something unavailable.
    pub kind: FieldViolationKind,
}

/// The kind of a [`FieldViolation`]. It determines the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldViolationKind {
    /// The value is missing, has the wrong type, or is not acceptable. Status 400.
    Invalid,
    /// The request is well formed, but this server does not support it. Status 422.
    Unavailable,
}

/// Everything that is wrong with a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldViolations(Vec<FieldViolation>);

impl FieldViolations {
    /// Adds a violation for an invalid value.
    pub fn add_invalid(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(field.into(), message.into(), FieldViolationKind::Invalid);
    }

    /// Adds a violation for a value that this server does not support.
    pub fn add_unavailable(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(field.into(), message.into(), FieldViolationKind::Unavailable);
    }

    /// All violations in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &FieldViolation> {
        self.0.iter()
    }

    /// Whether there are no violations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The HTTP status: 422 if every violation is about something unavailable, otherwise 400.
    pub fn http_status(&self) -> u16 {
        let is_unavailable = |it: &FieldViolation| it.kind == FieldViolationKind::Unavailable;
        if self.0.iter().all(is_unavailable) { 422 } else { 400 }
    }

    /// The messages by field, for the member `errors` of a problem document.
    pub fn messages_by_field(&self) -> BTreeMap<String, Vec<String>> {
        let mut errors = BTreeMap::<String, Vec<String>>::new();
        for violation in &self.0 {
            errors.entry(violation.field.clone()).or_default().push(violation.message.clone());
        }
        errors
    }

    /// Returns `value` if there are no violations.
    ///
    /// # Errors
    ///
    /// Returns the violations, if there are any.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }

    fn add(&mut self, field: String, message: String, kind: FieldViolationKind) {
        self.0.push(FieldViolation { field, message, kind });
    }
}

impl fmt::Display for FieldViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.message),
            field => write!(f, "{field} {}", self.message),
        }
    }
}

impl fmt::Display for FieldViolations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, violation) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{violation}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FieldViolations {}
