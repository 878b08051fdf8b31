-- Queries of budgets and reservations.

-- macro: budget_columns
b.budget_no, b.id, b.owner, b.scope, b.unit, b.subject, b.amount, b.timezone, b.is_default, b.period_start, b.extra, b.spent,
b.estimated, b.reserved, b.unpriced_tokens

-- macro: budgets_applying
-- To a turn: $1 its owner, $2 its session, $3 itself. A delegate's turn counts for the session that it works for, too, and
-- for the schedule that runs there.
FROM budgets b WHERE b.owner = $1 AND (b.scope IN ('day','month') OR b.session_no = $2
OR b.session_no IN (WITH RECURSIVE up (session_no) AS (SELECT d.parent_no FROM delegates d WHERE d.session_no = $2
  UNION ALL SELECT d.parent_no FROM up JOIN delegates d ON d.session_no = up.session_no) SELECT up.session_no FROM up)
OR b.schedule_no IN (SELECT o.schedule_no FROM occurrences o
  WHERE o.turn_no = coalesce((SELECT d.root_turn_no FROM delegates d WHERE d.session_no = $2), $3))) ORDER BY b.budget_no

-- name: budgets_owners
SELECT DISTINCT owner FROM budgets

-- name: budgets_list
-- Not those of a session that is in the bin.
SELECT {budget_columns} FROM budgets b LEFT JOIN sessions s ON s.session_no = b.session_no
WHERE b.owner = $1 AND s.deleted_at IS NULL ORDER BY b.budget_no

-- name: budget_find
SELECT {budget_columns} FROM budgets b WHERE b.owner = $1 AND b.scope = $2 AND b.unit = $3 AND b.subject = $4

-- name: budget_get
SELECT {budget_columns} FROM budgets b WHERE b.id = $1

-- name: budgets_of_turn
SELECT {budget_columns} {budgets_applying}

-- name: budget_insert
INSERT INTO budgets (id, owner, scope, unit, subject, session_no, schedule_no, amount, timezone, is_default, period_start,
  created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (owner, scope, unit, subject) DO NOTHING

-- name: budget_change
UPDATE budgets SET amount = $2, timezone = $3, is_default = $4, period_start = $5, extra = 0 WHERE budget_no = $1

-- name: budget_write
UPDATE budgets SET period_start = $2, extra = $3, spent = $4, estimated = $5, reserved = $6, unpriced_tokens = $7
WHERE budget_no = $1

-- name: budget_raise
UPDATE budgets SET extra = extra + COALESCE($3, amount) WHERE id = $1 AND owner = $2

-- name: budget_delete
DELETE FROM budgets WHERE budget_no = $1

-- name: budget_settle
-- A call counts in the period in which it began.
UPDATE budgets SET reserved = reserved - $3, spent = spent + $4, estimated = estimated + $5,
  unpriced_tokens = unpriced_tokens + $6 WHERE budget_no = $1 AND period_start = $2

-- name: reservation_insert
INSERT INTO reservations (turn_no, epoch, step, call, budget_no, period_start, amount) VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: reservations_of_turn
SELECT r.epoch, r.step, r.call, r.budget_no, b.unit, r.period_start, r.amount
FROM reservations r JOIN budgets b ON b.budget_no = r.budget_no WHERE r.turn_no = $1 ORDER BY r.budget_no

-- name: reservation_delete
DELETE FROM reservations WHERE turn_no = $1 AND epoch = $2 AND step = $3 AND call = $4

-- name: reservations_move
UPDATE reservations SET period_start = $3 WHERE budget_no = $1 AND period_start = $2

-- name: reservations_held
-- What is reserved for calls that are under way, by budget: their worker still has the turn.
SELECT r.budget_no, r.period_start, CAST(sum(r.amount) AS BIGINT) AS amount
FROM reservations r JOIN turns t ON t.turn_no = r.turn_no JOIN budgets b ON b.budget_no = r.budget_no
WHERE b.owner = $1 AND t.state = 'running' AND t.worker IS NOT NULL AND t.epoch = r.epoch
GROUP BY r.budget_no, r.period_start

-- name: asks_about_budgets
SELECT a.id, a.owner, a.body FROM asks a JOIN sessions s ON s.session_no = a.session_no
WHERE a.answer IS NULL AND a.topic = 'budget' AND s.deleted_at IS NULL ORDER BY a.created_at, a.id
