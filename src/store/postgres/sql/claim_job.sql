-- $1 job, $2 period in milliseconds, $3 replica.
INSERT INTO scheduled_job AS j (name, due, replica)
VALUES ($1, clock_timestamp() + $2::bigint * interval '1 millisecond', $3)
ON CONFLICT (name) DO UPDATE SET due = excluded.due, replica = excluded.replica WHERE j.due <= clock_timestamp()
RETURNING true
