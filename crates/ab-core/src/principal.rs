//! The identity of a caller, as plain data.
//!
//! A surface, such as HTTP or MCP, authenticates a request and creates a [`Principal`]. The
//! principal becomes the [`Actor`](crate::Actor) of the handle for this request. Journal, policy
//! and approvals therefore see the same identity for every surface.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorCode, ErrorKind, Result, escape_unprintable};

/// Maximum length of a [`TenantId`] in bytes.
pub const MAX_TENANT_ID_BYTES: usize = 64;

/// The kind of a [`Principal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PrincipalKind {
    /// The program that holds the handle itself, such as a program that uses this library, or the
    /// command line.
    Process,
    Person,
    ApiKey,
    /// The coding agent of a session.
    Agent,
    /// An agent that works in a space, authenticated by a token of the space.
    SpaceAgent,
    Executor,
}

impl PrincipalKind {
    pub const ALL: [PrincipalKind; 6] = [
        PrincipalKind::Process,
        PrincipalKind::Person,
        PrincipalKind::ApiKey,
        PrincipalKind::Agent,
        PrincipalKind::SpaceAgent,
        PrincipalKind::Executor,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            PrincipalKind::Process => "process",
            PrincipalKind::Person => "person",
            PrincipalKind::ApiKey => "api-key",
            PrincipalKind::Agent => "agent",
            PrincipalKind::SpaceAgent => "space-agent",
            PrincipalKind::Executor => "executor",
        }
    }
}

impl fmt::Display for PrincipalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The rights of a principal on the control plane. A higher role includes the lower roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Viewer,
    Operator,
    Admin,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The id of a tenant: 1 to [`MAX_TENANT_ID_BYTES`] ASCII letters, digits, `.`, `_` or `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Arc<str>);

impl TenantId {
    pub fn parse(text: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if text.is_empty() || text.len() > MAX_TENANT_ID_BYTES || !text.chars().all(plain) {
            let message = format!(
                "invalid tenant \"{}\": must be 1 to {MAX_TENANT_ID_BYTES} ASCII letters, digits, \
                 '.', '_' or '-'",
                escape_unprintable(text)
            );
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
        }
        Ok(Self(Arc::from(text)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identity of a caller. Principals with the same kind, id and tenant are the same caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    kind: PrincipalKind,
    id: Arc<str>,
    tenant: Option<TenantId>,
    roles: BTreeSet<Role>,
}

impl Principal {
    /// A principal without a tenant and without roles. The surface, such as HTTP, that
    /// authenticated the caller must limit the length of `id`.
    pub fn new(kind: PrincipalKind, id: &str) -> Self {
        Self { kind, id: Arc::from(id), tenant: None, roles: BTreeSet::new() }
    }

    pub fn with_tenant(mut self, tenant: TenantId) -> Self {
        self.tenant = Some(tenant);
        self
    }

    pub fn with_role(mut self, role: Role) -> Self {
        self.roles.insert(role);
        self
    }

    pub fn kind(&self) -> PrincipalKind {
        self.kind
    }

    /// The name of the principal. It is unique among the principals with the same kind and tenant.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    pub fn roles(&self) -> impl Iterator<Item = Role> {
        self.roles.iter().copied()
    }

    /// Whether the principal has `role` or a higher role.
    pub fn has_role(&self, role: Role) -> bool {
        self.roles.last().is_some_and(|greatest| *greatest >= role)
    }
}

impl fmt::Display for Principal {
    /// Writes `TENANT/KIND:ID`, without the tenant if there is none. For a process, only the id is
    /// written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tenant) = &self.tenant {
            write!(f, "{tenant}/")?;
        }
        if self.kind != PrincipalKind::Process {
            write!(f, "{}:", self.kind)?;
        }
        f.write_str(&escape_unprintable(&self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greater_role_includes_the_lesser_ones() {
        let person = Principal::new(PrincipalKind::Person, "ada").with_role(Role::Operator);
        assert!(person.has_role(Role::Viewer) && person.has_role(Role::Operator));
        assert!(!person.has_role(Role::Admin));
        assert!(!Principal::new(PrincipalKind::Person, "ada").has_role(Role::Viewer));
    }

    #[test]
    fn its_text_names_tenant_kind_and_id() {
        let tenant = TenantId::parse("acme").unwrap();
        let key = Principal::new(PrincipalKind::ApiKey, "ci");
        assert_eq!(key.to_string(), "api-key:ci");
        assert_eq!(key.with_tenant(tenant).to_string(), "acme/api-key:ci");
        assert_eq!(Principal::new(PrincipalKind::Process, "local").to_string(), "local");
        let odd = Principal::new(PrincipalKind::Person, "a\nb");
        assert_eq!(odd.to_string(), "person:a\\nb");
    }

    #[test]
    fn a_tenant_has_a_plain_name() {
        for text in ["", "a/b", "a b", "ä", &"x".repeat(MAX_TENANT_ID_BYTES + 1)] {
            assert!(TenantId::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(TenantId::parse("team-1.eu_w").unwrap().as_str(), "team-1.eu_w");
    }
}
