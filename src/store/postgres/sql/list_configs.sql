-- $1 agent, $2 tenant, $3 owner, $4 task id.
SELECT p.body FROM task t JOIN push_config p ON p.task = t.number
WHERE t.id = $4 AND t.scope = (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3)
ORDER BY p.number
