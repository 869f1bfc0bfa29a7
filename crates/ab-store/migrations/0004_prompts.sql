-- The receipt of each prompt, and its place in the queue: the smallest rank is sent first.
ALTER TABLE prompts ADD COLUMN status TEXT NOT NULL DEFAULT 'answered';
ALTER TABLE prompts ADD COLUMN queue_rank BIGINT NOT NULL DEFAULT 0;
ALTER TABLE prompts ADD COLUMN created BIGINT NOT NULL DEFAULT 0;
ALTER TABLE prompts ADD COLUMN sent BIGINT;
ALTER TABLE prompts ADD COLUMN ended BIGINT;
UPDATE prompts SET queue_rank = number;
UPDATE prompts SET created = (SELECT created FROM sessions WHERE sessions.id = prompts.session);
-- Sessions that have not started have not sent their prompts.
UPDATE prompts SET status = 'queued' WHERE session IN (SELECT id FROM sessions WHERE status IN ('queued', 'provisioning'));
CREATE INDEX prompts_status ON prompts (session, status, queue_rank);
