-- What is due later. schema_min stays 6: an older program never looks at these tables, and needs none of their rows.
UPDATE meta SET value = '9' WHERE name = 'schema';

-- schedules: what runs on its own, and when. `version` grows with every change and every settled time: a worker that has
-- read an older one settles nothing. `settings`: JSON. `session_id`: of its runs; not a reference: a session that was
-- purged is found missing. `due_at`: the next time; NULL: there is none. `look_at`: when a worker has to look: at
-- `due_at`, or later while a run waits for the one before; NULL: paused or over. `settled_at`: of the last settled time.
CREATE TABLE schedules (
  schedule_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  version INTEGER NOT NULL,
  settings TEXT NOT NULL,
  session_id TEXT,
  due_at INTEGER,
  look_at INTEGER,
  settled_at INTEGER NOT NULL,
  paused_at INTEGER,
  pause_reason TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  CHECK (look_at IS NULL OR (due_at IS NOT NULL AND paused_at IS NULL))
);
CREATE INDEX schedules_of_owner ON schedules (owner, id);
CREATE INDEX schedules_look ON schedules (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX schedules_settled ON schedules (settled_at) WHERE look_at IS NOT NULL;

-- occurrences: each time of a schedule once, with its fate; what ran came with its turn in one transaction.
CREATE TABLE occurrences (
  occurrence_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  schedule_no INTEGER NOT NULL REFERENCES schedules ON DELETE CASCADE,
  due_at INTEGER NOT NULL,
  fate TEXT NOT NULL CHECK (fate IN ('ran','caught_up','skipped','missed')),
  reason TEXT NOT NULL,
  is_manual INTEGER NOT NULL,
  turn_no INTEGER REFERENCES turns ON DELETE SET NULL,
  created_at INTEGER NOT NULL,
  UNIQUE (schedule_no, due_at),
  CHECK (turn_no IS NULL OR fate IN ('ran','caught_up'))
);
CREATE INDEX occurrences_of_turn ON occurrences (turn_no) WHERE turn_no IS NOT NULL;
