-- $1 replica.
WITH me AS (
    UPDATE replica SET heartbeat = heartbeat + 1 WHERE id = $1 AND removed IS NULL RETURNING id
)
SELECT r.id, r.heartbeat, r.removed IS NULL AS live, EXISTS (SELECT FROM me) AS member,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now, m.format_level
FROM replica r, meta m
