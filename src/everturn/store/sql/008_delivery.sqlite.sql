-- What enters and leaves on its own. schema_min stays 6: an older program never looks at these tables. A session that it
-- purges takes its messages in the outbox along, and the inbox keeps no text of a row that became a turn.
UPDATE meta SET value = '8' WHERE name = 'schema';

-- chats: a place where people talk to an account. Its row is the lock for everything that has an order in the chat.
-- `owner` and `profile` are those of its sessions. `session_id`: its current session; NULL: the next message starts one.
-- Not a reference: a session that was purged is found missing, and a new one is started. `last_number`: the highest
-- number of a message that the platform has delivered here; one with a lower number is late.
CREATE TABLE chats (
  chat_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  account TEXT NOT NULL,
  platform TEXT NOT NULL,
  kind TEXT NOT NULL,
  chat TEXT NOT NULL,
  thread TEXT NOT NULL,
  profile TEXT NOT NULL,
  title TEXT NOT NULL,
  session_id TEXT,
  last_number INTEGER,
  created_at INTEGER NOT NULL,
  UNIQUE (account, chat, thread)
);
CREATE INDEX chats_of_owner ON chats (owner, chat_no);
CREATE INDEX chats_of_session ON chats (session_id) WHERE session_id IS NOT NULL;

-- inbox: every update from an allowed sender, before it is acknowledged to the platform. `update_id` is the platform's:
-- an update that is delivered again finds its row. The rows of a chat are settled in their order. `body`: the update as
-- JSON; empty once the row is settled, because then its text is in the turn. `refusal`: JSON.
CREATE TABLE inbox (
  inbox_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  account TEXT NOT NULL,
  update_id TEXT NOT NULL,
  chat_no INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
  state TEXT NOT NULL CHECK (state IN ('received','accepted','refused')),
  received_at INTEGER NOT NULL,
  settled_at INTEGER,
  is_late INTEGER NOT NULL,
  body TEXT NOT NULL,
  turn_no INTEGER REFERENCES turns ON DELETE SET NULL,
  refusal TEXT,
  UNIQUE (account, update_id),
  CHECK ((state = 'received') = (settled_at IS NULL)),
  CHECK (state = 'received' OR body = ''),
  CHECK ((state = 'refused') = (refusal IS NOT NULL))
);
CREATE INDEX inbox_received ON inbox (chat_no, inbox_no) WHERE state = 'received';
CREATE INDEX inbox_waiting ON inbox (account, inbox_no) WHERE state = 'received';
CREATE INDEX inbox_settled ON inbox (received_at) WHERE settled_at IS NOT NULL;
CREATE INDEX inbox_of_turn ON inbox (turn_no) WHERE turn_no IS NOT NULL;

-- outbox: messages to chats, each once (`key`). The reply to a turn is owed from the transaction that makes the turn;
-- `recorded_at` NULL: it has no parts yet. What became of a message follows from its parts.
CREATE TABLE outbox (
  outbox_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  chat_no INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
  account TEXT NOT NULL,
  key TEXT NOT NULL,
  session_no INTEGER REFERENCES sessions ON DELETE CASCADE,
  turn_no INTEGER REFERENCES turns ON DELETE CASCADE,
  created_at INTEGER NOT NULL,
  recorded_at INTEGER,
  UNIQUE (chat_no, key)
);
CREATE INDEX outbox_owed ON outbox (account, outbox_no) WHERE recorded_at IS NULL;
CREATE INDEX outbox_of_turn ON outbox (turn_no) WHERE turn_no IS NOT NULL;
CREATE INDEX outbox_of_session ON outbox (session_no) WHERE session_no IS NOT NULL;

-- outbox_parts: what one send carries, in the order of the chat. A part is claimed before it is sent: if its sender dies
-- it is unknown, and never silently sent again. One part per chat is being sent. `epoch`: of the lease of its sender.
-- `body`: JSON; empty once it was sent. `next_at`: not before. `give_up_at`: not after. `is_repeat`: an earlier attempt may
-- have arrived. `external_id`: the platform's name of the message.
CREATE TABLE outbox_parts (
  part_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  outbox_no INTEGER NOT NULL REFERENCES outbox ON DELETE CASCADE,
  chat_no INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
  account TEXT NOT NULL,
  number INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting','sending','sent','unknown','held','undelivered')),
  body TEXT NOT NULL,
  epoch INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  is_repeat INTEGER NOT NULL DEFAULT 0,
  next_at INTEGER NOT NULL,
  give_up_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  external_id TEXT,
  error TEXT,
  UNIQUE (outbox_no, number),
  CHECK (state = 'sent' OR body <> '')
);
CREATE UNIQUE INDEX outbox_parts_sending ON outbox_parts (chat_no) WHERE state = 'sending';
CREATE INDEX outbox_parts_open ON outbox_parts (chat_no, part_no) WHERE state IN ('waiting','sending','unknown');
CREATE INDEX outbox_parts_waiting ON outbox_parts (account, next_at, part_no) WHERE state = 'waiting';
CREATE INDEX outbox_parts_aging ON outbox_parts (account, give_up_at) WHERE state = 'waiting';
CREATE INDEX outbox_parts_unknown ON outbox_parts (account, part_no) WHERE state = 'unknown';
CREATE INDEX outbox_parts_for_people ON outbox_parts (chat_no, part_no) WHERE state IN ('held','undelivered');

-- account_leases: which worker sends for an account. It holds as long as the worker's row in `workers` does. Each
-- new holder has a higher epoch, and what a former one writes is refused. `worker` NULL: none.
CREATE TABLE account_leases (
  account TEXT PRIMARY KEY,
  worker TEXT,
  epoch INTEGER NOT NULL
);

-- The tables of moves of domain/delivery.py, repeated: everything else is refused.
CREATE TRIGGER inbox_move BEFORE UPDATE OF state ON inbox
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES
  ('received','accepted'), ('received','refused'))
BEGIN
  SELECT RAISE(ABORT, 'inbox state move not allowed');
END;
CREATE TRIGGER outbox_parts_move BEFORE UPDATE OF state ON outbox_parts
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES
  ('waiting','sending'), ('waiting','undelivered'),
  ('sending','sent'), ('sending','waiting'), ('sending','unknown'), ('sending','undelivered'),
  ('unknown','waiting'), ('unknown','held'), ('held','waiting'), ('held','sent'),
  ('undelivered','waiting'))
BEGIN
  SELECT RAISE(ABORT, 'part state move not allowed');
END;
