-- Tokens of agents that work in a space. Only digests: a copy of the database opens nothing.
CREATE TABLE space_tokens (
    id TEXT PRIMARY KEY,
    space TEXT NOT NULL REFERENCES spaces (id),
    digest TEXT NOT NULL UNIQUE,
    created BIGINT NOT NULL
);
CREATE INDEX space_tokens_space ON space_tokens (space, id);
