-- Inserts scopes that do not exist. $1 agents, $2 tenants, $3 owners. Sorted: two writers wait for each other in one order.
INSERT INTO scope (agent, tenant, owner)
SELECT agent, tenant, owner FROM unnest($1::text[], $2::text[], $3::bytea[]) AS i(agent, tenant, owner) ORDER BY 1, 2, 3
ON CONFLICT DO NOTHING
