-- Repositories that were imported, or asked for their branches. `imported` is null for the latter.
CREATE TABLE repos (
    url TEXT PRIMARY KEY,
    tenant TEXT,
    project TEXT,
    imported BIGINT,
    default_branch TEXT,
    refs TEXT,
    fetched BIGINT
);
CREATE INDEX repos_imported ON repos (imported);
DROP INDEX sessions_repo;
CREATE INDEX sessions_repo ON sessions (repo, id, tenant, project, created);
CREATE INDEX sessions_projects ON sessions (project, tenant, created);
