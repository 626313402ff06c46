-- Ends of logs. $1 agents, $2 tenants, $3 owners, $4 task ids. `n` is the index in the arrays, from 1 on.
SELECT i.n, t.position
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[]) WITH ORDINALITY AS i(agent, tenant, owner, id, n)
    CROSS JOIN LATERAL (
        SELECT position FROM task WHERE id = i.id
            AND scope = (SELECT number FROM scope WHERE agent = i.agent AND tenant = i.tenant AND owner = i.owner)
        LIMIT 1
    ) t
