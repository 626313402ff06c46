-- $1 id to start after, $2 limit.
SELECT t.id, t.context, t.position, t.state, t.status_time, t.holder, s.agent, s.tenant, s.owner
FROM (SELECT * FROM task WHERE NOT ended AND NOT parked AND id > $1 ORDER BY id LIMIT $2) t
    JOIN scope s ON s.number = t.scope
ORDER BY t.id
