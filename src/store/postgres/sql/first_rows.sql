-- Log rows that decide an unknown commit outcome: the first row of each batch. $1 tasks, $2 positions before the batches.
SELECT i.n, b.last, b.body
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS i(task, at, n)
    CROSS JOIN LATERAL (SELECT last, body FROM batch WHERE task = i.task AND at = i.at LIMIT 1) b
