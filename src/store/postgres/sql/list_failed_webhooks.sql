-- $1 number to start after, $2 limit.
SELECT t.id, t.context, t.position, t.state, t.status_time, t.holder, s.agent, s.tenant, s.owner,
    p.number, p.generation, p.body, p.position, p.attempts, p.due, p.delivery_state, p.reason, p.holder
FROM (
    SELECT * FROM push_config WHERE delivery_state = 2 AND number > $1 ORDER BY number LIMIT $2
) p JOIN task t ON t.number = p.task JOIN scope s ON s.number = t.scope
ORDER BY p.number
