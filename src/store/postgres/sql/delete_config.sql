-- $1 agent, $2 tenant, $3 owner, $4 task id, $5 webhook id.
DELETE FROM push_config p USING task t
WHERE t.id = $4 AND t.scope = (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3)
    AND p.task = t.number AND p.id = $5
