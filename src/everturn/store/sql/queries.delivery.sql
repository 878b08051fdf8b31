-- Queries of what enters and leaves on its own. As in queries.sql, the databases' own files replace some of them.

-- macro: chat_columns
c.chat_no, c.id AS chat_id, c.owner, c.account, c.platform, c.kind, c.chat, c.thread, c.profile, c.title, c.session_id,
c.last_number, c.created_at

-- macro: is_served
-- Rows of a removed account have a name that no account can have.
%1.account NOT LIKE '%~%'

-- macro: is_for_people
-- A person decides about messages; a live message that did not arrive is not missed.
%1.state IN ('held','undelivered') AND %1.account NOT LIKE '%~%' AND NOT EXISTS (SELECT 1 FROM outbox v
  WHERE v.outbox_no = %1.outbox_no AND v.key LIKE 'live:%')

-- macro: inbox_columns
i.inbox_no, i.id AS inbox_id, i.state, i.received_at, i.is_late, i.body, i.refusal,
(SELECT t.id FROM turns t WHERE t.turn_no = i.turn_no) AS turn_id

-- macro: part_columns
p.id, o.id AS outbox_id, c.id AS chat_id, p.number, p.state, p.attempts, p.is_repeat,
(SELECT t.id FROM turns t WHERE t.turn_no = o.turn_no) AS turn_id, p.external_id, p.error, p.changed_at

-- ---------------------------------------------------------------- chats

-- name: chat_insert
INSERT INTO chats (id, owner, account, platform, kind, chat, thread, profile, title, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (account, chat, thread) DO NOTHING

-- name: chat_at
SELECT {chat_columns} FROM chats c WHERE c.account = $1 AND c.chat = $2 AND c.thread = $3

-- name: chat_get
SELECT {chat_columns} FROM chats c WHERE c.id = $1 AND c.owner = $2 AND {is_served:c}

-- name: chats_list
SELECT {chat_columns} FROM chats c WHERE c.owner = $1 AND {is_served:c} ORDER BY c.chat_no

-- name: chats_of_account
SELECT {chat_columns} FROM chats c WHERE c.account = $1 ORDER BY c.chat_no

-- name: chats_seen
SELECT {chat_columns} FROM chats c WHERE c.account = $1 AND c.last_number IS NOT NULL
ORDER BY c.last_number DESC LIMIT $2

-- name: chats_of_session
SELECT c.chat_no FROM chats c WHERE c.session_id = $1 AND c.owner = $2 ORDER BY c.chat_no

-- name: chat_seen
-- What the newest update says about its chat.
UPDATE chats SET last_number = $2, title = $3 WHERE chat_no = $1

-- name: chat_owner
UPDATE chats SET owner = $2, profile = $3, session_id = NULL WHERE chat_no = $1

-- name: chat_session
UPDATE chats SET session_id = $2 WHERE chat_no = $1

-- name: chats_retire
UPDATE chats SET account = $2, session_id = NULL WHERE account = $1

-- name: account_figures
SELECT
  (SELECT count(*) FROM inbox i WHERE i.account = $1 AND i.received_at >= $2) AS received,
  (SELECT max(i.received_at) FROM inbox i WHERE i.account = $1) AS last_received_at,
  (SELECT count(*) FROM outbox_parts p WHERE p.account = $1 AND p.state IN ('waiting','sending','unknown')) AS waiting,
  (SELECT min(w.since) FROM (
    SELECT min(i.received_at) AS since FROM inbox i WHERE i.account = $1 AND i.state = 'received' UNION ALL
    SELECT min(o.created_at) FROM outbox_parts p JOIN outbox o ON o.outbox_no = p.outbox_no
      WHERE p.account = $1 AND p.state IN ('waiting','sending','unknown')) w) AS waiting_since,
  (SELECT count(*) FROM outbox_parts p WHERE p.account = $1 AND {is_for_people:p}) AS undecided

-- ---------------------------------------------------------------- inbox

-- name: inbox_insert
INSERT INTO inbox (id, account, update_id, chat_no, state, received_at, is_late, body)
VALUES ($1, $2, $3, $4, 'received', $5, $6, $7)

-- name: inbox_find
SELECT {chat_columns}, {inbox_columns} FROM inbox i JOIN chats c ON c.chat_no = i.chat_no
WHERE i.account = $1 AND i.update_id = $2

-- name: inbox_get
SELECT {chat_columns}, {inbox_columns} FROM inbox i JOIN chats c ON c.chat_no = i.chat_no WHERE i.id = $1

-- name: inbox_first
SELECT inbox_no FROM inbox WHERE chat_no = $1 AND state = 'received' ORDER BY inbox_no LIMIT 1

-- name: inbox_waiting
SELECT {chat_columns}, {inbox_columns} FROM inbox i JOIN chats c ON c.chat_no = i.chat_no
WHERE i.account = $1 AND i.state = 'received' AND NOT EXISTS (SELECT 1 FROM inbox e
  WHERE e.chat_no = i.chat_no AND e.state = 'received' AND e.inbox_no < i.inbox_no)
ORDER BY i.inbox_no LIMIT $2

-- name: inbox_settle
UPDATE inbox SET state = $2, settled_at = $3, turn_no = $4, refusal = $5, body = '' WHERE inbox_no = $1

-- name: inbox_refuse_all
UPDATE inbox SET state = 'refused', settled_at = $2, refusal = $3, body = '' WHERE account = $1 AND state = 'received'

-- name: inbox_retire
UPDATE inbox SET account = $2 WHERE account = $1

-- name: inbox_prunable
SELECT 1 FROM inbox WHERE settled_at IS NOT NULL AND received_at < $1 LIMIT 1

-- name: inbox_prune
DELETE FROM inbox WHERE inbox_no IN (SELECT inbox_no FROM inbox WHERE settled_at IS NOT NULL AND received_at < $1 LIMIT $2)
RETURNING id AS inbox_id, chat_no

-- name: outbox_prune
-- What the chat was told about a row of the inbox, unless it waits or needs a person.
DELETE FROM outbox WHERE chat_no = $1 AND key = $2 AND NOT EXISTS (SELECT 1 FROM outbox_parts p
  WHERE p.outbox_no = outbox.outbox_no AND p.state <> 'sent')

-- ---------------------------------------------------------------- outbox

-- name: outbox_owe
-- A reply without parts. If a turn takes several messages of a chat, it has one reply.
INSERT INTO outbox (id, chat_no, account, key, session_no, turn_no, created_at)
SELECT $1, c.chat_no, c.account, $3, $4, $5, $6 FROM chats c WHERE c.chat_no = $2
ON CONFLICT (chat_no, key) DO NOTHING

-- name: inbox_follow
-- A message that steered a turn, and that the turn did not take, is a turn of its own now.
UPDATE inbox SET turn_no = $3 WHERE turn_no = $1 AND settled_at = $2

-- name: outbox_put
INSERT INTO outbox (id, chat_no, account, key, session_no, turn_no, created_at, recorded_at)
SELECT $1, c.chat_no, c.account, $3, $4, $5, $6, $6 FROM chats c WHERE c.chat_no = $2
ON CONFLICT (chat_no, key) DO NOTHING RETURNING outbox_no

-- name: outbox_record
UPDATE outbox SET recorded_at = $2 WHERE id = $1 AND recorded_at IS NULL RETURNING outbox_no

-- name: replies_due
-- Not while the live message of the turn is being sent: the answer replaces it.
SELECT {chat_columns}, o.id AS outbox_id, s.id AS in_session, t.turn_no, t.id AS turn_id, t.state, t.epoch, t.failure,
l.external_id AS live_id,
CASE WHEN EXISTS (SELECT 1 FROM outbox_parts n WHERE n.part_no > l.part_no AND n.chat_no = o.chat_no) THEN 0 ELSE 1 END
  AS is_live_last
FROM outbox o
JOIN chats c ON c.chat_no = o.chat_no JOIN turns t ON t.turn_no = o.turn_no JOIN sessions s ON s.session_no = t.session_no
LEFT JOIN outbox v ON v.chat_no = o.chat_no AND v.key = 'live:' || t.id
LEFT JOIN outbox_parts l ON l.outbox_no = v.outbox_no
WHERE o.account = $1 AND o.recorded_at IS NULL AND o.key = 'turn:' || t.id
AND (l.state IS NULL OR l.state NOT IN ('sending','unknown'))
AND t.ended_at IS NOT NULL AND (t.state <> 'interrupted' OR (t.is_ready = 0 AND NOT EXISTS
  (SELECT 1 FROM outbox n WHERE n.chat_no = o.chat_no AND n.key = 'interrupted:' || t.id || ':' || CAST(t.epoch AS TEXT))))
ORDER BY o.outbox_no LIMIT $2

-- name: unseen_words
-- A turn that answers to this chat, began elsewhere, and whose words were not shown in the chat above a question.
-- `a`: the chat whose message began the turn; NULL: it began on the page, or by a program. A message that only steered the
-- turn came later than the turn.
SELECT t.turn_no, a.platform AS asked_on FROM turns t
JOIN outbox o ON o.chat_no = $1 AND o.key = 'turn:' || t.id
LEFT JOIN chats a ON a.chat_no = (SELECT i.chat_no FROM inbox i WHERE i.turn_no = t.turn_no
  AND i.received_at <= t.created_at ORDER BY i.inbox_no LIMIT 1)
WHERE t.id = $2 AND (a.chat_no IS NULL OR a.chat_no <> $1)
AND NOT EXISTS (SELECT 1 FROM outbox n WHERE n.chat_no = $1 AND n.key = 'asked:' || t.id)

-- name: is_asked_here
-- The chat is told how the turn ends, and has seen the words that began it.
SELECT 1 FROM turns t JOIN outbox o ON o.chat_no = $1 AND o.key = 'turn:' || t.id
WHERE t.id = $2 AND (EXISTS (SELECT 1 FROM outbox n WHERE n.chat_no = $1 AND n.key = 'asked:' || t.id)
  OR o.chat_no = (SELECT i.chat_no FROM inbox i WHERE i.turn_no = t.turn_no AND i.received_at <= t.created_at
    ORDER BY i.inbox_no LIMIT 1))

-- name: replies_underway
SELECT {chat_columns}, s.id AS in_session, t.id AS turn_id, t.first_position, t.started_at, l.state AS live_state,
l.external_id AS live_id
FROM outbox o JOIN turns t ON t.turn_no = o.turn_no JOIN chats c ON c.chat_no = o.chat_no
JOIN sessions s ON s.session_no = t.session_no
LEFT JOIN outbox v ON v.chat_no = o.chat_no AND v.key = 'live:' || t.id
LEFT JOIN outbox_parts l ON l.outbox_no = v.outbox_no
WHERE o.account = $1 AND o.recorded_at IS NULL AND o.key = 'turn:' || t.id AND t.state = 'running'
ORDER BY o.outbox_no LIMIT $2

-- name: reply_is_underway
SELECT 1 FROM chats c JOIN outbox o ON o.chat_no = c.chat_no JOIN turns t ON t.turn_no = o.turn_no
WHERE c.id = $1 AND o.key = 'turn:' || $2 AND o.recorded_at IS NULL AND t.state = 'running'

-- name: answer_is_due_before
-- An interrupted turn may wait for its user for days: it holds nothing back.
SELECT 1 FROM chats c JOIN outbox o ON o.chat_no = c.chat_no
JOIN outbox e ON e.account = c.account AND e.chat_no = c.chat_no AND e.outbox_no < o.outbox_no
JOIN turns t ON t.turn_no = e.turn_no
WHERE c.id = $1 AND o.key = 'turn:' || $2 AND e.recorded_at IS NULL AND e.key = 'turn:' || t.id
AND t.ended_at IS NOT NULL AND t.state <> 'interrupted' LIMIT 1

-- name: live_part
SELECT l.state, l.external_id FROM outbox v JOIN outbox_parts l ON l.outbox_no = v.outbox_no
WHERE v.chat_no = $1 AND v.key = $2

-- name: live_end
UPDATE outbox_parts SET state = 'undelivered', error = $3, changed_at = $4 WHERE state = 'waiting'
AND outbox_no = (SELECT v.outbox_no FROM outbox v WHERE v.chat_no = $1 AND v.key = $2)

-- name: replies_owed
-- Also those of turns that have not ended.
SELECT {chat_columns}, o.id AS outbox_id, o.outbox_no FROM outbox o JOIN chats c ON c.chat_no = o.chat_no
WHERE o.account = $1 AND o.recorded_at IS NULL AND o.key LIKE 'turn:%' ORDER BY o.outbox_no

-- name: outbox_retire
UPDATE outbox SET account = $2 WHERE account = $1

-- name: asks_due
-- What waits for an answer and was not asked there yet: in the current sessions of the account's chats and their delegates,
-- and in the runs of schedules that report to them.
SELECT {chat_columns}, a.id AS ask_id FROM asks a
JOIN sessions s ON s.session_no = a.session_no
JOIN chats c ON c.owner = a.owner AND (c.session_id = s.id
  OR EXISTS (SELECT 1 FROM delegates d WHERE d.session_id = s.id AND d.root_id = c.session_id) OR (
  EXISTS (SELECT 1 FROM occurrences r WHERE r.turn_no = a.turn_no)
  AND EXISTS (SELECT 1 FROM outbox w WHERE w.turn_no = a.turn_no AND w.chat_no = c.chat_no AND w.key LIKE 'turn:%'))
  OR EXISTS (SELECT 1 FROM outbox w WHERE w.chat_no = c.chat_no AND w.recorded_at IS NULL
    AND (w.key = 'note:approval:' || a.id OR w.key = 'note:budget:' || a.id)))
WHERE a.answer IS NULL AND a.topic <> 'delegate' AND s.deleted_at IS NULL AND c.account = $1
AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.chat_no = c.chat_no AND o.key = 'ask:' || a.id)
ORDER BY a.created_at, a.id LIMIT $2

-- name: answers_due
-- Asked in a chat, answered since, and the chat does not show it yet. Not before the question was sent.
SELECT {chat_columns}, a.id AS ask_id, o.id AS outbox_id FROM outbox o
JOIN chats c ON c.chat_no = o.chat_no JOIN asks a ON a.id = substr(o.key, 10) AND o.key = 'answered:' || a.id
WHERE o.account = $1 AND o.recorded_at IS NULL AND a.answer IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM outbox k JOIN outbox_parts p ON p.outbox_no = k.outbox_no
  WHERE k.chat_no = o.chat_no AND k.key = 'ask:' || a.id AND p.state IN ('waiting','sending','unknown'))
ORDER BY o.outbox_no LIMIT $2

-- name: parts_of_key
SELECT {part_columns} FROM outbox o JOIN outbox_parts p ON p.outbox_no = o.outbox_no
JOIN chats c ON c.chat_no = o.chat_no WHERE o.chat_no = $1 AND o.key = $2 ORDER BY p.part_no

-- name: chats_working
-- Chats that wait for the answer of a turn that runs now.
SELECT DISTINCT {chat_columns} FROM outbox o JOIN turns t ON t.turn_no = o.turn_no JOIN chats c ON c.chat_no = o.chat_no
WHERE o.account = $1 AND o.recorded_at IS NULL AND o.key = 'turn:' || t.id AND t.state = 'running' LIMIT $2

-- name: delivery_totals
SELECT (SELECT count(*) FROM inbox WHERE state = 'received') AS received,
(SELECT count(*) FROM outbox_parts WHERE state = 'waiting') AS waiting,
(SELECT count(*) FROM outbox_parts WHERE state = 'unknown') AS unknown_count,
(SELECT count(*) FROM outbox_parts p WHERE {is_for_people:p}) AS for_people,
(SELECT min(next_at) FROM outbox_parts WHERE state = 'waiting') AS oldest

-- name: turn_numbers_by_id
SELECT turn_no, session_no FROM turns WHERE id = $1

-- name: part_insert
INSERT INTO outbox_parts (id, outbox_no, chat_no, account, number, state, body, next_at, give_up_at, changed_at)
VALUES ($1, $2, $3, $4, $5, 'waiting', $6, $7, $8, $7)

-- name: parts_aged
SELECT 1 FROM outbox_parts WHERE account = $1 AND state = 'waiting' AND give_up_at <= $2 LIMIT 1

-- name: parts_expire
UPDATE outbox_parts SET state = 'undelivered', changed_at = $2, error = coalesce(error, $3)
WHERE account = $1 AND state = 'waiting' AND give_up_at <= $2

-- name: parts_claimable
-- The first open part of each chat, if it waits and its time has come. A part that a person sends again can come before
-- the one that is being sent.
SELECT p.part_no FROM outbox_parts p WHERE p.account = $1 AND p.state = 'waiting' AND p.next_at <= $2
AND NOT EXISTS (SELECT 1 FROM outbox_parts e WHERE e.chat_no = p.chat_no AND e.part_no < p.part_no
  AND e.state IN ('waiting','sending','unknown'))
AND NOT EXISTS (SELECT 1 FROM outbox_parts e WHERE e.chat_no = p.chat_no AND e.state = 'sending')
ORDER BY p.next_at, p.part_no LIMIT $3

-- name: part_claim
UPDATE outbox_parts SET state = 'sending', epoch = $2, attempts = attempts + 1, changed_at = $3 WHERE part_no = $1

-- name: part_outgoing
SELECT {chat_columns}, p.id AS part_id, p.body, p.number, p.attempts, p.is_repeat, p.give_up_at,
(SELECT t.id FROM outbox o JOIN turns t ON t.turn_no = o.turn_no WHERE o.outbox_no = p.outbox_no) AS turn_id
FROM outbox_parts p JOIN chats c ON c.chat_no = p.chat_no WHERE p.part_no = $1

-- name: part_sent
UPDATE outbox_parts SET state = 'sent', body = '', external_id = $3, error = NULL, changed_at = $4
WHERE id = $1 AND epoch = $2 AND state = 'sending' RETURNING id

-- name: parts_space
-- The other waiting parts of the part's chat are not sent before this time.
UPDATE outbox_parts SET next_at = $2 WHERE state = 'waiting' AND next_at < $2
AND chat_no = (SELECT s.chat_no FROM outbox_parts s WHERE s.id = $1)

-- name: part_not_sent
UPDATE outbox_parts SET state = $3, error = $4, next_at = $5, changed_at = $6
WHERE id = $1 AND epoch = $2 AND state = 'sending'

-- name: parts_lost
UPDATE outbox_parts SET state = 'unknown', error = $2, changed_at = $3 WHERE account = $1 AND state = 'sending'

-- name: parts_end_waiting
UPDATE outbox_parts SET state = 'undelivered', error = $2, changed_at = $3 WHERE account = $1 AND state = 'waiting'

-- name: parts_hold_unknown
UPDATE outbox_parts SET state = 'held', changed_at = $2 WHERE account = $1 AND state = 'unknown'

-- name: parts_retire
UPDATE outbox_parts SET account = $2 WHERE account = $1

-- name: part_send_as_new
UPDATE outbox_parts SET state = 'waiting', body = $3, next_at = $4, changed_at = $4
WHERE id = $1 AND epoch = $2 AND state = 'sending'

-- name: parts_sending
SELECT id FROM outbox_parts WHERE account = $1 AND epoch = $2 AND state = 'sending'

-- name: parts_unknown
SELECT p.part_no, p.id, p.is_repeat, p.attempts, p.body, CASE WHEN o.key LIKE 'live:%' THEN 1 ELSE 0 END AS is_live
FROM outbox_parts p JOIN outbox o ON o.outbox_no = p.outbox_no
WHERE p.account = $1 AND p.state = 'unknown' ORDER BY p.part_no

-- name: part_settle
UPDATE outbox_parts SET state = $2, is_repeat = $3, next_at = $4, changed_at = $5 WHERE part_no = $1

-- name: part_get
SELECT {part_columns} FROM outbox_parts p JOIN outbox o ON o.outbox_no = p.outbox_no
JOIN chats c ON c.chat_no = p.chat_no WHERE p.id = $1 AND c.owner = $2 AND {is_served:c}

-- name: part_again
UPDATE outbox_parts SET state = 'waiting', is_repeat = $2, next_at = $3, give_up_at = $4, changed_at = $3
WHERE id = $1 AND state = $5

-- name: part_arrived
UPDATE outbox_parts SET state = 'sent', body = '', error = NULL, changed_at = $2 WHERE id = $1 AND state = 'held'
RETURNING id

-- name: parts_of_turn
SELECT {part_columns} FROM outbox o JOIN outbox_parts p ON p.outbox_no = o.outbox_no
JOIN chats c ON c.chat_no = o.chat_no WHERE o.turn_no = $1 AND (o.key LIKE 'turn:%' OR o.key LIKE 'interrupted:%')
ORDER BY p.part_no

-- name: replies_of_turns
-- The parts of the answers of these turns, those of one chat together.
SELECT t.id AS turn_id, c.id AS chat_id, c.account, c.platform, c.title, p.id AS part_id, p.state, p.is_repeat, p.error,
p.changed_at
FROM turns t JOIN outbox o ON o.turn_no = t.turn_no AND o.key = 'turn:' || t.id JOIN chats c ON c.chat_no = o.chat_no
JOIN outbox_parts p ON p.outbox_no = o.outbox_no
WHERE t.id {in_list:$1} ORDER BY t.turn_no, o.outbox_no, p.part_no

-- name: replies_of_parts
-- Not the parts of other messages, such as notices.
SELECT DISTINCT s.id AS session_id, s.owner, t.id AS turn_id, c.id AS chat_id
FROM outbox_parts p JOIN outbox o ON o.outbox_no = p.outbox_no JOIN turns t ON t.turn_no = o.turn_no
JOIN sessions s ON s.session_no = t.session_no JOIN chats c ON c.chat_no = o.chat_no
WHERE p.id {in_list:$1} AND o.key = 'turn:' || t.id ORDER BY session_id, turn_id, chat_id

-- name: parts_expired
SELECT id FROM outbox_parts WHERE account = $1 AND state = 'waiting' AND give_up_at <= $2

-- name: parts_for_people
SELECT {part_columns}, p.body FROM chats c JOIN outbox_parts p ON p.chat_no = c.chat_no
JOIN outbox o ON o.outbox_no = p.outbox_no WHERE c.owner = $1 AND {is_for_people:p}
ORDER BY p.part_no LIMIT $2

-- ---------------------------------------------------------------- leases of accounts

-- name: lease_insert
INSERT INTO account_leases (account, worker, epoch) VALUES ($1, NULL, 0) ON CONFLICT (account) DO NOTHING

-- name: lease_get
-- A worker is alive as long as its row is there and its lease was not taken over.
SELECT l.worker, l.epoch, CASE WHEN EXISTS (SELECT 1 FROM workers w WHERE w.id = l.worker
  AND coalesce(w.lease_until, 1) > 0) THEN 1 ELSE 0 END AS is_alive FROM account_leases l WHERE l.account = $1

-- name: lease_set
UPDATE account_leases SET worker = $2, epoch = $3 WHERE account = $1
