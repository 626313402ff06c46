-- $1 replica, $2 removed replica, $3 agents, $4 limit. One holder per statement: with a list of holders PostgreSQL walks the primary key.
WITH orphan AS (
    SELECT t.number, s.agent, s.tenant, s.owner FROM task t JOIN scope s ON s.number = t.scope
    WHERE NOT t.ended AND NOT t.parked AND t.holder = $2
        AND (s.agent = ANY($3::text[])
            OR NOT EXISTS (SELECT FROM replica r WHERE r.removed IS NULL AND s.agent = ANY(r.agents)))
        AND EXISTS (SELECT FROM replica r WHERE r.id = $1 AND r.removed IS NULL)
    ORDER BY t.number LIMIT $4 FOR UPDATE OF t SKIP LOCKED
)
UPDATE task t SET holder = $1 FROM orphan s WHERE t.number = s.number
RETURNING t.id, t.context, t.position, t.state, t.status_time, t.holder, s.agent, s.tenant, s.owner
