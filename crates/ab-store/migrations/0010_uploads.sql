-- What callers send before the task that uses it. The bytes are files of the data directory, by the id.
CREATE TABLE uploads (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    size BIGINT NOT NULL,
    digest TEXT,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    -- Everything has arrived and was checked.
    complete SMALLINT NOT NULL,
    -- A task has used it.
    used SMALLINT NOT NULL
);
CREATE INDEX uploads_owner ON uploads (owner, id);

-- Sessions whose workspace is still to be made from an upload. Its file is kept until then.
CREATE TABLE upload_uses (
    upload TEXT NOT NULL REFERENCES uploads (id),
    session TEXT NOT NULL,
    PRIMARY KEY (upload, session)
);
CREATE INDEX upload_uses_session ON upload_uses (session);

-- Keys that sign addresses. Each is made when it is first used.
CREATE TABLE signing_keys (
    name TEXT PRIMARY KEY,
    key TEXT NOT NULL
);
