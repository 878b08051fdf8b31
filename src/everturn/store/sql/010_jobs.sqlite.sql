-- Jobs: commands that outlive their tool call. schema_min stays 6: an older program never looks at this table, and a
-- session that it purges takes its rows along; the machine that runs such a job finds no row and stops it.
UPDATE meta SET value = '10' WHERE name = 'schema';

-- jobs: each is a row before its command starts. `machine` (NULL with SQLite) and `boot_id` say where it runs, `worker`
-- which server watches it there. `when_ended`: whether its end wakes the agent, tells the user or is only recorded; the
-- transaction that ends the job does that, so it is done once. `stop_asked_at`: any worker asks, the watching one stops it.
-- `shown_bytes`: how much of its output the session's events hold. `output_file`: all that was kept, once it has ended.
CREATE TABLE jobs (
  job_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  session_no INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  turn_id TEXT NOT NULL,
  call_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running','ended','stopped','lost')),
  command TEXT NOT NULL,
  workspace TEXT NOT NULL,
  profile TEXT,
  is_sandboxed INTEGER NOT NULL,
  when_ended TEXT NOT NULL CHECK (when_ended IN ('wake','tell','record')),
  machine TEXT,
  boot_id TEXT NOT NULL,
  worker TEXT,
  output_bytes_max INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  stop_asked_at INTEGER,
  shown_bytes INTEGER NOT NULL DEFAULT 0,
  ended_at INTEGER,
  exit_code INTEGER,
  detail TEXT NOT NULL DEFAULT '',
  output_bytes INTEGER NOT NULL DEFAULT 0,
  output_file TEXT,
  CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX jobs_of_session ON jobs (session_no, job_no);
CREATE INDEX jobs_running ON jobs (job_no) WHERE state = 'running';
CREATE INDEX jobs_lost ON jobs (ended_at) WHERE state = 'lost';

-- The moves of domain/jobs.py, repeated: a job ends once.
CREATE TRIGGER jobs_move BEFORE UPDATE OF state ON jobs
WHEN OLD.state <> NEW.state AND OLD.state <> 'running'
BEGIN
  SELECT RAISE(ABORT, 'job state move not allowed');
END;
