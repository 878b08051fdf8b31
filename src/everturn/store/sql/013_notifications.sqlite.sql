-- Notifications. schema_min stays 12: an older program never looks at these tables. What it causes is not notified.
UPDATE meta SET value = '13' WHERE name = 'schema';

-- push_subscriptions: where an owner's notifications go: browsers, webhooks, services, chats. Each has a chat of its own in
-- `chats`, whose parts the sender keeps in order; that of the kind 'chat' is a chat of a messaging platform. `address`: JSON
-- without secrets. `mark`: the same for the same target. `kinds`: chosen by the owner, separated by spaces. `ended_at`: the
-- service says that it is gone.
CREATE TABLE push_subscriptions (
  device_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  kinds TEXT NOT NULL,
  address TEXT NOT NULL,
  has_buttons INTEGER NOT NULL,
  mark TEXT NOT NULL,
  chat_no INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
  created_at INTEGER NOT NULL,
  sent_at INTEGER,
  ended_at INTEGER,
  error TEXT NOT NULL DEFAULT '',
  UNIQUE (owner, mark)
);
CREATE INDEX push_subscriptions_of_chat ON push_subscriptions (chat_no);

-- notifications: rows of the outbox that tell a person something, written by the transaction that caused it. `cause`: the id
-- of an ask, a turn, a job, a schedule or one of its runs. `words`: what that transaction had to say. `due_at`: when to look
-- whether the cause is still there. 'shown' is looked at again: it is withdrawn once the cause is gone.
CREATE TABLE notifications (
  note_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  outbox_no INTEGER NOT NULL UNIQUE REFERENCES outbox ON DELETE CASCADE,
  device_no INTEGER NOT NULL REFERENCES push_subscriptions ON DELETE CASCADE,
  kind TEXT NOT NULL,
  cause TEXT NOT NULL,
  words TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('due','shown','dropped','withdrawn')),
  created_at INTEGER NOT NULL,
  due_at INTEGER NOT NULL
);
CREATE INDEX notifications_due ON notifications (due_at) WHERE state = 'due';
CREATE INDEX notifications_shown ON notifications (note_no) WHERE state = 'shown';
CREATE INDEX notifications_of_device ON notifications (device_no);
CREATE INDEX notifications_aging ON notifications (created_at);

-- The table of moves of domain/notifications.py, repeated: everything else is refused.
CREATE TRIGGER notifications_move BEFORE UPDATE OF state ON notifications
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES
  ('due','shown'), ('due','dropped'), ('shown','dropped'), ('shown','withdrawn'))
BEGIN
  SELECT RAISE(ABORT, 'notification state move not allowed');
END;
