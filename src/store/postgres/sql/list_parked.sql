-- $1 agent, $2 tenant, $3 owner, $4 limit.
SELECT id, context, position, state, status_time, holder FROM task
WHERE scope = (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3) AND parked AND NOT ended
ORDER BY status_time LIMIT $4
