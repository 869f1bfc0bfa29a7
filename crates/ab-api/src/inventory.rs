//! Projects, repositories with their branches, and workspaces that a server has used.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::available::TaskCapabilities;
use crate::fields::{self, Fields};
use crate::id::SessionId;
use crate::session::SessionStatus;
use crate::task::{NAME_RULE, SnapshotProvider, check_url, is_name};
use crate::time::Time;
use crate::violation::FieldViolations;

/// An entry of `GET /api/v1/projects`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectSummary {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The number of sessions of the project.
    pub sessions: u64,
    /// When the project's newest session was created.
    pub last_used_at: Time,
}

/// An entry of `GET /api/v1/repos`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepoSummary {
    /// The id of the repository. It is derived only from the repository's URL.
    pub id: String,
    /// The last two parts of the URL.
    pub display_name: String,
    /// `github`, `gitlab`, `bitbucket`, `local` for a directory of the server, otherwise `git`.
    pub scm_provider: String,
    pub remote_url: String,
    /// Null until the server has asked the repository for its branches.
    pub default_branch: Option<String>,
    /// When the newest session of the repository was created. Null if the repository was only
    /// imported.
    pub last_used_at: Option<Time>,
}

impl RepoSummary {
    /// Creates a summary. The names are derived from the URL.
    pub fn new(id: String, remote_url: String) -> Self {
        Self {
            id,
            display_name: display_name(&remote_url),
            scm_provider: scm_provider(&remote_url).to_owned(),
            remote_url,
            default_branch: None,
            last_used_at: None,
        }
    }
}

/// The body of `POST /api/v1/repos`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepoImportRequest {
    /// The URL of the repository, as in `repo.url` of a task.
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
}

impl RepoImportRequest {
    /// Parses and checks the body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not such an object, or if a task could not use the URL.
    pub fn parse(body: &[u8], offers: &TaskCapabilities) -> Result<Self, FieldViolations> {
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let url = body.required_text("url", &mut found);
        if let Some(url) = url {
            check_url(url, "url".to_owned(), offers, &mut found);
        }
        let mut name = |field: &'static str| {
            let text = body.text(field, &mut found)?;
            if !is_name(text) {
                found.add_invalid(field, NAME_RULE);
            }
            Some(text.to_owned())
        };
        let (tenant_id, project_id) = (name("tenantId"), name("projectId"));
        body.end(&mut found);
        let url = url.unwrap_or_default().to_owned();
        found.into_result(Self { url, tenant_id, project_id })
    }
}

/// Checks the URL of a repository by the rules for `repo.url` of a task.
///
/// # Errors
///
/// Returns one violation of `field`.
pub fn check_repo_url(
    url: &str,
    field: &str,
    offers: &TaskCapabilities,
) -> Result<(), FieldViolations> {
    let mut found = FieldViolations::default();
    check_url(url, field.to_owned(), offers, &mut found);
    found.into_result(())
}

/// The answer to `GET /api/v1/git/refs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepoRefs {
    pub url: String,
    pub default_branch: Option<String>,
    /// The branches, sorted by name. At most 5,000.
    pub items: Vec<RepoBranch>,
    /// Whether the repository has more branches than are listed.
    pub truncated: bool,
    /// When the server asked the repository.
    pub fetched_at: Time,
}

/// A branch of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepoBranch {
    pub name: String,
    pub commit: String,
}

/// The state of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceState {
    /// A session is using the workspace.
    Active,
    /// The session of the workspace has ended, and the files are kept.
    Kept,
}

impl WorkspaceState {
    pub const ALL: [Self; 2] = [Self::Active, Self::Kept];

    /// The name of the state in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Kept => "kept",
        }
    }
}

impl std::str::FromStr for WorkspaceState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| {
            format!("must be one of: {}", Self::ALL.map(WorkspaceState::as_str).join(", "))
        })
    }
}

/// An entry of `GET /api/v1/workspaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSummary {
    /// The id of the session that made the workspace.
    pub id: SessionId,
    pub status: WorkspaceState,
    /// The session that uses the workspace, or the last one that used it.
    pub session_id: SessionId,
    pub executor: String,
    pub snapshot_provider: Option<SnapshotProvider>,
    pub mount_path: Option<String>,
    pub repo_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    pub created_at: Time,
}

/// The answer to `GET /api/v1/workspaces/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceDetail {
    #[serde(flatten)]
    pub summary: WorkspaceSummary,
    pub storage: WorkspaceStorage,
    /// The sessions that worked in the workspace, oldest first.
    pub history: Vec<WorkspaceTask>,
}

/// The disk space that a workspace occupies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceStorage {
    /// The number of bytes that the file system has allocated. Git objects that are shared with the
    /// cache of the repository are not counted.
    pub bytes: u64,
    pub files: u64,
    /// Whether counting stopped early. The real numbers are then larger.
    pub truncated: bool,
}

/// A session that worked in a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceTask {
    pub session_id: SessionId,
    pub status: SessionStatus,
    pub prompt: String,
    pub created_at: Time,
    pub ended_at: Option<Time>,
}

/// The host of a URL. `None` for a local path.
fn host(url: &str) -> Option<&str> {
    let authority = match url.split_once("://") {
        Some(("file", _)) => return None,
        Some((_, rest)) => rest.split('/').next().unwrap_or_default(),
        None if url.starts_with('/') => return None,
        None => url.split(':').next().unwrap_or_default(),
    };
    let host = authority.rsplit('@').next().unwrap_or_default();
    Some(host.split(':').next().unwrap_or_default())
}

fn scm_provider(url: &str) -> &'static str {
    let Some(host) = host(url) else { return "local" };
    let is =
        |name: &str| host == name || host.strip_suffix(name).is_some_and(|it| it.ends_with('.'));
    let known =
        [("github.com", "github"), ("gitlab.com", "gitlab"), ("bitbucket.org", "bitbucket")];
    known.iter().find(|(name, _)| is(name)).map_or("git", |(_, provider)| provider)
}

fn display_name(url: &str) -> String {
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or(rest, |(_, path)| path),
        None if url.starts_with('/') => url,
        None => url.split_once(':').map_or(url, |(_, path)| path),
    };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let mut parts: Vec<&str> = path.rsplit('/').take(2).collect();
    parts.reverse();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_names_and_providers() {
        for (url, name, provider) in [
            ("https://github.com/acme/storefront.git", "acme/storefront", "github"),
            ("git@github.com:acme/storefront.git", "acme/storefront", "github"),
            ("ssh://git@gitlab.com:22/a/b/c", "b/c", "gitlab"),
            ("https://notgithub.com/a/b", "a/b", "git"),
            ("https://git.example.com/only", "only", "git"),
            ("/srv/projects/shop", "projects/shop", "local"),
            ("file:///srv/projects/shop/", "projects/shop", "local"),
        ] {
            let repo = RepoSummary::new(String::new(), url.to_owned());
            assert_eq!((repo.display_name.as_str(), repo.scm_provider.as_str()), (name, provider));
        }
    }
}
