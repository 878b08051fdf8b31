-- Work as durable as words. schema_min stays 5: a program that knows schema 5 leaves these tables alone.
UPDATE meta SET value = '6' WHERE name = 'schema';

-- ---------------------------------------------------------------- secrets

-- secrets: keys, tokens and private addresses, encrypted with a key that is not in the store. `name` is authenticated
-- with the text. `key_id` says with which key; the key for new rows is named by the record (system, secrets, key).
CREATE TABLE secrets (
  name TEXT PRIMARY KEY,
  key_id TEXT NOT NULL,
  nonce BYTEA NOT NULL,
  sealed BYTEA NOT NULL,
  changed_at BIGINT NOT NULL
);

-- secret_holders: the processes that have the secrets open and the ids of their keys, separated by spaces. A rotation
-- waits for those that lack the new key. Rows not renewed for a minute belong to processes that have gone.
CREATE TABLE secret_holders (
  id TEXT PRIMARY KEY,
  machine TEXT NOT NULL,
  key_ids TEXT NOT NULL,
  seen_at BIGINT NOT NULL
);

-- ---------------------------------------------------------------- blobs

-- packs: where bytes are. A pack holds many small blobs or one large one. Its row is there before its bytes and until
-- they are gone, so nothing that was written is forgotten. `place` is 'folder' (the data folder), 'database'
-- (pack_bytes) or the address of an object storage; `path` is its name there. `sealed_at`: its bytes are durable; NULL
-- while it is written. `marked_at`: no blob will use it any more; its bytes are deleted when they were marked for a while.
CREATE TABLE packs (
  id TEXT COLLATE "C" PRIMARY KEY,
  place TEXT NOT NULL,
  path TEXT NOT NULL,
  size BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  sealed_at BIGINT,
  marked_at BIGINT
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
  sha256 TEXT COLLATE "C" PRIMARY KEY,
  size BIGINT NOT NULL,
  pack TEXT COLLATE "C" NOT NULL REFERENCES packs,
  start BIGINT NOT NULL,
  checksums BYTEA,
  touched_at BIGINT NOT NULL,
  marked_at BIGINT,
  damaged_at BIGINT
);
CREATE INDEX blobs_of_pack ON blobs (pack);
CREATE INDEX blobs_marked ON blobs (sha256) WHERE marked_at IS NOT NULL;

-- pack_bytes: the bytes of a pack whose place is 'database', in pieces of a mebibyte; only the last one is shorter.
-- Not compressed: most of it is, and a part of a piece can be read without the rest.
CREATE TABLE pack_bytes (
  pack TEXT COLLATE "C" NOT NULL REFERENCES packs ON DELETE CASCADE,
  number BIGINT NOT NULL,
  data BYTEA NOT NULL,
  PRIMARY KEY (pack, number)
);
ALTER TABLE pack_bytes ALTER COLUMN data SET STORAGE EXTERNAL;

-- ---------------------------------------------------------------- notes

-- notes: the pages of memory, Markdown as the user wrote it. `sha256` is the hash of `content`: it tells which pages
-- have changed, and finds damage. Names that begin with a dot are no pages: '.taken' lists the turns that are noted.
CREATE TABLE notes (
  owner TEXT NOT NULL,
  page TEXT NOT NULL,
  content BYTEA NOT NULL,
  sha256 TEXT NOT NULL,
  changed_at BIGINT NOT NULL,
  PRIMARY KEY (owner, page)
);

-- ---------------------------------------------------------------- checkpoints

-- checkpoints: what a session's workspace held after a step. `tree` is the blob of its folder, `before` that of the
-- checkpoint before it. A row is written after its bytes are durable and before the event that names it, by the worker
-- that holds the turn (`epoch`). `call_id` NULL: what was found before the turn's first call. `body`: JSON, the first of
-- the changes and of what was left out, and how many there are.
CREATE TABLE checkpoints (
  checkpoint_no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id TEXT COLLATE "C" NOT NULL UNIQUE,
  session_no BIGINT NOT NULL REFERENCES sessions ON DELETE CASCADE,
  turn_no BIGINT NOT NULL REFERENCES turns ON DELETE CASCADE,
  call_id TEXT,
  epoch BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  before TEXT NOT NULL,
  tree TEXT NOT NULL,
  body TEXT NOT NULL
);
CREATE INDEX checkpoints_of_turn ON checkpoints (turn_no, checkpoint_no);
CREATE INDEX checkpoints_of_session ON checkpoints (session_no);

-- workspaces: the checkpoint that a session's folder was last seen to hold.
CREATE TABLE workspaces (
  session_no BIGINT PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  checkpoint_no BIGINT NOT NULL REFERENCES checkpoints ON DELETE CASCADE
);
CREATE INDEX workspaces_checkpoint ON workspaces (checkpoint_no);
