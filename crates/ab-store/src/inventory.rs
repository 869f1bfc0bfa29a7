//! Projects, repositories and workspaces that sessions have used.

use ab_api::{
    PageRequest, ProjectSummary, RepoImportRequest, RepoRefs, RepoSummary, Session, Time,
    WorkspaceState, WorkspaceSummary,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::digest::sha256;
use crate::error::StoreError;
use crate::record::{signed, unsigned};
use crate::sessions::record;
use crate::store::Store;
use crate::writer::{from_json, to_json};

/// Number of hexadecimal digits in the id of a repository.
const REPO_ID_DIGITS: usize = 16;
/// Maximum number of sessions in the history of a workspace.
const MAX_HISTORY: usize = 200;

/// Filters lists of projects and repositories. The default matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepoListFilter {
    pub tenant: Option<String>,
    pub project: Option<String>,
}

impl Store {
    /// A page of the projects of all sessions, sorted by name, and their total number.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_projects(
        &self,
        filter: &RepoListFilter,
        page: PageRequest,
    ) -> Result<(Vec<ProjectSummary>, u64), StoreError> {
        let total = self.counted(|query| push_projects(query, filter)).await?;
        let mut list = QueryBuilder::<Sqlite>::new("");
        push_projects(&mut list, filter);
        list.push(" ORDER BY project, tenant");
        push_page(&mut list, page);
        let rows = list.build().fetch_all(self.pool()).await?;
        let project = |row: &SqliteRow| {
            Ok(ProjectSummary {
                id: row.try_get("project")?,
                tenant_id: row.try_get("tenant")?,
                sessions: unsigned(row.try_get("sessions")?),
                last_used_at: Time::from_millis(row.try_get("used")?),
            })
        };
        Ok((rows.iter().map(project).collect::<Result<_, StoreError>>()?, total))
    }

    /// A page of the repositories of all sessions and imports, last used first, and their total
    /// number.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_repos(
        &self,
        filter: &RepoListFilter,
        page: PageRequest,
    ) -> Result<(Vec<RepoSummary>, u64), StoreError> {
        let total = self.counted(|query| push_repos(query, filter)).await?;
        let mut list = QueryBuilder::<Sqlite>::new(
            "SELECT known.url AS url, known.used AS used, repos.default_branch AS default_branch FROM (",
        );
        push_repos(&mut list, filter);
        list.push(") AS known LEFT JOIN repos ON repos.url = known.url");
        list.push(" ORDER BY known.used IS NULL, known.used DESC, known.url");
        push_page(&mut list, page);
        let rows = list.build().fetch_all(self.pool()).await?;
        let repo = |row: &SqliteRow| {
            let used: Option<i64> = row.try_get("used")?;
            let url: String = row.try_get("url")?;
            Ok(RepoSummary {
                default_branch: row.try_get("default_branch")?,
                last_used_at: used.map(Time::from_millis),
                ..RepoSummary::new(repo_id(&url), url)
            })
        };
        Ok((rows.iter().map(repo).collect::<Result<_, StoreError>>()?, total))
    }

    /// Adds a repository to the list, together with its branches as it reported them. Importing it
    /// again has no effect.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn import_repo(
        &self,
        request: RepoImportRequest,
        refs: RepoRefs,
    ) -> Result<RepoSummary, StoreError> {
        let summary = RepoSummary {
            default_branch: refs.default_branch.clone(),
            ..RepoSummary::new(repo_id(&request.url), request.url.clone())
        };
        self.put_repo_refs(refs).await?;
        self.write(move |writing| {
            Box::pin(async move {
                sqlx::query(
                    "UPDATE repos SET imported = COALESCE(imported, $2), tenant = $3, project = $4 \
                     WHERE url = $1",
                )
                .bind(&request.url)
                .bind(Time::now().as_millis())
                .bind(&request.tenant_id)
                .bind(&request.project_id)
                .execute(writing.connection().await?)
                .await?;
                Ok(())
            })
        })
        .await?;
        Ok(summary)
    }

    /// Stores the branches of a repository.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn put_repo_refs(&self, refs: RepoRefs) -> Result<(), StoreError> {
        let body = to_json("repository", &refs)?;
        self.write(move |writing| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO repos (url, default_branch, refs, fetched) VALUES ($1, $2, $3, $4) \
                     ON CONFLICT (url) DO UPDATE SET default_branch = $2, refs = $3, fetched = $4",
                )
                .bind(&refs.url)
                .bind(&refs.default_branch)
                .bind(&body)
                .bind(refs.fetched_at.as_millis())
                .execute(writing.connection().await?)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// The stored branches of a repository. `None` if they were never stored.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn get_repo_refs(&self, url: &str) -> Result<Option<RepoRefs>, StoreError> {
        let query = sqlx::query_scalar("SELECT refs FROM repos WHERE url = $1").bind(url);
        let body: Option<Option<String>> = query.fetch_optional(self.pool()).await?;
        body.flatten().as_deref().map(|body| from_json("repository", body)).transpose()
    }

    /// A page of the workspaces that exist, newest first, and their total number.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_workspaces(
        &self,
        state: Option<WorkspaceState>,
        page: PageRequest,
    ) -> Result<(Vec<WorkspaceSummary>, u64), StoreError> {
        let live = state.map(|state| i64::from(state == WorkspaceState::Active));
        let push = |query: &mut QueryBuilder<Sqlite>| {
            query.push(
                "SELECT sessions.id, sessions.body, sessions.progress, cleanups.executor FROM cleanups JOIN sessions ON sessions.id = cleanups.session",
            );
            if let Some(live) = live {
                query.push(" WHERE sessions.live = ").push_bind(live);
            }
        };
        let total = self.counted(push).await?;
        let mut list = QueryBuilder::<Sqlite>::new("");
        push(&mut list);
        list.push(" ORDER BY sessions.id DESC");
        push_page(&mut list, page);
        let rows = list.build().fetch_all(self.pool()).await?;
        let summary = |row: &SqliteRow| {
            let session = record(row)?.session;
            Ok(workspace_summary(&session, row.try_get("executor")?))
        };
        Ok((rows.iter().map(summary).collect::<Result<_, StoreError>>()?, total))
    }

    /// The workspace that a cleanup token names, and the sessions that worked in it, oldest first.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such workspace, or it was removed.
    pub async fn get_workspace(
        &self,
        token: &str,
    ) -> Result<(WorkspaceSummary, Vec<Session>), StoreError> {
        let row = sqlx::query(
            "SELECT sessions.body, sessions.progress, cleanups.executor \
             FROM cleanups JOIN sessions ON sessions.id = cleanups.session WHERE cleanups.token = $1",
        )
        .bind(token)
        .fetch_one(self.pool())
        .await?;
        let session = record(&row)?.session;
        let summary = workspace_summary(&session, row.try_get("executor")?);
        let mut history = vec![session];
        while let Some(before) = history.last().and_then(|session| session.continues)
            && history.len() < MAX_HISTORY
        {
            match self.session_record(before).await {
                Ok(record) => history.push(record.session),
                // The history ends here, because an earlier session was removed because of its age.
                Err(StoreError::NotFound) => break,
                Err(error) => return Err(error),
            }
        }
        history.reverse();
        Ok((summary, history))
    }

    async fn counted(&self, push: impl Fn(&mut QueryBuilder<Sqlite>)) -> Result<u64, StoreError> {
        let mut count = QueryBuilder::<Sqlite>::new("SELECT COUNT(*) FROM (");
        push(&mut count);
        count.push(") AS listed");
        let total: i64 = count.build_query_scalar().fetch_one(self.pool()).await?;
        Ok(unsigned(total))
    }
}

impl RepoListFilter {
    fn push_to(&self, query: &mut QueryBuilder<Sqlite>) {
        for (column, value) in
            [(" AND tenant = ", &self.tenant), (" AND project = ", &self.project)]
        {
            if let Some(value) = value {
                query.push(column).push_bind(value.clone());
            }
        }
    }
}

fn push_projects(query: &mut QueryBuilder<Sqlite>, filter: &RepoListFilter) {
    query.push(
        "SELECT project, tenant, COUNT(*) AS sessions, MAX(created) AS used FROM sessions \
         WHERE project IS NOT NULL",
    );
    filter.push_to(query);
    query.push(" GROUP BY project, tenant");
}

fn push_repos(query: &mut QueryBuilder<Sqlite>, filter: &RepoListFilter) {
    query.push(
        "SELECT url, MAX(used) AS used FROM \
         (SELECT repo AS url, created AS used FROM sessions WHERE repo <> ''",
    );
    filter.push_to(query);
    query.push(" UNION ALL SELECT url, NULL AS used FROM repos WHERE imported IS NOT NULL");
    filter.push_to(query);
    query.push(") AS uses GROUP BY url");
}

fn push_page(query: &mut QueryBuilder<Sqlite>, page: PageRequest) {
    query.push(" LIMIT ").push_bind(i64::from(page.per_page()));
    query.push(" OFFSET ").push_bind(signed(page.offset()));
}

/// The id of a repository. It is derived only from the repository's URL.
fn repo_id(url: &str) -> String {
    let digest = sha256(url.as_bytes());
    format!("repo-{}", digest.get(..REPO_ID_DIGITS).unwrap_or_default())
}

fn workspace_summary(session: &Session, executor: String) -> WorkspaceSummary {
    let state =
        if session.status.is_terminal() { WorkspaceState::Kept } else { WorkspaceState::Active };
    WorkspaceSummary {
        id: session.workspace.made_by.unwrap_or(session.id),
        status: state,
        session_id: session.id,
        executor,
        snapshot_provider: session.workspace.snapshot_provider,
        mount_path: session.workspace.mount_path.clone(),
        repo_url: session.repo.url.clone(),
        project_id: session.project_id.clone(),
        created_at: session.created_at,
    }
}
