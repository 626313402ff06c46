-- $1 agent, $2 tenant, $3 owner, $4 task id, $5 webhook id.
SELECT t.id, t.context, t.position, t.state, t.status_time, t.holder, s.agent, s.tenant, s.owner,
    p.number, p.generation, p.body, p.position, p.attempts, p.due, p.delivery_state, p.reason, p.holder
FROM scope s JOIN task t ON t.scope = s.number JOIN push_config p ON p.task = t.number
WHERE s.agent = $1 AND s.tenant = $2 AND s.owner = $3 AND t.id = $4 AND p.id = $5
