-- $1 time, $2 limit.
SELECT t.id, t.context, t.position, t.state, t.status_time, t.holder, s.agent, s.tenant, s.owner
FROM (SELECT * FROM task WHERE ended AND status_time < $1 ORDER BY status_time LIMIT $2) t
    JOIN scope s ON s.number = t.scope
ORDER BY t.status_time
