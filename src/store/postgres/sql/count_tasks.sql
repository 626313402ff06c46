-- $1 agent, $2 tenant.
SELECT coalesce(sum(open.tasks), 0)::bigint, coalesce(sum(ended.tasks), 0)::bigint
FROM scope s
    CROSS JOIN LATERAL (SELECT count(*) AS tasks FROM task WHERE scope = s.number AND NOT ended) open
    CROSS JOIN LATERAL (SELECT sum(tasks) AS tasks FROM ended_task_counter WHERE scope = s.number) ended
WHERE s.agent = $1 AND s.tenant = $2
