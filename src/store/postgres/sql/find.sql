-- Task by its id, or else by its alias. $1 agent, $2 tenant, $3 owner, $4 id, $5 alias. The second part runs if the first is empty.
WITH s AS MATERIALIZED (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3)
(SELECT id, context, position, state, status_time, holder FROM task WHERE id = $4 AND scope = (SELECT number FROM s))
UNION ALL
(SELECT id, context, position, state, status_time, holder FROM task WHERE scope = (SELECT number FROM s) AND alias = $5)
LIMIT 1
