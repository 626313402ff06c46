-- $1 agent, $2 tenant, $3 owner, $4 task id, $5 position, $6 body. The lock excludes a concurrent removal of the task.
INSERT INTO snapshot (task, position, body)
SELECT t.number, $5::bigint, $6::bytea FROM task t
WHERE t.id = $4 AND t.scope = (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3)
FOR KEY SHARE OF t
ON CONFLICT (task) DO UPDATE SET position = excluded.position, body = excluded.body
WHERE excluded.position >= snapshot.position
