-- Claiming a turn and reading a stretch of the journal cost the same however long the session is: each needs
-- a way to the few turns it asks for that does not pass by all the others.
CREATE INDEX turns_ready_of_session ON turns (session_no) WHERE is_ready = 1;
CREATE INDEX turns_waiting ON turns (owner, turn_no) WHERE state = 'waiting';
CREATE INDEX turns_in_order ON turns (session_no, turn_no);
UPDATE meta SET value = '2' WHERE name = 'schema';
