-- Deletes removed replicas that hold nothing. Scalar subqueries: an anti-join would read all open tasks.
DELETE FROM replica r
WHERE r.removed < clock_timestamp() - interval '1 minute'
    AND (SELECT t.number FROM task t WHERE t.holder = r.id AND NOT t.ended AND NOT t.parked LIMIT 1) IS NULL
    AND (SELECT p.number FROM push_config p WHERE p.holder = r.id AND p.delivery_state = 0 LIMIT 1) IS NULL
