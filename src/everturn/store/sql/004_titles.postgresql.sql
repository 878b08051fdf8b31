-- titles: what the list is searched in, folded to plain lower case; a row for each session with a title or tags.
-- `grams` are the three-letter pieces of the text, by which its parts are found, whatever the number of sessions.
CREATE TABLE titles (
  session_no BIGINT PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  text TEXT COLLATE "C" NOT NULL,
  grams TEXT[] NOT NULL
);
CREATE INDEX titles_index ON titles USING gin (grams) WITH (gin_pending_list_limit = 256);
UPDATE meta SET value = '4' WHERE name = 'schema';
