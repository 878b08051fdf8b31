-- sessions: `kind` says what a session is for: 'ordinary' (a user's own) or 'ephemeral' (serves one answer of /v1);
-- later 'delegate' and 'scheduled'. Kinds that a program does not know are stored and not listed. `deleted_at` is
-- when the session will be purged; until then a deletion can be undone. `parent_turn` is the id of the turn that
-- started the session. `machine` is the only machine that may run its turns; NULL: any that has its folder.
ALTER TABLE sessions ADD COLUMN kind TEXT NOT NULL DEFAULT 'ordinary';
ALTER TABLE sessions ADD COLUMN deleted_at INTEGER;
ALTER TABLE sessions ADD COLUMN parent_turn TEXT;
ALTER TABLE sessions ADD COLUMN machine TEXT;
CREATE INDEX sessions_deleted ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;

-- tails: `is_listed` is derived: the session is ordinary and not deleted. Lists read only such rows, so what they
-- leave out costs them nothing.
ALTER TABLE tails ADD COLUMN is_listed INTEGER NOT NULL DEFAULT 1;
DROP INDEX tails_by_activity;
CREATE INDEX tails_by_activity ON tails (owner, archived, updated_at, session_no) WHERE is_listed = 1;

-- Until now a key said that a session is ephemeral, and a record that it is being deleted; a deleted session was
-- archived as well, and its record kept whether it had been archived before.
UPDATE sessions SET kind = 'ephemeral' WHERE substr(key, 1, 10) = 'ephemeral:';
UPDATE sessions SET deleted_at = json_extract(r.value, '$.due_at'), archived = json_extract(r.value, '$.was_archived')
  FROM records r WHERE r.owner = 'system' AND r.kind = 'deletion' AND r.name = sessions.id;
DELETE FROM records WHERE owner = 'system' AND kind = 'deletion';
UPDATE tails SET is_listed = 0, archived = (SELECT s.archived FROM sessions s WHERE s.session_no = tails.session_no)
  WHERE session_no IN (SELECT session_no FROM sessions WHERE kind <> 'ordinary' OR deleted_at IS NOT NULL);

-- schema_min: the oldest schema that a program must know to write here. Older programs would list deleted sessions
-- and never purge them.
INSERT INTO meta VALUES ('schema_min', '5');
UPDATE meta SET value = '5' WHERE name = 'schema';
