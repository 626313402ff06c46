-- $1 owner.
SELECT coalesce(sum(open.webhooks), 0)::bigint
FROM scope s
    CROSS JOIN LATERAL (SELECT count(*) AS webhooks FROM push_config WHERE scope = s.number AND delivery_state = 0) open
WHERE s.owner = $1
