-- Approvals may belong to a session, or to a space and perhaps one of its runs.
CREATE TABLE approvals_of_all (
    id TEXT PRIMARY KEY,
    session TEXT REFERENCES sessions (id),
    space TEXT,
    run TEXT,
    status TEXT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT,
    -- What was asked. A yes counts for this digest, once.
    digest TEXT,
    used BIGINT,
    body TEXT NOT NULL
);
INSERT INTO approvals_of_all (id, session, status, created, expires, body)
    SELECT id, session, status, created, expires, body FROM approvals;
DROP TABLE approvals;
ALTER TABLE approvals_of_all RENAME TO approvals;
CREATE INDEX approvals_status ON approvals (status, id);
CREATE INDEX approvals_session ON approvals (session, status);
CREATE INDEX approvals_space ON approvals (space, status);
CREATE INDEX approvals_digest ON approvals (digest, status);

CREATE TABLE spaces (
    id TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT,
    body TEXT NOT NULL
);
CREATE INDEX spaces_status ON spaces (status, id);

CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    space TEXT NOT NULL REFERENCES spaces (id),
    status TEXT NOT NULL,
    live SMALLINT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX runs_space ON runs (space, id);
CREATE INDEX runs_live ON runs (live, id);

-- One row for each operation of a run. `started` is written before the operation is performed, `event` after it.
CREATE TABLE operations (
    run TEXT NOT NULL REFERENCES runs (id),
    number BIGINT NOT NULL,
    body TEXT NOT NULL,
    started BIGINT,
    event TEXT,
    PRIMARY KEY (run, number)
);
