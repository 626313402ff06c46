-- Numbers of tasks and of their scopes. $1 ids.
SELECT t.id, t.number, t.scope FROM task t WHERE t.id = ANY($1::text[])
