-- Appends a group of batches. $1 replica, $2 shard, $3–$15 one array per column of `input`, $16–$19 log rows.
-- UPDATE … FROM reads `t` again after a concurrent commit, so position and holder are compared under the row lock. `o` is the row
-- before the group. `me` stops an evicted replica that has not noticed its eviction.
WITH me AS MATERIALIZED (
    SELECT FROM replica WHERE id = $1 AND removed IS NULL
), input AS MATERIALIZED (
    SELECT * FROM unnest(
        $3::bigint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bigint[], $8::bool[], $9::bool[], $10::bool[],
        $11::bytea[], $12::bytea[], $13::bigint[], $14::bigint[], $15::bigint[]
    ) AS t(task, at, last, state, status_time, ended, parked, is_remote, key, digest, turn, created, oldest)
), replayed AS MATERIALIZED (
    SELECT i.task, k.digest = i.digest AS same
    FROM input i JOIN task t ON t.number = i.task JOIN idempotency_key k ON k.scope = t.scope AND k.key = i.key
    WHERE i.key IS NOT NULL AND k.created >= i.oldest
), updated AS (
    UPDATE task t
    SET position = i.last, state = i.state, status_time = i.status_time, ended = i.ended, parked = i.parked,
        holder = CASE WHEN i.is_remote THEN t.holder WHEN i.ended OR i.parked THEN NULL ELSE $1 END
    FROM input i JOIN task o ON o.number = i.task
    WHERE t.number = i.task AND t.position = i.at AND (i.is_remote OR t.holder IS NULL OR t.holder = $1)
        AND i.task NOT IN (SELECT task FROM replayed) AND EXISTS (SELECT FROM me)
    RETURNING t.number, t.scope, t.state, t.ended, o.state AS old_state, o.ended AS was_ended
), logged AS (
    INSERT INTO batch (task, at, last, body)
    SELECT r.* FROM unnest($16::bigint[], $17::bigint[], $18::bigint[], $19::bytea[]) AS r(task, at, last, body)
        JOIN updated u ON u.number = r.task
), keyed AS (
    INSERT INTO idempotency_key (scope, key, digest, task, turn, created)
    SELECT u.scope, i.key, i.digest, i.task, i.turn, i.created FROM input i JOIN updated u ON u.number = i.task
    WHERE i.key IS NOT NULL
), counted AS (
    INSERT INTO ended_task_counter (scope, state, shard, tasks)
    SELECT sums.scope, change.state, $2, sum(change.tasks)
    FROM updated u,
        LATERAL (VALUES (u.state, u.ended::int), (u.old_state, -u.was_ended::int)) AS change(state, tasks),
        LATERAL (VALUES (u.scope), (0)) AS sums(scope)
    WHERE change.tasks <> 0 AND (u.ended <> u.was_ended OR u.state <> u.old_state)
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (scope, state, shard) DO UPDATE SET tasks = ended_task_counter.tasks + excluded.tasks
)
SELECT i.task, u.number IS NOT NULL AS added, r.same, EXISTS (SELECT FROM me) AS live
FROM input i LEFT JOIN updated u ON u.number = i.task LEFT JOIN replayed r ON r.task = i.task
