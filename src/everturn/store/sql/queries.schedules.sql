-- Queries of schedules and their occurrences.

-- macro: schedule_columns
c.schedule_no, c.id, c.owner, c.version, c.settings, c.session_id, c.due_at, c.look_at, c.paused_at, c.pause_reason,
c.created_at

-- macro: occurrence_columns
o.id, o.due_at, o.fate, o.reason, o.is_manual, o.created_at, t.id AS turn_id, s.id AS session_id, t.state AS turn_state,
t.ended_at, t.failure, t.started_at, t.usage

-- name: schedule_insert
INSERT INTO schedules (id, owner, version, settings, session_id, due_at, look_at, settled_at, pause_reason, created_at)
VALUES ($1, $2, 1, $3, $4, $5, $5, $6, '', $6)

-- name: schedules_count
SELECT count(*) FROM schedules WHERE owner = $1

-- name: schedule_get
SELECT {schedule_columns} FROM schedules c WHERE c.id = $1

-- name: schedule_of_turn
SELECT {schedule_columns} FROM turns t JOIN occurrences o ON o.turn_no = t.turn_no
JOIN schedules c ON c.schedule_no = o.schedule_no WHERE t.id = $1 AND c.owner = $2

-- name: schedules_list
SELECT {schedule_columns} FROM schedules c WHERE c.owner = $1 AND c.id > $2 ORDER BY c.id LIMIT $3

-- name: schedules_due
SELECT {schedule_columns} FROM schedules c WHERE c.look_at <= $1 ORDER BY c.look_at LIMIT $2

-- name: schedules_next_look
SELECT min(look_at) FROM schedules WHERE look_at IS NOT NULL

-- name: schedules_from_the_future
SELECT {schedule_columns} FROM schedules c WHERE c.look_at IS NOT NULL AND c.settled_at > $1 LIMIT $2

-- name: schedule_change
UPDATE schedules SET version = version + 1, settings = $2, session_id = $3, due_at = $4, look_at = $5, settled_at = $6,
  paused_at = $7, pause_reason = $8 WHERE schedule_no = $1

-- name: schedule_wait
UPDATE schedules SET look_at = $2 WHERE schedule_no = $1

-- name: schedule_delete
DELETE FROM schedules WHERE schedule_no = $1

-- name: occurrence_insert
INSERT INTO occurrences (id, schedule_no, due_at, fate, reason, is_manual, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (schedule_no, due_at) DO NOTHING RETURNING occurrence_no

-- name: occurrence_turn
UPDATE occurrences SET turn_no = $2 WHERE occurrence_no = $1

-- name: occurrence_get
SELECT {occurrence_columns} FROM occurrences o LEFT JOIN turns t ON t.turn_no = o.turn_no
LEFT JOIN sessions s ON s.session_no = t.session_no WHERE o.occurrence_no = $1

-- name: occurrences_list
SELECT {occurrence_columns} FROM occurrences o LEFT JOIN turns t ON t.turn_no = o.turn_no
LEFT JOIN sessions s ON s.session_no = t.session_no
WHERE o.schedule_no = $1 AND o.due_at < $2 ORDER BY o.due_at DESC LIMIT $3

-- name: occurrences_active
-- Runs that have not ended.
SELECT t.id, t.state FROM occurrences o JOIN turns t ON t.turn_no = o.turn_no
WHERE o.schedule_no = $1 AND t.ended_at IS NULL ORDER BY o.due_at

-- name: occurrences_to_come
DELETE FROM occurrences WHERE schedule_no = $1 AND due_at > $2 AND fate IN ('skipped','missed')

-- name: occurrences_prune
-- All but the newest; a run that has not ended is still needed.
DELETE FROM occurrences WHERE schedule_no = $1
AND due_at < (SELECT k.due_at FROM occurrences k WHERE k.schedule_no = $1 ORDER BY k.due_at DESC LIMIT 1 OFFSET $2)
AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.turn_no = occurrences.turn_no AND t.ended_at IS NULL)

-- name: schedules_troubled
-- Those whose latest run failed, and those that were paused for a reason. The latest time that ran: a time that was
-- skipped since does not make it good.
SELECT {schedule_columns}, o.id AS run_id, t.id AS run_turn, s.id AS run_session, t.ended_at AS run_ended_at,
t.failure AS run_failure
FROM schedules c LEFT JOIN occurrences o ON o.occurrence_no = (SELECT k.occurrence_no FROM occurrences k
  WHERE k.schedule_no = c.schedule_no AND k.turn_no IS NOT NULL ORDER BY k.due_at DESC LIMIT 1)
LEFT JOIN turns t ON t.turn_no = o.turn_no AND t.state = 'failed'
LEFT JOIN sessions s ON s.session_no = t.session_no AND s.deleted_at IS NULL
WHERE c.owner = $1 AND (s.id IS NOT NULL OR (c.paused_at IS NOT NULL AND c.pause_reason <> ''))
ORDER BY c.id DESC LIMIT $2
