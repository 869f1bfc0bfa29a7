-- The last number that was given, so that numbers are not given again after rows are removed.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
-- When the removal of a workspace began. No session can continue in it then.
ALTER TABLE cleanups ADD COLUMN removing BIGINT;
CREATE INDEX sessions_ended ON sessions (live, updated);
CREATE INDEX runs_ended ON runs (live, updated);
CREATE INDEX approvals_run ON approvals (run);

-- Who did what to a session. `number` counts from 1 in each session.
CREATE TABLE audit (
    session TEXT NOT NULL REFERENCES sessions (id),
    number BIGINT NOT NULL,
    source TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE INDEX audit_source ON audit (session, source);
