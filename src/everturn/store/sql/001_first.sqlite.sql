-- The first schema. What each table promises stands above it; both databases keep the same promises.
-- Times are milliseconds since 1970. Numbers (…_no) are ours alone; ids are what the world sees.

-- meta: schema version and watermarks.
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- moves: the turn-state table of domain/turns.py, repeated; a trigger refuses everything else.
CREATE TABLE moves (old TEXT NOT NULL, new TEXT NOT NULL, PRIMARY KEY (old, new)) WITHOUT ROWID;
INSERT INTO moves VALUES
  ('queued','running'), ('queued','cancelled'), ('queued','failed'),
  ('running','waiting'), ('running','completed'), ('running','cancelled'), ('running','failed'),
  ('running','interrupted'),
  ('waiting','running'), ('waiting','cancelled'), ('waiting','failed'), ('waiting','interrupted'),
  ('interrupted','running');

-- sessions: one row per conversation, exact in the transaction that changes it. The columns after
-- `pruned_through` are derived from the truth (turns, messages, asks) and can be rebuilt.
CREATE TABLE sessions (
  session_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  version INTEGER NOT NULL,
  transcript_version INTEGER NOT NULL DEFAULT 1, -- the version at which its transcript last changed
  created_at INTEGER NOT NULL,
  title TEXT NOT NULL,
  is_title_given INTEGER NOT NULL,
  head_no INTEGER,
  redo_no INTEGER,
  redo_all INTEGER NOT NULL DEFAULT 0,   -- redo goes to redo_no at once (after clear), not step by step
  pinned INTEGER NOT NULL,
  archived INTEGER NOT NULL,
  private INTEGER NOT NULL,
  tags TEXT NOT NULL,
  project TEXT,
  profile TEXT,
  model TEXT,
  is_unread INTEGER NOT NULL,
  pruned_through INTEGER NOT NULL DEFAULT 0,
  active_no INTEGER,
  active_state TEXT,
  last_state TEXT,
  queued INTEGER NOT NULL DEFAULT 0,
  asks INTEGER NOT NULL DEFAULT 0,
  messages INTEGER NOT NULL DEFAULT 0,
  preview TEXT NOT NULL DEFAULT ''
);
CREATE INDEX sessions_pinned ON sessions (owner, session_no) WHERE pinned = 1;
CREATE INDEX sessions_key ON sessions (owner, key) WHERE key <> '';

-- tails: where a session's journal ends, and when it last moved. Narrow, because every batch of events
-- updates it. Its row is the session's lock: every write takes it first, in session_no order.
CREATE TABLE tails (
  session_no INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  owner TEXT NOT NULL,
  archived INTEGER NOT NULL,
  position INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
);
CREATE INDEX tails_by_activity ON tails (owner, archived, updated_at, session_no);

-- turns: an append-only tree; `parent_no` is set when the turn is claimed. At most one turn of a session
-- is running or waiting. `is_ready`: no worker holds it and it may be claimed (answered, handed over,
-- taken over, resumed by hand); `ready_reason` says which.
CREATE TABLE turns (
  turn_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  session_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  parent_no INTEGER,
  has_parent INTEGER NOT NULL DEFAULT 0, -- parent_no is decided (NULL then means: a root)
  place INTEGER NOT NULL DEFAULT 0,      -- order in the queue
  kind TEXT NOT NULL,
  state TEXT NOT NULL CHECK
    (state IN ('queued','running','waiting','completed','cancelled','failed','interrupted')),
  epoch INTEGER NOT NULL,
  worker TEXT,
  is_ready INTEGER NOT NULL,
  ready_reason TEXT NOT NULL DEFAULT '',
  attempts INTEGER NOT NULL DEFAULT 0,
  model TEXT,
  profile TEXT,
  note TEXT NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL,
  started_at INTEGER,
  ended_at INTEGER,
  stopped_at INTEGER,
  first_position INTEGER NOT NULL,
  failure TEXT,
  recovery TEXT NOT NULL DEFAULT 'none' CHECK (recovery IN ('none','pending','recovered','final')),
  recovery_attempts INTEGER NOT NULL DEFAULT 0,
  recovered_at INTEGER,
  usage TEXT,
  timeline TEXT,
  is_pruned INTEGER NOT NULL DEFAULT 0,
  is_off_path INTEGER NOT NULL DEFAULT 0, -- undone, or another sibling is shown
  is_late INTEGER NOT NULL DEFAULT 0,     -- late events have arrived since the last fold
  CHECK (worker IS NULL OR state = 'running'),
  CHECK (NOT (is_ready = 1 AND worker IS NOT NULL)),
  CHECK ((state IN ('completed','cancelled','failed','interrupted')) = (ended_at IS NOT NULL)),
  CHECK (has_parent = 1 OR state IN ('queued','cancelled','failed'))
);
CREATE UNIQUE INDEX turns_active ON turns (session_no) WHERE state IN ('running','waiting');
CREATE INDEX turns_queued ON turns (session_no, place) WHERE state = 'queued';
CREATE INDEX turns_ready ON turns (turn_no) WHERE is_ready = 1;
CREATE INDEX turns_of_worker ON turns (worker) WHERE worker IS NOT NULL;
CREATE INDEX turns_of_session ON turns (session_no, parent_no);
CREATE INDEX turns_pending ON turns (session_no) WHERE recovery = 'pending' OR is_late = 1;
CREATE INDEX turns_to_prune ON turns (ended_at) WHERE is_pruned = 0 AND ended_at IS NOT NULL;
CREATE TRIGGER turns_move BEFORE UPDATE OF state ON turns
WHEN old.state <> new.state AND NOT EXISTS (SELECT 1 FROM moves WHERE old = old.state AND new = new.state)
BEGIN SELECT RAISE(ABORT, 'turn state move not allowed'); END;

-- writers: who wrote a turn in which epoch, and the number of the last event that is in the journal.
-- A batch that is sent again is recognised by its numbers. Sealed: nothing more will come.
CREATE TABLE writers (
  turn_no INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
  epoch INTEGER NOT NULL,
  worker TEXT NOT NULL,
  number INTEGER NOT NULL,
  is_sealed INTEGER NOT NULL,
  PRIMARY KEY (turn_no, epoch)
) WITHOUT ROWID;
CREATE INDEX writers_unsealed ON writers (worker) WHERE is_sealed = 0;

-- events: the journal, in arrival order, with a narrow unique index. An event never changes. Its kind is
-- the first field of `data`, which is the JSON that goes over the wire; `crc` is checked on reading.
CREATE TABLE events (
  seq INTEGER PRIMARY KEY,
  session_no INTEGER NOT NULL,
  position INTEGER NOT NULL,
  turn_no INTEGER,
  epoch INTEGER NOT NULL,
  number INTEGER NOT NULL,
  owner TEXT NOT NULL,
  is_late INTEGER NOT NULL,
  at INTEGER NOT NULL,
  crc INTEGER NOT NULL,
  data BLOB NOT NULL
);
CREATE UNIQUE INDEX events_by_position ON events (session_no, position);

-- messages: the transcript, ordered inside its turn. A message's id follows from its turn and ordinal.
-- `text` is what search indexes; `parts` holds the rest, without repeating the text.
CREATE TABLE messages (
  message_no INTEGER PRIMARY KEY AUTOINCREMENT,
  owner TEXT NOT NULL,
  session_no INTEGER NOT NULL,
  turn_no INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('user','assistant','tool','summary')),
  flags INTEGER NOT NULL,
  model TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  text TEXT NOT NULL,
  parts BLOB
);
CREATE UNIQUE INDEX messages_of_turn ON messages (turn_no, ordinal);

-- message_index: the search index over messages.text, filled up to the watermark `indexed_through`.
CREATE VIRTUAL TABLE message_index USING fts5(
  text, content='messages', content_rowid='message_no', tokenize='unicode61 remove_diacritics 2');
INSERT INTO message_index(message_index, rank) VALUES ('secure-delete', 1);

-- requests: idempotency keys, alive as long as their session; the first answer is kept.
CREATE TABLE requests (
  session_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  key TEXT NOT NULL,
  owner TEXT NOT NULL,
  digest TEXT NOT NULL,
  answer TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (session_no, key)
) WITHOUT ROWID;

-- creations: idempotency keys of requests that made a session.
CREATE TABLE creations (
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  digest TEXT NOT NULL,
  session_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  PRIMARY KEY (owner, key)
) WITHOUT ROWID;

-- steering: messages sent into a running turn, until it takes them at a step boundary. If the turn ends
-- first, they become queued turns in the transaction that ends it.
CREATE TABLE steering (
  steering_no INTEGER PRIMARY KEY AUTOINCREMENT,
  owner TEXT NOT NULL,
  turn_no INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
  text TEXT NOT NULL,
  attachments TEXT NOT NULL,
  created_at INTEGER NOT NULL
);
CREATE INDEX steering_of_turn ON steering (turn_no, steering_no);

-- asks: approvals and questions, open until answered.
CREATE TABLE asks (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  session_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  turn_no INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
  topic TEXT NOT NULL,
  call_id TEXT,
  body TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  answer TEXT,
  answered_by TEXT,
  answered_at INTEGER
) WITHOUT ROWID;
CREATE INDEX asks_open ON asks (owner, created_at) WHERE answer IS NULL;
CREATE INDEX asks_of_turn ON asks (turn_no);

-- files: uploads and artifacts; the bytes lie in the data folder under their hash and are on disk before
-- the row. file_uses says which sessions refer to a file; without one it is swept.
CREATE TABLE files (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  media_type TEXT NOT NULL,
  size INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX files_by_hash ON files (sha256);
CREATE TABLE file_uses (
  file_id TEXT NOT NULL REFERENCES files ON DELETE CASCADE,
  session_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  PRIMARY KEY (file_id, session_no)
) WITHOUT ROWID;
CREATE INDEX file_uses_of_session ON file_uses (session_no);

-- workers: one row per process that runs turns. On SQLite the lock file says who is alive; across
-- machines the lease does, by the database's clock.
CREATE TABLE workers (
  id TEXT PRIMARY KEY,
  folder TEXT NOT NULL,
  registered_at INTEGER NOT NULL,
  seen_at INTEGER NOT NULL,
  lease_until INTEGER
) WITHOUT ROWID;

-- owed: completed turns that a memory provider is to take in, each with the handle that saw it and the
-- worker that has this handle. Once settled, the row stays with its turn, which is so never owed twice.
CREATE TABLE owed (
  turn_no INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
  provider TEXT NOT NULL,
  owner TEXT NOT NULL,
  session_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  handle TEXT NOT NULL DEFAULT '',
  worker TEXT NOT NULL DEFAULT '',
  owed_at INTEGER NOT NULL,
  settled_at INTEGER,
  PRIMARY KEY (turn_no, provider)
) WITHOUT ROWID;
CREATE INDEX owed_open ON owed (session_no, owed_at, turn_no) WHERE settled_at IS NULL;

-- commits: the commit of a session that is under way, failed, or has an unknown outcome: at most one per
-- session. It is tried again with the same turns and the same key until the provider says that it has them.
CREATE TABLE commits (
  session_no INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  owner TEXT NOT NULL,
  provider TEXT NOT NULL,
  handle TEXT NOT NULL,
  from_turn TEXT NOT NULL,
  to_turn TEXT NOT NULL,
  turns TEXT NOT NULL,                 -- their numbers, as JSON
  holder TEXT NOT NULL,                -- who runs it now; '' if nobody does
  held_until INTEGER NOT NULL,          -- after this anybody may take it
  attempts INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  failed_at INTEGER,
  retry_at INTEGER,
  error TEXT
);

-- recalls: what memory gave to a session's first prompt, kept so that every later turn sends the same bytes.
-- Forgetting something removes the owner's recalls.
CREATE TABLE recalls (
  session_no INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  owner TEXT NOT NULL,
  text TEXT NOT NULL,
  made_at INTEGER NOT NULL
);

-- spendings: what was spent outside of turns, such as the extraction of memories.
CREATE TABLE spendings (
  owner TEXT NOT NULL,
  at INTEGER NOT NULL,
  purpose TEXT NOT NULL,
  model TEXT NOT NULL,
  usage TEXT NOT NULL
);
CREATE INDEX spendings_by_time ON spendings (owner, at);

-- tombstones: deleted sessions; late deliveries for them are refused.
CREATE TABLE tombstones (id TEXT PRIMARY KEY, owner TEXT NOT NULL, deleted_at INTEGER NOT NULL) WITHOUT ROWID;

-- records: small durable things by owner, kind and name.
CREATE TABLE records (
  owner TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (owner, kind, name)
) WITHOUT ROWID;

INSERT INTO meta VALUES ('indexed_through', '0'), ('schema', '1');
