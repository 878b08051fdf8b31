-- Queries and macros that SQLite writes differently.

-- macro: lock

-- macro: skip_locked

-- macro: newest_in
-- From $6 on and before $7 (0: no end), of the role $8, in sessions with the tag $9, where that is asked.
SELECT m.message_no, m.ordinal, m.role, m.created_at, m.text, t.id AS turn_id, s.id AS session_id, s.title
FROM %1 i JOIN messages m ON m.message_no = i.rowid
JOIN turns t ON t.turn_no = m.turn_no JOIN sessions s ON s.session_no = t.session_no
WHERE %1 MATCH $1 AND m.owner = $2 AND ($4 = '' OR s.id = $4)
  AND ($5 = '' OR s.private = 0 OR s.id = $5) AND s.kind = 'ordinary' AND s.deleted_at IS NULL
  AND m.created_at >= $6 AND ($7 = 0 OR m.created_at < $7) AND ($8 = '' OR m.role = $8)
  AND ($9 = '' OR instr(lower(s.tags), lower($9)) > 0)
ORDER BY i.rowid DESC LIMIT $3

-- macro: best_in
SELECT m.message_no, m.ordinal, m.role, m.created_at, m.text, t.id AS turn_id, s.id AS session_id, s.title
FROM (SELECT * FROM (
  SELECT i.rowid AS no, i.rank AS rank FROM %1 i JOIN messages w ON w.message_no = i.rowid
  WHERE %1 MATCH $1 AND w.owner = $2
    AND ($4 = '' OR w.session_no = (SELECT session_no FROM sessions WHERE id = $4))
    AND ($5 = '' OR EXISTS (SELECT 1 FROM sessions p WHERE p.session_no = w.session_no AND (p.private = 0 OR p.id = $5)))
    AND (SELECT l.is_listed FROM tails l WHERE l.session_no = w.session_no) = 1
    AND w.created_at >= $6 AND ($7 = 0 OR w.created_at < $7) AND ($8 = '' OR w.role = $8)
    AND ($9 = '' OR (SELECT instr(lower(g.tags), lower($9)) FROM sessions g WHERE g.session_no = w.session_no) > 0)
  ORDER BY i.rowid DESC LIMIT 2000) ORDER BY rank LIMIT $3) f
JOIN messages m ON m.message_no = f.no
JOIN turns t ON t.turn_no = m.turn_no JOIN sessions s ON s.session_no = t.session_no ORDER BY f.rank

-- name: search_newest
{newest_in:message_index}

-- name: search_recent_newest
{newest_in:recent_index}

-- The best of the newest 2,000 matches: ranking each match of a common word would take longer the more there are.
-- name: search_best
{best_in:message_index}

-- name: search_recent_best
{best_in:recent_index}

-- name: search_recent_count
SELECT count(*) FROM (SELECT 1 FROM recent_index WHERE recent_index MATCH $1 LIMIT $2)

-- name: newest_number
SELECT coalesce(max(message_no), 0) FROM messages

-- name: recent_leaving
SELECT message_no, text FROM messages WHERE message_no > $1 AND message_no <= $2

-- name: index_recent_add
INSERT INTO recent_index (rowid, text) VALUES ($1, $2)

-- name: index_recent_remove
INSERT INTO recent_index (recent_index, rowid, text) VALUES ('delete', $1, $2)

-- name: index_recent_check
INSERT INTO recent_index (recent_index) VALUES ('integrity-check')

-- name: index_recent_drop
DROP TABLE IF EXISTS recent_index

-- name: index_recent_create
CREATE VIRTUAL TABLE recent_index USING fts5(
  text, content='messages', content_rowid='message_no', tokenize='unicode61 remove_diacritics 2', prefix='2 3')

-- name: index_recent_secure
INSERT INTO recent_index(recent_index, rank) VALUES ('secure-delete', 1)

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

-- macro: other_kind
-- Whether the kind of an event, which is the first field of its JSON, is not in this list.
CAST(substr(e.data, 10, instr(substr(e.data, 10, 100), x'22') - 1) AS TEXT) NOT IN (SELECT value FROM json_each(%1))

-- macro: like
instr(lower(%1), lower(%2)) > 0

-- macro: holds
instr(%1, %2) > 0

-- macro: narrowed
-- Whether a session is pinned ($6), has a tag ($7) and works in a folder ($10), where that is asked.
($6 < 0 OR (SELECT s.pinned FROM sessions s WHERE s.session_no = t.session_no) = $6)
  AND ($7 = '' OR (SELECT instr(lower(s.tags), lower($7)) > 0 FROM sessions s WHERE s.session_no = t.session_no))
  AND ($10 = '' OR (SELECT s.project FROM sessions s WHERE s.session_no = t.session_no) = $10)

-- name: session_list_indexed
-- All with $8 in their title or tags, found by its pieces ($9).
SELECT {session_columns} FROM (
  SELECT t.session_no FROM title_index x CROSS JOIN titles i ON i.session_no = x.rowid
  CROSS JOIN tails t ON t.session_no = i.session_no
  WHERE title_index MATCH $9 AND {holds:i.text:$8} AND t.owner = $1 AND ($2 < 0 OR t.archived = $2)
    AND t.is_listed = 1 AND (t.updated_at, t.session_no) < ($3, $4) AND {narrowed}
  ORDER BY t.updated_at DESC, t.session_no DESC LIMIT $5
) f JOIN tails t ON t.session_no = f.session_no JOIN sessions s ON s.session_no = t.session_no
ORDER BY t.updated_at DESC, t.session_no DESC

-- name: title_put
INSERT INTO titles (session_no, text) VALUES ($1, $2)

-- name: index_title_add
INSERT INTO title_index (rowid, text) VALUES ($1, $2)

-- name: index_title_remove
INSERT INTO title_index (title_index, rowid, text) VALUES ('delete', $1, $2)

-- name: index_titles_check
INSERT INTO title_index (title_index, rank) VALUES ('integrity-check', 1)

-- name: index_titles_drop
DROP TABLE IF EXISTS title_index

-- name: index_titles_create
CREATE VIRTUAL TABLE title_index USING fts5(
  text, content='titles', content_rowid='session_no', tokenize='trigram case_sensitive 1', detail=none, columnsize=0)

-- name: index_titles_secure
INSERT INTO title_index(title_index, rank) VALUES ('secure-delete', 1)

-- name: index_titles_rebuild
INSERT INTO title_index(title_index) VALUES ('rebuild')

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

-- ---------------------------------------------------------------- blobs

-- macro: in_list
IN (SELECT value FROM json_each(%1))
