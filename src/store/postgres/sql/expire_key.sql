-- Deletes an expired record of a key, or one whose task does not exist. $1 scope, $2 key, $3 oldest valid time.
DELETE FROM idempotency_key k
WHERE k.scope = $1 AND k.key = $2 AND (k.created < $3 OR NOT EXISTS (SELECT FROM task t WHERE t.number = k.task))
