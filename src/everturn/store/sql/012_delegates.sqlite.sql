-- Delegates: sessions that work for a turn of another session. schema_min becomes 12: an older program would end a
-- delegate's turn without storing its result, and show people what a parent waits for as a question.
UPDATE meta SET value = '12' WHERE name = 'schema';
UPDATE meta SET value = '12' WHERE name = 'schema_min';

-- delegates: each is a session of the kind 'delegate' with a turn, made by one tool call of its parent's turn. The row is a
-- part of the parent's session and goes with it; the delegate's own session may go earlier. `root_no`, `root_turn_no`: the
-- session and the turn at the top of the tree. `tools`: the only ones that it may use; NULL: those of its profile. `base`: the
-- tree that its folder began with. `result` is stored by the transaction that ends the turn; `given_at`: the parent has it.
-- `ask_id`: by which the parent's turn waits. `stop_asked_at`: any worker asks, upkeep cancels the turn.
CREATE TABLE delegates (
  delegate_no INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL UNIQUE,
  session_no INTEGER NOT NULL UNIQUE,
  turn_id TEXT NOT NULL,
  turn_no INTEGER NOT NULL UNIQUE,
  parent_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  parent_turn TEXT NOT NULL,
  call_id TEXT NOT NULL,
  ordinal INTEGER NOT NULL,
  root_no INTEGER NOT NULL,
  root_id TEXT NOT NULL,
  root_turn_no INTEGER NOT NULL,
  name TEXT NOT NULL,
  depth INTEGER NOT NULL CHECK (depth > 0),
  tools TEXT,
  base TEXT NOT NULL,
  is_waited INTEGER NOT NULL,
  is_tainted INTEGER NOT NULL,
  ask_id TEXT,
  created_at INTEGER NOT NULL,
  stop_asked_at INTEGER,
  ended_at INTEGER,
  result TEXT,
  given_at INTEGER,
  applied_at INTEGER,
  refused_at INTEGER,
  UNIQUE (parent_turn, call_id, ordinal),
  CHECK ((ended_at IS NULL) = (result IS NULL)),
  CHECK (given_at IS NULL OR ended_at IS NOT NULL)
);
CREATE INDEX delegates_of_parent ON delegates (parent_no, delegate_no);
CREATE INDEX delegates_at_work ON delegates (root_no) WHERE ended_at IS NULL;
CREATE INDEX delegates_to_stop ON delegates (delegate_no) WHERE stop_asked_at IS NOT NULL AND ended_at IS NULL;
CREATE INDEX delegates_to_give ON delegates (delegate_no) WHERE ended_at IS NOT NULL AND given_at IS NULL;
CREATE INDEX sessions_of_delegates ON sessions (session_no) WHERE kind = 'delegate';
