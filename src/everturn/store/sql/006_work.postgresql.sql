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
