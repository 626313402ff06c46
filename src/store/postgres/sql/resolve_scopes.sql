-- Numbers of scopes. $1 agents, $2 tenants, $3 owners. `n` is the index in the arrays, from 1 on.
SELECT i.n, s.number
FROM unnest($1::text[], $2::text[], $3::bytea[]) WITH ORDINALITY AS i(agent, tenant, owner, n)
    CROSS JOIN LATERAL (
        SELECT number FROM scope WHERE agent = i.agent AND tenant = i.tenant AND owner = i.owner LIMIT 1
    ) s
