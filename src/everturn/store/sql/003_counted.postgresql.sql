-- Counting turns by their state costs what is out of the ordinary: most turns are completed, and are the rest.
CREATE INDEX turns_not_completed ON turns (state) WHERE state IN ('cancelled','failed','interrupted');
CREATE INDEX turns_resumed ON turns (attempts) WHERE attempts > 0;
UPDATE meta SET value = '3' WHERE name = 'schema';
