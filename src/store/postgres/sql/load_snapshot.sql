-- $1 agent, $2 tenant, $3 owner, $4 task id, $5 maximum size. The length of a large value is read without the value.
SELECT f.position, f.body
FROM task t JOIN snapshot f ON f.task = t.number
WHERE t.id = $4 AND t.scope = (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3)
    AND octet_length(f.body) <= $5::bigint
