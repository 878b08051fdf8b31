-- Parameters of models, as JSON: of a session, and of a turn as they were when it was accepted. NULL: none. schema_min stays
-- 12: an older program answers without them.
UPDATE meta SET value = '14' WHERE name = 'schema';
ALTER TABLE sessions ADD COLUMN parameters TEXT;
ALTER TABLE turns ADD COLUMN parameters TEXT;
