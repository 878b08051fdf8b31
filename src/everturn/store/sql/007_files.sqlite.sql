-- The files of a session at every point of its history. schema_min stays 6: an older program records no checkpoint and
-- moves the conversation only. It leaves the files where they are, as it always did, and a newer one finds them by its next
-- scan. Nothing recorded a checkpoint before this schema, so the two tables are made anew.
UPDATE meta SET value = '7' WHERE name = 'schema';
DROP TABLE workspaces;
DROP TABLE checkpoints;

-- checkpoints: what a session's workspace held. `tree` is the blob of its folder, `before` that of the checkpoint before
-- it. A row is written after its bytes are durable and before the event that names it. `cause`: 'call' (after a tool
-- call), 'found' (changes that no call reported), 'saved' (by a user, from the page) or 'restored'. `turn_no`: the turn that
-- made the changes or, if `epoch` is 0, the last turn before them; NULL: there was none. `epoch` is that of the worker
-- that held the turn. `body`: JSON, the first of the changes and of what was left out, and how many there are.
CREATE TABLE checkpoints (
  checkpoint_no INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  session_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  turn_no INTEGER REFERENCES turns ON DELETE CASCADE,
  call_id TEXT,
  epoch INTEGER NOT NULL,
  cause TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  before TEXT NOT NULL,
  tree TEXT NOT NULL,
  body TEXT NOT NULL
);
CREATE INDEX checkpoints_of_turn ON checkpoints (turn_no, checkpoint_no);
CREATE INDEX checkpoints_of_session ON checkpoints (session_no, turn_no, checkpoint_no);

-- workspaces: the folder of a session as a working copy. `checkpoint_no`: what it was last seen to hold; NULL: nothing
-- yet. `machine`: whose folder that is. `wanted`: the tree that it must hold, and with which `checkpoint_no` goes then;
-- NULL: it is there. `present`: the tree that it held when that was asked; NULL: not known, it must be looked at.
-- `choices`: JSON, what to do with files that were changed since the last checkpoint.
CREATE TABLE workspaces (
  session_no INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  checkpoint_no INTEGER REFERENCES checkpoints ON DELETE CASCADE,
  machine TEXT,
  wanted TEXT,
  present TEXT,
  choices TEXT
);
CREATE INDEX workspaces_checkpoint ON workspaces (checkpoint_no);
CREATE INDEX workspaces_wanted ON workspaces (session_no) WHERE wanted IS NOT NULL;

-- turns: `files` says what happens to the workspace when the turn is claimed, if it is asked instead of others (retry,
-- edit): JSON, as workspaces.choices. NULL: nothing.
ALTER TABLE turns ADD COLUMN files TEXT;
