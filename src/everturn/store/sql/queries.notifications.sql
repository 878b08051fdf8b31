-- Queries of notifications and of the devices that they go to.

-- macro: device_columns
d.device_no, d.id AS device_id, d.owner AS device_owner, d.kind AS device_kind, d.name, d.kinds, d.address, d.has_buttons,
d.created_at AS added_at, d.sent_at, d.ended_at, d.error, d.chat_no AS device_chat_no,
(SELECT h.id FROM chats h WHERE h.chat_no = d.chat_no) AS device_chat

-- macro: cause_stands
-- Whether what a notification is about is still so. Of a session that people cannot see any more, nothing is.
(n.kind = 'test'
OR (n.kind IN ('approval','budget') AND EXISTS (SELECT 1 FROM asks a JOIN sessions s ON s.session_no = a.session_no
  WHERE a.id = n.cause AND a.answer IS NULL AND s.deleted_at IS NULL))
OR (n.kind IN ('answer','job') AND EXISTS (SELECT 1 FROM sessions s
  WHERE s.session_no = o.session_no AND s.is_unread = 1 AND s.deleted_at IS NULL))
OR (n.kind = 'delivery' AND EXISTS (SELECT 1 FROM outbox x JOIN outbox_parts p ON p.outbox_no = x.outbox_no
  WHERE x.turn_no = o.turn_no AND x.key LIKE 'turn:%' AND p.state IN ('held','undelivered')))
OR (n.kind = 'schedule' AND NOT EXISTS (SELECT 1 FROM records r
  WHERE r.owner = d.owner AND r.kind = 'dismissed' AND r.name = n.cause)
  AND (EXISTS (SELECT 1 FROM schedules k WHERE k.id = n.cause AND k.paused_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM occurrences k WHERE k.id = n.cause AND NOT EXISTS (SELECT 1 FROM occurrences l
      WHERE l.schedule_no = k.schedule_no AND l.turn_no IS NOT NULL AND l.due_at > k.due_at)))))

-- macro: note_columns
n.note_no, n.id AS note_id, n.kind AS note_kind, n.cause, n.words, n.state AS note_state, n.created_at AS noted_at, n.due_at,
o.id AS outbox_id, o.outbox_no,
(SELECT s.id FROM sessions s WHERE s.session_no = o.session_no) AS in_session,
(SELECT s.title FROM sessions s WHERE s.session_no = o.session_no) AS session_title,
o.turn_no, (SELECT t.id FROM turns t WHERE t.turn_no = o.turn_no) AS turn_id

-- macro: notes
notifications n JOIN outbox o ON o.outbox_no = n.outbox_no JOIN push_subscriptions d ON d.device_no = n.device_no
JOIN chats c ON c.chat_no = o.chat_no

-- ---------------------------------------------------------------- devices

-- name: devices_list
SELECT {device_columns} FROM push_subscriptions d WHERE d.owner = $1 ORDER BY d.device_no

-- name: device_get
SELECT {device_columns} FROM push_subscriptions d WHERE d.id = $1

-- name: device_marked
SELECT {device_columns} FROM push_subscriptions d WHERE d.owner = $1 AND d.mark = $2

-- name: device_of_chat
SELECT {device_columns} FROM push_subscriptions d JOIN chats c ON c.chat_no = d.chat_no WHERE c.id = $1

-- name: device_insert
INSERT INTO push_subscriptions (id, owner, kind, name, kinds, address, has_buttons, mark, chat_no, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (owner, mark) DO NOTHING

-- name: device_renew
-- The same target again: what it says of itself may have changed, and it is there again.
UPDATE push_subscriptions SET address = $2, has_buttons = $3, ended_at = NULL, error = '' WHERE device_no = $1

-- name: device_change
UPDATE push_subscriptions SET name = $2, kinds = $3 WHERE device_no = $1

-- name: device_sent
UPDATE push_subscriptions SET sent_at = $2, error = '' WHERE id = $1

-- name: device_failed
UPDATE push_subscriptions SET error = $2, ended_at = coalesce(ended_at, $3) WHERE id = $1

-- name: device_delete
DELETE FROM push_subscriptions WHERE device_no = $1

-- name: device_chat_delete
-- The chat that was made for the device, with all that waits in it. A chat of a platform stays.
DELETE FROM chats WHERE chat_no = $1 AND account LIKE '~%'

-- name: device_notes_delete
-- Notifications that a chat of a platform has not got yet.
DELETE FROM outbox WHERE outbox_no IN (SELECT n.outbox_no FROM notifications n WHERE n.device_no = $1 AND n.state = 'due')

-- ---------------------------------------------------------------- notifications

-- name: note_owe
INSERT INTO outbox (id, chat_no, account, key, session_no, turn_no, created_at)
SELECT $1, c.chat_no, c.account, $3, $4, $5, $6 FROM chats c WHERE c.chat_no = $2
ON CONFLICT (chat_no, key) DO NOTHING RETURNING outbox_no

-- name: note_insert
INSERT INTO notifications (id, outbox_no, device_no, kind, cause, words, state, created_at, due_at)
VALUES ($1, $2, $3, $4, $5, $6, 'due', $7, $8)

-- name: note_in_chat
-- The chat gets this anyway: the answer of the turn goes there, or it is the current chat of the session, where asks are put.
SELECT 1 FROM chats c WHERE c.chat_no = $1 AND (c.session_id = (SELECT s.id FROM sessions s WHERE s.session_no = $2)
OR EXISTS (SELECT 1 FROM outbox o WHERE o.chat_no = c.chat_no AND o.turn_no = $3 AND o.key LIKE 'turn:%'))

-- name: notes_due
SELECT {chat_columns}, {note_columns}, {device_columns},
CASE WHEN {cause_stands} THEN 1 ELSE 0 END AS is_standing FROM {notes}
WHERE n.state = 'due' AND n.due_at <= $1 ORDER BY n.due_at, n.note_no LIMIT $2

-- name: notes_over
SELECT {chat_columns}, {note_columns}, {device_columns},
CASE WHEN {cause_stands} THEN 1 ELSE 0 END AS is_standing FROM {notes}
WHERE n.state = 'shown' AND NOT {cause_stands}
AND NOT EXISTS (SELECT 1 FROM outbox_parts p WHERE p.outbox_no = n.outbox_no AND p.state = 'sending')
ORDER BY n.note_no LIMIT $1

-- name: note_get
SELECT {chat_columns}, {note_columns}, {device_columns},
CASE WHEN {cause_stands} THEN 1 ELSE 0 END AS is_standing FROM {notes} WHERE n.id = $1

-- name: note_move
UPDATE notifications SET state = $2 WHERE id = $1 AND state = $3 RETURNING note_no

-- name: note_postpone
UPDATE notifications SET due_at = $2 WHERE id = $1 AND state = 'due'

-- name: note_state
SELECT state FROM notifications WHERE id = $1

-- name: note_parts_waiting
DELETE FROM outbox_parts WHERE outbox_no = $1 AND state = 'waiting' AND number = 0 AND attempts = 0 RETURNING id

-- name: note_parts_end
-- It was tried, and may have arrived nowhere: a repeat would tell of what is over.
UPDATE outbox_parts SET state = 'undelivered', error = $2, changed_at = $3 WHERE outbox_no = $1 AND state = 'waiting'

-- name: note_parts
SELECT p.state, p.attempts FROM outbox_parts p WHERE p.outbox_no = $1 ORDER BY p.number

-- name: note_part_gone
INSERT INTO outbox_parts (id, outbox_no, chat_no, account, number, state, body, next_at, give_up_at, changed_at)
SELECT $1, o.outbox_no, o.chat_no, o.account, 1, 'waiting', $3, $4, $5, $4 FROM outbox o WHERE o.outbox_no = $2

-- name: notes_aged
SELECT 1 FROM notifications WHERE created_at < $1 LIMIT 1

-- name: notes_prune
DELETE FROM outbox WHERE outbox_no IN (SELECT n.outbox_no FROM notifications n WHERE n.created_at < $1 LIMIT $2)
RETURNING outbox_no

-- name: run_of_turn
SELECT o.id, c.settings FROM occurrences o JOIN schedules c ON c.schedule_no = o.schedule_no WHERE o.turn_no = $1
