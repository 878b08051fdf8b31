-- Work as durable as words. schema_min stays 5: a program that knows schema 5 leaves these tables alone.
UPDATE meta SET value = '6' WHERE name = 'schema';
