-- Log rows after a position. $1 agent, $2 tenant, $3 owner, $4 task id, $5 position, $6 rows, $7 bytes.
-- The first row may begin before the position. The row that reaches the limit of bytes is the last one.
WITH t AS MATERIALIZED (
    SELECT number FROM task
    WHERE id = $4 AND scope = (SELECT number FROM scope WHERE agent = $1 AND tenant = $2 AND owner = $3)
)
SELECT at, last, body FROM (
    SELECT at, last, body, sum(octet_length(body)) OVER (ORDER BY at) - octet_length(body) AS bytes_before
    FROM (
        SELECT at, last, body FROM batch
        WHERE task = (SELECT number FROM t) AND last > $5
            AND at >= coalesce(
                (SELECT max(at) FROM batch WHERE task = (SELECT number FROM t) AND at <= $5), 0)
        ORDER BY at LIMIT $6
    ) page
) page WHERE bytes_before < $7 ORDER BY at
