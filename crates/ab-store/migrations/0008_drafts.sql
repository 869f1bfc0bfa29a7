-- Tasks that are edited before they start. `owner` is the caller that they belong to.
CREATE TABLE drafts (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX drafts_owner ON drafts (owner, id);
