-- $1 replica, $2 removed replica, $3 limit.
WITH orphan AS (
    SELECT number FROM push_config
    WHERE delivery_state = 0 AND holder = $2 AND EXISTS (SELECT FROM replica r WHERE r.id = $1 AND r.removed IS NULL)
    ORDER BY number LIMIT $3 FOR UPDATE SKIP LOCKED
), p AS (
    UPDATE push_config p SET holder = $1 FROM orphan WHERE p.number = orphan.number RETURNING p.*
)
SELECT t.id, t.context, t.position, t.state, t.status_time, t.holder, s.agent, s.tenant, s.owner,
    p.number, p.generation, p.body, p.position, p.attempts, p.due, p.delivery_state, p.reason, p.holder
FROM p JOIN task t ON t.number = p.task JOIN scope s ON s.number = t.scope
ORDER BY p.number
