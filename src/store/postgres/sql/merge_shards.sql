-- Merges the counter shards of removed replicas into shard 0.
WITH gone AS (
    DELETE FROM ended_task_counter c
    WHERE c.shard >= 256 AND NOT EXISTS (
        SELECT FROM replica r
        WHERE r.id = c.shard / 256 AND (r.removed IS NULL OR r.removed > clock_timestamp() - interval '1 minute'))
    RETURNING scope, state, tasks
)
INSERT INTO ended_task_counter (scope, state, shard, tasks)
SELECT scope, state, 0, sum(tasks) FROM gone GROUP BY 1, 2 ORDER BY 1, 2
ON CONFLICT (scope, state, shard) DO UPDATE SET tasks = ended_task_counter.tasks + excluded.tasks
