-- Where SQLite says it its own way.

-- macro: lock

-- macro: skip_locked

-- name: search_newest
SELECT m.message_no, m.ordinal, m.role, m.created_at, m.text, t.id, s.id, s.title
FROM message_index i JOIN messages m ON m.message_no = i.rowid
JOIN turns t ON t.turn_no = m.turn_no JOIN sessions s ON s.session_no = t.session_no
WHERE message_index MATCH $1 AND m.owner = $2 AND ($4 = '' OR s.id = $4)
  AND ($5 = '' OR s.private = 0 OR s.id = $5) ORDER BY i.rowid DESC LIMIT $3

-- name: search_best
SELECT m.message_no, m.ordinal, m.role, m.created_at, m.text, t.id, s.id, s.title
FROM (SELECT i.rowid AS no, i.rank AS rank FROM message_index i JOIN messages w ON w.message_no = i.rowid
  WHERE message_index MATCH $1 AND w.owner = $2
    AND ($4 = '' OR w.session_no = (SELECT session_no FROM sessions WHERE id = $4))
    AND ($5 = '' OR EXISTS (SELECT 1 FROM sessions p WHERE p.session_no = w.session_no AND (p.private = 0 OR p.id = $5)))
  ORDER BY i.rank LIMIT $3) f
JOIN messages m ON m.message_no = f.no
JOIN turns t ON t.turn_no = m.turn_no JOIN sessions s ON s.session_no = t.session_no ORDER BY f.rank

-- name: index_add
INSERT INTO message_index (rowid, text) VALUES ($1, $2)

-- name: index_remove
INSERT INTO message_index (message_index, rowid, text) VALUES ('delete', $1, $2)

-- name: index_check
INSERT INTO message_index (message_index, rank) VALUES ('integrity-check', 1)

-- name: index_drop
DROP TABLE IF EXISTS message_index

-- name: index_create
CREATE VIRTUAL TABLE message_index USING fts5(
  text, content='messages', content_rowid='message_no', tokenize='unicode61 remove_diacritics 2')

-- name: index_secure
INSERT INTO message_index(message_index, rank) VALUES ('secure-delete', 1)

-- macro: like
instr(lower(%1), lower(%2)) > 0

-- name: append_facts
SELECT t.turn_no, t.session_no, s.id, t.owner FROM turns t JOIN sessions s ON s.session_no = t.session_no
WHERE t.id = $1

-- name: append_look
-- All turns of a run at once, as a JSON list of their numbers: a statement for each costs more than its rows.
SELECT t.turn_no, {held_state}, t.epoch, coalesce(w.number, -1), l.position FROM json_each($1) j
CROSS JOIN turns t ON t.turn_no = j.value CROSS JOIN tails l ON l.session_no = t.session_no
LEFT JOIN writers w ON w.turn_no = t.turn_no AND w.epoch = t.epoch

-- name: append_tail
UPDATE tails SET position = $2, updated_at = {now_or_own} WHERE session_no = $1

-- name: turns_release
-- All turns of a worker become claimable at once; each stopped when its last event came.
UPDATE turns SET is_ready = 1, ready_reason = $2, worker = NULL, stopped_at = coalesce(
  (SELECT e.at FROM events e WHERE e.session_no = turns.session_no AND e.position >= turns.first_position
   AND e.turn_no = turns.turn_no ORDER BY e.position DESC LIMIT 1), $3)
WHERE worker = $1
RETURNING id
