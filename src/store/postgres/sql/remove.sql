-- Removes locked tasks. $1 numbers, $2 shard.
WITH target AS MATERIALIZED (
    SELECT number, scope, state, ended FROM task WHERE number = ANY($1::bigint[])
), b AS (
    DELETE FROM batch USING target x WHERE batch.task = x.number
), k AS (
    DELETE FROM idempotency_key USING target x WHERE idempotency_key.task = x.number
), f AS (
    DELETE FROM snapshot USING target x WHERE snapshot.task = x.number
), c AS (
    DELETE FROM push_config USING target x WHERE push_config.task = x.number
), counted AS (
    INSERT INTO ended_task_counter (scope, state, shard, tasks)
    SELECT sums.scope, t.state, $2::bigint, -count(*) FROM target t, LATERAL (VALUES (t.scope), (0)) AS sums(scope)
    WHERE t.ended GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (scope, state, shard) DO UPDATE SET tasks = ended_task_counter.tasks + excluded.tasks
)
DELETE FROM task USING target x WHERE task.number = x.number
