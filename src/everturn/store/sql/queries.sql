-- Every query of the store, by name. $1, $2 … are arguments; {words} are macros, defined here or, where
-- the databases differ, in queries.sqlite.sql and queries.postgresql.sql, which also replace queries.

-- macro: session_columns
s.session_no, s.id, s.owner, s.version, t.position, s.created_at, t.updated_at, s.title, s.is_title_given,
s.key, (SELECT id FROM turns WHERE turn_no = s.head_no) AS head,
(SELECT id FROM turns WHERE turn_no = s.redo_no) AS redo_to, s.pinned, s.archived, s.private, s.tags, s.project, s.machine,
s.profile, s.model,
(SELECT id FROM turns WHERE turn_no = s.active_no) AS active_turn, s.active_state, s.last_state, s.queued,
(s.asks + (SELECT count(*) FROM delegates d JOIN asks w ON w.turn_no = d.turn_no
  WHERE d.root_no = s.session_no AND d.ended_at IS NULL AND w.answer IS NULL AND w.topic <> 'delegate')) AS asks,
s.is_unread, s.messages, s.preview,
CASE WHEN s.title <> '' THEN '' ELSE coalesce((
  SELECT substr(m.text, 1, 400) FROM turns r JOIN messages m ON m.turn_no = r.turn_no AND m.ordinal = 0
  WHERE r.session_no = s.session_no AND r.parent_no IS NULL
  ORDER BY r.has_parent DESC, r.is_off_path, CASE WHEN r.has_parent = 1 THEN -r.turn_no ELSE r.turn_no END LIMIT 1
), '') END AS first_text, s.head_no, s.redo_no, s.redo_all, s.active_no, s.pruned_through,
s.transcript_version, s.kind, s.deleted_at,
(SELECT c.id || ':' || c.account || ':' || c.platform || ':' || c.kind || ':' || coalesce(nullif(c.title, ''), c.chat) FROM chats c
  WHERE c.session_id = s.id AND c.owner = s.owner ORDER BY c.chat_no LIMIT 1) AS chat,
s.parent_turn, CASE WHEN s.kind = 'delegate' THEN (SELECT p.id FROM delegates d JOIN sessions p ON p.session_no = d.parent_no
  WHERE d.session_id = s.id) END AS parent_session, s.parameters

-- macro: turn_columns
t.turn_no, t.id, s.id AS session_id, t.owner, t.state, t.epoch, t.created_at, t.kind,
(SELECT p.id FROM turns p WHERE p.turn_no = t.parent_no) AS parent_id, t.model, t.profile, t.started_at, t.ended_at,
t.attempts, t.is_ready, t.failure, t.recovery, t.recovered_at, t.usage, t.timeline, t.note,
t.session_no, t.parent_no, t.has_parent, t.first_position, t.ready_reason, t.stopped_at,
t.recovery_attempts, t.is_late, t.worker, t.is_pruned,
CASE WHEN t.first_position > s.pruned_through THEN t.first_position ELSE s.pruned_through + 1 END
  AS readable_from, t.parameters

-- macro: message_columns
m.message_no, m.turn_no, m.ordinal, m.role, m.flags, m.model, m.created_at, m.text, m.parts

-- macro: ask_columns
a.id, s.id AS session_id, t.id AS turn_id, a.topic, a.created_at, a.call_id, a.body, a.answer, a.answered_by,
a.answered_at, a.expires_at, s.title,
(SELECT d.root_id FROM delegates d WHERE d.session_id = s.id) AS root_session

-- macro: event_columns
e.position, e.turn_no, e.epoch, e.number, e.is_late, e.at, e.crc, e.data

-- name: schema_range
-- The schema, and the oldest one that a program must know to write.
SELECT s.value AS schema, m.value AS schema_min FROM meta s, meta m WHERE s.name = 'schema' AND m.name = 'schema_min'

-- name: schema_touch
-- A write that changes nothing, to test whether the database takes writes.
UPDATE meta SET value = value WHERE name = 'schema'

-- name: meta_get
SELECT value FROM meta WHERE name = $1

-- name: meta_put
INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: moves
SELECT old, new FROM moves ORDER BY old, new

-- ---------------------------------------------------------------- sessions

-- name: session_insert
INSERT INTO sessions (id, owner, key, version, created_at, title, is_title_given, pinned, archived, private,
  tags, project, profile, model, is_unread, machine)
VALUES ($1, $2, $3, 1, $4, $5, $6, 0, 0, $7, '[]', $8, $9, $10, 0, $11) RETURNING session_no

-- macro: now_or_newest
-- Now ($3), or just after the newest of the list: after the clock was set back, what is new still sorts first.
-- %1: whose list, %2: the archived one (1) or not. Usually nothing is ahead of the clock, and this is one look
-- at an index. More than two days ahead is a mistake, which must not be catching.
coalesce((SELECT max(n.updated_at) + 1 FROM tails n WHERE n.owner = %1 AND n.archived = %2 AND n.is_listed = 1
  AND n.updated_at > CAST($3 AS BIGINT)
  AND n.updated_at <= CAST($3 AS BIGINT) + 172800000 -- guard: a05
  ), CAST($3 AS BIGINT))

-- macro: now_or_own
-- For progress, which is written often: now ($3), or as it was if that is ahead of the clock.
CASE WHEN tails.updated_at > CAST($3 AS BIGINT)
  AND tails.updated_at <= CAST($3 AS BIGINT) + 172800000 -- guard: a05
  THEN tails.updated_at ELSE CAST($3 AS BIGINT) END

-- name: tail_insert
INSERT INTO tails (session_no, owner, archived, position, updated_at)
VALUES ($1, $2, 0, 0, {now_or_newest:$2:0})

-- name: session_parameters
UPDATE sessions SET parameters = $2 WHERE session_no = $1

-- name: session_row
SELECT {session_columns} FROM sessions s JOIN tails t ON t.session_no = s.session_no
WHERE s.id = $1 AND s.owner = $2

-- name: session_row_by_no
SELECT {session_columns} FROM sessions s JOIN tails t ON t.session_no = s.session_no WHERE s.session_no = $1

-- name: session_no_of_id
SELECT session_no FROM sessions WHERE id = $1

-- name: session_no_of_turn
SELECT t.session_no, s.id, s.owner FROM turns t JOIN sessions s ON s.session_no = t.session_no WHERE t.id = $1

-- name: tombstone
SELECT deleted_at FROM tombstones WHERE id = $1 AND owner = $2

-- name: session_list
SELECT {session_columns} FROM tails t JOIN sessions s ON s.session_no = t.session_no
WHERE t.owner = $1 AND t.archived = $2 AND t.is_listed = 1 AND (t.updated_at, t.session_no) < ($3, $4)
ORDER BY t.updated_at DESC, t.session_no DESC LIMIT $5

-- name: session_list_matching
SELECT {session_columns} FROM tails t JOIN sessions s ON s.session_no = t.session_no
WHERE t.owner = $1 AND ($2 < 0 OR t.archived = $2) AND t.is_listed = 1
  AND (t.updated_at, t.session_no) < ($3, $4)
  AND ($6 < 0 OR s.pinned = $6) AND ($7 = '' OR {like:s.tags:$7}) AND ($8 = '' OR s.project = $8)
ORDER BY t.updated_at DESC, t.session_no DESC LIMIT $5

-- name: session_list_titled
-- Those of the newest $9 with $8 in their title or tags; of both lists if $2 is negative, so many of each. Rows are
-- read whole only when it is known which are shown.
SELECT {session_columns} FROM (
  SELECT t.session_no FROM (
    SELECT * FROM (SELECT session_no, updated_at FROM tails WHERE $2 <> 1 AND owner = $1 AND archived = 0
      AND is_listed = 1 AND (updated_at, session_no) < ($3, $4) ORDER BY updated_at DESC, session_no DESC LIMIT $9) shown
    UNION ALL
    SELECT * FROM (SELECT session_no, updated_at FROM tails WHERE $2 <> 0 AND owner = $1 AND archived = 1
      AND is_listed = 1 AND (updated_at, session_no) < ($3, $4) ORDER BY updated_at DESC, session_no DESC LIMIT $9) archived
  ) t JOIN titles i ON i.session_no = t.session_no
  WHERE {holds:i.text:$8} AND {narrowed} ORDER BY t.updated_at DESC, t.session_no DESC LIMIT $5
) f JOIN tails t ON t.session_no = f.session_no JOIN sessions s ON s.session_no = t.session_no
ORDER BY t.updated_at DESC, t.session_no DESC

-- name: title_get
SELECT text FROM titles WHERE session_no = $1

-- name: title_delete
DELETE FROM titles WHERE session_no = $1

-- name: titles_all
SELECT s.session_no, s.id, s.title, s.tags, coalesce(i.text, '') AS text FROM sessions s
LEFT JOIN titles i ON i.session_no = s.session_no ORDER BY s.session_no

-- name: session_update
UPDATE sessions SET version = version + 1, title = $2, is_title_given = $3, pinned = $4, archived = $5,
  private = $6, tags = $7, project = $8, profile = $9, model = $10, is_unread = $11,
  machine = $12 WHERE session_no = $1

-- name: tail_archived
UPDATE tails SET archived = $2 WHERE session_no = $1

-- name: session_kind
UPDATE sessions SET kind = $2 WHERE session_no = $1

-- name: session_deleted
UPDATE sessions SET deleted_at = $2 WHERE session_no = $1

-- name: tail_listed
UPDATE tails SET is_listed = $2 WHERE session_no = $1

-- name: sessions_deleted
SELECT id, owner, deleted_at FROM sessions WHERE deleted_at IS NOT NULL ORDER BY deleted_at

-- name: session_seen
UPDATE sessions SET is_unread = $2 WHERE session_no = $1

-- name: session_title
UPDATE sessions SET version = version + 1, title = $2 WHERE session_no = $1

-- name: session_bump
UPDATE sessions SET version = version + 1,
  transcript_version = CASE WHEN $2 = 1 THEN version + 1 ELSE transcript_version END WHERE session_no = $1

-- name: session_head
UPDATE sessions SET head_no = $2, redo_no = $3, redo_all = $4 WHERE session_no = $1

-- name: session_refresh
UPDATE sessions SET
  active_no = (SELECT turn_no FROM turns WHERE session_no = $1 AND state IN ('running','waiting')),
  active_state = (SELECT state FROM turns WHERE session_no = $1 AND state IN ('running','waiting')),
  queued = (SELECT count(*) FROM turns WHERE session_no = $1 AND state = 'queued'),
  asks = (SELECT count(*) FROM asks a JOIN turns t ON t.turn_no = a.turn_no
          WHERE t.session_no = $1 AND t.state IN ('running','waiting') AND t.state = 'waiting'
            AND a.answer IS NULL AND a.topic <> 'delegate'),
  last_state = (SELECT state FROM turns WHERE turn_no = sessions.head_no AND ended_at IS NOT NULL)
WHERE session_no = $1

-- name: session_said
UPDATE sessions SET messages = messages + $2, preview = CASE WHEN $3 = '' THEN preview ELSE $3 END
WHERE session_no = $1

-- name: session_unread
UPDATE sessions SET is_unread = 1 WHERE session_no = $1

-- name: session_delete
DELETE FROM sessions WHERE session_no = $1

-- name: tombstone_insert
INSERT INTO tombstones (id, owner, deleted_at) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING

-- name: tail_move
UPDATE tails SET position = position + $2, updated_at = {now_or_newest:tails.owner:tails.archived}
WHERE session_no = $1 RETURNING position

-- name: tail_position
UPDATE tails SET position = position + $2 WHERE session_no = $1 RETURNING position

-- name: sessions_on_key
SELECT id FROM sessions WHERE owner = $1 AND key = $2 AND key <> '' AND deleted_at IS NULL
ORDER BY session_no

-- name: sessions_with_profile
SELECT count(*) FROM sessions WHERE profile = $1 AND deleted_at IS NULL AND kind <> 'ephemeral'

-- name: session_labels
SELECT s.tags, s.project, count(*) AS sessions FROM sessions s JOIN tails t ON t.session_no = s.session_no
WHERE s.owner = $1 AND (s.tags <> '[]' OR s.project IS NOT NULL) AND t.is_listed = 1 GROUP BY s.tags, s.project

-- name: sessions_after
-- Those made after a session, and whether they are empty: without a turn, a title, a key, or anything that somebody set
-- or that leads to them.
SELECT s.session_no, s.id, s.owner, s.created_at, CASE WHEN s.kind = 'ordinary' AND s.deleted_at IS NULL
  AND s.title = '' AND s.key = '' AND s.tags = '[]' AND s.pinned = 0 AND s.archived = 0 AND s.messages = 0
  AND NOT EXISTS (SELECT 1 FROM turns n WHERE n.session_no = s.session_no)
  AND NOT EXISTS (SELECT 1 FROM chats c WHERE c.session_id = s.id)
  AND NOT EXISTS (SELECT 1 FROM schedules r WHERE r.session_id = s.id)
  AND NOT EXISTS (SELECT 1 FROM checkpoints p WHERE p.session_no = s.session_no)
  THEN 1 ELSE 0 END AS is_empty
FROM sessions s WHERE s.session_no > $1 ORDER BY s.session_no LIMIT $2

-- name: session_counts
SELECT count(*) AS sessions, coalesce(sum(CASE WHEN archived = 1 THEN 1 ELSE 0 END), 0) AS archived FROM tails
WHERE owner = $1 AND is_listed = 1

-- name: waiting_sessions
SELECT {session_columns} FROM turns w JOIN sessions s ON s.session_no = w.session_no
JOIN tails t ON t.session_no = s.session_no
WHERE w.owner = $1 AND w.state = 'waiting' AND t.is_listed = 1 ORDER BY w.turn_no

-- ---------------------------------------------------------------- requests

-- name: request_get
SELECT digest, answer FROM requests WHERE session_no = $1 AND key = $2

-- name: request_put
INSERT INTO requests (session_no, key, owner, digest, answer, created_at) VALUES ($1, $2, $3, $4, $5, $6)

-- name: creation_get
SELECT c.digest, s.id AS session_id FROM creations c JOIN sessions s ON s.session_no = c.session_no
WHERE c.owner = $1 AND c.key = $2 AND s.deleted_at IS NULL

-- name: creation_put
INSERT INTO creations (owner, key, digest, session_no) VALUES ($1, $2, $3, $4)

-- name: creation_free
-- The key of a deleted session can be used again.
DELETE FROM creations WHERE owner = $1 AND key = $2
  AND session_no IN (SELECT session_no FROM sessions WHERE deleted_at IS NOT NULL)

-- ---------------------------------------------------------------- turns

-- name: turn_insert
INSERT INTO turns (id, owner, session_no, parent_no, has_parent, place, kind, state, epoch, is_ready, model,
  profile, note, created_at, first_position)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'queued', 0, 0, $8, $9, $10, $11, $12) RETURNING turn_no

-- name: turn_parameters
UPDATE turns SET parameters = $2 WHERE turn_no = $1

-- name: turn_row
SELECT {turn_columns} FROM turns t JOIN sessions s ON s.session_no = t.session_no WHERE t.id = $1

-- name: turn_row_by_no
SELECT {turn_columns} FROM turns t JOIN sessions s ON s.session_no = t.session_no WHERE t.turn_no = $1

-- name: turn_text
SELECT text FROM messages WHERE turn_no = $1 AND ordinal = 0

-- name: turn_siblings
SELECT turn_no, id FROM turns WHERE session_no = $1 AND parent_no = $2 AND has_parent = 1 ORDER BY turn_no

-- name: root_siblings
-- Separate from turn_siblings: an OR of the two would read every turn of the session.
SELECT turn_no, id FROM turns WHERE session_no = $1 AND parent_no IS NULL AND has_parent = 1 ORDER BY turn_no

-- name: queue_places
SELECT coalesce(min(place), 0) AS lowest, coalesce(max(place), 0) AS highest, count(*) AS count FROM turns
WHERE session_no = $1 AND state = 'queued'

-- name: queue_rows
SELECT {turn_columns} FROM turns t JOIN sessions s ON s.session_no = t.session_no
WHERE t.session_no = $1 AND t.state = 'queued' ORDER BY t.place, t.turn_no

-- name: turn_place
UPDATE turns SET place = $2 WHERE turn_no = $1 AND state = 'queued'

-- name: claimable
-- $2: a pattern of the machines whose sessions may be claimed. Sessions without a machine always may.
SELECT c.turn_no, c.session_no, c.owner FROM (
SELECT t.turn_no, t.session_no, t.owner FROM turns t
WHERE t.is_ready = 1 AND NOT (t.state = 'interrupted' AND EXISTS
    (SELECT 1 FROM turns o WHERE o.session_no = t.session_no AND o.state IN ('running','waiting')))
UNION ALL
SELECT q.turn_no, q.session_no, q.owner FROM (
  SELECT t.turn_no, t.session_no, t.owner, row_number() OVER (PARTITION BY t.session_no ORDER BY t.place, t.turn_no) AS nth
  FROM turns t WHERE t.state = 'queued') q
WHERE q.nth = 1
  AND NOT EXISTS (SELECT 1 FROM turns o WHERE o.session_no = q.session_no AND o.state IN ('running','waiting'))
  AND NOT EXISTS (SELECT 1 FROM turns o WHERE o.session_no = q.session_no AND o.is_ready = 1)
) c JOIN sessions s ON s.session_no = c.session_no
WHERE s.machine IS NULL OR s.machine LIKE $2
ORDER BY 1 LIMIT $1

-- name: claimable_in_session
-- Two index lookups: a single condition with OR would scan every turn of the session.
SELECT c.turn_no FROM (
  SELECT turn_no, place, 0 AS rank FROM turns WHERE session_no = $1 AND is_ready = 1
  UNION ALL
  SELECT turn_no, place, 1 FROM turns WHERE session_no = $1 AND state = 'queued'
    AND NOT EXISTS (SELECT 1 FROM turns o WHERE o.session_no = $1 AND o.state IN ('running','waiting'))
) c WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.session_no = $1 AND (s.machine IS NULL OR s.machine LIKE $2))
ORDER BY c.rank, c.place, c.turn_no LIMIT 1

-- name: turn_claim
UPDATE turns SET state = 'running', epoch = epoch + 1, worker = $2, is_ready = 0, ready_reason = '',
  started_at = coalesce(started_at, $3), ended_at = NULL, parent_no = $4, has_parent = 1,
  attempts = attempts + $5, recovery = 'none', failure = NULL, place = 0, is_late = 0
WHERE turn_no = $1 RETURNING epoch

-- name: turn_wait
UPDATE turns SET state = 'waiting', worker = NULL WHERE turn_no = $1

-- name: turn_ready
UPDATE turns SET is_ready = 1, ready_reason = $2, worker = NULL, stopped_at = $3 WHERE turn_no = $1

-- name: turns_unready
-- Undo a resumption that no worker has claimed yet.
UPDATE turns SET is_ready = 0, ready_reason = '' WHERE session_no = $1 AND is_ready = 1 AND state = 'interrupted'

-- name: turn_end
UPDATE turns SET state = $2, worker = NULL, is_ready = 0, ready_reason = '', ended_at = $3, failure = $4,
  usage = $5, timeline = $6, recovery = $7, is_late = 0 WHERE turn_no = $1

-- name: turn_end_queued
UPDATE turns SET state = $2, ended_at = $3, failure = $4, parent_no = $5, has_parent = $6 WHERE turn_no = $1

-- name: turn_recovery
UPDATE turns SET recovery = $2, recovery_attempts = $3, recovered_at = $4, is_late = 0 WHERE turn_no = $1

-- name: turn_outcome
UPDATE turns SET usage = $2, timeline = $3 WHERE turn_no = $1

-- name: turn_late
UPDATE turns SET is_late = 1 WHERE turn_no = $1

-- name: turns_pending
SELECT {turn_columns} FROM turns t JOIN sessions s ON s.session_no = t.session_no
WHERE t.session_no = $1 AND (t.recovery = 'pending' OR t.is_late = 1) AND t.ended_at IS NOT NULL

-- name: turns_of_worker
SELECT t.id, s.id AS session_id, s.owner, t.epoch FROM turns t JOIN sessions s ON s.session_no = t.session_no
WHERE t.worker = $1

-- name: turn_states
-- All but the completed ones, each by a narrow index, whose condition is repeated so that it is used.
SELECT state, count(*) AS count FROM turns WHERE state = 'queued' GROUP BY state
UNION ALL SELECT state, count(*) FROM turns WHERE state IN ('running','waiting') GROUP BY state
UNION ALL SELECT state, count(*) FROM turns WHERE state IN ('cancelled','failed','interrupted') GROUP BY state

-- name: turn_path_flag
UPDATE turns SET is_off_path = $2 WHERE turn_no = $1

-- name: turn_parent
SELECT parent_no, is_off_path FROM turns WHERE turn_no = $1

-- name: turn_newest_child
SELECT turn_no FROM turns WHERE session_no = $1 AND parent_no = $2 AND has_parent = 1
  AND state <> 'queued' ORDER BY turn_no DESC LIMIT 1

-- name: writer_insert
INSERT INTO writers (turn_no, epoch, worker, number, is_sealed) VALUES ($1, $2, $3, $4, 0)

-- name: writer_get
SELECT number, is_sealed, worker FROM writers WHERE turn_no = $1 AND epoch = $2

-- name: writer_number
UPDATE writers SET number = $3 WHERE turn_no = $1 AND epoch = $2

-- name: writer_seal
UPDATE writers SET is_sealed = 1 WHERE turn_no = $1 AND epoch = $2

-- name: writers_seal_worker
UPDATE writers SET is_sealed = 1 WHERE worker = $1 AND is_sealed = 0

-- name: writers_unsealed
SELECT epoch FROM writers WHERE turn_no = $1 AND is_sealed = 0

-- macro: held_state
CASE WHEN t.state = 'running' AND t.worker IS NULL THEN 'released' ELSE t.state END

-- name: append_state
-- A running turn without a worker was released: its former worker must be fenced before the next claim.
SELECT t.turn_no, t.session_no, {held_state} AS state, t.epoch, w.number, s.id AS session_id, t.owner
FROM turns t JOIN sessions s ON s.session_no = t.session_no
LEFT JOIN writers w ON w.turn_no = t.turn_no AND w.epoch = $2 WHERE t.id = $1

-- ---------------------------------------------------------------- events

-- name: event_insert
INSERT INTO events (session_no, position, turn_no, epoch, number, owner, is_late, at, crc, data)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: events_after
SELECT {event_columns} FROM events e WHERE e.session_no = $1 AND e.position > $2
ORDER BY e.position LIMIT $3

-- name: events_of_turn
SELECT {event_columns} FROM events e WHERE e.session_no = $1 AND e.position >= $2 AND e.turn_no = $3
ORDER BY e.epoch, e.number

-- name: events_of_turn_from
SELECT {event_columns} FROM events e WHERE e.session_no = $1 AND e.position >= $2 AND e.turn_no = $3
ORDER BY e.position LIMIT $4

-- name: late_numbers
SELECT e.number FROM events e WHERE e.session_no = $1 AND e.position >= $2 AND e.turn_no = $3 AND e.epoch = $4

-- name: turn_ids
SELECT turn_no, id FROM turns WHERE session_no = $1 AND turn_no >= $2 AND turn_no <= $3

-- name: events_delete_session
DELETE FROM events WHERE session_no = $1

-- name: turns_to_prune
-- Not while late events wait to be threaded in, which needs the journal, nor while a turn of the session
-- runs, whose events may lie before late ones of an older turn.
SELECT t.turn_no, t.session_no, t.first_position FROM turns t JOIN sessions s ON s.session_no = t.session_no
WHERE t.is_pruned = 0 AND t.ended_at IS NOT NULL AND t.ended_at < $1
  AND NOT (t.state = 'interrupted' AND (s.head_no = t.turn_no OR t.recovery = 'pending')) AND t.is_ready = 0
  AND t.is_late = 0 AND s.active_no IS NULL
ORDER BY t.ended_at LIMIT $2

-- name: turn_last_position
SELECT max(e.position) FROM events e WHERE e.session_no = $1 AND e.position >= $2 AND e.turn_no = $3

-- name: events_other_kind
-- Whether an event that would be pruned with a turn is of a kind that this version does not know.
SELECT 1 FROM events e WHERE e.session_no = $1 AND e.position >= $2 AND e.position <= $3
  AND (e.turn_no = $4 OR e.turn_no IS NULL) AND {other_kind:$5} LIMIT 1

-- name: events_newer
SELECT {event_columns} FROM events e WHERE e.session_no = $1 AND {other_kind:$2} ORDER BY e.position

-- name: events_prune
DELETE FROM events WHERE session_no = $1 AND position >= $2 AND position <= $3
  AND (turn_no = $4 OR turn_no IS NULL)

-- name: turn_pruned
UPDATE turns SET is_pruned = 1 WHERE turn_no = $1

-- name: writers_delete
DELETE FROM writers WHERE turn_no = $1

-- name: session_pruned
UPDATE sessions SET pruned_through = $2 WHERE session_no = $1 AND pruned_through < $2

-- ---------------------------------------------------------------- messages

-- name: message_insert
INSERT INTO messages (owner, session_no, turn_no, ordinal, role, flags, model, created_at, text, parts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: messages_of_turn
SELECT {message_columns} FROM messages m WHERE m.turn_no = $1 ORDER BY m.ordinal

-- name: messages_of_turn_after_first
SELECT m.message_no, m.text FROM messages m WHERE m.turn_no = $1 AND m.ordinal > 0

-- name: messages_delete_turn
DELETE FROM messages WHERE turn_no = $1 AND ordinal > 0

-- name: messages_of_session
SELECT {message_columns} FROM messages m JOIN turns t ON t.turn_no = m.turn_no
WHERE t.session_no = $1 ORDER BY m.turn_no, m.ordinal

-- name: turns_of_session
SELECT {turn_columns} FROM turns t JOIN sessions s ON s.session_no = t.session_no
WHERE t.session_no = $1 ORDER BY t.turn_no

-- name: message_text_update
UPDATE messages SET text = $2, parts = $3 WHERE turn_no = $1 AND ordinal = 0

-- name: message_first
SELECT {message_columns} FROM messages m WHERE m.turn_no = $1 AND m.ordinal = 0

-- name: path
WITH RECURSIVE path (turn_no, parent_no, depth) AS (
  SELECT turn_no, parent_no, 0 FROM turns WHERE turn_no = $1
  UNION ALL
  SELECT t.turn_no, t.parent_no, p.depth + 1 FROM path p JOIN turns t ON t.turn_no = p.parent_no
  WHERE p.depth < $2
)
SELECT turn_no FROM path ORDER BY depth

-- name: path_messages
WITH RECURSIVE path (turn_no, parent_no, depth) AS (
  SELECT turn_no, parent_no, 0 FROM turns WHERE turn_no = $1
  UNION ALL
  SELECT t.turn_no, t.parent_no, p.depth + 1 FROM path p JOIN turns t ON t.turn_no = p.parent_no
  WHERE p.depth < $2
)
SELECT {message_columns}, t.id AS turn_id FROM path p JOIN turns t ON t.turn_no = p.turn_no
JOIN messages m ON m.turn_no = p.turn_no ORDER BY p.depth DESC, m.ordinal

-- name: path_page
-- Newest first: messages of turn $1 before ordinal $3, then those of its $2 next ancestors. A turn without messages
-- has a row too,
-- so that the walk can go on from its parent.
WITH RECURSIVE path (turn_no, parent_no, depth) AS (
  SELECT turn_no, parent_no, 0 FROM turns WHERE turn_no = $1
  UNION ALL
  SELECT t.turn_no, t.parent_no, p.depth + 1 FROM path p JOIN turns t ON t.turn_no = p.parent_no
  WHERE p.depth < $2
)
SELECT {message_columns}, t.id AS turn_id, t.parent_no FROM path p JOIN turns t ON t.turn_no = p.turn_no
LEFT JOIN messages m ON m.turn_no = p.turn_no AND (p.depth > 0 OR m.ordinal < $3)
ORDER BY p.depth, m.ordinal DESC LIMIT $4

-- name: newest_summary
WITH RECURSIVE path (turn_no, parent_no, depth, has_summary) AS (
  SELECT turn_no, parent_no, 0, (SELECT count(*) FROM messages m WHERE m.turn_no = t.turn_no AND m.role = 'summary')
  FROM turns t WHERE t.turn_no = $1
  UNION ALL
  SELECT t.turn_no, t.parent_no, p.depth + 1,
    (SELECT count(*) FROM messages m WHERE m.turn_no = t.turn_no AND m.role = 'summary')
  FROM path p JOIN turns t ON t.turn_no = p.parent_no WHERE p.has_summary = 0
)
SELECT {message_columns}, t.id AS turn_id FROM path p JOIN turns t ON t.turn_no = p.turn_no
JOIN messages m ON m.turn_no = p.turn_no AND m.role = 'summary' ORDER BY m.ordinal DESC LIMIT 1

-- name: context_messages
WITH RECURSIVE path (turn_no, parent_no, depth) AS (
  SELECT turn_no, parent_no, 0 FROM turns WHERE turn_no = $1
  UNION ALL
  SELECT t.turn_no, t.parent_no, p.depth + 1 FROM path p JOIN turns t ON t.turn_no = p.parent_no
  WHERE p.turn_no <> $2
)
SELECT {message_columns}, t.id AS turn_id FROM path p JOIN turns t ON t.turn_no = p.turn_no
JOIN messages m ON m.turn_no = p.turn_no
WHERE m.turn_no <> $2 OR m.ordinal > $3 OR m.role = 'summary' ORDER BY p.depth DESC, m.ordinal

-- name: outside_messages
-- The messages up to a turn that can have brought in text from outside, the nearest first. 4: imported.
WITH RECURSIVE path (turn_no, parent_no, depth) AS (
  SELECT turn_no, parent_no, 0 FROM turns WHERE turn_no = $1
  UNION ALL
  SELECT t.turn_no, t.parent_no, p.depth + 1 FROM path p JOIN turns t ON t.turn_no = p.parent_no
)
SELECT {message_columns}, t.id AS turn_id FROM path p JOIN turns t ON t.turn_no = p.turn_no
JOIN messages m ON m.turn_no = p.turn_no
WHERE m.role IN ('tool', 'summary') OR (m.flags & 4) <> 0 OR (m.role = 'user' AND m.parts IS NOT NULL)
ORDER BY p.depth, m.ordinal LIMIT $2

-- name: branch_turn
INSERT INTO turns (id, owner, session_no, parent_no, has_parent, place, kind, state, epoch, is_ready, attempts,
  model, profile, note, created_at, started_at, ended_at, first_position, failure, recovery, recovered_at, usage,
  timeline, is_pruned, parameters)
SELECT $1, owner, $2, (SELECT p.turn_no FROM turns p WHERE p.id = $3), 1, 0, kind,
  CASE WHEN state IN ('completed','cancelled','failed','interrupted') THEN state ELSE 'interrupted' END, epoch, 0,
  attempts, model, profile, note, created_at, started_at, coalesce(ended_at, $5), 0, failure,
  CASE WHEN recovery = 'pending' THEN 'final' ELSE recovery END, recovered_at, usage, timeline, 1, parameters
FROM turns WHERE turn_no = $4

-- name: branch_messages
INSERT INTO messages (owner, session_no, turn_no, ordinal, role, flags, model, created_at, text, parts)
SELECT m.owner, $1, (SELECT t.turn_no FROM turns t WHERE t.id = $2), m.ordinal, m.role, m.flags, m.model,
  m.created_at, m.text, m.parts FROM messages m WHERE m.turn_no = $3

-- name: summaries_of_session
SELECT {message_columns}, t.id AS turn_id FROM messages m JOIN turns t ON t.turn_no = m.turn_no
WHERE t.session_no = $1 AND m.role = 'summary'

-- name: message_parts_update
UPDATE messages SET parts = $3 WHERE turn_no = $1 AND ordinal = $2

-- name: branch_files
INSERT INTO file_uses (file_id, session_no) SELECT file_id, $2 FROM file_uses WHERE session_no = $1
ON CONFLICT (file_id, session_no) DO NOTHING

-- name: import_turn
INSERT INTO turns (id, owner, session_no, parent_no, has_parent, place, kind, state, epoch, is_ready, attempts,
  model, profile, note, created_at, started_at, ended_at, first_position, failure, recovery, recovered_at, usage,
  timeline, is_pruned)
VALUES ($1, $2, $3, (SELECT p.turn_no FROM turns p WHERE p.id = $4), $20, 0, $5, $6, $7, 0, $8, $9, $10, $11, $12,
  $13, $14, 0, $15, $16, $17, $18, $19, 1) RETURNING turn_no

-- name: import_session
UPDATE sessions SET version = $2, transcript_version = $2, created_at = $3, title = $4, is_title_given = $5, pinned = $6, archived = $7,
  private = $8, tags = $9, messages = $10, preview = $11, head_no = $12, last_state = $13 WHERE session_no = $1

-- name: tail_set
UPDATE tails SET updated_at = $2, archived = $3 WHERE session_no = $1

-- name: turn_exists
SELECT 1 FROM turns WHERE id = $1

-- ---------------------------------------------------------------- steering

-- name: steering_insert
INSERT INTO steering (owner, turn_no, text, attachments, created_at) VALUES ($1, $2, $3, $4, $5)

-- name: steering_of_turn
SELECT steering_no, text, attachments, created_at FROM steering WHERE turn_no = $1 ORDER BY steering_no

-- name: steering_delete
DELETE FROM steering WHERE turn_no = $1

-- ---------------------------------------------------------------- asks

-- name: ask_insert
INSERT INTO asks (id, owner, session_no, turn_no, topic, call_id, body, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: ask_get
SELECT {ask_columns} FROM asks a JOIN turns t ON t.turn_no = a.turn_no
JOIN sessions s ON s.session_no = a.session_no WHERE a.id = $1 AND a.owner = $2

-- name: asks_open
-- Those of a session's delegates are among its own. What a turn waits for that no person answers is not.
SELECT {ask_columns} FROM asks a JOIN turns t ON t.turn_no = a.turn_no
JOIN sessions s ON s.session_no = a.session_no
WHERE a.owner = $1 AND a.answer IS NULL AND a.topic <> 'delegate' AND s.deleted_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM delegates d JOIN sessions r ON r.session_no = d.root_no
    WHERE d.session_id = s.id AND r.deleted_at IS NOT NULL)
  AND ($2 = '' OR s.id = $2 OR EXISTS (SELECT 1 FROM delegates d WHERE d.session_id = s.id AND d.root_id = $2))
ORDER BY a.created_at, a.id

-- name: asks_answered
-- The latest first.
SELECT {ask_columns} FROM asks a JOIN turns t ON t.turn_no = a.turn_no
JOIN sessions s ON s.session_no = a.session_no
WHERE a.owner = $1 AND a.answer IS NOT NULL AND a.answered_at >= $2 AND a.topic <> 'delegate' AND s.deleted_at IS NULL
ORDER BY a.answered_at DESC, a.id DESC LIMIT $3

-- name: asks_open_of_turn
SELECT count(*) FROM asks WHERE turn_no = $1 AND answer IS NULL

-- name: ask_answer
UPDATE asks SET answer = $2, answered_by = $3, answered_at = $4, body = $5 WHERE id = $1

-- name: asks_close_turn
UPDATE asks SET answer = 'closed', answered_by = 'everturn', answered_at = $2 WHERE turn_no = $1 AND answer IS NULL

-- name: asks_expired
SELECT id, owner FROM asks WHERE answer IS NULL AND expires_at IS NOT NULL AND expires_at <= $1 ORDER BY id LIMIT 100

-- ---------------------------------------------------------------- files

-- name: file_insert
INSERT INTO files (id, owner, kind, name, media_type, size, sha256, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: file_get
SELECT f.id, f.owner, f.name, f.media_type, f.size, f.sha256, f.created_at, f.kind FROM files f
WHERE f.id = $1 AND f.owner = $2

-- name: files_of_session
SELECT f.id, f.owner, f.name, f.media_type, f.size, f.sha256, f.created_at, f.kind
FROM sessions s JOIN file_uses u ON u.session_no = s.session_no JOIN files f ON f.id = u.file_id
WHERE s.id = $1 AND s.owner = $2 AND f.owner = s.owner AND f.kind = $3 ORDER BY f.id DESC LIMIT $4

-- name: file_use
INSERT INTO file_uses (file_id, session_no) VALUES ($1, $2) ON CONFLICT (file_id, session_no) DO NOTHING

-- name: files_unused
SELECT f.id FROM files f WHERE f.created_at < $1
  AND NOT EXISTS (SELECT 1 FROM file_uses u WHERE u.file_id = f.id) LIMIT $2

-- name: file_used
SELECT 1 FROM file_uses WHERE file_id = $1 LIMIT 1

-- name: file_delete
DELETE FROM files WHERE id = $1

-- name: files_hashes
SELECT DISTINCT sha256 FROM files WHERE sha256 > $1 ORDER BY sha256 LIMIT $2

-- name: files_without_bytes
SELECT DISTINCT f.sha256 FROM files f WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.sha256 = f.sha256)

-- ---------------------------------------------------------------- checkpoints

-- macro: checkpoint_columns
c.checkpoint_no, c.id, s.id AS session_id, t.id AS turn_id, c.call_id, c.epoch, c.cause, c.created_at, c.before, c.tree,
c.body

-- macro: checkpoint_tables
checkpoints c JOIN sessions s ON s.session_no = c.session_no LEFT JOIN turns t ON t.turn_no = c.turn_no

-- name: checkpoint_insert
INSERT INTO checkpoints (id, session_no, turn_no, call_id, epoch, cause, created_at, before, tree, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING checkpoint_no

-- name: workspace_put
INSERT INTO workspaces (session_no, checkpoint_no, machine) VALUES ($1, $2, $3)
ON CONFLICT (session_no) DO UPDATE SET checkpoint_no = excluded.checkpoint_no, machine = excluded.machine

-- name: workspace_point
-- The checkpoint that the folder will hold once it has arrived on this machine.
UPDATE workspaces SET checkpoint_no = $2 WHERE session_no = $1

-- name: workspace_arrive
UPDATE workspaces SET machine = $2 WHERE session_no = $1

-- name: workspace_delete
-- Nothing is known of the folder.
DELETE FROM workspaces WHERE session_no = $1

-- name: checkpoint_id_of_tree
SELECT c.id FROM checkpoints c WHERE c.session_no = $1 AND c.tree = $2 ORDER BY c.checkpoint_no DESC LIMIT 1

-- name: workspace_import
-- The folder is empty here and has to hold these files.
INSERT INTO workspaces (session_no, checkpoint_no, wanted, present) VALUES ($1, $2, $3, $4)

-- name: checkpoint_last
-- What the session's workspace was last seen to hold.
SELECT {checkpoint_columns} FROM {checkpoint_tables} JOIN workspaces w ON w.checkpoint_no = c.checkpoint_no
WHERE w.session_no = $1

-- name: checkpoint_row
SELECT {checkpoint_columns} FROM {checkpoint_tables} WHERE c.id = $1

-- name: checkpoints_of_session
SELECT {checkpoint_columns} FROM {checkpoint_tables} WHERE c.session_no = $1 AND c.checkpoint_no < $2
ORDER BY c.checkpoint_no DESC LIMIT $3

-- name: checkpoints_kept
SELECT {checkpoint_columns} FROM {checkpoint_tables} WHERE c.session_no = $1 ORDER BY c.checkpoint_no

-- name: checkpoints_of_turn
SELECT {checkpoint_columns} FROM {checkpoint_tables} WHERE c.turn_no = $1 ORDER BY c.checkpoint_no

-- name: checkpoints_of_user
-- $2: the turn after which a user saved or changed files; NULL: before the first one.
SELECT {checkpoint_columns} FROM {checkpoint_tables} WHERE c.session_no = $1 AND c.epoch = 0
  AND (c.turn_no = $2 OR (c.turn_no IS NULL AND CAST($2 AS BIGINT) IS NULL)) AND c.cause IN ('saved', 'found') ORDER BY c.checkpoint_no

-- name: checkpoint_at_turn
-- The last one of the turn, or of its nearest ancestor that has one.
WITH RECURSIVE up (turn_no, parent_no, depth) AS (
  SELECT turn_no, parent_no, 0 FROM turns WHERE turn_no = $1
  UNION ALL
  SELECT t.turn_no, t.parent_no, up.depth + 1 FROM up JOIN turns t ON t.turn_no = up.parent_no
  WHERE NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.turn_no = up.turn_no)
)
SELECT {checkpoint_columns} FROM {checkpoint_tables} WHERE c.checkpoint_no = (
  SELECT max(checkpoint_no) FROM checkpoints
  WHERE turn_no = (SELECT turn_no FROM up ORDER BY depth DESC LIMIT 1)
)

-- name: checkpoint_at_start
-- The last one of what was there before the first turn.
SELECT {checkpoint_columns} FROM {checkpoint_tables} WHERE c.checkpoint_no = (
  SELECT max(checkpoint_no) FROM checkpoints WHERE session_no = $1 AND turn_no IS NULL
)

-- name: checkpoints_to_copy
SELECT turn_no, call_id, epoch, cause, created_at, before, tree, body FROM checkpoints WHERE session_no = $1
ORDER BY checkpoint_no

-- name: checkpoint_copy
INSERT INTO checkpoints (id, session_no, turn_no, call_id, epoch, cause, created_at, before, tree, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: checkpoint_first_of_turn
-- The first that the turn itself made.
SELECT {checkpoint_columns} FROM {checkpoint_tables}
WHERE c.checkpoint_no = (SELECT min(checkpoint_no) FROM checkpoints WHERE turn_no = $1 AND epoch > 0)

-- name: checkpoint_last_made
-- The last that the turn itself made.
SELECT {checkpoint_columns} FROM {checkpoint_tables}
WHERE c.checkpoint_no = (SELECT max(checkpoint_no) FROM checkpoints WHERE turn_no = $1 AND epoch > 0)

-- name: checkpoint_of_tree
SELECT max(checkpoint_no) FROM checkpoints WHERE session_no = $1 AND tree = $2

-- name: checkpoint_before
-- The checkpoint with this tree that another one of the session came after.
SELECT {checkpoint_columns} FROM {checkpoint_tables} WHERE c.session_no = $1 AND c.tree = $2 AND c.id < $3
ORDER BY c.checkpoint_no DESC LIMIT 1

-- name: working_copy
SELECT wanted, present, choices, machine FROM workspaces WHERE session_no = $1

-- name: working_copy_want
INSERT INTO workspaces (session_no, checkpoint_no, wanted, present, choices) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (session_no) DO UPDATE SET checkpoint_no = excluded.checkpoint_no, wanted = excluded.wanted,
  present = excluded.present, choices = excluded.choices

-- name: working_copy_settle
UPDATE workspaces SET wanted = NULL, present = NULL, choices = NULL, machine = $3
WHERE session_no = $1 AND wanted = $2 RETURNING session_no

-- name: working_copies_unsettled
SELECT s.owner, s.id AS session_id, w.machine FROM workspaces w JOIN sessions s ON s.session_no = w.session_no
WHERE w.wanted IS NOT NULL ORDER BY w.session_no

-- name: turn_files
SELECT files FROM turns WHERE turn_no = $1

-- name: turn_files_put
UPDATE turns SET files = $2 WHERE turn_no = $1

-- name: changes_of_turns
-- Of the checkpoints that the turns made themselves, in order.
SELECT t.id AS turn_id, c.body FROM turns t JOIN checkpoints c ON c.turn_no = t.turn_no
WHERE t.id {in_list:$1} AND c.epoch > 0 ORDER BY c.checkpoint_no

-- name: checkpoint_thin
DELETE FROM checkpoints WHERE checkpoint_no = $1
  AND NOT EXISTS (SELECT 1 FROM workspaces w WHERE w.checkpoint_no = checkpoints.checkpoint_no) -- guard: e04

-- name: checkpoint_merge
UPDATE checkpoints SET before = $2, body = $3 WHERE checkpoint_no = $1

-- name: checkpoint_correct
UPDATE checkpoints SET tree = $2, body = $3 WHERE checkpoint_no = $1

-- name: checkpoint_trees
SELECT checkpoint_no, tree, before, id FROM checkpoints WHERE checkpoint_no > $1 ORDER BY checkpoint_no LIMIT $2

-- ---------------------------------------------------------------- blobs

-- name: blobs_find
SELECT sha256, size, touched_at FROM blobs WHERE sha256 {in_list:$1} AND marked_at IS NULL AND damaged_at IS NULL

-- name: blobs_touch
UPDATE blobs SET touched_at = $2 WHERE sha256 {in_list:$1}
  AND marked_at IS NULL -- guard: g02
RETURNING sha256

-- name: blob_place
SELECT b.size, b.pack, p.place, p.path, b.start, b.checksums FROM blobs b JOIN packs p ON p.id = b.pack
WHERE b.sha256 = $1

-- name: blobs_places
SELECT b.sha256, b.size, p.place, p.path, b.start FROM blobs b JOIN packs p ON p.id = b.pack
WHERE b.sha256 {in_list:$1} AND b.size <= $2 ORDER BY p.place, p.path, b.start

-- name: blob_put
-- A row that is neither marked nor damaged has its bytes from another put, which was faster.
INSERT INTO blobs (sha256, size, pack, start, checksums, touched_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (sha256) DO UPDATE SET pack = excluded.pack, start = excluded.start, checksums = excluded.checksums,
  touched_at = excluded.touched_at, marked_at = NULL, damaged_at = NULL
WHERE blobs.marked_at IS NOT NULL OR blobs.damaged_at IS NOT NULL

-- name: blob_checksums
UPDATE blobs SET checksums = $2 WHERE sha256 = $1 AND checksums IS NULL

-- name: blob_damaged
UPDATE blobs SET damaged_at = $3 WHERE sha256 = $1 AND pack = $2

-- name: blobs_in_pack
SELECT count(*) FROM blobs WHERE pack = $1

-- name: blob_move
UPDATE blobs SET pack = $3, start = $4, marked_at = NULL WHERE sha256 = $1 AND pack = $2

-- name: blob_touched
SELECT touched_at FROM blobs WHERE sha256 = $1

-- name: blobs_stored_by
-- In packs that were begun by then. A blob that was moved has the age of the pack that it came from.
SELECT b.sha256 FROM blobs b JOIN packs p ON p.id = b.pack WHERE b.sha256 > $1 AND p.created_at <= $2
ORDER BY b.sha256 LIMIT $3

-- name: blobs_damaged
SELECT sha256 FROM blobs WHERE damaged_at IS NOT NULL ORDER BY sha256 LIMIT $1

-- name: blobs_of_pack
SELECT sha256, size FROM blobs WHERE pack = $1

-- name: blobs_to_mark
SELECT sha256 FROM blobs WHERE sha256 > $1 AND touched_at < $2 AND marked_at IS NULL ORDER BY sha256 LIMIT $3

-- name: blobs_mark
UPDATE blobs SET marked_at = $3 WHERE sha256 {in_list:$1} AND marked_at IS NULL
  AND touched_at < $2 -- guard: g02
RETURNING sha256

-- name: blobs_marked
SELECT sha256 FROM blobs WHERE sha256 > $1 AND marked_at IS NOT NULL ORDER BY sha256 LIMIT $2

-- name: blobs_to_move
-- Those that are used, of packs of which more than a quarter is not.
SELECT b.sha256 FROM blobs b WHERE b.marked_at IS NULL AND b.damaged_at IS NULL AND b.pack IN (
  SELECT p.id FROM packs p JOIN blobs u ON u.pack = p.id AND u.marked_at IS NULL
  WHERE p.sealed_at < $1 AND p.marked_at IS NULL GROUP BY p.id, p.size HAVING sum(u.size) * 4 < p.size * 3)

-- name: blobs_forget
DELETE FROM blobs WHERE pack = $1

-- name: packs_to_mark
SELECT 1 FROM packs WHERE marked_at IS NULL AND (sealed_at IS NULL AND created_at < $1
  OR sealed_at < $2 AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.pack = packs.id AND b.marked_at IS NULL)) LIMIT 1

-- name: packs_mark_unsealed
UPDATE packs SET marked_at = $2 WHERE sealed_at IS NULL AND created_at < $1 AND marked_at IS NULL

-- name: packs_mark_unused
UPDATE packs SET marked_at = $2 WHERE sealed_at < $1 AND marked_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.pack = packs.id AND b.marked_at IS NULL)

-- name: packs_to_delete
SELECT id, place, path, size FROM packs WHERE marked_at <= $1 ORDER BY id

-- name: packs_all
SELECT id, place, path, size FROM packs WHERE sealed_at IS NOT NULL ORDER BY id

-- name: packs_in
SELECT count(*) FROM packs WHERE place = $1 AND sealed_at IS NOT NULL

-- name: pack_insert
INSERT INTO packs (id, place, path, size, created_at) VALUES ($1, $2, $3, 0, $4)

-- name: pack_seal
UPDATE packs SET size = $2, sealed_at = $3 WHERE id = $1 AND sealed_at IS NULL
  AND marked_at IS NULL -- guard: g02
RETURNING id

-- name: pack_age
-- A pack is as old as the oldest that its blobs were moved from.
UPDATE packs SET created_at = (SELECT created_at FROM packs WHERE id = $2)
WHERE id = $1 AND created_at > (SELECT created_at FROM packs WHERE id = $2)

-- name: pack_delete
DELETE FROM packs WHERE id = $1

-- ---------------------------------------------------------------- workers

-- name: worker_insert
INSERT INTO workers (id, folder, registered_at, seen_at, lease_until) VALUES ($1, $2, $3, $3, $4)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, lease_until = excluded.lease_until

-- name: workers_all
SELECT id, folder FROM workers ORDER BY id

-- name: workers_unknown
SELECT DISTINCT t.worker AS id, '' AS folder FROM turns t WHERE t.worker IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = t.worker)

-- name: worker_delete
DELETE FROM workers WHERE id = $1

-- ---------------------------------------------------------------- memory

-- name: owed_insert
INSERT INTO owed (turn_no, provider, owner, session_no, handle, worker, owed_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (turn_no, provider) DO NOTHING RETURNING turn_no

-- In the order in which they were completed. What undo, retry or edit took out (1) is not owed meanwhile; what
-- clear did (2) still is.
-- name: owed_open
SELECT o.turn_no, t.id AS turn_id, o.provider, o.handle FROM owed o JOIN turns t ON t.turn_no = o.turn_no
WHERE o.session_no = $1
  AND o.settled_at IS NULL  -- guard: b03
  AND t.is_off_path <> 1  -- guard: b01
ORDER BY o.owed_at, o.turn_no

-- name: owed_handle
UPDATE owed SET handle = $3, worker = $4 WHERE turn_no = $1 AND provider = $2 AND settled_at IS NULL

-- name: owed_settle
UPDATE owed SET settled_at = $3 WHERE turn_no = $1 AND provider = $2 AND settled_at IS NULL

-- name: turn_numbers
SELECT turn_no FROM turns WHERE session_no = $1 AND id = $2

-- macro: dead_holder
CASE WHEN c.holder LIKE 'wrk~_%' ESCAPE '~' AND NOT EXISTS (SELECT 1 FROM workers h
  WHERE h.id = c.holder AND coalesce(h.lease_until, 1) > 0) THEN 1 ELSE 0 END

-- name: commit_get
SELECT c.provider, c.handle, c.from_turn, c.to_turn, c.turns, c.holder, c.held_until, {dead_holder} AS is_dead
FROM commits c WHERE c.session_no = $1

-- name: commit_put
INSERT INTO commits (session_no, owner, provider, handle, from_turn, to_turn, turns, holder, held_until, attempts,
  started_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, $10)
ON CONFLICT (session_no) DO UPDATE SET provider = excluded.provider, handle = excluded.handle,
  from_turn = excluded.from_turn, to_turn = excluded.to_turn, turns = excluded.turns, holder = excluded.holder,
  held_until = excluded.held_until, started_at = excluded.started_at,
  attempts = CASE WHEN commits.from_turn = excluded.from_turn AND commits.to_turn = excluded.to_turn
    THEN commits.attempts + 1 ELSE 1 END
RETURNING attempts

-- name: commit_drop
DELETE FROM commits WHERE session_no = $1 AND from_turn = $2 AND to_turn = $3

-- name: commit_failed
UPDATE commits SET holder = '', failed_at = $3, retry_at = $4, error = $5 WHERE session_no = $1 AND holder = $2

-- Sessions with something owed, the longest waiting first. $1: of this owner, '' for all. $2: a worker whose
-- handles count as free. $4 and $5: sessions quiet since $4, and commits that may be retried at $5; negative for all.
-- $7: 0 leaves out what a handle of another living worker saw, before it can take up the room of what is ours.
-- name: owing
SELECT s.id AS session_id, s.owner, s.title, o.turns, o.since, o.provider, o.elsewhere, c.holder, c.held_until, c.attempts,
  c.failed_at, c.retry_at, c.error, {dead_holder} AS is_dead
FROM (
  SELECT w.session_no, count(*) AS turns, min(w.owed_at) AS since, min(w.provider) AS provider,
    sum(CASE WHEN w.worker <> '' AND w.worker <> $2 AND EXISTS
        (SELECT 1 FROM workers k WHERE k.id = w.worker AND coalesce(k.lease_until, 1) > 0)
        THEN 1 ELSE 0 END) AS elsewhere
  FROM owed w JOIN turns t ON t.turn_no = w.turn_no
  WHERE w.settled_at IS NULL
    AND t.is_off_path <> 1  -- guard: b01
    AND ($1 = '' OR w.owner = $1)
    AND ($6 = '' OR w.handle = $6) GROUP BY w.session_no
) o JOIN sessions s ON s.session_no = o.session_no JOIN tails l ON l.session_no = o.session_no
LEFT JOIN commits c ON c.session_no = o.session_no
WHERE s.private = 0 AND (CAST($7 AS BIGINT) = 1 OR o.elsewhere = 0) AND (CAST($4 AS BIGINT) < 0
  OR (c.session_no IS NULL AND l.updated_at <= CAST($4 AS BIGINT)
    AND s.active_no IS NULL  -- guard: b16
  )
  OR (c.session_no IS NOT NULL AND coalesce(c.retry_at, 0) <= CAST($5 AS BIGINT)))
ORDER BY o.since, o.session_no LIMIT $3

-- name: recall_get
SELECT text FROM recalls WHERE session_no = $1

-- name: recall_put
INSERT INTO recalls (session_no, owner, text, made_at) VALUES ($1, $2, $3, $4) ON CONFLICT (session_no) DO NOTHING

-- name: recalls_drop
DELETE FROM recalls WHERE owner = $1

-- name: spending_insert
INSERT INTO spendings (owner, at, purpose, model, usage) VALUES ($1, $2, $3, $4, $5)

-- ---------------------------------------------------------------- records

-- name: record_put
INSERT INTO records (owner, kind, name, value, updated_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, kind, name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at

-- name: record_replace
UPDATE records SET value = $4, updated_at = $5 WHERE owner = $1 AND kind = $2 AND name = $3 RETURNING name

-- name: record_get
SELECT value FROM records WHERE owner = $1 AND kind = $2 AND name = $3

-- name: records_list
SELECT name, value FROM records WHERE owner = $1 AND kind = $2 ORDER BY name

-- name: records_of_kind
SELECT owner, name, value FROM records WHERE kind = $1 AND (owner, name) > ($2, $3) ORDER BY owner, name LIMIT $4

-- name: record_delete
DELETE FROM records WHERE owner = $1 AND kind = $2 AND name = $3 RETURNING name

-- ---------------------------------------------------------------- search

-- name: index_next
SELECT message_no, text FROM messages WHERE message_no > $1 ORDER BY message_no LIMIT $2

-- name: message_numbers_of_session
SELECT m.message_no, m.text FROM messages m JOIN turns t ON t.turn_no = m.turn_no WHERE t.session_no = $1

-- name: messages_delete_session
DELETE FROM messages WHERE turn_no IN (SELECT turn_no FROM turns WHERE session_no = $1)

-- ---------------------------------------------------------------- upkeep

-- macro: listed
CASE WHEN s.kind = 'ordinary' AND s.deleted_at IS NULL THEN 1 ELSE 0 END

-- name: lists_differ
SELECT s.id FROM sessions s WHERE
  coalesce(s.active_no, 0) <> coalesce((SELECT turn_no FROM turns WHERE session_no = s.session_no
    AND state IN ('running','waiting')), 0)
  OR coalesce(s.active_state, '') <> coalesce((SELECT state FROM turns WHERE session_no = s.session_no
    AND state IN ('running','waiting')), '')
  OR s.queued <> (SELECT count(*) FROM turns WHERE session_no = s.session_no AND state = 'queued')
  OR s.asks <> (SELECT count(*) FROM asks a JOIN turns t ON t.turn_no = a.turn_no
    WHERE t.session_no = s.session_no AND t.state = 'waiting' AND a.answer IS NULL AND a.topic <> 'delegate')
  OR coalesce(s.last_state, '') <> coalesce((SELECT state FROM turns WHERE turn_no = s.head_no
    AND ended_at IS NOT NULL), '')
  OR s.messages <> (SELECT count(*) FROM messages m JOIN turns t ON t.turn_no = m.turn_no
    WHERE t.session_no = s.session_no)
  OR NOT EXISTS (SELECT 1 FROM tails t WHERE t.session_no = s.session_no AND t.archived = s.archived
    AND t.is_listed = {listed} AND t.owner = s.owner)
ORDER BY s.session_no

-- name: tails_behind
SELECT s.id FROM sessions s JOIN tails t ON t.session_no = s.session_no
WHERE t.position < coalesce((SELECT max(e.position) FROM events e WHERE e.session_no = s.session_no), 0)

-- name: sessions_all
SELECT session_no, id FROM sessions ORDER BY session_no

-- name: session_recount
UPDATE sessions SET messages = (SELECT count(*) FROM messages m JOIN turns t ON t.turn_no = m.turn_no
  WHERE t.session_no = $1) WHERE session_no = $1

-- name: tail_repair
UPDATE tails SET archived = (SELECT archived FROM sessions WHERE session_no = $1),
  is_listed = (SELECT {listed} FROM sessions s WHERE s.session_no = $1), position =
  CASE WHEN position < coalesce((SELECT max(e.position) FROM events e WHERE e.session_no = $1), 0)
  THEN (SELECT max(e.position) FROM events e WHERE e.session_no = $1) ELSE position END WHERE session_no = $1

-- name: tail_missing
INSERT INTO tails (session_no, owner, archived, is_listed, position, updated_at)
SELECT s.session_no, s.owner, s.archived, {listed},
  coalesce((SELECT max(e.position) FROM events e WHERE e.session_no = s.session_no), 0), s.created_at
FROM sessions s WHERE NOT EXISTS (SELECT 1 FROM tails t WHERE t.session_no = s.session_no)

-- name: orphans
SELECT 'event' AS what, count(*) AS count FROM events e WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session_no = e.session_no)
UNION ALL SELECT 'message', count(*) FROM messages m
  WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.turn_no = m.turn_no)

-- name: events_scan
SELECT e.session_no, e.position, e.crc, e.data FROM events e WHERE e.session_no > $1 OR (e.session_no = $1 AND e.position > $2)
ORDER BY e.session_no, e.position LIMIT $3

-- name: files_all
SELECT f.id, f.name, b.damaged_at, p.place, p.path, p.size AS pack_size
FROM files f LEFT JOIN blobs b ON b.sha256 = f.sha256 LEFT JOIN packs p ON p.id = b.pack ORDER BY f.id

-- name: totals
SELECT (SELECT count(*) FROM sessions) AS sessions, (SELECT count(*) FROM turns) AS turns,
  (SELECT count(*) FROM messages) AS messages, (SELECT count(*) FROM asks WHERE answer IS NULL AND topic <> 'delegate') AS asks,
  (SELECT coalesce(sum(attempts), 0) FROM turns WHERE attempts > 0) AS resumed

-- name: usage_rows
SELECT model, usage, ended_at AS at, 'turn' AS purpose FROM turns WHERE owner = $1 AND usage IS NOT NULL AND ended_at >= $2
UNION ALL SELECT model, usage, at, purpose FROM spendings WHERE owner = $1 AND at >= $2
ORDER BY 3

-- name: session_id_taken
SELECT 1 FROM sessions WHERE id = $1
