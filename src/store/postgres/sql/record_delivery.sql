-- $1 number, $2 generation, $3 position, $4 attempts, $5 due, $6 delivery state, $7 reason, $8 replica.
UPDATE push_config
SET position = $3, attempts = $4, due = $5, delivery_state = $6::smallint, reason = $7,
    holder = CASE WHEN $6::smallint = 0 THEN (SELECT id FROM replica WHERE id = $8 AND removed IS NULL) END
WHERE number = $1 AND generation = $2 AND (holder IS NULL OR holder = $8)
