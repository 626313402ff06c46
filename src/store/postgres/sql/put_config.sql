-- $1 agent, $2 tenant, $3 owner, $4 task id, $5 webhook id, $6 body, $7 replica.
INSERT INTO push_config (task, scope, id, body, position, holder)
SELECT t.number, t.scope, $5::bytea, $6::bytea, t.position, (SELECT id FROM replica WHERE id = $7 AND removed IS NULL)
FROM task t
WHERE t.id = $4 AND t.scope = (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3)
FOR KEY SHARE OF t
ON CONFLICT (task, id) DO UPDATE
SET body = excluded.body, generation = push_config.generation + 1, attempts = 0, due = 0, delivery_state = 0, reason = '',
    holder = excluded.holder
