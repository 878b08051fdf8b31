-- Work as durable as words. schema_min is 6: an older program looks for the bytes of files in files/ only, would answer
-- without attachments that it does not find there, and would sweep bytes there that other tables name now.
UPDATE meta SET value = '6' WHERE name IN ('schema', 'schema_min');

-- ---------------------------------------------------------------- blobs

-- packs: where bytes are. A pack holds many small blobs or one large one. Its row is there before its bytes and until
-- they are gone, so nothing that was written is forgotten. `place` is 'folder' (the data folder), 'database'
-- (pack_bytes) or the address of an object storage; `path` is its name there. `sealed_at`: its bytes are durable; NULL
-- while it is written. `marked_at`: no blob will use it any more; its bytes are deleted when they were marked for a while.
CREATE TABLE packs (
  id TEXT PRIMARY KEY,
  place TEXT NOT NULL,
  path TEXT NOT NULL,
  size INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  sealed_at INTEGER,
  marked_at INTEGER
);
CREATE INDEX packs_unsealed ON packs (created_at) WHERE sealed_at IS NULL;
CREATE INDEX packs_marked ON packs (marked_at) WHERE marked_at IS NOT NULL;

-- blobs: bytes by their hash, at `start` in a pack. `checksums`: CRC-32 of each chunk of a mebibyte, four bytes each,
-- big-endian; empty if there is only one chunk, which the hash itself verifies; NULL if not computed yet.
-- `touched_at`: when the blob was last stored or found; it is not collected within a day. `marked_at`: nothing named it
-- when it was looked at: these bytes, in this place, will be deleted. Storing the same bytes again writes them to a
-- new pack and points the row there; a mark is never taken back. `damaged_at`: a read found the bytes damaged;
-- storing them again does the same.
CREATE TABLE blobs (
  sha256 TEXT PRIMARY KEY,
  size INTEGER NOT NULL,
  pack TEXT NOT NULL REFERENCES packs,
  start INTEGER NOT NULL,
  checksums BLOB,
  touched_at INTEGER NOT NULL,
  marked_at INTEGER,
  damaged_at INTEGER
);
CREATE INDEX blobs_of_pack ON blobs (pack);
CREATE INDEX blobs_marked ON blobs (sha256) WHERE marked_at IS NOT NULL;

-- The bytes of files stay where they are: each is a pack of its own. Their checksums are computed when they are read.
INSERT INTO packs (id, place, path, size, created_at, sealed_at)
  SELECT 'pck_' || sha256, 'folder', 'files/' || substr(sha256, 1, 2) || '/' || sha256, max(size), min(created_at),
    min(created_at) FROM files GROUP BY sha256;
INSERT INTO blobs (sha256, size, pack, start, checksums, touched_at)
  SELECT sha256, max(size), 'pck_' || sha256, 0, CASE WHEN max(size) <= 1048576 THEN x'' END, max(created_at)
    FROM files GROUP BY sha256;

-- Records said which bytes an interrupted sweep had still to delete. As packs without blobs they are collected.
INSERT INTO packs (id, place, path, size, created_at, sealed_at)
  SELECT 'pck_' || name, 'folder', 'files/' || substr(name, 1, 2) || '/' || name, 0, updated_at, updated_at
    FROM records WHERE owner = '' AND kind = 'swept' AND name NOT IN (SELECT sha256 FROM files);
DELETE FROM records WHERE owner = '' AND kind = 'swept';

-- ---------------------------------------------------------------- checkpoints

-- checkpoints: what a session's workspace held after a step. `tree` is the blob of its folder, `before` that of the
-- checkpoint before it. A row is written after its bytes are durable and before the event that names it, by the worker
-- that holds the turn (`epoch`). `call_id` NULL: what was found before the turn's first call. `body`: JSON, the first of
-- the changes and of what was left out, and how many there are.
CREATE TABLE checkpoints (
  checkpoint_no INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  session_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  turn_no INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
  call_id TEXT,
  epoch INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  before TEXT NOT NULL,
  tree TEXT NOT NULL,
  body TEXT NOT NULL
);
CREATE INDEX checkpoints_of_turn ON checkpoints (turn_no, checkpoint_no);
CREATE INDEX checkpoints_of_session ON checkpoints (session_no);

-- workspaces: the checkpoint that a session's folder was last seen to hold.
CREATE TABLE workspaces (
  session_no INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  checkpoint_no INTEGER NOT NULL REFERENCES checkpoints ON DELETE CASCADE
);
CREATE INDEX workspaces_checkpoint ON workspaces (checkpoint_no);
