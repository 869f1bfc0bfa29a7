//! Lists of a server: the agents, runtimes and executors that it offers, and the projects,
//! repositories and workspaces that it has used.

use ab_api::{
    AgentDescription, ExecutorDescription, Page, ProjectSummary, RepoImportRequest, RepoRefs,
    RepoSummary, RuntimeDescription, SessionId, WorkspaceDetail, WorkspaceSummary,
};
use ab_core::Result;
use bytes::Bytes;
use http::Method;

use super::{Items, ServeClient, body, with_query};

/// Filters and the page of a list of repositories or projects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepoCatalogueQuery {
    pub tenant_id: Option<String>,
    pub project_id: Option<String>,
    pub page: Option<u32>,
}

impl RepoCatalogueQuery {
    fn on(&self, path: &str) -> String {
        let parameters = [
            ("tenantId", self.tenant_id.clone()),
            ("projectId", self.project_id.clone()),
            ("page", self.page.map(|page| page.to_string())),
            ("perPage", Some("200".to_owned())),
        ];
        with_query(path, &parameters)
    }
}

impl ServeClient {
    /// Returns the agents that tasks can name.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn agents(&self) -> Result<Vec<AgentDescription>> {
        let all: Items<_> = self.json(Method::GET, "/api/v1/agents", Bytes::new()).await?;
        Ok(all.items)
    }

    /// Returns the runtimes that tasks can name.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn runtimes(&self) -> Result<Vec<RuntimeDescription>> {
        let all: Items<_> = self.json(Method::GET, "/api/v1/runtimes", Bytes::new()).await?;
        Ok(all.items)
    }

    /// Returns the machines that run sessions.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn executors(&self) -> Result<Vec<ExecutorDescription>> {
        let all: Items<_> = self.json(Method::GET, "/api/v1/executors", Bytes::new()).await?;
        Ok(all.items)
    }

    /// Returns one page of the projects that sessions belong to.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn projects(&self, query: &RepoCatalogueQuery) -> Result<Page<ProjectSummary>> {
        self.json(Method::GET, &query.on("/api/v1/projects"), Bytes::new()).await
    }

    /// Returns one page of the repositories that sessions worked on or that were imported.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn repos(&self, query: &RepoCatalogueQuery) -> Result<Page<RepoSummary>> {
        self.json(Method::GET, &query.on("/api/v1/repos"), Bytes::new()).await
    }

    /// Adds a repository to the list.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot read the repository.
    pub async fn import_repo(&self, request: &RepoImportRequest) -> Result<RepoSummary> {
        self.json(Method::POST, "/api/v1/repos", body(request)?).await
    }

    /// Returns the branches of a repository. If the server can read the repository, the list is at
    /// most one minute old.
    ///
    /// # Errors
    ///
    /// Fails if the server has never been able to read the repository.
    pub async fn repo_refs(&self, url: &str) -> Result<RepoRefs> {
        let path = with_query("/api/v1/git/refs", &[("url", Some(url.to_owned()))]);
        self.json(Method::GET, &path, Bytes::new()).await
    }

    /// Returns one page of the workspaces that exist, newest first. If `status` is given, returns
    /// only workspaces with this status.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn workspaces(
        &self,
        status: Option<&str>,
        page: u32,
    ) -> Result<Page<WorkspaceSummary>> {
        let parameters = [
            ("status", status.map(str::to_owned)),
            ("page", Some(page.to_string())),
            ("perPage", Some("200".to_owned())),
        ];
        let path = with_query("/api/v1/workspaces", &parameters);
        self.json(Method::GET, &path, Bytes::new()).await
    }

    /// Returns one workspace with its disk use and the sessions that worked in it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if the workspace was removed or never
    /// existed.
    pub async fn session_workspace(&self, id: SessionId) -> Result<WorkspaceDetail> {
        self.json(Method::GET, &format!("/api/v1/workspaces/{id}"), Bytes::new()).await
    }
}
