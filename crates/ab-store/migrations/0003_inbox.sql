-- `revision` counts the changes of all approvals; each approval has that of its last change.
ALTER TABLE approvals ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
-- When the agent of a restarted session was told the decision.
ALTER TABLE approvals ADD COLUMN told BIGINT;
UPDATE approvals SET revision = (SELECT COUNT(*) FROM approvals AS older WHERE older.id <= approvals.id);
-- Agents of earlier servers have the answers that were given to them.
UPDATE approvals SET used = created WHERE status <> 'pending' AND session IS NOT NULL;
CREATE INDEX approvals_revision ON approvals (revision);
CREATE INDEX approvals_expires ON approvals (status, expires);
