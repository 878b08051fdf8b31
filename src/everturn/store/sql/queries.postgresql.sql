-- Queries and macros that PostgreSQL writes differently. The session's lock is its row in tails, taken FOR UPDATE. A
-- transaction that locks several sessions locks them in session_no order, so that no two wait for each other.

-- macro: other_kind
-- Whether the kind of an event, which is the first field of its JSON, is not in this list.
split_part(encode(substr(e.data, 10, 100), 'escape'), '"', 1) <> ALL (CAST(%1 AS TEXT[]))

-- macro: like
strpos(lower(%1), lower(%2)) > 0

-- macro: holds
strpos(%1, %2) > 0

-- macro: narrowed
-- Whether a session is pinned ($6), has a tag ($7) and works in a folder ($10), where that is asked.
($6 < 0 OR (SELECT s.pinned FROM sessions s WHERE s.session_no = t.session_no) = $6)
  AND ($7 = '' OR (SELECT strpos(lower(s.tags), lower($7)) > 0 FROM sessions s WHERE s.session_no = t.session_no))
  AND ($10 = '' OR (SELECT s.project FROM sessions s WHERE s.session_no = t.session_no) = $10)

-- name: session_list_indexed
-- All with $8 in their title or tags, found by its pieces ($9).
WITH found AS MATERIALIZED (SELECT session_no, text FROM titles WHERE grams @> CAST($9 AS TEXT[]))
SELECT {session_columns} FROM (
  SELECT t.session_no FROM found i JOIN tails t ON t.session_no = i.session_no
  WHERE {holds:i.text:$8} AND t.owner = $1 AND ($2 < 0 OR t.archived = $2)
    AND t.is_listed = 1 AND (t.updated_at, t.session_no) < ($3, $4) AND {narrowed}
  ORDER BY t.updated_at DESC, t.session_no DESC LIMIT $5
) f JOIN tails t ON t.session_no = f.session_no JOIN sessions s ON s.session_no = t.session_no
ORDER BY t.updated_at DESC, t.session_no DESC

-- name: title_put
INSERT INTO titles (session_no, text, grams) VALUES ($1, $2, $3)

-- name: session_lock
SELECT t.session_no FROM tails t
WHERE t.session_no = (SELECT s.session_no FROM sessions s WHERE s.id = $1 AND s.owner = $2) FOR UPDATE

-- name: session_lock_no
SELECT session_no FROM tails WHERE session_no = $1 FOR UPDATE

-- name: sessions_lock_of_worker
SELECT l.session_no FROM tails l WHERE l.session_no IN (SELECT t.session_no FROM turns t WHERE t.worker = $1)
ORDER BY l.session_no FOR UPDATE

-- name: turns_release
-- Those in the sessions that are locked: of a turn that the worker claims meanwhile, a write may be under way.
UPDATE turns SET is_ready = 1, ready_reason = $2, worker = NULL, stopped_at = coalesce(
  (SELECT e.at FROM events e WHERE e.session_no = turns.session_no AND e.position >= turns.first_position
   AND e.turn_no = turns.turn_no ORDER BY e.position DESC LIMIT 1), $3)
WHERE worker = $1 AND session_no = ANY ($4::BIGINT[])
RETURNING id

-- name: session_lock_skip
SELECT session_no FROM tails WHERE session_no = $1 FOR UPDATE SKIP LOCKED

-- name: session_try_lock
SELECT t.session_no FROM tails t
WHERE t.session_no = (SELECT s.session_no FROM sessions s WHERE s.id = $1 AND s.owner = $2)
FOR UPDATE SKIP LOCKED

-- name: chat_lock
-- Not FOR UPDATE: rows that only refer to the chat may be inserted meanwhile.
SELECT chat_no FROM chats WHERE chat_no = $1 FOR NO KEY UPDATE

-- name: chats_lock
SELECT chat_no FROM chats WHERE account = $1 ORDER BY chat_no FOR NO KEY UPDATE

-- name: schedule_lock
SELECT id FROM schedules WHERE id = $1 FOR UPDATE

-- name: budget_lock
SELECT budget_no FROM budgets WHERE owner = $1 AND scope = $2 AND unit = $3 AND subject = $4 FOR UPDATE

-- name: budgets_of_turn_lock
-- In the order of their numbers, so that two calls never wait for each other.
SELECT b.budget_no {budgets_applying} FOR UPDATE

-- name: budgets_reserved_lock
SELECT b.budget_no FROM budgets b WHERE b.budget_no IN (SELECT r.budget_no FROM reservations r WHERE r.turn_no = $1)
ORDER BY b.budget_no FOR UPDATE

-- name: lease_lock
SELECT account FROM account_leases WHERE account = $1 FOR UPDATE

-- name: file_lock
SELECT id FROM files WHERE id = $1 FOR UPDATE

-- ---------------------------------------------------------------- the group commit

-- name: append_facts
SELECT t.id, t.turn_no, t.session_no, s.id, t.owner FROM turns t JOIN sessions s ON s.session_no = t.session_no
WHERE t.id = ANY ($1::TEXT[])

-- The position is that of the row as it is once it is locked.
-- name: append_lock
SELECT session_no, position FROM tails WHERE session_no = ANY ($1::BIGINT[])
ORDER BY session_no FOR UPDATE

-- Read after the lock is held, in a statement of its own: what the locking one joined would be older.
-- name: append_look
SELECT t.turn_no, t.id, {held_state}, t.epoch, coalesce(w.number, -1)
FROM turns t LEFT JOIN writers w ON w.turn_no = t.turn_no AND w.epoch = t.epoch
WHERE t.turn_no = ANY ($1::BIGINT[])

-- macro: array
CAST(CAST(%1 AS TEXT) AS %2[])

-- Long arrays come as one text each, which costs their sender less than each element by itself. Only where
-- they are read once: a condition would read the text again for each row.
-- name: append_events
WITH moved AS (
  UPDATE tails SET position = v.position, updated_at = {now_or_own}
  FROM unnest({array:$1:BIGINT}, {array:$2:BIGINT}) AS v (session_no, position)
  WHERE tails.session_no = v.session_no
), numbered AS (
  UPDATE writers SET number = v.number
  FROM unnest({array:$4:BIGINT}, {array:$5:INTEGER}, {array:$6:BIGINT}) AS v (turn_no, epoch, number)
  WHERE writers.turn_no = v.turn_no AND writers.epoch = v.epoch
)
INSERT INTO events (session_no, position, turn_no, epoch, number, owner, is_late, at, crc, data)
SELECT v.session_no, v.position, v.turn_no, v.epoch, v.number, v.owner, 0, v.at, v.crc, v.data
FROM unnest({array:$7:BIGINT}, {array:$8:BIGINT}, {array:$9:BIGINT}, {array:$10:INTEGER}, {array:$11:BIGINT},
  {array:$12:BIGINT}, {array:$13:BIGINT}, $14::TEXT[], $15::BYTEA[])
  AS v (session_no, position, turn_no, epoch, number, at, crc, owner, data)

-- name: held_epochs
SELECT t.id, t.epoch FROM turns t WHERE t.id = ANY ($1::TEXT[]) AND t.state = 'running' AND t.worker IS NOT NULL

-- The number goes as text: it has 64 bits and a type of its own.
-- name: transaction_status
SELECT pg_xact_status(CAST(CAST($1 AS TEXT) AS XID8)), left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)

-- ---------------------------------------------------------------- noticing others

-- name: positions
SELECT s.id, t.position FROM sessions s JOIN tails t ON t.session_no = s.session_no
WHERE s.id = ANY ($1::TEXT[])

-- The sum of the row versions moves whenever any row is added, changed or removed.
-- name: list_state
SELECT w.owner, count(*), sum(w.version)::TEXT FROM (
  SELECT owner, xmin::TEXT::BIGINT AS version FROM sessions WHERE owner = ANY ($1::TEXT[])
  UNION ALL SELECT owner, xmin::TEXT::BIGINT FROM schedules WHERE owner = ANY ($1::TEXT[])) w GROUP BY w.owner

-- ---------------------------------------------------------------- workers

-- name: clock_ms
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT

-- name: worker_register
INSERT INTO workers (id, folder, registered_at, seen_at, lease_until)
SELECT $1, $2, n.now, n.now, n.now + $3::BIGINT
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT AS now) n
ON CONFLICT (id) DO UPDATE SET folder = excluded.folder, seen_at = excluded.seen_at,
  lease_until = excluded.lease_until

-- name: worker_renew
UPDATE workers SET seen_at = n.now, lease_until = n.now + $2::BIGINT
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT AS now) n
WHERE id = $1 AND lease_until > 0 RETURNING id

-- Shared by the worker's claims and held until they commit: a transaction that ends the lease or the worker waits
-- for a claim in progress, and then sees its turn.
-- name: worker_claims
SELECT lease_until FROM workers WHERE id = $1 FOR SHARE

-- name: worker_lock
SELECT id FROM workers WHERE id = $1 FOR UPDATE

-- A client that falls silent between naming a statement and running it is not "idle" to the server, which
-- waits for it without end, its locks held. The advisory lock is what everturn_begin took.
-- name: writes_end_silent
SELECT pg_terminate_backend(a.pid)
FROM pg_locks l JOIN pg_database d ON d.oid = l.database JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.classid = 0 AND l.objid = 6009011 AND l.mode = 'ShareLock'
  AND d.datname = current_database() AND a.usename = current_user
  AND a.state = 'active' AND a.wait_event = 'ClientRead'
  AND a.state_change < clock_timestamp() - $1::INTEGER * INTERVAL '1 millisecond'

-- name: workers_expired
SELECT id FROM workers
WHERE lease_until > 0 AND lease_until < (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT ORDER BY id

-- Checked again under the row's lock: a renewal in between keeps the worker alive.
-- name: worker_expire
UPDATE workers SET lease_until = 0
WHERE id = $1 AND lease_until > 0 AND lease_until < (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT
RETURNING id

-- Workers gone for so long that their spools are no longer expected.
-- name: workers_forgotten
SELECT id FROM workers
WHERE lease_until = 0 AND seen_at < (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - $1::BIGINT

-- name: writers_seal_former
UPDATE writers w SET is_sealed = 1 FROM turns t
WHERE w.worker = $1 AND w.is_sealed = 0 AND t.turn_no = w.turn_no
  AND NOT (t.worker IS NOT DISTINCT FROM $1 AND t.epoch = w.epoch)

-- ---------------------------------------------------------------- secrets

-- Held by every change of a secret until it commits: a rotation and a change cannot miss each other.
-- name: secrets_lock
SELECT pg_advisory_xact_lock(6009012)

-- name: secrets_all
SELECT name, key_id, nonce, sealed FROM secrets ORDER BY name

-- name: secret_put
INSERT INTO secrets (name, key_id, nonce, sealed, changed_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name) DO UPDATE SET key_id = excluded.key_id, nonce = excluded.nonce, sealed = excluded.sealed,
  changed_at = excluded.changed_at

-- name: secret_delete
DELETE FROM secrets WHERE name = $1

-- name: secrets_clear
DELETE FROM secrets RETURNING name

-- name: secret_holder_put
INSERT INTO secret_holders (id, machine, key_ids, seen_at)
SELECT $1, $2, $3, (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT
ON CONFLICT (id) DO UPDATE SET key_ids = excluded.key_ids, seen_at = excluded.seen_at

-- name: secret_holder_delete
DELETE FROM secret_holders WHERE id = $1 OR seen_at < (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - $2::BIGINT

-- name: secret_holders
SELECT id, machine, key_ids FROM secret_holders
WHERE seen_at >= (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - $1::BIGINT ORDER BY machine, id

-- ---------------------------------------------------------------- notes

-- Held until the commit: what a change was based on is compared and replaced in one step.
-- name: notes_lock
SELECT pg_advisory_xact_lock(6009013, hashtext($1))

-- name: note_hashes
SELECT page, sha256 FROM notes WHERE owner = $1 ORDER BY page

-- name: note_pages
SELECT page, sha256, content FROM notes WHERE owner = $1 AND page = ANY ($2::TEXT[]) ORDER BY page

-- name: note_page_put
INSERT INTO notes (owner, page, content, sha256, changed_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, page) DO UPDATE SET content = excluded.content, sha256 = excluded.sha256,
  changed_at = excluded.changed_at

-- name: note_page_delete
DELETE FROM notes WHERE owner = $1 AND page = $2

-- ---------------------------------------------------------------- search

-- macro: matching
-- From $6 on and before $7 (0: no end), of the role $8, in sessions with the tag $9, where that is asked.
i.words @@ CAST(CAST($1 AS TEXT) AS TSQUERY) AND i.owner = $2
  AND ($4 = '' OR i.session_no = (SELECT session_no FROM sessions WHERE id = $4))
  AND ($5 = '' OR EXISTS (SELECT 1 FROM sessions p WHERE p.session_no = i.session_no AND (p.private = 0 OR p.id = $5)))
  AND (SELECT l.is_listed FROM tails l WHERE l.session_no = i.session_no) = 1
  AND (CAST($6 AS BIGINT) = 0 AND CAST($7 AS BIGINT) = 0 AND $8 = '' OR (
    SELECT d.created_at >= CAST($6 AS BIGINT) AND (CAST($7 AS BIGINT) = 0 OR d.created_at < CAST($7 AS BIGINT))
      AND ($8 = '' OR d.role = $8) FROM messages d WHERE d.message_no = i.message_no))
  AND ($9 = '' OR (SELECT strpos(lower(g.tags), lower($9)) FROM sessions g WHERE g.session_no = i.session_no) > 0)

-- A common word is in many of the newest messages: testing those one by one beats collecting every match
-- and sorting. A rarer word has few matches, which the index finds; they are collected before they are cut,
-- because a planner that saw the limit would go on testing one by one, to the very first message.
-- name: search_newest
WITH recent AS (
  SELECT i.message_no FROM (SELECT * FROM message_words ORDER BY message_no DESC LIMIT 500) i
  WHERE {matching} LIMIT $3
), rare AS MATERIALIZED (
  SELECT i.message_no FROM message_words i WHERE (SELECT count(*) FROM recent) < $3 AND {matching}
), found AS (
  SELECT message_no FROM recent
  UNION
  (SELECT message_no FROM rare ORDER BY message_no DESC LIMIT $3)
)
SELECT m.message_no, m.ordinal, m.role, m.created_at, m.text, t.id AS turn_id, s.id AS session_id, s.title
FROM found f JOIN messages m ON m.message_no = f.message_no
JOIN turns t ON t.turn_no = m.turn_no JOIN sessions s ON s.session_no = t.session_no
ORDER BY f.message_no DESC LIMIT $3

-- The best of the newest matches: of a common word those among the newest messages, of a rarer one all, up
-- to a bound that keeps the ranking short.
-- name: search_best
WITH recent AS (
  SELECT i.message_no, i.words FROM (SELECT * FROM message_words ORDER BY message_no DESC LIMIT 4000) i
  WHERE {matching}
), rare AS MATERIALIZED (
  SELECT i.message_no FROM message_words i WHERE (SELECT count(*) FROM recent) < 100 AND {matching}
), candidates AS (
  SELECT message_no, words FROM recent WHERE (SELECT count(*) FROM recent) >= 100
  UNION ALL
  SELECT i.message_no, i.words FROM (SELECT message_no FROM rare ORDER BY message_no DESC LIMIT 2000) r
  JOIN message_words i ON i.message_no = r.message_no
), found AS (
  SELECT message_no, ts_rank(words, CAST(CAST($1 AS TEXT) AS TSQUERY), 2) AS rank FROM candidates
  ORDER BY rank DESC, message_no DESC LIMIT $3
)
SELECT m.message_no, m.ordinal, m.role, m.created_at, m.text, t.id AS turn_id, s.id AS session_id, s.title
FROM found f JOIN messages m ON m.message_no = f.message_no
JOIN turns t ON t.turn_no = m.turn_no JOIN sessions s ON s.session_no = t.session_no
ORDER BY f.rank DESC, f.message_no DESC

-- name: index_waiting
SELECT message_no FROM unindexed LIMIT 1

-- name: index_take
WITH taken AS (
  DELETE FROM unindexed WHERE message_no IN
    (SELECT message_no FROM unindexed ORDER BY message_no LIMIT $1 FOR UPDATE SKIP LOCKED)
  RETURNING message_no)
SELECT m.message_no, m.session_no, m.owner, m.text FROM taken JOIN messages m ON m.message_no = taken.message_no
ORDER BY m.message_no

-- name: index_add
INSERT INTO message_words (message_no, session_no, owner, words)
VALUES ($1, $2, $3, CAST(CAST($4 AS TEXT) AS TSVECTOR))
ON CONFLICT (message_no) DO UPDATE SET words = excluded.words

-- name: index_again
INSERT INTO unindexed (message_no) VALUES ($1) ON CONFLICT (message_no) DO NOTHING

-- name: index_missing
SELECT count(*) FROM messages m
WHERE NOT EXISTS (SELECT 1 FROM message_words i WHERE i.message_no = m.message_no)
  AND NOT EXISTS (SELECT 1 FROM unindexed u WHERE u.message_no = m.message_no)

-- name: index_state
SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('message_words_index') AND indisvalid AND indisready

-- name: index_drop
DROP INDEX IF EXISTS message_words_index

-- name: index_clear
DELETE FROM message_words

-- name: index_create
CREATE INDEX message_words_index ON message_words USING gin (words) WITH (gin_pending_list_limit = 256)

-- name: index_fill
INSERT INTO unindexed (message_no) SELECT message_no FROM messages ON CONFLICT (message_no) DO NOTHING

-- ---------------------------------------------------------------- blobs

-- macro: in_list
= ANY (ARRAY (SELECT jsonb_array_elements_text(CAST(%1 AS JSONB))))

-- name: pack_bytes_add
INSERT INTO pack_bytes (pack, number, data) VALUES ($1, $2, $3)

-- name: pack_pieces
-- Of the pieces from $2 to $3: the first one from byte $4 on, the last one up to byte $5.
SELECT CASE
  WHEN CAST($2 AS BIGINT) = CAST($3 AS BIGINT)
    THEN substring(data FROM CAST($4 AS INTEGER) + 1 FOR CAST($5 AS INTEGER) - CAST($4 AS INTEGER))
  WHEN number = $2 THEN substring(data FROM CAST($4 AS INTEGER) + 1)
  WHEN number = $3 THEN substring(data FROM 1 FOR CAST($5 AS INTEGER))
  ELSE data END
FROM pack_bytes WHERE pack = $1 AND number BETWEEN $2 AND $3 ORDER BY number

-- name: pack_bytes_size
SELECT CAST(coalesce(sum(octet_length(data)), 0) AS BIGINT) FROM pack_bytes WHERE pack = $1

-- name: pack_bytes_delete
DELETE FROM pack_bytes WHERE pack = $1
  AND number IN (SELECT number FROM pack_bytes WHERE pack = $1 ORDER BY number LIMIT $2)
RETURNING number
