-- The table of members, with the number of held tasks and webhooks.
SELECT r.id, r.name, r.program_version, r.max_format_level,
    (extract(epoch FROM r.joined) * 1000)::bigint AS joined, r.heartbeat,
    (extract(epoch FROM r.removed) * 1000)::bigint AS removed,
    (SELECT count(*) FROM task t WHERE t.holder = r.id AND NOT t.ended AND NOT t.parked) AS tasks,
    (SELECT count(*) FROM push_config p WHERE p.holder = r.id AND p.delivery_state = 0) AS webhooks
FROM replica r ORDER BY r.id
