-- $1 replica, $2 its last observed heartbeat.
UPDATE replica SET removed = clock_timestamp() WHERE id = $1 AND heartbeat = $2 AND removed IS NULL
RETURNING id
