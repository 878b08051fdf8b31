-- Queries of jobs.

-- macro: job_columns
j.job_no, j.id, s.id AS session_id, s.owner, j.turn_id, j.call_id, j.state, j.command, j.workspace, j.profile, j.is_sandboxed,
j.when_ended, j.machine, j.boot_id, j.worker, j.output_bytes_max, j.started_at, j.stop_asked_at, j.shown_bytes, j.ended_at, j.exit_code,
j.detail, j.output_bytes, j.output_file,
CASE WHEN EXISTS (SELECT 1 FROM workers w WHERE w.id = j.worker AND coalesce(w.lease_until, 1) > 0) THEN 1 ELSE 0 END AS is_watched

-- name: job_insert
INSERT INTO jobs (id, session_no, turn_id, call_id, state, command, workspace, profile, is_sandboxed, when_ended, machine, boot_id,
  worker, output_bytes_max, started_at)
VALUES ($1, $2, $3, $4, 'running', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

-- name: job_get
SELECT {job_columns} FROM jobs j JOIN sessions s ON s.session_no = j.session_no WHERE j.id = $1

-- name: jobs_list
-- The newest first. $2: of one session; empty: of all that are not deleted. $3: before this one; 0: from the newest on.
SELECT {job_columns} FROM jobs j JOIN sessions s ON s.session_no = j.session_no
WHERE s.owner = $1 AND s.deleted_at IS NULL AND ($2 = '' OR s.id = $2) AND ($3 = 0 OR j.job_no < $3)
ORDER BY j.job_no DESC LIMIT $4

-- name: jobs_lost
-- Of an owner, since $2, the newest first.
SELECT {job_columns} FROM jobs j JOIN sessions s ON s.session_no = j.session_no
WHERE j.state = 'lost' AND j.ended_at >= $2 AND s.owner = $1 AND s.deleted_at IS NULL ORDER BY j.job_no DESC LIMIT $3

-- name: jobs_running
-- Of all owners, the oldest first.
SELECT {job_columns} FROM jobs j JOIN sessions s ON s.session_no = j.session_no WHERE j.state = 'running' ORDER BY j.job_no

-- name: jobs_running_count
SELECT count(*) FROM jobs WHERE session_no = $1 AND state = 'running'

-- name: jobs_running_of_session
SELECT id FROM jobs WHERE session_no = $1 AND state = 'running' ORDER BY job_no

-- name: job_watch
UPDATE jobs SET worker = $2 WHERE job_no = $1

-- name: job_stop
UPDATE jobs SET stop_asked_at = $2 WHERE job_no = $1 AND stop_asked_at IS NULL

-- name: jobs_stop_of_session
UPDATE jobs SET stop_asked_at = $2 WHERE session_no = $1 AND state = 'running' AND stop_asked_at IS NULL

-- name: job_when_ended
UPDATE jobs SET when_ended = $2 WHERE job_no = $1

-- name: job_shown
UPDATE jobs SET shown_bytes = $2 WHERE job_no = $1

-- name: job_end
UPDATE jobs SET state = $2, ended_at = $3, exit_code = $4, detail = $5, output_bytes = $6, output_file = $7 WHERE job_no = $1
