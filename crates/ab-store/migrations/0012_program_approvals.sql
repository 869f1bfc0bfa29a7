-- The program that asked, where an approval is of no session or space.
ALTER TABLE approvals ADD COLUMN requester TEXT;
CREATE INDEX approvals_requester ON approvals (requester, digest);
