-- $1 agent, $2 tenant, $3 owner, $4 key, $5 oldest valid time.
SELECT t.id, t.context, t.position, t.state, t.status_time, t.holder, k.digest, k.turn
FROM idempotency_key k JOIN task t ON t.number = k.task
WHERE k.scope = (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3) AND k.key = $4 AND k.created >= $5
