-- $1 replica, $2 number to start after, $3 limit.
SELECT t.id, t.context, t.position, t.state, t.status_time, t.holder, s.agent, s.tenant, s.owner, t.number
FROM (
    SELECT * FROM task WHERE holder = $1 AND NOT ended AND NOT parked AND number > $2 ORDER BY number LIMIT $3
) t JOIN scope s ON s.number = t.scope
ORDER BY t.number
