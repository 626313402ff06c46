-- $1 replica.
WITH me AS (
    UPDATE replica SET removed = clock_timestamp() WHERE id = $1 AND removed IS NULL
), w AS (
    UPDATE push_config SET holder = NULL WHERE holder = $1 AND delivery_state = 0
)
UPDATE task SET holder = NULL WHERE holder = $1 AND NOT ended AND NOT parked
