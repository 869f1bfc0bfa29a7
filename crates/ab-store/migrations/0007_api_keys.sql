-- Only digests: a copy of the database opens nothing.
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    digest TEXT NOT NULL UNIQUE,
    created BIGINT NOT NULL,
    revoked BIGINT
);
-- The name of a revoked key can be used again.
CREATE UNIQUE INDEX api_keys_name ON api_keys (name) WHERE revoked IS NULL;
