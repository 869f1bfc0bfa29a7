-- SQL that SQLite and PostgreSQL both run. Times are milliseconds since the Unix epoch; bodies are JSON.

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    tenant TEXT,
    project TEXT,
    status TEXT NOT NULL,
    live SMALLINT NOT NULL,
    agent TEXT NOT NULL,
    repo TEXT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    body TEXT NOT NULL,
    progress TEXT NOT NULL
);
CREATE INDEX sessions_status ON sessions (status, id);
CREATE INDEX sessions_project ON sessions (project, id);

CREATE TABLE session_labels (
    session TEXT NOT NULL REFERENCES sessions (id),
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session, name)
);
CREATE INDEX session_labels_name ON session_labels (name, value);

CREATE TABLE prompts (
    session TEXT NOT NULL REFERENCES sessions (id),
    number BIGINT NOT NULL,
    prompt TEXT NOT NULL,
    PRIMARY KEY (session, number)
);

-- One log. `position` counts in the whole log, `seq` in one stream; both start at 1 and have no gap.
CREATE TABLE events (
    position BIGINT PRIMARY KEY,
    stream TEXT NOT NULL,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (stream, seq)
);

CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    status TEXT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT,
    body TEXT NOT NULL
);
CREATE INDEX approvals_status ON approvals (status, id);
CREATE INDEX approvals_session ON approvals (session, status);

CREATE TABLE idempotency_keys (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    answer TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_keys_created ON idempotency_keys (created);

-- What must be undone, written before it is made.
CREATE TABLE cleanups (
    token TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    executor TEXT NOT NULL,
    created BIGINT NOT NULL
);
CREATE INDEX cleanups_session ON cleanups (session);

-- Only digests: a copy of the database opens nothing.
CREATE TABLE session_tokens (
    digest TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    created BIGINT NOT NULL
);
CREATE INDEX session_tokens_session ON session_tokens (session);

-- Texts that belong to a session and are too large for its body, such as its final diff.
CREATE TABLE artifacts (
    session TEXT NOT NULL REFERENCES sessions (id),
    name TEXT NOT NULL,
    created BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session, name)
);
