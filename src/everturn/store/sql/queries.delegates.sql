-- Queries of delegates.

-- macro: delegate_columns
d.delegate_no, d.session_id, d.turn_id, d.turn_no, p.owner, p.id AS parent_session, d.parent_no, d.parent_turn, d.call_id, d.ordinal,
d.root_no, d.root_id, d.root_turn_no, d.name, d.depth, d.tools, d.base, d.is_waited, d.is_tainted, d.ask_id, d.created_at,
d.stop_asked_at, d.ended_at, d.result, d.given_at, d.applied_at, d.refused_at, p.deleted_at AS parent_deleted_at,
t.state, t.started_at, t.ended_at AS turn_ended_at, t.model, t.profile, t.usage, s.preview,
(SELECT count(*) FROM asks w WHERE w.turn_no = d.turn_no AND w.answer IS NULL AND w.topic <> 'delegate') AS asks

-- macro: delegate_tables
FROM delegates d JOIN sessions p ON p.session_no = d.parent_no
LEFT JOIN sessions s ON s.session_no = d.session_no LEFT JOIN turns t ON t.turn_no = d.turn_no

-- name: session_delegate
UPDATE sessions SET kind = 'delegate', parent_turn = $2 WHERE session_no = $1

-- name: delegate_insert
INSERT INTO delegates (session_id, session_no, turn_id, turn_no, parent_no, parent_turn, call_id, ordinal, root_no, root_id,
  root_turn_no, name, depth, tools, base, is_waited, is_tainted, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)

-- name: delegate_get
SELECT {delegate_columns} {delegate_tables} WHERE d.session_id = $1

-- name: delegate_of_turn
SELECT {delegate_columns} {delegate_tables} WHERE d.turn_no = $1

-- name: delegates_of_turn
SELECT {delegate_columns} {delegate_tables} WHERE d.parent_turn = $1 ORDER BY d.delegate_no

-- name: delegates_of_call
SELECT {delegate_columns} {delegate_tables} WHERE d.parent_turn = $1 AND d.call_id = $2 ORDER BY d.ordinal

-- name: delegates_of_session
SELECT {delegate_columns} {delegate_tables} WHERE d.parent_no = $1 ORDER BY d.delegate_no

-- name: delegate_rights
SELECT depth, tools, root_no, root_id, root_turn_no FROM delegates WHERE session_id = $1

-- name: delegates_at_work
SELECT count(*) FROM delegates WHERE root_no = $1 AND ended_at IS NULL

-- name: delegate_await
-- The parent waits for it, perhaps again: what it was given before was for a wait that was broken off.
UPDATE delegates SET ask_id = $2, given_at = NULL WHERE session_id = $1

-- name: delegate_end
-- The first end counts.
UPDATE delegates SET ended_at = $2, result = $3 WHERE turn_no = $1 AND ended_at IS NULL

-- name: delegate_given
UPDATE delegates SET given_at = $2 WHERE session_id = $1

-- name: delegate_stop
UPDATE delegates SET stop_asked_at = $2 WHERE session_id = $1 AND stop_asked_at IS NULL AND ended_at IS NULL

-- name: delegates_stop
UPDATE delegates SET stop_asked_at = $2 WHERE parent_turn = $1 AND stop_asked_at IS NULL AND ended_at IS NULL

-- name: delegate_files
UPDATE delegates SET applied_at = CASE WHEN $2 = 1 THEN CAST($3 AS BIGINT) ELSE applied_at END,
  refused_at = CASE WHEN $2 = 1 THEN NULL ELSE CAST($3 AS BIGINT) END WHERE session_id = $1

-- name: delegates_to_stop
SELECT p.owner, d.session_id, d.turn_id FROM delegates d JOIN sessions p ON p.session_no = d.parent_no
WHERE d.stop_asked_at IS NOT NULL AND d.ended_at IS NULL ORDER BY d.delegate_no LIMIT $1

-- name: delegates_to_give
-- Not those whose parent runs and has not begun to wait, nor what would wake a session that may still be restored.
SELECT d.session_id FROM delegates d JOIN sessions p ON p.session_no = d.parent_no LEFT JOIN turns r ON r.id = d.parent_turn
WHERE d.ended_at IS NOT NULL AND d.given_at IS NULL
  AND CASE d.is_waited WHEN 0 THEN p.deleted_at IS NULL OR p.kind = 'ephemeral'
    ELSE d.ask_id IS NOT NULL OR r.ended_at IS NOT NULL END
ORDER BY d.delegate_no LIMIT $1

-- name: delegates_orphaned
SELECT s.owner, s.id AS session_id, '' AS turn_id FROM sessions s
WHERE s.kind = 'delegate' AND NOT EXISTS (SELECT 1 FROM delegates d WHERE d.session_no = s.session_no)
ORDER BY s.session_no LIMIT $1

-- name: run_began
-- When the turn at the top of a delegate's tree was asked for.
SELECT t.created_at FROM delegates d JOIN turns t ON t.turn_no = d.root_turn_no WHERE d.session_no = $1
