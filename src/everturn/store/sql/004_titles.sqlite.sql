-- titles: what the list is searched in, folded to plain lower case; a row for each session with a title or tags.
-- title_index finds parts of it by their three-letter pieces, whatever the number of sessions.
CREATE TABLE titles (
  session_no INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
  text TEXT NOT NULL
);
CREATE VIRTUAL TABLE title_index USING fts5(
  text, content='titles', content_rowid='session_no', tokenize='trigram case_sensitive 1', detail=none, columnsize=0);
INSERT INTO title_index(title_index, rank) VALUES ('secure-delete', 1);

-- recent_index: the newest messages once more, those after `recent_after` and up to `indexed_through`. What many
-- messages hold is found here, and the beginnings of words above all: in the whole index, each word that begins so
-- would have to be read.
CREATE VIRTUAL TABLE recent_index USING fts5(
  text, content='messages', content_rowid='message_no', tokenize='unicode61 remove_diacritics 2', prefix='2 3');
INSERT INTO recent_index(recent_index, rank) VALUES ('secure-delete', 1);
INSERT INTO meta SELECT 'recent_after', max(0, coalesce(max(message_no), 0) - 5000) FROM messages;
INSERT INTO recent_index(rowid, text) SELECT message_no, text FROM messages
  WHERE message_no > (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'recent_after')
    AND message_no <= (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'indexed_through');
UPDATE meta SET value = '4' WHERE name = 'schema';
