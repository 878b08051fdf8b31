-- titles: what the list is searched in, folded to plain lower case; a row for each session with a title or tags.
-- title_index finds parts of it by their three-letter pieces, whatever the number of sessions.
CREATE TABLE titles (
  session_no INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  text TEXT NOT NULL
);
CREATE VIRTUAL TABLE title_index USING fts5(
  text, content='titles', content_rowid='session_no', tokenize='trigram case_sensitive 1', detail=none, columnsize=0);
INSERT INTO title_index(title_index, rank) VALUES ('secure-delete', 1);

-- message_index: the same words as before, and the beginnings of words, so that a search while somebody types does not
-- read every word that begins so.
DROP TABLE message_index;
CREATE VIRTUAL TABLE message_index USING fts5(
  text, content='messages', content_rowid='message_no', tokenize='unicode61 remove_diacritics 2', prefix='2 3 4');
INSERT INTO message_index(message_index, rank) VALUES ('secure-delete', 1);
INSERT INTO message_index(message_index) VALUES ('rebuild');
UPDATE meta SET value = (SELECT coalesce(max(message_no), 0) FROM messages) WHERE name = 'indexed_through';
UPDATE meta SET value = '4' WHERE name = 'schema';
