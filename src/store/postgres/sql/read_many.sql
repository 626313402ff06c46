-- Log rows of several tasks. $1 agents, $2 tenants, $3 owners, $4 task ids, $5 bytes. `n` is the index in the arrays, from 1 on.
SELECT n, at, last, body FROM (
    SELECT i.n, b.at, b.last, b.body,
        sum(octet_length(b.body)) OVER (ORDER BY i.n, b.at) - octet_length(b.body) AS bytes_before
    FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[]) WITH ORDINALITY AS i(agent, tenant, owner, id, n)
        CROSS JOIN LATERAL (
            SELECT number FROM task WHERE id = i.id
                AND scope = (SELECT number FROM scope WHERE agent = i.agent AND tenant = i.tenant AND owner = i.owner)
            LIMIT 1
        ) t
        CROSS JOIN LATERAL (SELECT at, last, body FROM batch WHERE task = t.number ORDER BY at LIMIT 1000) b
) page WHERE bytes_before < $5 ORDER BY n, at
