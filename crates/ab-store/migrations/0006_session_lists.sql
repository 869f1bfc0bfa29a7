-- An index for each filter of the list of sessions.
CREATE INDEX sessions_tenant ON sessions (tenant, id);
CREATE INDEX sessions_agent ON sessions (agent, id);
CREATE INDEX sessions_repo ON sessions (repo, id);
CREATE INDEX sessions_live ON sessions (live, id);
DROP INDEX session_labels_name;
CREATE INDEX session_labels_name ON session_labels (name, value, session);
