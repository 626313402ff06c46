-- $1 oldest valid time, $2 limit. By row address: a record is never updated, so a record that replaced an expired one stays.
DELETE FROM idempotency_key WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency_key WHERE created < $1 ORDER BY created LIMIT $2
))
