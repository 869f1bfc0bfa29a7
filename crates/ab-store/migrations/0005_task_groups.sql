-- The first session of the task that made a session.
ALTER TABLE sessions ADD COLUMN task TEXT;
UPDATE sessions SET task = id;
CREATE INDEX sessions_task ON sessions (task, id);
